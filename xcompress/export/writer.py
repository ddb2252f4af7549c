"""A graph while it is written: nodes in order, and constants that are stored once whoever uses them."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 20
"""The first one with Gelu as one operator."""
CONTRIB = "com.microsoft"
"""Operators that onnxruntime adds to the standard; all its builds have those used here."""
_IR_VERSION = 10
"""The first one with 4-bit tensors."""


Attribute = int | float | str | list[int] | onnx.GraphProto


class Writer:
    """Collects nodes; a value is known by its name.

    The body of a loop is written by a writer of its own, inside another one, whose constants and values it sees.
    """

    def __init__(self, outer: "Writer | None" = None) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.root: Writer = outer.root if outer else self
        self._constants: dict[str, onnx.TensorProto] = {}
        self._named: Counter[str] = Counter()

    def node(self, kind: str, *inputs: str, name: str | None = None, domain: str = "", **attributes: Attribute) -> str:
        """Add a node of one output.

        :param inputs: names of values; an empty one leaves an optional input out.
        :param name: the output's name, which must be new; made from the kind when not given.
        :returns: the output's name.
        """
        return self.nodes_of(kind, inputs, [name or self._new(kind)], domain=domain, **attributes)[0]

    def nodes_of(
        self, kind: str, inputs: Sequence[str], outputs: Sequence[str], *, domain: str = "", **attributes: Attribute
    ) -> Sequence[str]:
        """Add a node with named outputs, and return these."""
        self.nodes.append(
            helper.make_node(kind, inputs, outputs, name=outputs[0], domain=domain, **cast(Any, attributes))
        )
        return outputs

    def constant(self, name: str, value: NDArray[Any] | np.generic) -> str:
        """Store a constant, unless one of that name is stored; return its name."""
        return self.stored(numpy_helper.from_array(np.asarray(value), name)) if not self.has(name) else name

    def from_half(self, name: str, value: NDArray[np.float16]) -> str:
        """Store float16 numbers once, and return the name of their float32 values, which runtimes make at load."""
        if not self.has(f"{name}.half"):
            self.root.node("Cast", self.constant(f"{name}.half", value), name=name, to=TensorProto.FLOAT)
        return name

    def stored(self, tensor: onnx.TensorProto) -> str:
        """Store a tensor under its name and return that."""
        self.root._constants[tensor.name] = tensor
        return str(tensor.name)

    def has(self, name: str) -> bool:
        """Tell whether a constant of that name is stored."""
        return name in self.root._constants

    def number(self, value: float) -> str:
        """Store a float32 scalar, once for each value."""
        return self.constant(f"float_{float(value)!r}", np.float32(value))

    def integers(self, *values: int) -> str:
        """Store a list of int64, once for each list."""
        return self.constant("int_" + "_".join(map(str, values)), np.array(values, dtype=np.int64))

    def model(self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]) -> onnx.ModelProto:
        """Put everything together."""
        graph = helper.make_graph(self.nodes, "xcompress", inputs, outputs, list(self._constants.values()))
        domains = {node.domain for node in _all_nodes(graph)} | {""}
        opsets = [helper.make_opsetid(domain, 1 if domain else OPSET) for domain in sorted(domains)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="xcompress")

    def body(self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]) -> onnx.GraphProto:
        """Put the nodes together as the body of a loop; constants stay with the outermost writer."""
        return helper.make_graph(self.nodes, "unit", inputs, outputs)

    def _new(self, kind: str) -> str:
        self.root._named[kind] += 1
        return f"{kind.lower()}_{self.root._named[kind]}"


def _all_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    nodes = list(graph.node)
    for node in graph.node:
        for attribute in node.attribute:
            nodes += _all_nodes(attribute.g) if attribute.HasField("g") else []
    return nodes
