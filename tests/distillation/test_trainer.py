import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import yaml
from torch import nn

from tests.helpers.student import make_student
from xcompress.distillation import distributed
from xcompress.distillation.stages import check_batch
from xcompress.distillation.trainer import (
    COMPLETE,
    Job,
    _MarkComplete,
    _optimizer,
    remove_damaged_checkpoints,
    train,
)
from xcompress.errors import InputError
from xcompress.files import read_json
from xcompress.recipe import Stage

STEPS = 10


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with two complete checkpoints."""
    arguments: Any = SimpleNamespace(output_dir=tmp_path)
    for step in (4, 8):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "optimizer.pt").write_text(f"state {step}" * 100)
        state: Any = SimpleNamespace(is_world_process_zero=True, global_step=step)
        _MarkComplete(20.0, list).on_save(arguments, state, arguments)
    return tmp_path


def left(work: Path) -> list[str]:
    return sorted(folder.name for folder in work.iterdir())


def test_a_complete_checkpoint_says_how_long_it_took_and_what_it_holds(work: Path) -> None:
    marker = read_json(work / "checkpoint-8" / COMPLETE)
    assert marker["seconds"] == pytest.approx(20, abs=5)
    assert {name: entry["bytes"] for name, entry in marker["files"].items()} == {"optimizer.pt": 700}
    (work / "checkpoint-12").mkdir()
    remove_damaged_checkpoints("contrast", work)
    assert left(work) == ["checkpoint-4", "checkpoint-8"], "the third was interrupted while it was written"


def test_files_of_a_checkpoint_are_on_the_disk_before_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []
    marker = tmp_path / "checkpoint-4" / COMPLETE
    marker.parent.mkdir()
    monkeypatch.setattr("xcompress.distillation.trainer.sync", lambda folder: synced.append(marker.exists()))
    arguments: Any = SimpleNamespace(output_dir=tmp_path)
    state: Any = SimpleNamespace(is_world_process_zero=True, global_step=4)
    _MarkComplete(0.0, list).on_save(arguments, state, arguments)
    assert synced == [False] and marker.exists()


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda folder: (folder / "optimizer.pt").unlink(), "optimizer.pt is missing"),
        (lambda folder: (folder / "optimizer.pt").write_text("state"), "optimizer.pt is shorter than written"),
        (lambda folder: (folder / "optimizer.pt").write_text("x" * 701), "optimizer.pt is longer than written"),
        (lambda folder: (folder / COMPLETE).write_text(""), "complete is damaged"),
        (lambda folder: (folder / COMPLETE).write_text("{}"), "complete is damaged"),
    ],
)
def test_a_damaged_checkpoint_is_said_and_the_one_before_is_taken(
    work: Path, damage: Callable[[Path], object], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(work / "checkpoint-8")
    remove_damaged_checkpoints("contrast", work)
    assert left(work) == ["checkpoint-4"]
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"contrast: checkpoint-8: {what}") and said.endswith("; training resumes before it")


class Rows:
    """Batches of two numbers, one for each pair."""

    def __len__(self) -> int:
        return 2 * STEPS

    def __call__(self, rows: Sequence[int]) -> dict[str, dict[str, torch.Tensor]]:
        return {"translations": {"numbers": torch.ones(len(rows), 1)}}


@pytest.mark.parametrize(
    ("schedule", "falls"),
    [
        ("schedule: cosine, ", [(1 + math.cos(math.pi * step / 8)) / 2 for step in range(8)]),
        ("", [(1 + math.cos(math.pi * step / 8)) / 2 for step in range(8)]),
        ("schedule: linear, ", [1 - step / 8 for step in range(8)]),
        ("schedule: constant, ", [1.0] * 8),
    ],
    ids=["cosine", "default", "linear", "constant"],
)
@pytest.mark.parametrize("optimizer", ["adamw", "lars"])
def test_the_learning_rate_rises_over_the_warmup_and_then_follows_the_schedule(
    schedule: str, falls: list[float], optimizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[torch.optim.Optimizer] = []
    rates: list[float] = []

    def optimizer_kept(model: nn.Module, stage: Stage) -> torch.optim.Optimizer:
        made.append(_optimizer(model, stage))
        return made[0]

    def loss(model: nn.Module, batches: Mapping[str, Mapping[str, torch.Tensor]]) -> torch.Tensor:
        rates.append(made[0].param_groups[-1]["lr"])
        return cast(torch.Tensor, model(batches["translations"]["numbers"]).mean())

    monkeypatch.setattr("xcompress.distillation.trainer._optimizer", optimizer_kept)
    text = f"{{train: student, objectives: {{teacher: 1}}, steps: {STEPS}, batch_size: 2, warmup: 0.2, {schedule}"
    stage = Stage.model_validate(yaml.safe_load(f"{text}optimizer: {optimizer}, learning_rate: 0.5}}"))
    train(Job("stage", stage, tmp_path / "work", seed=1, bf16=False), nn.Linear(1, 1), loss, Rows())
    assert rates == pytest.approx([0.0, 0.25, *(0.5 * share for share in falls)])


class TwoRows(Rows):
    """The pairs of one step."""

    def __len__(self) -> int:
        return 2


def test_a_stage_of_one_step_is_trained_whatever_its_warmup(tmp_path: Path) -> None:
    stage = Stage(train="student", objectives={"teacher": 1}, steps=1, batch_size=2, warmup=0.9, learning_rate=0.5)
    model = nn.Linear(1, 1)
    before = model.bias.item()
    loss = lambda model, batches: model(batches["translations"]["numbers"]).mean()  # noqa: E731
    train(Job("stage", stage, tmp_path / "work", seed=1, bf16=False), model, loss, TwoRows())
    assert model.bias.item() == pytest.approx(before - 0.5, abs=1e-3)


def test_a_long_gradient_is_cut_to_length_1(tmp_path: Path) -> None:
    stage = Stage(
        train="student", objectives={"teacher": 1}, steps=1, batch_size=2, warmup=0, learning_rate=0.5, optimizer="lars"
    )
    model = nn.Linear(1, 1)
    before = model.bias.item()
    loss = lambda model, batches: 1000 * model(batches["translations"]["numbers"]).mean()  # noqa: E731
    train(Job("stage", stage, tmp_path / "work", seed=1, bf16=False), model, loss, TwoRows())
    assert model.bias.item() == pytest.approx(before - 0.5 / math.sqrt(2)), "weight and bias have equal gradients"


@pytest.mark.parametrize(("optimizer", "adapt"), [("adamw", [None] * 3), ("lars", [True, True, False])])
def test_embeddings_have_a_rate_of_their_own_and_vectors_no_decay(optimizer: str, adapt: list[bool | None]) -> None:
    rates = {"learning_rate": 0.5, "embedding_learning_rate": 0.25, "weight_decay": 0.1}
    stage = Stage.model_validate(
        {"train": "student", "objectives": {"teacher": 1}, "steps": 1, "optimizer": optimizer, **rates}
    )
    student = make_student()
    embeddings, matrices, vectors = groups = _optimizer(student, stage).param_groups
    assert [(group["lr"], group["weight_decay"]) for group in groups] == [(0.25, 0), (0.5, 0.1), (0.5, 0)]
    assert [group.get("adapt") for group in groups] == adapt
    assert [id(weight) for weight in embeddings["params"]] == [id(student.embeddings.word.weight)]
    assert [{weight.ndim for weight in group["params"]} for group in (matrices, vectors)] == [{2}, {1}]


def test_every_pair_is_read_once_in_an_order_that_depends_on_the_seed_alone(tmp_path: Path) -> None:
    stage = Stage(train="student", objectives={"teacher": 1}, steps=STEPS, batch_size=2)

    def order(seed: int, name: str) -> list[int]:
        read: list[int] = []

        class Recorded(Rows):
            def __call__(self, rows: Sequence[int]) -> dict[str, dict[str, torch.Tensor]]:
                read.extend(rows)
                return super().__call__(rows)

        loss = lambda model, batches: model(batches["translations"]["numbers"]).mean()  # noqa: E731
        train(Job("stage", stage, tmp_path / name, seed=seed, bf16=False), nn.Linear(1, 1), loss, Recorded())
        return read

    first, again, other = order(1, "first"), order(1, "again"), order(2, "other")
    assert sorted(first) == list(range(2 * STEPS)) != first
    assert first == again != other


def test_a_training_that_was_interrupted_logs_the_same_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcompress.distillation.trainer.LOG_ENTRIES", 2)
    stage = Stage(train="student", objectives={"teacher": 1}, steps=STEPS, batch_size=2, checkpoint_steps=3)

    def losses(folder: Path, last: int = STEPS) -> list[dict[str, float]]:
        model, step = nn.Linear(1, 1), itertools.count()
        nn.init.ones_(model.weight)
        nn.init.zeros_(model.bias)

        def loss(model: nn.Module, batches: Mapping[str, Mapping[str, torch.Tensor]]) -> torch.Tensor:
            if next(step) == last:
                raise KeyboardInterrupt
            return cast(torch.Tensor, model(batches["translations"]["numbers"]).square().mean())

        return train(Job("stage", stage, folder, seed=1, bf16=False), model, loss, Rows()).loss

    whole = losses(tmp_path / "whole")
    assert [entry["step"] for entry in whole] == [5, 10] and whole[0]["loss"] > whole[1]["loss"]
    with pytest.raises(KeyboardInterrupt):
        losses(tmp_path / "killed", 8)
    assert losses(tmp_path / "killed") == whole, "the checkpoint has the loss of the sixth step"


def test_groups_of_similar_sentences_are_not_divided_among_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage.model_validate({"train": "student", "objectives": {"correlation": 1}, "steps": 1, "batch_size": 8})
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    with pytest.raises(
        InputError, match=r"stages\.a\.batch_size: 2 workers cannot share 8 x 1 pairs .* make it a multiple of 16$"
    ):
        check_batch("a", stage)
    check_batch("a", stage.model_copy(update={"batch_size": 16}))
    check_batch("a", stage.model_copy(update={"objectives": {"teacher": 1, "correlation": 1}, "correlation_pairs": 2}))
