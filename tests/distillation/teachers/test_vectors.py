import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers import ROOT
from tests.helpers.student import make_student, make_tokenizer
from xcompress.distillation.teachers import vectors as vectors_module
from xcompress.distillation.teachers.vectors import (
    Lookup,
    Mapped,
    Vectors,
    VectorsOf,
    VectorStore,
    in_batches,
    vectors_of,
)
from xcompress.errors import InputError
from xcompress.files import read_json, write_json
from xcompress.modeling.student import encode

CHUNK = 40
TEXTS = [f"text {'x' * (number * 37 % 90)} {number}" for number in range(9 * CHUNK + 7)]
PROGRAM = """
import sys, time
from pathlib import Path
from tests.distillation.teachers.test_vectors import CHUNK, TEXTS, slow_model
from xcompress.distillation.teachers.vectors import VectorStore

vectors = VectorStore(Path(sys.argv[1]), CHUNK).vectors("teacher", "f", TEXTS, lambda: slow_model(float(sys.argv[2])))
print(vectors.shape)
"""


def sensitive(texts: Sequence[str]) -> NDArray[np.float32]:
    """Return vectors that depend on their batch, as those of a padded model do in the last digits."""
    longest, total = max(map(len, texts)), sum(map(len, texts))
    return np.array([[len(text), longest, total % 1000, 0.1] for text in texts], dtype=np.float32)


def slow_model(seconds: float) -> VectorsOf:
    def encoder(texts: Sequence[str]) -> NDArray[np.float32]:
        time.sleep(seconds)
        return in_batches("teacher", sensitive, texts)

    return encoder


class RecordingModel:
    """Record the texts that are encoded."""

    def __init__(self) -> None:
        self.encoded: list[str] = []
        self.opened = 0

    def open(self) -> VectorsOf:
        self.opened += 1
        return self

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.encoded += texts
        return in_batches("teacher", sensitive, texts)


def run(arguments: Sequence[str], folder: Path, seconds: float) -> "subprocess.Popen[str]":
    program = folder / "program.py"
    program.write_text(PROGRAM)
    roots = os.pathsep.join([str(Path(__file__).parent), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": roots, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments, str(program), str(folder / "store"), str(seconds)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def contents(folder: Path) -> dict[str, bytes]:
    """Read the files of vectors that are in place; a killed process may leave another one in a hidden folder."""
    names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.npy"))
    return {name: (folder / name).read_bytes() for name in names if "/." not in f"/{name}"}


def uninterrupted(folder: Path) -> dict[str, bytes]:
    VectorStore(folder, CHUNK).vectors("teacher", "f", TEXTS, lambda: slow_model(0))
    return contents(folder)


def test_rows_are_the_vectors_of_the_model_in_any_order(tmp_path: Path) -> None:
    vectors = VectorStore(tmp_path, CHUNK).vectors("teacher", "f", TEXTS, lambda: slow_model(0))
    assert len(vectors) == len(TEXTS) and vectors.shape == (len(TEXTS), 4)
    rows = [len(TEXTS) - 1, 0, CHUNK, CHUNK - 1, 0, 5 * CHUNK + 3]
    assert vectors.rows(rows)[:, 0].tolist() == [len(TEXTS[row]) for row in rows]
    assert vectors.rows(np.arange(len(TEXTS)))[:, 0].tolist() == [len(text) for text in TEXTS]
    assert vectors.rows([0]).dtype == np.float32 and vectors.rows([]).shape == (0, 4)
    assert vectors.rows([0])[0, 3] == np.float16(0.1)
    for wrong in (-1, len(TEXTS)):
        with pytest.raises(IndexError):
            vectors.rows([0, wrong])


def test_vectors_stay_on_disk_as_float16_in_files_of_equal_length(tmp_path: Path) -> None:
    vectors = VectorStore(tmp_path, CHUNK).vectors("teacher", "fingerprint", TEXTS, lambda: slow_model(0))
    assert all(isinstance(chunk, np.memmap) and chunk.dtype == np.float16 for chunk in vectors._chunks)
    assert [len(chunk) for chunk in vectors._chunks] == 9 * [CHUNK] + [7]
    (folder,) = tmp_path.iterdir()
    info = read_json(folder / "info.json")
    assert list(info.pop("files")) == [f"{number:05}.npy" for number in range(10)]
    assert info == {
        "model": "teacher",
        "fingerprint": "fingerprint",
        "texts": len(TEXTS),
        "texts_per_file": CHUNK,
    }


def test_vectors_are_computed_once_per_model_and_texts(tmp_path: Path) -> None:
    store, model = VectorStore(tmp_path), RecordingModel()
    for fingerprint, texts in (
        ("f", ["a", "b"]),
        ("f", ["a", "b"]),
        ("f", ["ab", ""]),
        ("g", ["a", "b"]),
        ("f", ["b", "a"]),
    ):
        assert store.vectors("teacher", fingerprint, texts, model.open).rows([0])[0, 0] == len(texts[0])
    assert model.opened == 4
    assert model.encoded == ["a", "b", "ab", "", "a", "b", "b", "a"]


def test_texts_may_be_a_lazy_sequence(tmp_path: Path) -> None:
    class LazySequence(Sequence[str]):
        def __len__(self) -> int:
            return len(TEXTS)

        def __getitem__(self, row: int) -> str:
            assert isinstance(row, int)
            return TEXTS[row]

    model = RecordingModel()
    VectorStore(tmp_path, CHUNK).vectors("teacher", "f", LazySequence(), model.open)
    assert VectorStore(tmp_path, CHUNK).vectors("teacher", "f", TEXTS, model.open).shape == (len(TEXTS), 4)
    assert model.opened == 1 and model.encoded == TEXTS


def test_no_texts_have_no_vectors(tmp_path: Path) -> None:
    vectors = VectorStore(tmp_path).vectors("teacher", "f", [], RecordingModel().open)
    assert len(vectors) == 0 and vectors.shape == (0, 0)


def test_texts_may_hold_any_characters(tmp_path: Path) -> None:
    assert len(VectorStore(tmp_path).vectors("teacher", "f", ["\ud800", "a\nb", "雨"], RecordingModel().open)) == 3


@pytest.mark.parametrize("value", [65520.0, -1e6, np.inf, np.nan])
def test_values_beyond_float16_are_refused(value: float, tmp_path: Path) -> None:
    def encoder(texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([[1.0, value if text == "b" else 65504.0] for text in texts], dtype=np.float32)

    store = VectorStore(tmp_path, chunk=1)
    assert store.vectors("teacher", "f", ["a"], lambda: encoder).rows([0])[0, 1] == 65504
    with pytest.raises(InputError, match=r"^teacher: its vectors reach .* ends at 65504; .*normalize"):
        store.vectors("teacher", "f", ["a", "b"], lambda: encoder)
    assert len(contents(tmp_path)) == 2


def shorten(file: Path) -> None:
    np.save(file, np.load(file)[:7])


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:100])


def overwrite(file: Path) -> None:
    np.save(file, -np.load(file))


@pytest.mark.parametrize(
    ("damage", "recorded", "what"),
    [
        (shorten, True, "00003.npy is shorter than written"),
        (shorten, False, "00003.npy holds 7 vectors of 40"),
        (cut, False, "00003.npy is damaged ("),
        (overwrite, True, "00003.npy has other content than written"),
        (Path.unlink, True, "00003.npy is missing"),
    ],
)
def test_a_damaged_file_is_named_and_computed_again(
    damage: Callable[[Path], None], recorded: bool, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = uninterrupted(tmp_path)
    (file,) = tmp_path.glob("*/00003.npy")
    if not recorded:
        (file.parent / "info.json").unlink()
    damage(file)
    capsys.readouterr()
    model = RecordingModel()
    VectorStore(tmp_path, CHUNK).vectors("teacher", "f", TEXTS, model.open)
    assert f"teacher: vectors in {file.parent}: {what}" in (said := capsys.readouterr().err.replace("\n", ""))
    assert "; computed again" in said
    assert sorted(model.encoded) == sorted(TEXTS[3 * CHUNK : 4 * CHUNK])
    assert contents(tmp_path) == expected


def test_files_of_an_earlier_version_and_copied_ones_are_recorded_and_not_computed_again(tmp_path: Path) -> None:
    uninterrupted(tmp_path)
    (info,) = tmp_path.glob("*/info.json")
    records = read_json(info)
    write_json(info, {key: value for key, value in records.items() if key != "files"})
    for seconds in (None, 1_000_000_000):
        if seconds:
            for file in info.parent.glob("*.npy"):
                os.utime(file, (seconds, seconds))
        model = RecordingModel()
        VectorStore(tmp_path, CHUNK).vectors("teacher", "f", TEXTS, model.open)
        assert model.encoded == []
        times = {entry["mtime_ns"] for entry in read_json(info)["files"].values()}
        assert times == {seconds * 10**9} if seconds else read_json(info) == records


def test_a_killed_computation_resumes_at_the_missing_files_with_the_same_result(tmp_path: Path) -> None:
    process = run([], tmp_path, seconds=0.3)
    try:
        deadline = time.monotonic() + 240
        while len(contents(tmp_path / "store")) < 3:
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    before = contents(tmp_path / "store")
    assert 3 <= len(before) < 10
    (folder,) = (tmp_path / "store").iterdir()
    (folder / ".00009.npy.1.tmp").write_bytes(b"half a file")
    model = RecordingModel()
    VectorStore(tmp_path / "store", CHUNK).vectors("teacher", "f", TEXTS, model.open)
    assert sorted(model.encoded) == sorted(TEXTS[len(before) * CHUNK :])
    assert contents(tmp_path / "store") == uninterrupted(tmp_path / "whole")
    assert sorted(file.name for file in folder.iterdir()) == [*sorted(contents(folder)), "info.json"]


def test_two_workers_compute_the_same_files_as_one(tmp_path: Path) -> None:
    process = run(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"], tmp_path, seconds=0)
    try:
        output, _ = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, output
    assert output.count(f"({len(TEXTS)}, 4)") == 2
    assert contents(tmp_path / "store") == uninterrupted(tmp_path / "whole")


@pytest.mark.parametrize("worker", [0, 1, 2])
def test_a_worker_computes_every_nth_file_and_needs_the_others(
    worker: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Workers:
        num_processes, process_index, is_main_process, waited = 3, worker, worker == 0, 0

        def wait_for_everyone(self) -> None:
            Workers.waited += 1

    monkeypatch.setattr(vectors_module, "workers", Workers)
    model = RecordingModel()
    with pytest.raises(InputError, match=r"0000\d\.npy: missing after all workers finished"):
        VectorStore(tmp_path, CHUNK).vectors("teacher", "f", TEXTS, model.open)
    assert model.encoded == [text for row, text in enumerate(TEXTS) if row // CHUNK % 3 == worker]
    assert Workers.waited == 2


def test_batches_hold_texts_of_similar_length_and_rows_are_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors_module, "BATCH", 50)
    sizes: list[tuple[int, int]] = []

    def encoder(texts: Sequence[str]) -> NDArray[np.float32]:
        sizes.append((min(map(len, texts)), max(map(len, texts))))
        return sensitive(texts)

    vectors = in_batches("teacher", encoder, TEXTS)
    assert vectors[:, 0].tolist() == [len(text) for text in TEXTS]
    assert len(sizes) == -(-len(TEXTS) // 50)
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(sizes))


def test_a_mapped_encoder_changes_vectors_and_checks_its_texts() -> None:
    class Table(RecordingModel):
        def require(self, texts: Sequence[str]) -> None:
            raise InputError(f"lacks {len(texts)}")

    doubled = Mapped(sensitive, lambda vectors: 2 * vectors)
    assert (doubled(["a"]) == 2 * sensitive(["a"])).all()
    doubled.require(["a"])
    over_table = Mapped(Mapped(Table(), np.negative), np.negative)
    assert isinstance(over_table, Lookup)
    with pytest.raises(InputError, match="lacks 2"):
        over_table.require(["a", "b"])


def test_vectors_without_files_have_no_rows() -> None:
    assert Vectors([]).rows([]).shape == (0, 0)


def test_vectors_of_a_model_are_those_of_encode_up_to_its_arithmetic() -> None:
    student, tokenizer = make_student(), make_tokenizer()
    texts = ["the boat is late", "rain"]
    vectors = vectors_of("student", student, tokenizer)(texts)
    np.testing.assert_allclose(vectors, encode(student, tokenizer, texts), atol=0.03)
