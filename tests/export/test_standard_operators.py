"""int8 graphs of standard operators: any engine reads them, and their vectors are those of the fused graph."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tests.helpers.export import batch, kinds, kinds_as_run, manifest_of, ran, ranges_of, use_little_text
from tests.helpers.student import MODERNBERT, make_student, make_tokenizer
from xcompress.bundle.encoder import Encoder
from xcompress.errors import InputError
from xcompress.export.config import ExportConfig, Operators, Recurrence, Table
from xcompress.export.exporter import export
from xcompress.export.graph import build, options_for
from xcompress.metrics import cosines

SMALLER = pytest.mark.parametrize("table", ["int8", "int4"])
DEPTH, LAYERS = make_student().config.depth, len(make_student().unit)
REPEATED = pytest.mark.parametrize("recurrence", ["unroll", "loop"])


def made(operators: Operators, recurrence: Recurrence = "unroll", table: Table = "int8") -> onnx.ModelProto:
    return build(make_student(), options_for("int8", recurrence, False, ranges_of(), table, operators))


@REPEATED
@SMALLER
def test_only_operators_of_the_standard_are_used(table: Table, recurrence: Recurrence) -> None:
    model = made("standard", recurrence, table)
    onnx.checker.check_model(model, full_check=True)
    assert [entry.domain for entry in model.opset_import] == [""]


@REPEATED
@SMALLER
def test_vectors_are_those_of_the_fused_operators(table: Table, recurrence: Recurrence) -> None:
    feeds = batch(5, 33)
    fused = ran(made("onnxruntime", recurrence, table), feeds)[1]
    assert cosines(ran(made("standard", recurrence, table), feeds)[1], fused).min() > 0.9999


@SMALLER
def test_an_engine_that_knows_the_standard_alone_gives_the_same_vectors(table: Table) -> None:
    feeds = batch(2, 9)
    model = made("standard", table=table)
    found = ReferenceEvaluator(model).run(["sentence_embedding"], feeds)[0]
    assert cosines(found, ran(model, feeds)[1]).min() > 0.9999


def test_rotary_positions_are_one_operator_in_onnxruntime_and_several_of_the_standard() -> None:
    student, ranges, feeds = make_student(**MODERNBERT), ranges_of(**MODERNBERT), batch(2, 19)
    fused, standard = (
        build(student, options_for("int8", "unroll", False, ranges, "int8", operators))
        for operators in ("onnxruntime", "standard")
    )
    assert kinds(fused.graph)["RotaryEmbedding"] == 2 * student.config.depth
    assert [entry.domain for entry in standard.opset_import] == [""]
    found = ReferenceEvaluator(standard).run(["sentence_embedding"], feeds)[0]
    for other in (ran(standard, feeds)[1], ran(fused, feeds)[1]):
        assert cosines(found, other).min() > 0.9999


@pytest.mark.parametrize(("recurrence", "depth"), [("unroll", DEPTH), ("loop", LAYERS)])
def test_onnxruntime_computes_every_product_with_weights_in_int8(recurrence: Recurrence, depth: int) -> None:
    found = kinds_as_run(made("standard", recurrence))
    assert (found["MatMulIntegerToFloat"], found["DequantizeLinear"], found["Softmax"]) == (2 + 4 * depth, 0, depth)


def test_an_export_is_verified_and_opens_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_little_text(monkeypatch)
    (tmp_path / "student").mkdir()
    make_student().save(tmp_path / "student", make_tokenizer())
    bundle = export(tmp_path / "student", options=ExportConfig(operators="standard"))
    manifest = manifest_of(bundle)
    assert manifest["options"]["operators"] == "standard" and manifest["parity"]["int8"]["mean_cosine"] > 0.99
    assert [entry.domain for entry in onnx.load(bundle / "onnx" / "model_quantized.onnx").opset_import] == [""]
    assert np.isfinite(Encoder(bundle).encode("rain")).all()


def test_int4_has_no_standard_operators() -> None:
    with pytest.raises(InputError, match=r"^operators: standard needs precision int8, not int4; .* --table int4$"):
        ExportConfig(precision="int4", operators="standard")
