"""How much work a call is: the multiply-adds of its products, and how many the machine can do in a second."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xcompress.bench.latency import Shape

SIDE = 1024
"""Rows, columns and depth of the product that shows the machine's peak."""


@dataclass(frozen=True)
class Work:
    """Multiply-adds of an encoder's products: `token` for each token, `pair` for each pair of tokens of a sentence."""

    token: int
    pair: int

    def of(self, shape: "Shape") -> int:
        """Return the multiply-adds of one call: N L (token + L pair)."""
        return shape.batch * shape.tokens * (self.token + shape.tokens * self.pair)


def work_of(layers: int, hidden: int, inner: int, bottleneck: int = 0) -> Work:
    """Return the work of a BERT: 4 H^2 + 2 H I for a token in each layer, 2 H for each pair (scores and context).

    :param bottleneck: B, where every token passes a B x H product behind the word table.
    """
    return Work(layers * (4 * hidden * hidden + 2 * hidden * inner) + bottleneck * hidden, layers * 2 * hidden)


def work_of_bundle(folder: Path) -> Work | None:
    """Read the sizes from a bundle; None where its files do not tell."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        return _read(config, manifest.get("bottleneck") or {})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _read(config: dict[str, Any], bottleneck: dict[str, Any]) -> Work:
    width = bottleneck["width"] if bottleneck.get("form") == "factored" else 0
    return work_of(config["num_hidden_layers"], config["hidden_size"], config["intermediate_size"], width)


def peak_graph(kind: str) -> bytes | None:
    """Write one large product with a constant weight, int8 (`MatMulInteger`) or float32; None without onnx.

    Its input `given` is (SIDE, SIDE), uint8 or float32.
    """
    try:
        import numpy as np
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        return None
    is_int8 = kind == "int8"
    random = np.random.default_rng(0)
    values = (
        random.integers(-63, 64, (SIDE, SIDE), dtype=np.int8) if is_int8 else random.random((SIDE, SIDE), np.float32)
    )
    node = helper.make_node("MatMulInteger" if is_int8 else "MatMul", ["given", "weight"], ["result"])
    given, result = (TensorProto.UINT8, TensorProto.INT32) if is_int8 else (TensorProto.FLOAT, TensorProto.FLOAT)
    inputs = [helper.make_tensor_value_info("given", given, [SIDE, SIDE])]
    outputs = [helper.make_tensor_value_info("result", result, [SIDE, SIDE])]
    graph = helper.make_graph([node], "peak", inputs, outputs, [numpy_helper.from_array(values, "weight")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    written: bytes = model.SerializeToString()
    return written
