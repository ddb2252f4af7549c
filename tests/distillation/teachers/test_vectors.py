import hashlib
import os
import resource
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
from tests.helpers.tensors import distinct_texts
from xcompress.distillation import distributed
from xcompress.distillation.data.sentences import distinct
from xcompress.distillation.teachers import vectors as vectors_module
from xcompress.distillation.teachers.vector_file import HEADER
from xcompress.distillation.teachers.vectors import (
    StoredVectors,
    VectorStore,
    in_batches,
    student_encoder,
)
from xcompress.errors import InputError
from xcompress.files import read_json
from xcompress.metrics import Encode
from xcompress.modeling.student import encode

CHUNK = 40
TEXTS = [f"text {'x' * (number * 37 % 90)} {number}" for number in range(9 * CHUNK + 7)]
DISTINCT = distinct_texts(TEXTS)
PROGRAM = """
import sys, time
from pathlib import Path
from tests.distillation.teachers.test_vectors import CHUNK, DISTINCT, slow_model
from xcompress.distillation.teachers.vectors import VectorStore
from xcompress.metrics import Encode

store, seconds = VectorStore(Path(sys.argv[1]), CHUNK), float(sys.argv[2])
vectors = store.vectors("teacher", "f", DISTINCT, lambda: slow_model(seconds))
print((len(vectors), vectors.dimension))
"""


def sensitive(texts: Sequence[str]) -> NDArray[np.float32]:
    """Return vectors that depend on their batch, as those of a padded model do in the last digits."""
    longest, total = max(map(len, texts)), sum(map(len, texts))
    return np.array([[len(text), longest, total % 1000, 0.1] for text in texts], dtype=np.float32)


def slow_model(seconds: float) -> Encode:
    def encoder(texts: Sequence[str]) -> NDArray[np.float32]:
        time.sleep(seconds)
        return in_batches("teacher", sensitive, texts)

    return encoder


class RecordingModel:
    """Record the texts that are encoded."""

    def __init__(self) -> None:
        self.encoded: list[str] = []
        self.opened = 0

    def open(self) -> Encode:
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
    """Read the tables of a store."""
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in sorted(folder.glob("*/vectors.npy"))}


def finished(folder: Path) -> int:
    """Return the number of blocks that a running process has finished."""
    return sum(len(file.read_text().splitlines()) for file in folder.glob("*/finished.*.txt"))


def uninterrupted(folder: Path) -> dict[str, bytes]:
    VectorStore(folder, CHUNK).vectors("teacher", "f", DISTINCT, lambda: slow_model(0))
    return contents(folder)


def test_rows_are_the_vectors_of_the_model_in_any_order(tmp_path: Path) -> None:
    vectors = VectorStore(tmp_path, CHUNK).vectors("teacher", "f", DISTINCT, lambda: slow_model(0))
    assert len(vectors) == len(TEXTS) and vectors.dimension == 4
    rows = [len(TEXTS) - 1, 0, CHUNK, CHUNK - 1, 0, 5 * CHUNK + 3]
    assert vectors[rows][:, 0].tolist() == [len(TEXTS[row]) for row in rows]
    assert vectors[np.arange(len(TEXTS))][:, 0].tolist() == [len(text) for text in TEXTS]
    assert vectors[[0]].dtype == np.float32 and vectors[[]].shape == (0, 4)
    assert vectors[[0]][0, 3] == np.float16(0.1)
    for wrong in (-1, len(TEXTS)):
        with pytest.raises(IndexError):
            vectors[[0, wrong]]


def test_vectors_stay_on_disk_as_float16_in_one_file_with_a_hash_for_each_block(tmp_path: Path) -> None:
    vectors = VectorStore(tmp_path, CHUNK).vectors("teacher", "fingerprint", DISTINCT, lambda: slow_model(0))
    (table,) = vectors.tables
    assert isinstance(table, np.memmap) and table.dtype == np.float16
    (folder,) = tmp_path.iterdir()
    assert sorted(file.name for file in folder.iterdir()) == ["info.json", "vectors.npy"]
    assert (np.load(folder / "vectors.npy") == table).all()
    info, status = read_json(folder / "info.json"), (folder / "vectors.npy").stat()
    data = (folder / "vectors.npy").read_bytes()[HEADER:]
    size = CHUNK * 4 * 2
    assert info == {
        "model": "teacher",
        "fingerprint": "fingerprint",
        "texts": len(TEXTS),
        "texts_per_block": CHUNK,
        "file": [status.st_size, status.st_mtime_ns],
        "blocks": {str(n): hashlib.sha256(data[n * size : (n + 1) * size]).hexdigest() for n in range(10)},
    }


def test_more_blocks_than_descriptors_can_be_written_and_read(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
    try:
        texts = distinct_texts([f"text {number}" for number in range(400)])
        tables = [VectorStore(tmp_path, 1).vectors(name, name, texts, lambda: sensitive) for name in ("a", "b")]
        opened = len(list(Path("/proc/self/fd").glob("*")))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert opened < 100
    for table in tables:
        assert table[[399, 0]][:, 0].tolist() == [8, 6]


def test_vectors_are_computed_once_per_model_and_texts(tmp_path: Path) -> None:
    store, model = VectorStore(tmp_path), RecordingModel()
    for fingerprint, texts in (
        ("f", ["a", "b"]),
        ("f", ["a", "b"]),
        ("f", ["ab", ""]),
        ("g", ["a", "b"]),
        ("f", ["b", "a"]),
    ):
        assert store.vectors("teacher", fingerprint, distinct_texts(texts), model.open)[[0]][0, 0] == len(texts[0])
    assert model.opened == 4
    assert model.encoded == ["a", "b", "ab", "", "a", "b", "b", "a"]


def test_a_link_in_place_of_the_table_is_not_written_through(tmp_path: Path) -> None:
    """The run folder may be one of others, who know where the vectors of a recipe lie."""
    store, mine = VectorStore(tmp_path / "store"), tmp_path / "mine"
    store.vectors("teacher", "f", distinct_texts(["a", "b"]), lambda: sensitive)
    (folder,) = (tmp_path / "store").iterdir()
    for file in folder.iterdir():
        file.unlink()
    mine.write_text("notes\n" * 2000)
    (folder / "vectors.npy").symlink_to(mine)
    with pytest.raises(InputError, match="cannot be written"):
        store.vectors("teacher", "f", distinct_texts(["a", "b"]), lambda: sensitive)
    assert mine.read_text() == "notes\n" * 2000


def test_no_texts_have_no_vectors(tmp_path: Path) -> None:
    vectors = VectorStore(tmp_path).vectors("teacher", "f", distinct_texts([]), RecordingModel().open)
    assert len(vectors) == vectors.dimension == 0


def test_texts_may_hold_any_characters(tmp_path: Path) -> None:
    texts, _ = distinct(["\ud800", "a\nb", "雨"], tmp_path / "rows")
    assert len(VectorStore(tmp_path).vectors("teacher", "f", texts, RecordingModel().open)) == 3


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_vectors_that_are_not_finite_are_counted(value: float, tmp_path: Path) -> None:
    def encoder(texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([[1.0, value if text in "bc" else 1.0] for text in texts], dtype=np.float32)

    store = VectorStore(tmp_path)
    with pytest.raises(
        InputError, match=r"^teacher: the vectors of 2 of 3 texts hold NaN or infinity; fetch the model"
    ):
        store.vectors("teacher", "f", distinct_texts(["a", "b", "c"]), lambda: encoder)


@pytest.mark.parametrize("value", [65520.0, -1e6])
def test_values_beyond_float16_are_refused(value: float, tmp_path: Path) -> None:
    def encoder(texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([[1.0, value if text == "b" else 65504.0] for text in texts], dtype=np.float32)

    store = VectorStore(tmp_path, chunk=1)
    assert store.vectors("teacher", "f", distinct_texts(["a"]), lambda: encoder)[[0]][0, 1] == 65504
    with pytest.raises(InputError, match=r"^teacher: its vectors reach .* to 65504; .*normalize"):
        store.vectors("teacher", "f", distinct_texts(["a", "b"]), lambda: encoder)
    assert len(contents(tmp_path)) == 2  # one of them with the vector of "a" alone


def test_values_that_float16_would_make_zeros_are_refused(tmp_path: Path) -> None:
    vectors = np.full((2, 3), 1e-9, dtype=np.float32)
    with pytest.raises(InputError, match=r"^teacher: its vectors reach 1e-09, and float16, .* is for 6.*normalize"):
        VectorStore(tmp_path / "tiny").vectors("teacher", "f", distinct_texts(["a", "b"]), lambda: lambda _: vectors)
    zeros = VectorStore(tmp_path).vectors("teacher", "f", distinct_texts(["a", "b"]), lambda: lambda _: 0 * vectors)
    assert not zeros[[0, 1]].any()


def test_a_model_is_kept_until_the_block_ends_or_another_one_is_opened(tmp_path: Path) -> None:
    store, models = VectorStore(tmp_path), {"f": RecordingModel(), "g": RecordingModel()}

    def compute(fingerprint: str, text: str) -> None:
        store.vectors("teacher", fingerprint, distinct_texts([text]), models[fingerprint].open)

    with store.keep_model():
        compute("f", "a")
        compute("f", "b")
        assert models["f"].opened == 1
        compute("g", "a")
        compute("f", "c")
        assert (models["f"].opened, models["g"].opened) == (2, 1)
    compute("f", "d")
    compute("f", "e")
    assert models["f"].opened == 4


SIZE = CHUNK * 4 * 2
"""Bytes of a block."""


def cut(file: Path) -> None:
    os.truncate(file, HEADER + 9 * SIZE + 2)


def overwrite(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[HEADER + 3 * SIZE + 5] ^= 1
    file.write_bytes(data)


def overwrite_the_header(file: Path) -> None:
    file.write_bytes(b"\x93NUMPY\x09" + file.read_bytes()[7:])


def shorten(file: Path) -> None:
    np.save(file, np.load(file)[:7])


ALL = range(10)


@pytest.mark.parametrize(
    ("damage", "what", "blocks"),
    [
        (cut, "block 9 is cut off", [9]),
        (overwrite, "block 3 has other content than written", [3]),
        (overwrite_the_header, "vectors.npy is damaged (", ALL),
        (shorten, "vectors.npy is damaged (its header does not name 367 vectors)", ALL),
        (lambda file: file.write_bytes(b""), "vectors.npy is damaged (", ALL),
        (Path.unlink, "vectors.npy is missing", ALL),
    ],
)
def test_damaged_blocks_are_named_and_computed_again(
    damage: Callable[[Path], None], what: str, blocks: Sequence[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = uninterrupted(tmp_path)
    (file,) = tmp_path.glob("*/vectors.npy")
    damage(file)
    capsys.readouterr()
    model = RecordingModel()
    VectorStore(tmp_path, CHUNK).vectors("teacher", "f", DISTINCT, model.open)
    said = " ".join(capsys.readouterr().err.split())
    assert f"teacher: vectors in {file.parent}: {what}" in said and "; computed again" in said
    assert model.encoded == [text for block in blocks for text in TEXTS[block * CHUNK : (block + 1) * CHUNK]]
    assert contents(tmp_path) == expected


@pytest.mark.parametrize("record", ["", "[]", '{"blocks": 3}', '{"blocks": {"x": "y"}, "file": null}'])
def test_a_table_without_a_readable_record_is_computed_again(record: str, tmp_path: Path) -> None:
    expected = uninterrupted(tmp_path)
    (info,) = tmp_path.glob("*/info.json")
    info.write_text(record)
    model = RecordingModel()
    VectorStore(tmp_path, CHUNK).vectors("teacher", "f", DISTINCT, model.open)
    assert model.encoded == TEXTS and contents(tmp_path) == expected


def test_a_copied_table_is_not_computed_again(tmp_path: Path) -> None:
    uninterrupted(tmp_path)
    (info,) = tmp_path.glob("*/info.json")
    os.utime(info.parent / "vectors.npy", (10**9, 10**9))
    model = RecordingModel()
    VectorStore(tmp_path, CHUNK).vectors("teacher", "f", DISTINCT, model.open)
    assert model.encoded == [] and read_json(info)["file"][1] == 10**18


def test_a_killed_computation_resumes_at_the_missing_blocks_with_the_same_result(tmp_path: Path) -> None:
    process = run([], tmp_path, seconds=0.3)
    try:
        deadline = time.monotonic() + 240
        while finished(tmp_path / "store") < 3:
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    before = finished(tmp_path / "store")
    assert 3 <= before < 10
    (lines,) = (tmp_path / "store").glob("*/finished.0.txt")
    with lines.open("a") as stream:
        stream.write("9 0123")  # half a line
    model = RecordingModel()
    VectorStore(tmp_path / "store", CHUNK).vectors("teacher", "f", DISTINCT, model.open)
    assert model.encoded == TEXTS[before * CHUNK :]
    assert contents(tmp_path / "store") == uninterrupted(tmp_path / "whole")
    assert sorted(file.name for file in lines.parent.iterdir()) == ["info.json", "vectors.npy"]


def test_a_full_disk_is_one_line_and_the_finished_blocks_stay(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (HEADER + 4 * SIZE + 9, hard))
    try:
        with pytest.raises(InputError, match=r"vectors\.npy: cannot be written \(.*\); free space"):
            uninterrupted(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    model = RecordingModel()
    VectorStore(tmp_path, CHUNK).vectors("teacher", "f", DISTINCT, model.open)
    assert model.encoded == TEXTS[4 * CHUNK :]


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
def test_a_worker_computes_every_nth_block_and_needs_the_others(
    worker: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Workers:
        num_processes, process_index, is_main_process, waited = 3, worker, worker == 0, 0

        def wait_for_everyone(self) -> None:
            Workers.waited += 1

    monkeypatch.setattr(distributed, "workers", Workers)
    model = RecordingModel()
    with pytest.raises(InputError, match=r"vectors\.npy: block \d is missing after all workers finished"):
        VectorStore(tmp_path, CHUNK).vectors("teacher", "f", DISTINCT, model.open)
    assert model.encoded == [text for row, text in enumerate(TEXTS) if row // CHUNK % 3 == worker]
    assert Workers.waited == 3


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


def test_vectors_without_files_have_no_rows() -> None:
    assert StoredVectors(np.empty((0, 0), np.float16))[[]].shape == (0, 0)


def test_vectors_of_a_model_are_those_of_encode_up_to_its_arithmetic() -> None:
    student, tokenizer = make_student(), make_tokenizer()
    texts = ["the boat is late", "rain"]
    vectors = student_encoder("student", student, tokenizer)(texts)
    np.testing.assert_allclose(vectors, encode(student, tokenizer, texts), atol=0.03)
