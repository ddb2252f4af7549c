"""What training does for a GPU, on the CPU: compiled models and processes that collate."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import nn

from tests.helpers.student import make_student
from xcompress.distillation import hardware, trainer
from xcompress.distillation.collapse import Collapse
from xcompress.distillation.hardware import check_compiler, has_bf16, loader_processes
from xcompress.distillation.losses.stage import SentenceVectors, sentence_loss, unwrap
from xcompress.distillation.trainer import Job, train
from xcompress.errors import InputError
from xcompress.modeling.student import pad
from xcompress.recipe import Stage

STEPS, BATCH = 6, 4
LENGTHS = np.random.default_rng(1).integers(4, 20, STEPS * BATCH)


class Batches:
    """Random pairs of sentences, with random vectors of a teacher."""

    lengths = LENGTHS

    def __len__(self) -> int:
        return len(LENGTHS)

    def __call__(self, rows: Sequence[int]) -> dict[str, dict[str, torch.Tensor]]:
        sentences = [
            np.random.default_rng([row, side]).integers(5, 400, LENGTHS[row]).tolist()
            for side in (0, 1)
            for row in rows
        ]
        targets = np.stack([np.random.default_rng(row).normal(size=24) for row in rows]).astype(np.float32)
        input_ids, attention_mask = pad(sentences, 1)
        batch = {"input_ids": input_ids, "attention_mask": attention_mask, "teacher_sources": torch.from_numpy(targets)}
        return {"translations": batch}


def losses(work: Path, objectives: str = "{teacher: 1, moving_teacher: 1}", compiled: bool = False) -> list[float]:
    """Train a small student; return the loss of each step."""
    text = f"{{train: student, objectives: {objectives}, steps: {STEPS}, batch_size: {BATCH}, learning_rate: 1.0e-3}}"
    stage = Stage.model_validate(yaml.safe_load(text))
    job = Job("stage", stage, work, seed=1, bf16=False, compile=compiled)
    history = train(
        job, SentenceVectors(make_student(unit_layers=1, recurrences=1), stage), sentence_loss(stage), Batches()
    )
    return [entry["loss"] for entry in history.loss]


@pytest.mark.exhaustive
def test_a_compiled_model_has_the_losses_of_the_plain_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend runs the traced graphs without making C++ of them, which takes minutes."""
    monkeypatch.setattr(trainer, "COMPILER", "aot_eager")
    plain, compiled = (losses(tmp_path / str(value), "{teacher: 1}", compiled=value) for value in (False, True))
    assert len(plain) == STEPS
    assert compiled == pytest.approx(plain, rel=1e-4)


def test_the_compiler_of_this_machine_is_tried() -> None:
    try:
        check_compiler()
    except InputError as error:
        pytest.skip(str(error))
    assert torch.compile(torch.neg, backend=hardware.COMPILER)(torch.ones(2)).tolist() == [-1, -1]


def test_a_missing_compiler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "COMPILER", "no such\nbackend")
    with pytest.raises(InputError, match=r"^compile: torch.compile does not work here .*; install a C\+\+ compiler"):
        check_compiler()


def test_processes_that_collate_change_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert loader_processes() == 0, "the cores of a CPU train"
    plain = losses(tmp_path / "plain")
    monkeypatch.setattr(trainer, "loader_processes", lambda: 2)
    assert losses(tmp_path / "with") == plain


def test_a_gpu_has_some_processes_that_collate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "device", lambda: torch.device("cuda"))
    monkeypatch.setattr(hardware.multiprocessing, "get_start_method", lambda: "fork")
    for cores, workers, expected in ((16, 1, 4), (16, 8, 1), (2, 1, 1), (4, 1, 3)):
        monkeypatch.setattr(hardware.os, "cpu_count", lambda cores=cores: cores)
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(workers))
        assert loader_processes() == expected
    monkeypatch.setattr(hardware.multiprocessing, "get_start_method", lambda: "forkserver")
    assert loader_processes() == 0, "collators are not pickled"


def test_emulated_bfloat16_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    assert not has_bf16()


def test_a_model_is_found_inside_what_wraps_it() -> None:
    stage = Stage.model_validate({"train": "student", "objectives": {"teacher": 1}, "steps": 1})
    model = SentenceVectors(make_student(), stage)
    assert unwrap(torch.compile(model, backend="eager")) is model  # type: ignore[arg-type]
    wrapper = nn.Module()
    wrapper.module = torch.compile(model, backend="eager")
    assert unwrap(wrapper) is model


def test_a_step_reads_no_value_of_a_tensor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a GPU each read would wait for all that it has to do; log entries and `Collapse` read now and then."""
    read: list[str] = []
    for name in ("item", "__float__", "__bool__", "tolist", "cpu", "numpy", "nonzero"):
        monkeypatch.setattr(torch.Tensor, name, _counting(getattr(torch.Tensor, name), name, read))
    monkeypatch.setattr(trainer, "LOG_ENTRIES", 1)
    monkeypatch.setattr("xcompress.distillation.losses.stage.Collapse", partial(Collapse, read_together=100))
    objectives = "{teacher: 1, contrast: 1, moving_teacher: 1, alignment: 1, similarity: 1}"
    losses(tmp_path, objectives)
    assert len(read) < STEPS, read


def _counting(method: Callable[..., Any], name: str, read: list[str]) -> Callable[..., Any]:
    def counted(*arguments: object, **options: object) -> object:
        read.append(name)
        return method(*arguments, **options)

    return counted
