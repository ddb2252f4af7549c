"""Write an ONNX graph node by node, and store each constant once."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 20
"""The first opset in which Gelu is one operator."""
CONTRIB = "com.microsoft"
"""Domain of onnxruntime's own operators; all its builds have those used here."""
_IR_VERSION = 10
"""The first IR version with 4-bit tensors."""

Attribute = int | float | str | list[int] | onnx.GraphProto


class Writer:
    """Collects the nodes and constants of a graph; values are known by name.

    The body of a Loop gets its own writer, made from the outer one: it sees the outer values and stores its constants
    there. They go straight into the model, and no cycle of references holds it: they may take gigabytes.
    """

    def __init__(self, outer: "Writer | None" = None) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._outer = outer
        self._model = onnx.ModelProto(ir_version=_IR_VERSION, producer_name="xcompress")
        self._constants: set[str] = set()
        self._name_counts: Counter[str] = Counter()

    @property
    def root(self) -> "Writer":
        """The outermost writer."""
        return self._outer.root if self._outer else self

    def node(self, kind: str, *inputs: str, name: str | None = None, domain: str = "", **attributes: Attribute) -> str:
        """Add a node with one output.

        :param kind: the operator, such as `MatMul`.
        :param inputs: names of values; an empty name leaves out an optional input.
        :param name: name of the output, which must be new; by default made from the operator and a number.
        :returns: the output's name.
        """
        if name is None:
            self.root._name_counts[kind] += 1
            name = f"{kind.lower()}_{self.root._name_counts[kind]}"
        return self.nodes_of(kind, inputs, [name], domain=domain, **attributes)[0]

    def nodes_of(
        self, kind: str, inputs: Sequence[str], outputs: Sequence[str], *, domain: str = "", **attributes: Attribute
    ) -> Sequence[str]:
        """Add a node with several named outputs; return their names."""
        node = helper.make_node(kind, inputs, outputs, name=outputs[0], domain=domain, **cast(Any, attributes))
        self.nodes.append(node)
        return outputs

    def constant(self, name: str, value: NDArray[Any] | np.generic) -> str:
        """Store a constant, unless one with this name is stored; return its name."""
        if not self.has(name):
            self.root._constants.add(name)
            self.root._model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def half_constant(self, name: str, value: NDArray[np.float16]) -> str:
        """Store float16 numbers once; return the name of their float32 values, which runtimes compute at load."""
        if not self.has(f"{name}.half"):
            self.root.node("Cast", self.constant(f"{name}.half", value), name=name, to=TensorProto.FLOAT)
        return name

    def has(self, name: str) -> bool:
        """Tell whether a constant with this name is stored."""
        return name in self.root._constants

    def number(self, value: float) -> str:
        """Store a float32 scalar, once per value."""
        return self.constant(f"float_{float(value)!r}", np.float32(value))

    def integer(self, value: int) -> str:
        """Store an int64 scalar, once per value."""
        return self.constant(f"scalar_{value}", np.int64(value))

    def integers(self, *values: int) -> str:
        """Store a list of int64, once per list."""
        return self.constant("int_" + "_".join(map(str, values)), np.array(values, dtype=np.int64))

    def model(self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]) -> onnx.ModelProto:
        """Make the model from all nodes and constants; import only the domains in use."""
        graph = self._model.graph
        graph.MergeFrom(helper.make_graph(self.nodes, "xcompress", inputs, outputs))
        domains = {node.domain for node in all_nodes(graph)} | {""}
        opsets = [helper.make_opsetid(domain, 1 if domain else OPSET) for domain in sorted(domains)]
        self._model.opset_import.extend(opsets)
        return self._model

    def body(self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]) -> onnx.GraphProto:
        """Make the body of a Loop from the nodes; constants stay with the outermost writer."""
        return helper.make_graph(self.nodes, "unit", inputs, outputs)


def all_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """List the nodes of a graph and of the bodies of its loops."""
    nodes = list(graph.node)
    for node in graph.node:
        for attribute in node.attribute:
            nodes += all_nodes(attribute.g) if attribute.HasField("g") else []
    return nodes
