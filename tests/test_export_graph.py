from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from small_student import bundle, make_student

from xcompress.errors import GateError, InputError
from xcompress.export import graph


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return onnx.load(bundle() / "onnx" / "model.onnx")


def matrices(model: onnx.ModelProto) -> list[str]:
    return [weight.name for weight in model.graph.initializer if len(weight.dims) == 2]


def test_shared_weights_are_stored_once(model: onnx.ModelProto) -> None:
    # words, projection, positions, head, and four products for each of the 2 layers of the unit
    assert len(matrices(model)) == 4 + 4 * 2
    products = sum(node.op_type == "MatMul" and node.input[1] in matrices(model) for node in model.graph.node)
    assert products == 2 + 4 * 2 * 3


def test_a_copied_weight_is_noticed(model: onnx.ModelProto) -> None:
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    copied.graph.initializer.add().CopyFrom(copied.graph.initializer[0])
    with pytest.raises(GateError, match="copied"):
        graph._check_sharing(copied, make_student())


def test_a_graph_too_large_for_one_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "_LARGEST", 1000)
    with pytest.raises(InputError, match="trim its vocabulary"):
        graph.build(make_student())


def test_inputs_and_outputs_are_named_and_free_in_size(model: onnx.ModelProto) -> None:
    assert [value.name for value in model.graph.input] == list(graph.INPUTS)
    assert [value.name for value in model.graph.output] == list(graph.OUTPUTS)
    dims = [dim.dim_param for dim in model.graph.input[0].type.tensor_type.shape.dim]
    assert dims == ["batch", "length"]
    assert model.opset_import[0].version == graph.OPSET


def test_residuals_are_sums(model: onnx.ModelProto) -> None:
    makers = {output: node.op_type for node in model.graph.node for output in node.output}
    before = [makers[node.input[0]] for node in model.graph.node if node.op_type == "LayerNormalization"]
    assert before == ["Sum"] * (1 + 2 * 2 * 3)


def test_the_mask_is_made_once_and_weights_are_not_transposed_per_use(model: onnx.ModelProto) -> None:
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("Where") == kinds.count("IsNaN") == 0
    assert kinds.count("Cast") == 1
    stored = {weight.name for weight in model.graph.initializer}
    assert not [node for node in model.graph.node if node.op_type == "Transpose" and node.input[0] in stored]


def test_the_file_holds_no_paths() -> None:
    for file in (bundle() / "onnx").iterdir():
        content = file.read_bytes()
        assert b"stack_trace" not in content
        assert str(Path(graph.__file__).parents[1]).encode() not in content


@pytest.mark.parametrize(
    "changes",
    [
        {"bottleneck": None, "head_size": None, "normalize": False, "position_offset": 0},
        {"recurrences": 1, "unit_layers": 1, "layer_norm_eps": 1e-5},
    ],
)
def test_every_form_of_student_agrees_with_torch(changes: dict[str, object]) -> None:
    student = make_student(**changes)
    session = onnxruntime.InferenceSession(graph.build(student).SerializeToString())
    for shape in ((1, 1), (1, 7), (5, 33)):
        input_ids = torch.randint(0, 400, shape)
        attention_mask = (
            torch.arange(shape[1])[None] < torch.arange(shape[1], shape[1] - shape[0], -1)[:, None]
        ).long()
        with torch.inference_mode():
            tokens, sentences = student(input_ids, attention_mask)
        feeds = {"input_ids": input_ids.numpy(), "attention_mask": attention_mask.numpy()}
        found = session.run(list(graph.OUTPUTS), feeds)
        kept = attention_mask.bool().numpy()
        np.testing.assert_allclose(found[0][kept], tokens.numpy()[kept], atol=1e-4)
        np.testing.assert_allclose(found[1], sentences.numpy(), atol=1e-4)
        np.testing.assert_array_equal(found[0], found[2])
