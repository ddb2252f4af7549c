"""A bundle becomes a student again, with the weights of its graph."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.helpers.foreign import save_pipeline
from tests.helpers.student import (
    MODERNBERT,
    SENTENCES,
    bundle,
    change_manifest,
    make_student,
    make_tokenizer,
    save_student,
)
from xcompress.api import Bundle
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.manifest import list_files
from xcompress.cli.dequantize import dequantize as command
from xcompress.errors import GateError, InputError
from xcompress.export.config import ExportConfig
from xcompress.export.dequantize import dequantize, read_student
from xcompress.export.exporter import export
from xcompress.export.int4 import pack_int4, unpack_int4
from xcompress.export.source import card_languages, find_source
from xcompress.export.verify import Bounds
from xcompress.files import read_json
from xcompress.metrics import cosines
from xcompress.modeling.student import Student, encode

LAX = Bounds(mean_cosine=0, worst_cosine=0, similarity_correlation=0, invariance_cosine=0)
"""For random weights in 4 bits."""
SHAPES = {
    "recurrent, bottleneck, head": {},
    "prelude and coda": {"prelude_layers": 1, "unit_layers": 1, "coda_layers": 1, "recurrences": 2},
    "full-width embeddings": {"bottleneck": None, "head_size": None, "recurrences": 1, "position_offset": 0},
    "first token, not normalised": {"pooling": "cls", "normalize": False, "prefix": ""},
    "activated head, no types": {"head_activation": "tanh", "type_vocab_size": 0, "unit_layers": 1},
    "ModernBERT": MODERNBERT | {"prelude_layers": 1, "unit_layers": 2, "recurrences": 2},
}
KEPT = ExportConfig(target="wasm", bottleneck="keep")
"""Of so small a student, an export would fold it."""
EXPORTS = {
    "float32": replace(KEPT, precision="fp32"),
    "float16": replace(KEPT, precision="fp16"),
    "8 bits, in a loop": KEPT,
    "8 bits, unrolled": replace(KEPT, recurrence="unroll"),
    "8 bits, standard operators": replace(KEPT, operators="standard"),
    "8 bits, 4-bit embeddings": replace(KEPT, table="int4"),
    "standard operators, 4-bit embeddings": replace(KEPT, table="int4", operators="standard"),
    "8 bits, in ORT format, too": replace(KEPT, target="mobile"),
    "4 bits": replace(KEPT, precision="int4"),
}
LEAST = {"fp32": 0.999999, "fp16": 0.99999, "int8": 0.99, "int4": 0.9}
"""Cosine with the vectors of the student that was exported, whose weights were rounded."""

pytestmark = pytest.mark.usefixtures("little_text")


def exported(folder: Path, config: ExportConfig, **changes: object) -> Path:
    student = save_student(folder / "mine", **changes)
    return export(student, folder / "bundle", options=config, bounds=LAX)


@pytest.mark.parametrize(
    ("form", "shape"),
    [(form, next(iter(SHAPES))) for form in EXPORTS]
    + [(form, shape) for form in ("float32", "8 bits, unrolled", "4 bits") for shape in [*SHAPES][1:]],
)
def test_a_graph_of_any_form_becomes_the_student_that_it_computes(form: str, shape: str, tmp_path: Path) -> None:
    read = read_student(exported(tmp_path, EXPORTS[form], **SHAPES[shape]))
    original, tokenizer = make_student(**SHAPES[shape]), make_tokenizer()
    vectors = [encode(student, tokenizer, SENTENCES) for student in (original, read.student)]
    assert cosines(*vectors).min() > LEAST[read.precision]
    assert np.allclose(*(np.linalg.norm(some, axis=1) for some in vectors), rtol=0.1)
    assert read.student.config.stack == original.config.stack
    assert read.student.config.modernbert == original.config.modernbert
    assert read.student.config.bottleneck == original.config.bottleneck


@pytest.mark.parametrize("changes", [{}, MODERNBERT])
def test_weights_in_float32_are_those_that_were_exported(changes: dict[str, object], tmp_path: Path) -> None:
    read = read_student(exported(tmp_path, EXPORTS["float32"], **changes)).student
    original = make_student(**changes)
    expected = original.state_dict()
    if not changes:
        positions = expected.pop("embeddings.position.weight")[original.config.position_offset :]
        expected["embeddings.position.weight"] = positions + expected.pop("embeddings.token_type.weight")[0]
    found = read.state_dict()
    assert found.keys() == expected.keys()
    assert all(np.allclose(found[name], expected[name], rtol=1e-6, atol=1e-7) for name in expected)


def test_a_folded_bottleneck_stays_folded(tmp_path: Path) -> None:
    read = read_student(exported(tmp_path, ExportConfig(precision="fp32", bottleneck="fold"))).student
    assert read.config.bottleneck is None
    assert read.embeddings.word.weight.shape == (400, 32)


def test_a_released_model_is_read(tmp_path: Path) -> None:
    read = read_student("tiny")
    assert (read.precision, read.student.config.unit_layers, read.student.config.bottleneck) == ("int4", 6, 128)
    assert read.cosine > 0.995


def test_values_of_4_bits_are_unpacked() -> None:
    first, second = np.arange(-8, 8, dtype=np.int8), np.arange(7, -9, -1, dtype=np.int8)
    assert [part.tolist() for part in unpack_int4(pack_int4(first, second))] == [first.tolist(), second.tolist()]


def test_sentence_transformers_opens_the_folder_and_an_export_takes_it(working_folder: Path) -> None:
    interop = pytest.importorskip("xcompress.interop.sentence_transformers")
    folder = Bundle(bundle()).dequantize()
    assert folder == Path("small-bundle-student")
    student, tokenizer = Student.load(folder)
    vectors = interop.open_student(folder).encode(SENTENCES)
    assert np.allclose(vectors, encode(student, tokenizer, SENTENCES), atol=1e-6)
    again = export(folder, options=EXPORTS["float32"])
    assert np.allclose(Encoder(again).encode(SENTENCES), vectors, atol=1e-5)


def test_prompts_prefix_and_languages_stay(tmp_path: Path) -> None:
    mine = save_student(tmp_path / "mine")
    settings = {"prompts": {"query": "ask: ", "document": "text: "}, "similarity_fn_name": "dot"}
    (mine / "config_sentence_transformers.json").write_text(json.dumps(settings))
    (mine / "README.md").write_text("---\nlanguage: [de, no]\n---\n")
    first = export(mine, tmp_path / "first", options=EXPORTS["float32"])
    folder = dequantize(first, tmp_path / "again")
    assert card_languages(folder / "README.md") == ["de", "no"]
    second = export(folder, tmp_path / "second", options=EXPORTS["float32"])
    before, after = (read_json(made / "manifest.json") for made in (first, second))
    kept = ("prompts", "default_prompt_name", "similarity_fn_name", "prefix", "languages", "max_tokens")
    assert {key: after[key] for key in kept} == {key: before[key] for key in kept}
    assert before["prompts"]["query"] == "ask: "


def test_an_empty_prompt_beside_a_prefix_which_a_student_cannot_have_is_named(
    bundle_copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = "the prompt 'document' is empty, but a student puts its prefix 'query: '"
    change_manifest(bundle_copy, prompts={"query": "query: ", "document": "query: "})
    dequantize(bundle_copy, tmp_path / "first")
    assert message not in capsys.readouterr().err.replace("\n", " ")
    change_manifest(bundle_copy, prompts={"query": "query: ", "document": ""})
    dequantize(bundle_copy, tmp_path / "second")
    assert message in capsys.readouterr().err.replace("\n", " ")


def test_a_folder_with_content_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "trained.txt").touch()
    with pytest.raises(InputError, match="mine: is not empty; name another folder"):
        dequantize(bundle(), tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["trained.txt"]


def test_other_vectors_than_the_bundles_are_refused(tmp_path: Path) -> None:
    folder = exported(tmp_path, EXPORTS["float32"])
    change_manifest(folder, pooling="cls")
    with pytest.raises(GateError, match=r"model\.onnx: the student read from it has other vectors \(lowest cosine"):
        dequantize(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_graph_of_something_else_is_refused(tmp_path: Path) -> None:
    folder = shutil.copytree(bundle(), tmp_path / "bundle")
    graph = onnx.load(folder / "onnx" / "model.onnx")
    for tensor in graph.graph.initializer:
        tensor.name = f"other.{tensor.name}"
    for node in graph.graph.node:
        names = {tensor.name for tensor in graph.graph.initializer}
        node.input[:] = [f"other.{name}" if f"other.{name}" in names else name for name in node.input]
    onnx.save(graph, folder / "onnx" / "model.onnx")
    (folder / "manifest.json").rename(tmp_path / "manifest.json")
    files = list_files(folder)
    (tmp_path / "manifest.json").rename(folder / "manifest.json")
    change_manifest(folder, files=files)
    with pytest.raises(InputError, match=r"model\.onnx: its weights cannot be read \(no 'word.rows'\); give the model"):
        read_student(folder)


@pytest.mark.parametrize(
    ("kind", "feature"),
    [("mpnet", "relative attention, as in MPNet"), ("gemma3_text", "rotary positions of an EmbeddingGemma")],
)
def test_layers_that_are_not_berts_are_refused(kind: str, feature: str, tmp_path: Path) -> None:
    save_pipeline(tmp_path / "mine", kind)
    made = export(tmp_path / "mine", tmp_path / "bundle", options=EXPORTS["float32"])
    with pytest.raises(InputError, match=rf"model\.onnx: its weights cannot be read \({feature}, "):
        read_student(made)


def test_the_command_prints_the_folder(working_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command(str(bundle()), Path("mine"))
    printed = capsys.readouterr()
    assert printed.out == "mine\n"
    assert "lowest cosine with its vectors: 1.0000" in printed.err
    assert find_source("mine").student == Path("mine")
