import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.limits import frugal
from tests.helpers.tensors import distinct_texts
from xcompress.distillation.teachers.encoder import open_encoder
from xcompress.distillation.teachers.precomputed import open_precomputed
from xcompress.distillation.teachers.vectors import VectorStore
from xcompress.errors import InputError
from xcompress.recipe import EncoderSection, TeacherSection

SENTENCES = ["the boat is late", "", "Save  the <b>file</b>", "a\u2028b", "der Zug kommt"]
VECTORS = np.arange(10).reshape(5, 2)


def write(folder: Path, vectors: np.ndarray = VECTORS, sentences: list[str] = SENTENCES) -> str:
    np.save(folder / "api.npy", vectors.astype(np.float32) if vectors is VECTORS else vectors)
    (folder / "api.txt").write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")
    return str(folder / "api.npy")


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", ">f4"])
def test_vectors_are_found_by_sentence_as_it_is_or_normalised(kind: str, tmp_path: Path) -> None:
    encoder = open_encoder(EncoderSection(source=write(tmp_path, VECTORS.astype(kind))), "teacher")
    asked = ["der Zug  kommt", "Save the file", "", SENTENCES[2], "a\u2028b", "the <i>boat</i> is late"]
    found = encoder(asked)
    assert found.dtype == np.float32
    assert found[:, 0].tolist() == [8, 4, 2, 4, 6, 0]


def test_a_sentence_as_it_is_counts_before_one_that_is_normalised_to_it(tmp_path: Path) -> None:
    sentences = ["Save the file", "Save the &file", "Close <b>it</b>", "Close it", "Close  it"]
    encoder = open_encoder(EncoderSection(source=write(tmp_path, VECTORS, sentences)), "teacher")
    assert encoder([*sentences, "Close <i>it</i>"])[:, 0].tolist() == [0, 2, 4, 6, 8, 6]


def test_sentences_may_lie_elsewhere_and_the_last_line_needs_no_end(tmp_path: Path) -> None:
    source = write(tmp_path)
    (tmp_path / "api.txt").rename(tmp_path / "lines.txt")
    (tmp_path / "lines.txt").write_text("a\r\nb\nc\n\nd", encoding="utf-8-sig")
    encoder = open_encoder(EncoderSection(source=source, sentences=str(tmp_path / "lines.txt")), "teacher")
    assert encoder(["d", "a", "b"])[:, 0].tolist() == [8, 0, 2]


def test_sentences_may_be_compressed_and_have_lines_as_embed_counts_them(tmp_path: Path) -> None:
    source = write(tmp_path)
    (tmp_path / "api.txt.gz").write_bytes(gzip.compress("a\rb\nc\x0cd\n\ne\x85f\ng".encode()))
    encoder = open_encoder(EncoderSection(source=source, sentences=str(tmp_path / "api.txt.gz")), "teacher")
    assert encoder(["g", "a\rb", "e\x85f"])[:, 0].tolist() == [8, 0, 6]


def test_unit_length_applies(tmp_path: Path) -> None:
    found = open_encoder(TeacherSection(source=write(tmp_path, np.float32([[3, 4], [0, 0]]), ["a", "b"])), "teacher")(
        ["a", "b"]
    )
    np.testing.assert_allclose(found, [[0.6, 0.8], [0, 0]], rtol=1e-6)


def test_missing_sentences_are_counted_and_written_to_a_file(tmp_path: Path) -> None:
    source = write(tmp_path)
    missing = Path(source).with_suffix(".missing.txt")
    encoder = open_encoder(EncoderSection(source=source), "teacher")
    asked = ["der Zug kommt", "new & old", "a\ttab", "new & old", "the boat is late"]
    with pytest.raises(InputError, match=r"has no vectors for 2 of 4 sentences, such as 'new & old'.*missing.txt"):
        encoder(asked)
    lines = missing.read_text(encoding="utf-8").splitlines()
    assert lines == ["new & old", "a tab"]
    write(tmp_path, np.vstack([VECTORS, [[10, 11], [12, 13]]]).astype(np.float32), [*SENTENCES, *lines])
    assert open_encoder(EncoderSection(source=source), "teacher")(asked)[:, 0].tolist() == [8, 10, 12, 10, 0]


def test_missing_sentences_of_all_files_of_a_store_are_written_at_once(tmp_path: Path) -> None:
    part = TeacherSection(source=write(tmp_path))
    texts = distinct_texts(["the boat is late", "one", "der Zug kommt", "two", "three"])
    with pytest.raises(InputError, match=r"for 3 of 5 sentences.*api\.missing\.txt"):
        VectorStore(tmp_path / "store", chunk=2).vectors("teacher", "f", texts, lambda: open_encoder(part, "teacher"))
    assert (tmp_path / "api.missing.txt").read_text() == "one\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (VECTORS[:4].astype(np.float32), r"has 4 rows, but .*api\.txt has 5 lines"),
        (VECTORS, r"^$"),
        (
            VECTORS.astype(np.int64),
            r"holds int64 of shape \(5, 2\); it must be float16, float32 or float64 of \(N, D\)",
        ),
        (np.ones(5, dtype=np.float32), r"holds float32 of shape \(5,\)"),
        (VECTORS.astype(object), "not a readable .npy of plain numbers"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(vectors: np.ndarray, message: str, tmp_path: Path) -> None:
    part = EncoderSection(source=write(tmp_path, vectors))
    if message == "^$":
        open_encoder(part, "teacher")
        return
    with pytest.raises(InputError, match=message) as refused:
        open_encoder(part, "teacher")
    assert "\n" not in str(refused.value)


def test_damaged_and_absent_files_are_refused(tmp_path: Path) -> None:
    source = write(tmp_path)
    (tmp_path / "api.txt").write_bytes(b"a\n\xff\xfe\n")
    with pytest.raises(InputError, match=r"teacher\.sentences: .*api\.txt:2: not UTF-8"):
        open_encoder(EncoderSection(source=source), "teacher")
    (tmp_path / "api.txt").unlink()
    with pytest.raises(InputError, match=r"api\.txt: no such file"):
        open_encoder(EncoderSection(source=source), "teacher")
    (tmp_path / "api.npy").write_bytes(b"\x93NUMPY\x01")
    with pytest.raises(InputError, match=r"teacher\.source: .* not a readable"):
        open_encoder(EncoderSection(source=source), "teacher")


def test_rows_with_nan_are_refused_when_they_are_asked_for(tmp_path: Path) -> None:
    vectors = VECTORS.astype(np.float32)
    vectors[4, 1] = np.nan
    encoder = open_encoder(EncoderSection(source=write(tmp_path, vectors)), "teacher")
    assert encoder(["the boat is late"]).tolist() == [[0, 1]]
    with pytest.raises(InputError, match="row 4, of 'der Zug kommt', holds NaN"):
        encoder(["the boat is late", "der Zug kommt"])


def npy(descr: str, shape: str, data: bytes = b"") -> bytes:
    """Return an .npy file whose header claims a type and a shape."""
    head = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data


CLAIMS = {
    "a shape of terabytes": npy("'<f4'", f"({10**12}, 384)"),
    "a shape beyond 64 bits": npy("'<f4'", f"({2**40}, {2**40})"),
    "a negative shape": npy("'<f4'", "(-1, 384)", bytes(1536)),
    "a number of 5,000 digits": npy("'<f4'", f"({'9' * 5000}, 2)"),
    "a nested shape": npy("'<f4'", "(" * 900 + ")" * 900),
    "objects": npy("'|O'", "(1,)", b"cos\nsystem\n(S'ls'\ntR."),
    "an unknown type": npy("'<f99'", "(1, 2)"),
    "a type that is none": npy("{}", "(1, 2)"),
    "too little data": npy("'<f4'", "(3, 4)", bytes(10)),
    "no data": npy("'<f4'", "(0, 384)"),
    "a header of gigabytes": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + b"x",
    "an unknown version": b"\x93NUMPY\x09\x00" + bytes(100),
    "half a header": b"\x93NUMPY\x01\x00\xff\xff{",
    "a header that is no mapping": b"\x93NUMPY\x01\x00\x03\x001+1",
    "a header that does not end": b"\x93NUMPY\x01\x00\x40\x1f" + b"(" * 8000,
    "a number of 9,000 signs": b"\x93NUMPY\x01\x00\x28\x23" + b"-" * 8999 + b"1",
    "a shape that is no number": npy("'<f4'", "(1, True)", bytes(4)),
    "another kind of file": b"PK\x05\x06" + bytes(18),
    "nothing": b"",
}


@pytest.mark.parametrize("name", CLAIMS)
def test_an_npy_that_claims_more_than_it_has_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(CLAIMS[name])
    (tmp_path / "x.txt").write_text("one\n")
    with frugal(300), pytest.raises(InputError, match=r"teacher\.source: ") as caught:
        open_precomputed(EncoderSection(source=str(tmp_path / "x.npy")), "teacher", tmp_path / "x.npy", normalize=False)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_named_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.npy")
    with frugal(), pytest.raises(InputError, match="it is not a file"):
        open_precomputed(EncoderSection(source=str(tmp_path / "x.npy")), "teacher", tmp_path / "x.npy", normalize=False)


def test_a_sentence_of_a_gigabyte_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((1, 2), np.float32))
    with (tmp_path / "x.txt").open("wb") as stream:
        stream.write(b"x" * 30_000)  # NUL at the start would be taken for UTF-16
        stream.truncate(2_000_000_000)
    with frugal(300), pytest.raises(InputError, match=r"teacher\.sentences: .*x\.txt:1: longer"):
        open_precomputed(EncoderSection(source=str(tmp_path / "x.npy")), "teacher", tmp_path / "x.npy", normalize=False)
