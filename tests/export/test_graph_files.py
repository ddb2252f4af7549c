from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.helpers.export import batch, ranges_of, torch_vectors
from tests.helpers.student import CONFIG, make_student
from xcompress.bundle.external_data import external_locations
from xcompress.export.graph import GRAPHS, GraphOptions, Recurrence, decide_folding, options_for, write_graph, write_ort
from xcompress.export.matmul import MatMulWriter
from xcompress.export.verify import open_session
from xcompress.metrics import cosines
from xcompress.modeling.student import StudentConfig

LARGE = StudentConfig(vocab_size=50_000, bottleneck=128)


def test_forms_of_the_precisions() -> None:
    assert options_for("fp32", "loop", True, {}) == GraphOptions("loop", True)
    assert options_for("fp16", "unroll", False, {}) == GraphOptions("unroll", False, "fp16", MatMulWriter(half=True))
    ranges = ranges_of()
    products = MatMulWriter(None, ranges=ranges)
    assert options_for("int8", "loop", False, ranges) == GraphOptions("loop", False, "int8", products)
    assert options_for("int8", "loop", False, ranges, "int4") == GraphOptions("loop", False, "int4", products)
    assert options_for("int4", "loop", False, ranges) == GraphOptions("loop", False, "int4", replace(products, bits=4))
    assert options_for("int4", "loop", False, ranges, "int8") == GraphOptions(
        "loop", False, "int8", replace(products, bits=4)
    )


def test_other_levels_change_nothing_else() -> None:
    form = options_for("int4", "loop", True, ranges_of())
    changed = form.with_levels({"head": "fp32"})
    assert changed.matmuls.levels == {"head": "fp32"}
    assert changed.with_levels({}) == form


@pytest.mark.parametrize(
    ("config", "asked", "answer"),
    [
        (CONFIG, "auto", True),
        (LARGE, "auto", False),
        (LARGE, "fold", True),
        (CONFIG, "keep", False),
        (StudentConfig(vocab_size=400), "fold", False),
        (StudentConfig(vocab_size=400), "auto", False),
    ],
)
def test_the_bottleneck_is_folded_where_that_costs_little_or_is_asked_for(
    config: StudentConfig, asked: str, answer: bool
) -> None:
    assert decide_folding(config, asked)[0] is answer


def test_why_the_bottleneck_is_folded_is_told_in_figures() -> None:
    # 50,000 x (384 - 128) - 128 x 384 numbers of 4 bytes, and 4 products in each of 12 layers
    cost = "folding adds 51.0 MB in float32 and saves one product of 49"
    assert decide_folding(LARGE, "auto")[1] == cost
    assert decide_folding(LARGE, "fold")[1] == f"asked for; {cost}"
    assert decide_folding(StudentConfig(vocab_size=400), "auto")[1] == "no bottleneck"


@pytest.mark.parametrize("recurrence", ["unroll", "loop"])
@pytest.mark.parametrize("precision", GRAPHS)
def test_weights_beside_the_graph_give_the_same_vectors(precision: str, recurrence: Recurrence, tmp_path: Path) -> None:
    form = options_for(precision, recurrence, False, ranges_of())
    file, feeds = tmp_path / "onnx" / "model.onnx", batch(3, 9)
    found = []
    for external in (False, True):
        write_graph(make_student(), form, file, external=external)
        found.append(open_session(file).run(None, feeds))
    for left, right in zip(*found, strict=True):
        np.testing.assert_array_equal(left, right)
    assert sorted(path.name for path in file.parent.iterdir()) == ["model.onnx", "model.onnx_data"]
    assert external_locations(file) == {"model.onnx_data"}
    onnx.checker.check_model(str(file))


def test_the_large_weights_lie_beside_the_graph_and_the_small_ones_in_it(tmp_path: Path) -> None:
    file = tmp_path / "onnx" / "model.onnx"
    write_graph(make_student(), GraphOptions(), file, external=False)
    whole = file.stat().st_size
    write_graph(make_student(), GraphOptions(), file, external=True)
    beside = file.with_name("model.onnx_data").stat().st_size
    assert beside > 3 * 30_040 < whole
    assert file.stat().st_size < whole / 3
    stored = onnx.load(file, load_external_data=False).graph.initializer
    for weight in stored:
        assert weight.HasField("raw_data") == (not weight.external_data)
        assert bool(weight.external_data) == (np.prod(weight.dims) * 4 >= 1024)


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("precision", [*(name for name in GRAPHS if name != "int4"), "int4"])
def test_the_runtimes_own_format_needs_no_other_file(precision: str, external: bool, tmp_path: Path) -> None:
    file, feeds = tmp_path / "onnx" / "model.onnx", batch(3, 9)
    write_graph(make_student(), options_for(precision, "loop", False, ranges_of()), file, external=external)
    ort = write_ort(file)
    assert ort == file.with_suffix(".ort")
    expected = open_session(file).run(["sentence_embedding"], feeds)[0]
    for left_over in file.parent.glob("model.onnx*"):
        left_over.unlink()
    session = onnxruntime.InferenceSession(str(ort), providers=["CPUExecutionProvider"])
    found = session.run(["sentence_embedding"], feeds)[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert cosines(found, torch_vectors(make_student(), feeds)[1]).min() > 0.97
    assert str(tmp_path).encode() not in ort.read_bytes()
