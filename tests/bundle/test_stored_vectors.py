import shutil
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Literal

import numpy as np
import pytest

from tests.helpers.student import SENTENCES, bundle
from xcompress.bundle import stored_vectors
from xcompress.bundle.encoder import Encoder, VectorPrecision
from xcompress.bundle.stored_vectors import encode_to_file, have_prefix, read_vectors, similarity_in_blocks
from xcompress.errors import InputError
from xcompress.files import read_json, write_json

MAPS = Path("/proc/self/maps")
TEXTS = [f"{sentence} {number}" for number in range(3) for sentence in SENTENCES]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(bundle(), precision="fp32")


def test_an_interrupted_call_continues_where_it_stopped(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stored_vectors, "BLOCK", 4)
    whole, calls = Encoder.encode, []

    def encode(self: Encoder, texts: list[str], **options: object) -> np.ndarray:
        calls.append(texts)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return whole(self, texts, **options)

    monkeypatch.setattr(Encoder, "encode", encode)
    output = tmp_path / "v.npy"
    with pytest.raises(KeyboardInterrupt):
        encode_to_file(encoder, TEXTS, output)
    assert not output.exists() and len(list((tmp_path / "v.npy.partial").glob("*.npy"))) == 2
    found = encode_to_file(encoder, TEXTS, output)
    assert "8 of 15 texts were encoded earlier" in capsys.readouterr().err
    assert [text for texts in calls[3:] for text in texts] == TEXTS[8:]
    np.testing.assert_allclose(found, whole(encoder, TEXTS), atol=1e-6)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["v.npy", "v.npy.json"]
    assert read_json(tmp_path / "v.npy.json")["texts"] == 15
    np.testing.assert_array_equal(read_vectors(output, encoder, TEXTS), found)
    cosines = similarity_in_blocks(encoder, found[3], found)
    assert cosines.shape == (15,) and cosines.argmax() == 3


def test_an_interruption_costs_the_texts_of_one_step(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [str(number) for number in range(1500)]
    zeros = iter([np.zeros((1024, 24), dtype=np.float32)])  # and no second step
    with monkeypatch.context() as interrupted, pytest.raises(StopIteration):
        interrupted.setattr(Encoder, "encode", lambda *_, **__: next(zeros))
        encode_to_file(encoder, texts, tmp_path / "v.npy")
    assert len(list(tmp_path.glob("v.npy.partial/*.npy"))) == 1
    with pytest.raises(InputError, match=r"v\.npy: not finished; run the command of embed again"):
        read_vectors(tmp_path / "v.npy", encoder, texts)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", r"not a readable \.npy of plain numbers"),
        (np.zeros((1, 24), np.float32), r"holds vectors of shape \(1, 24\), not \(4, 24\)"),  # would become four
        (np.zeros((4, 12), np.float32), r"holds vectors of shape \(4, 12\), not \(4, 24\)"),
        (np.zeros((4, 24), np.int8), r"holds int8 of shape \(4, 24\); it must be float32 of \(N, D\)"),
    ],
)
def test_a_damaged_block_is_named_and_the_command_can_go_on_without_it(
    tmp_path: Path,
    encoder: Encoder,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes | np.ndarray,
    problem: str,
    place: int,
) -> None:
    block = interrupt(tmp_path / "v.npy", encoder, monkeypatch)[place]
    block.write_bytes(content) if isinstance(content, bytes) else np.save(block, content)
    with pytest.raises(InputError, match=rf"{block.name}: {problem}.*; remove it, then run the command again"):
        encode_to_file(encoder, TEXTS, tmp_path / "v.npy")
    assert not (tmp_path / "v.npy").exists()
    block.unlink()
    np.testing.assert_array_equal(encode_to_file(encoder, TEXTS, tmp_path / "v.npy"), encoder.encode(TEXTS))


def test_blocks_of_another_size_are_not_joined(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt(tmp_path / "v.npy", encoder, monkeypatch)
    monkeypatch.setattr(stored_vectors, "BLOCK", 8)
    np.testing.assert_array_equal(encode_to_file(encoder, TEXTS, tmp_path / "v.npy"), encoder.encode(TEXTS))
    assert "v.npy.partial: made with block 4, not 8; starting anew" in capsys.readouterr().err


@pytest.mark.skipif(not MAPS.is_file(), reason="this system does not list what is mapped")
def test_no_file_is_mapped_when_it_is_renamed_or_removed(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[Path] = []

    def check(function: Callable[..., object]) -> Callable[..., object]:
        def checked(path: Path, *arguments: object, **options: object) -> object:
            moved.append(path)
            assert f"{path}" not in MAPS.read_text()
            return function(path, *arguments, **options)

        return checked

    monkeypatch.setattr(stored_vectors, "BLOCK", 4)
    monkeypatch.setattr(Path, "replace", check(Path.replace))
    monkeypatch.setattr(shutil, "rmtree", check(shutil.rmtree))
    encode_to_file(encoder, TEXTS, tmp_path / "v.npy")
    assert tmp_path / "v.npy.partial" in moved


@pytest.mark.skipif(not MAPS.is_file(), reason="this system does not list what is mapped")
def test_nothing_is_written_through_a_map_as_a_full_disk_would_end_the_process(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = np.load

    def checked(file: Path, mmap_mode: Literal["r"], **options: bool) -> np.ndarray:
        writable = [line for line in MAPS.read_text().splitlines() if " rw-s " in line]
        assert not [line for line in writable if str(tmp_path) in line]
        array: np.ndarray = load(file, mmap_mode=mmap_mode, **options)
        return array

    monkeypatch.setattr(stored_vectors, "BLOCK", 4)
    monkeypatch.setattr(np, "load", checked)
    found = encode_to_file(encoder, TEXTS, tmp_path / "v.npy")
    np.save(tmp_path / "whole.npy", found)
    assert (tmp_path / "v.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


def test_finished_blocks_stay_until_the_file_is_in_place(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def replace(path: Path, target: Path) -> None:
        if target == tmp_path / "v.npy":
            raise PermissionError(13, "it is open in another program", str(target))
        path.rename(target)

    monkeypatch.setattr(stored_vectors, "BLOCK", 4)
    with monkeypatch.context() as refused, pytest.raises(InputError, match=r"v\.npy: "):
        refused.setattr(Path, "replace", replace)
        encode_to_file(encoder, TEXTS, tmp_path / "v.npy")
    assert len(list(tmp_path.glob("v.npy.partial/*.npy"))) == 4
    encode_to_file(encoder, TEXTS, tmp_path / "v.npy")
    assert "v.npy: 15 of 15 texts were encoded earlier" in capsys.readouterr().err


def interrupt(output: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch, **options: object) -> list[Path]:
    """Interrupt `encode_to_file` in its third block; return the finished ones."""
    monkeypatch.setattr(stored_vectors, "BLOCK", 4)
    whole = Encoder.encode
    with monkeypatch.context() as interrupted, pytest.raises(KeyboardInterrupt):
        calls = iter([whole, whole, lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)])
        interrupted.setattr(Encoder, "encode", lambda *given, **options: next(calls)(*given, **options))
        encode_to_file(encoder, TEXTS, output, **options)  # type: ignore[arg-type]
    return sorted(output.with_name(f"{output.name}.partial").glob("*.npy"))


def test_finished_blocks_of_other_texts_go_where_few_are_encoded(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert interrupt(tmp_path / "v.npy", encoder, monkeypatch)
    encode_to_file(encoder, TEXTS[:3], tmp_path / "v.npy")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["v.npy", "v.npy.json"]
    assert "v.npy.partial: made of other texts; starting anew" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typo", "says"),
    [
        ({"precision": "int4"}, "precision is 'int4'; choose float32, int8 or ubinary"),
        ({"long": "average"}, "long is 'average'; choose cut or mean"),
    ],
)
def test_a_typo_drops_no_finished_blocks(
    typo: dict[str, str], says: str, tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = interrupt(tmp_path / "v.npy", encoder, monkeypatch, precision="int8")
    with pytest.raises(InputError, match=says):
        encode_to_file(encoder, TEXTS, tmp_path / "v.npy", **typo)  # type: ignore[arg-type]
    assert len(finished) == 2 and all(file.is_file() for file in finished)


def test_places_that_are_taken_are_refused_before_the_work(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_vectors, "BLOCK", 4)
    monkeypatch.setattr(Encoder, "encode", lambda *_, **__: pytest.fail("encoded"))
    (tmp_path / "v.npy.partial").write_text("a note")
    with pytest.raises(InputError, match=r"v\.npy\.partial: is no folder"):
        encode_to_file(encoder, TEXTS, tmp_path / "v.npy")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "v.npy.partial").unlink()
    (tmp_path / "v.npy.partial").symlink_to("elsewhere")  # blocks of others would be read, and ours written there
    with pytest.raises(InputError, match=r"v\.npy\.partial: is no folder"):
        encode_to_file(encoder, TEXTS, tmp_path / "v.npy")
    assert not list((tmp_path / "elsewhere").iterdir())
    (tmp_path / "v.npy.json").mkdir()
    with pytest.raises(InputError, match=r"v\.npy\.json: is a folder"):
        encode_to_file(encoder, TEXTS[:2], tmp_path / "v.npy")


def test_a_second_writer_waits_until_the_blocks_of_the_first_are_removed(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_vectors, "BLOCK", 4)
    output, second, waits_or_has_ended = tmp_path / "v.npy", list[Future[np.ndarray]](), Event()
    monkeypatch.setattr("xcompress.files.time.sleep", lambda _: waits_or_has_ended.set())

    def write(path: Path, value: object) -> None:
        write_json(path, value)
        if path.name == "v.npy.json" and not second:  # the file is in place, its blocks are not yet removed
            second.append(pool.submit(encode_to_file, encoder, TEXTS, output))
            second[0].add_done_callback(lambda _: waits_or_has_ended.set())
            assert waits_or_has_ended.wait(timeout=30)

    monkeypatch.setattr(stored_vectors, "write_json", write)
    with ThreadPoolExecutor() as pool:
        np.testing.assert_array_equal(encode_to_file(encoder, TEXTS, output), second[0].result())
    assert sorted(file.name for file in tmp_path.iterdir()) == ["v.npy", "v.npy.json"]


@pytest.mark.parametrize(
    ("texts", "options", "says"),
    [
        (TEXTS, {}, "made with precision int8, not float32"),
        (TEXTS, {"precision": "int8", "long": "mean"}, "made with long cut, not mean"),
        (TEXTS[::-1], {"precision": "int8"}, "made of other texts"),
        (TEXTS, {"precision": "int8", "prompt": "p: "}, "made with the prompt 'query: ', not 'p: '"),
    ],
)
def test_it_is_said_why_finished_blocks_are_dropped(
    texts: list[str],
    options: dict[str, str],
    says: str,
    tmp_path: Path,
    encoder: Encoder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    interrupt(tmp_path / "v.npy", encoder, monkeypatch, precision="int8")
    encode_to_file(encoder, texts, tmp_path / "v.npy", **options)  # type: ignore[arg-type]
    assert f"v.npy.partial: {says}; starting anew\n" in " ".join(capsys.readouterr().err.split(" "))


@pytest.mark.parametrize("absent", ["name", "prompt"])
def test_blocks_of_a_version_that_wrote_no_name_or_prompt_are_used(
    absent: str,
    tmp_path: Path,
    encoder: Encoder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    interrupt(tmp_path / "v.npy", encoder, monkeypatch)
    facts = read_json(tmp_path / "v.npy.partial" / "texts.json")
    write_json(tmp_path / "v.npy.partial" / "texts.json", {key: facts[key] for key in facts if key != absent})
    encode_to_file(encoder, TEXTS, tmp_path / "v.npy")
    assert "8 of 15 texts were encoded earlier" in capsys.readouterr().err


def test_the_prompt_is_noted_beside_the_vectors(tmp_path: Path, encoder: Encoder) -> None:
    found = encode_to_file(encoder, TEXTS, tmp_path / "v.npy", prompt="rain ")
    np.testing.assert_allclose(found, encoder.encode(TEXTS, prompt="rain "), atol=1e-6)
    assert read_json(tmp_path / "v.npy.json")["prompt"] == "rain "
    assert not have_prefix(tmp_path / "v.npy", encoder)
    encode_to_file(encoder, TEXTS, tmp_path / "v.npy")
    assert read_json(tmp_path / "v.npy.json")["prompt"] == "query: " and have_prefix(tmp_path / "v.npy", encoder)
    (tmp_path / "v.npy.json").write_text("{}")  # as in earlier versions
    assert have_prefix(tmp_path / "v.npy", encoder)


def test_other_texts_start_anew(tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_vectors, "BLOCK", 4)
    (tmp_path / "v.npy.partial").mkdir()
    (tmp_path / "v.npy.partial" / "texts.json").write_text("{}")
    np.save(tmp_path / "v.npy.partial" / f"{0:012}.npy", np.zeros((4, 24), dtype=np.float32))
    found = encode_to_file(encoder, TEXTS, tmp_path / "v.npy", "int8")
    assert found.dtype == np.int8 and np.abs(found[:4]).max() == 127


@pytest.mark.parametrize("facts", [None, "fp32"])
def test_blocks_of_another_graph_or_of_unknown_texts_are_not_used(
    facts: str | None, tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = tmp_path / "v.npy.partial"
    interrupt(tmp_path / "v.npy", encoder, monkeypatch)
    if facts is None:
        (parts / "texts.json").unlink()
        np.save(parts / f"{0:012}.npy", np.zeros((4, 24), dtype=np.float32))
    other = Encoder(bundle(), precision="int8" if facts else "fp32")
    np.testing.assert_array_equal(encode_to_file(other, TEXTS, tmp_path / "v.npy"), other.encode(TEXTS))


@pytest.mark.parametrize("shape", [(3_037_000_500, 3_037_000_500), (2**63 - 1, 24), (2**62 + 1, 4)])
def test_a_shape_that_overflows_is_refused_without_a_warning(tmp_path: Path, shape: tuple[int, int]) -> None:
    with (tmp_path / "v.npy").open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
        stream.write(bytes(1000))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(InputError, match=r"v\.npy: not a readable \.npy of plain numbers \(overflow"):
            stored_vectors.open_npy(tmp_path / "v.npy", ["float32"], "v.npy", "give another")
    assert not caught


def test_vectors_of_other_texts_or_models_are_refused(tmp_path: Path, encoder: Encoder) -> None:
    output = tmp_path / "v.npy"
    encode_to_file(encoder, TEXTS, output)
    with pytest.raises(InputError, match=r"v\.npy: shape \(15, 24\) for 14 texts"):
        read_vectors(output, encoder, TEXTS[1:])
    with pytest.raises(InputError, match=r"v\.npy: made of other texts; write it again with embed --output"):
        read_vectors(output, encoder, TEXTS[::-1])
    with pytest.raises(InputError, match=r"absent\.npy: there is no such file; give a file that embed --output wrote"):
        read_vectors(tmp_path / "absent.npy", encoder, TEXTS)
    (tmp_path / "v.npy.json").write_text('["model"]')
    with pytest.raises(InputError, match=r"v\.npy\.json: .*not"):
        read_vectors(output, encoder, TEXTS)
    (tmp_path / "v.npy.json").unlink()
    for content in (b"no array", b"", b"\x93NUMPY\x01\x00\x40\x1f" + b"(" * 8000):
        output.write_bytes(content)
        with pytest.raises(InputError, match=r"v\.npy: not a readable \.npy .*; give a file that embed --output wrote"):
            read_vectors(output, encoder, TEXTS)
    np.save(output, np.zeros((15, 24), dtype=np.int64))
    with pytest.raises(InputError, match=r"v\.npy: holds int64 of shape \(15, 24\); it must be float16, float32"):
        read_vectors(output, encoder, TEXTS)
    for width, kind, expected in ((384, np.float32, 24), (24, np.uint8, 3)):
        np.save(output, np.zeros((15, width), dtype=kind))
        with pytest.raises(InputError, match=rf"v\.npy: vectors of {width} numbers, not {expected}, so of another"):
            read_vectors(output, encoder, TEXTS)
    with pytest.raises(InputError, match="is a folder; give the name of a file"):
        encode_to_file(encoder, TEXTS, tmp_path)


def write_nothing_beside(output: Path) -> Callable[[Path, object], None]:
    """Stand in for `write_json` in a process that is killed after it has written the vectors."""

    def write(file: Path, facts: object) -> None:
        if file.parent == output.parent:
            raise KeyboardInterrupt
        write_json(file, facts)

    return write


@pytest.mark.parametrize("precision", ["float32", "int8", "ubinary"])
@pytest.mark.parametrize("block", [4, 16])
def test_vectors_beside_the_facts_of_others_are_refused(
    precision: VectorPrecision, block: int, tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_vectors, "BLOCK", block)
    output, other, says = tmp_path / "v.npy", tmp_path / "other.npy", r"v\.npy: holds other vectors than those that v"
    encode_to_file(encoder, TEXTS, output, precision)
    encode_to_file(encoder, [*TEXTS[:-1], "rain"], other, precision)
    other.replace(output)
    with pytest.raises(InputError, match=says):
        read_vectors(output, encoder, TEXTS)
    encode_to_file(encoder, TEXTS, output, precision)
    assert len(read_vectors(output, encoder, TEXTS)) == 15
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(stored_vectors, "write_json", write_nothing_beside(output))
        encode_to_file(encoder, TEXTS[::-1], output, precision)
    with pytest.raises(InputError, match=says):
        read_vectors(output, encoder, TEXTS)


def test_facts_of_a_version_that_did_not_hash_the_vectors_are_read(tmp_path: Path, encoder: Encoder) -> None:
    encode_to_file(encoder, TEXTS, tmp_path / "v.npy")
    facts = read_json(tmp_path / "v.npy.json")
    write_json(tmp_path / "v.npy.json", {key: facts[key] for key in facts if key != "vectors"})
    assert len(read_vectors(tmp_path / "v.npy", encoder, TEXTS)) == 15


@pytest.mark.parametrize(("dtype", "value"), [(np.float32, np.nan), (np.float16, np.inf), (np.float64, -np.inf)])
def test_a_vector_that_is_not_finite_is_named(dtype: type, value: float, tmp_path: Path, encoder: Encoder) -> None:
    vectors = np.ones((15, 24), dtype)
    vectors[9, 3] = value
    np.save(tmp_path / "v.npy", vectors)
    with pytest.raises(InputError, match=r"v\.npy: row 9 holds NaN or infinity; write it again"):
        similarity_in_blocks(encoder, np.ones(24, np.float32), read_vectors(tmp_path / "v.npy", encoder, TEXTS))


@pytest.mark.parametrize("value", [1e38, 1e300])
def test_large_numbers_have_a_cosine(value: float, tmp_path: Path, encoder: Encoder) -> None:
    np.save(tmp_path / "v.npy", np.full((15, 24), value))
    cosines = similarity_in_blocks(encoder, np.ones(24, np.float32), read_vectors(tmp_path / "v.npy", encoder, TEXTS))
    np.testing.assert_allclose(cosines, 1, rtol=1e-6)


def test_vectors_of_another_model_are_refused_by_its_name(tmp_path: Path, encoder: Encoder) -> None:
    output, tiny = tmp_path / "v.npy", Encoder.from_pretrained("tiny")
    again = "write it again with embed --output"

    def refusal() -> str:
        with pytest.raises(InputError) as refused:
            read_vectors(output, encoder, TEXTS)
        return str(refused.value).removeprefix(f"{output}: ")

    encode_to_file(tiny, TEXTS, output)
    facts = read_json(tmp_path / "v.npy.json")
    assert refusal() == f"made with tiny, not {encoder.folder}; give --model tiny, or {again}"
    write_json(tmp_path / "v.npy.json", facts | {"name": str(encoder.folder)})
    assert refusal() == f"made with another version of {encoder.folder}; {again}"
    # Earlier versions wrote no name.
    del facts["name"]
    write_json(tmp_path / "v.npy.json", facts)
    assert refusal() == f"made with another model, not {encoder.folder}; {again}"
    assert read_vectors(output, tiny, TEXTS).shape == (15, 384)
