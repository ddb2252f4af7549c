"""Open a saved ML program again, and check what can be checked without Core ML."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcompress.bundle.manifest import OUTPUT
from xcompress.bundle.phone_runtimes import LEAST_TOKENS
from xcompress.errors import GateError
from xcompress.export.coreml import SMALL, quiet
from xcompress.export.phone import PhoneModel
from xcompress.metrics import Vectors

_INT32, _FLOAT32 = 131104, 65568
"""Types of numbers in Core ML's model format."""
_ADVICE = "install the torch and coremltools versions of constraints.txt"


class MlProgram:
    """An ML program that was saved in an .mlpackage folder.

    It can be evaluated with coremltools' numpy definitions of the operators, which the converter folds constants with.
    This is slow, and it is not Core ML: it shows that the file describes the right network.
    """

    def __init__(self, package: Path) -> None:
        with quiet():
            import coremltools
            from coremltools.converters.mil.frontend.milproto.load import load

            model = coremltools.models.MLModel(str(package), skip_model_load=True)
            self._spec: Any = model.get_spec()
            version = self._spec.specificationVersion
            program = load(self._spec, specification_version=version, file_weights_dir=model.weights_dir)
        self._name = f"{package.parent.name}/{package.name}"
        self._main: Any = program.functions["main"]
        self._scales: dict[str, NDArray[np.float32]] = {}
        self._constants: dict[str, Any] = {}
        self._steps = []
        for operation in self._main.operations:
            name = operation.outputs[0].name
            if operation.op_type == "const":
                self._constants[name] = _widened(operation.outputs[0].val)
            elif operation.op_type == "constexpr_affine_dequantize":
                self._constants[name] = _widened(operation.materialized_val_inference())
                self._scales[name] = _widened(operation.scale.val)
            else:
                self._steps.append(operation)

    def check_interface(self, max_tokens: int, dimension: int) -> None:
        """Check names, types and shapes of the inputs and the output.

        :raises GateError: when they are not those that the card promises.
        """
        inputs = {
            port.name: (
                port.type.multiArrayType.dataType,
                [(size.lowerBound, size.upperBound) for size in port.type.multiArrayType.shapeRange.sizeRanges],
            )
            for port in self._spec.description.input
        }
        outputs = {
            port.name: (port.type.multiArrayType.dataType, list(port.type.multiArrayType.shape))
            for port in self._spec.description.output
        }
        text = (_INT32, [(1, 1), (LEAST_TOKENS, max_tokens)])
        if inputs != {"input_ids": text, "attention_mask": text}:
            raise GateError(f"export: {self._name}: its inputs are {inputs}; {_ADVICE}")
        if outputs != {OUTPUT: (_FLOAT32, [1, dimension])}:
            raise GateError(f"export: {self._name}: its output is {outputs}; {_ADVICE}")

    def check_weights(self, model: PhoneModel, *, quantized: bool) -> dict[str, Any]:
        """Compare all weights with the student's.

        A weight may differ by half a step of its row in int8, and by what float16 rounds.

        :param model: what was converted.
        :returns: how many tensors there are and how many in int8, and the largest difference.
        :raises GateError: when a weight is missing, differs more, or is not in int8 although it should be.
        """
        buffers = {name for name, _ in model.named_buffers()}
        tensors = {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
        in_int8, largest = 0, 0.0
        for name, tensor in tensors.items():
            stored = f"{'b' if name in buffers else 'p'}_{name.replace('.', '_')}_to_fp16"
            scales = self._scales.get(f"{stored}_quantized")
            values = self._constants.get(stored if scales is None else f"{stored}_quantized")
            if values is None or values.shape != tuple(tensor.shape):
                raise GateError(f"export: {self._name}: {name} is missing or has another shape; {_ADVICE}")
            is_large = name not in buffers and tensor.ndim == 2 and tensor.numel() > SMALL
            if quantized and is_large and scales is None:
                raise GateError(f"export: {self._name}: {name} is not in int8; {_ADVICE}")
            expected = tensor.numpy()
            error = np.abs(values - expected)
            step = np.float32(0) if scales is None else scales.reshape(-1, 1)
            # float16: the weight before it is quantised, its scale (at most 127 times 2^-25), and their product
            rounding = np.abs(expected) * 2**-9 + 2**-18
            if not (error <= step / 2 + rounding).all():
                raise GateError(
                    f"export: {self._name}: {name} differs from the student's by up to {error.max():.2g}, more than "
                    f"rounding explains; {_ADVICE}"
                )
            in_int8, largest = in_int8 + (scales is not None), max(largest, float(error.max()))
        return {"tensors": len(tensors), "int8": in_int8, "largest_difference": largest}

    def encode(self, ids: Sequence[int], mask: Sequence[int] | None = None) -> Vectors:
        """Evaluate the program for one text.

        Sums within an operator are in float32; its output is rounded to float16 where the program says so.

        :param ids: token ids.
        :param mask: 1 for tokens, 0 for padding; None: no padding.
        :returns: its vector, (1, D).
        """
        rows = np.zeros((2, 1, max(LEAST_TOKENS, len(ids))), dtype=np.int32)
        rows[0, 0, : len(ids)], rows[1, 0, : len(ids)] = ids, 1 if mask is None else mask
        values = {**self._constants, "input_ids": rows[0], "attention_mask": rows[1]}
        with np.errstate(all="ignore"):  # what is too large for float16 ends as a wrong vector
            for operation in self._steps:
                values[operation.outputs[0].name] = self._evaluate(operation, values)
        vector: Vectors = values[self._main.outputs[0].name]
        return vector

    def _evaluate(self, operation: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - types of coremltools
        """Evaluate an operator with one output."""
        from coremltools.converters.mil.mil import Builder, Function, types

        inputs = {
            name: [values[part.name] for part in port] if isinstance(port, list | tuple) else values[port.name]
            for name, port in operation.inputs.items()
            if port is not None
        }
        if operation.op_type == "reduce_sum":  # coremltools 9.0 hands keepdims to numpy in a form that 2.4 refuses
            axes = tuple(inputs["axes"])
            found = np.sum(inputs["x"], axis=axes, keepdims=bool(inputs["keep_dims"]))
        else:
            # a new operator with constant inputs computes its output at once
            with Function({}, opset_version=self._main.opset_version):
                found = getattr(Builder, operation.op_type)(**inputs).val
        if found is None:
            raise GateError(f"export: {self._name}: coremltools cannot evaluate {operation.op_type}; {_ADVICE}")
        return _widened(np.asarray(found).astype(np.float16) if operation.outputs[0].dtype == types.fp16 else found)


def _widened(value: Any) -> Any:  # noqa: ANN401 - arrays, numbers, text
    """Turn numbers in half and double precision into float32."""
    is_float = isinstance(value, np.ndarray | np.generic) and value.dtype.kind == "f"
    return value.astype(np.float32) if is_float else value
