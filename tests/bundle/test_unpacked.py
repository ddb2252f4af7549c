"""Copies of 4-bit graphs in the cache: same vectors, made once, never trusted when damaged."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.student import SENTENCES
from xcompress.bundle import unpacked
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.released import released_folder
from xcompress.bundle.unpacked import unpacked_copy

GRAPH = released_folder("tiny") / "onnx" / "model_q4.onnx"


@pytest.fixture
def copy(empty_cache: Path) -> Path:
    made = unpacked_copy(GRAPH)
    assert made is not None and made.is_relative_to(empty_cache / "unpacked")
    return made


def test_vectors_are_those_of_the_graph_itself(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Encoder.released("tiny").encode(SENTENCES)
    monkeypatch.setattr("xcompress.bundle.encoder.unpacked_copy", lambda *_: None)
    np.testing.assert_allclose(found, Encoder.released("tiny").encode(SENTENCES), atol=1e-6)


def test_an_encoder_opens_the_copy_and_makes_it_once(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = copy.stat().st_mtime_ns
    opened: list[Path] = []
    open_session = unpacked.onnxruntime.InferenceSession
    monkeypatch.setattr(
        "onnxruntime.InferenceSession", lambda file, *a, **k: opened.append(Path(file)) or open_session(file, *a, **k)
    )
    Encoder.released("tiny")
    assert opened == [copy]
    assert copy.stat().st_mtime_ns == written


def test_the_copy_holds_unpacked_weights(copy: Path) -> None:
    data = copy.with_name("model.onnx_data").stat().st_size
    assert 1.4 * GRAPH.stat().st_size < data < 2 * GRAPH.stat().st_size


@pytest.mark.parametrize("name", ["model.onnx", "model.onnx_data", "sha256"])
def test_a_damaged_copy_is_made_again(copy: Path, name: str) -> None:
    file = copy.with_name(name)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert unpacked_copy(GRAPH) == copy
    assert file.read_bytes() != bytes(content)


def test_other_content_has_another_copy(copy: Path, tmp_path: Path) -> None:
    graph = tmp_path / "model_q4.onnx"
    graph.write_bytes(GRAPH.read_bytes() + b"\x32\x00")  # an empty documentation string, which changes no vector
    other = unpacked_copy(graph)
    assert other is not None and other.parent != copy.parent


def test_weights_in_another_file_are_not_unpacked_as_the_hash_of_the_graph_does_not_cover_them(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xcompress.bundle.encoder.check_bundle", lambda *_: {"onnx/model_q4.onnx_data"})
    Encoder.released("tiny")
    assert not (empty_cache / "unpacked").exists()


def test_without_a_cache_that_can_be_written_the_graph_itself_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XCOMPRESS_CACHE", str(tmp_path / "file"))
    assert unpacked_copy(GRAPH) is None
    assert Encoder.released("tiny").encode("rain").shape == (384,)


def test_if_the_cache_is_emptied_just_then_the_graph_itself_is_opened(
    copy: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def empty(*_: object) -> Path:
        shutil.rmtree(empty_cache)
        return copy

    monkeypatch.setattr("xcompress.bundle.encoder.unpacked_copy", empty)
    encoder = Encoder.released("tiny", threads=2)
    assert encoder.encode("rain").shape == (384,)
    assert encoder._for_many_batches is not None


def test_what_no_engine_opens_leaves_nothing_behind(empty_cache: Path, tmp_path: Path) -> None:
    graph = tmp_path / "model_q4.onnx"
    graph.write_bytes(bytes(5_000_000))
    assert unpacked_copy(graph) is None
    assert not [path for path in empty_cache.rglob("*") if path.is_file()]


def test_small_graphs_are_opened_as_they_are(empty_cache: Path, tmp_path: Path) -> None:
    graph = shutil.copy(GRAPH, tmp_path / "model_q4.onnx")
    Path(graph).write_bytes(b"short")
    assert unpacked_copy(Path(graph)) is None
    assert not empty_cache.exists()
