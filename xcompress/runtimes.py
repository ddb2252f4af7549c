"""The runtimes beside onnxruntime that a bundle may be exported for: one entry for each.

The target of the export, the extra, the file's folder in a bundle and the engine all have the name of the runtime.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Runtime:
    """A runtime, and the packages that write and run its file."""

    name: str
    label: str
    """Its name in messages and tables."""
    file: str
    """Path of its file, or of a folder that stands for one, in a bundle."""
    written_by: str
    """The package that writes the file."""
    run_by: str
    """The package that runs the bundle here; empty where nothing can."""
    of_phones: bool = False
    """Whether it takes one text a call; its engine opens `file`, others open a graph in ONNX."""


RUNTIMES = {
    runtime.name: runtime
    for runtime in (
        # named as sentence-transformers and optimum-intel look for it; the weights are in .bin
        Runtime("openvino", "OpenVINO", "openvino/openvino_model.xml", "openvino", "openvino"),
        Runtime("executorch", "ExecuTorch", "executorch/model.pte", "executorch", "executorch", of_phones=True),
        Runtime("litert", "LiteRT", "litert/model.tflite", "litert_torch", "ai_edge_litert", of_phones=True),
        Runtime("coreml", "Core ML", "coreml/model.mlpackage", "coremltools", ""),
    )
}
ENGINES = {name: runtime for name, runtime in RUNTIMES.items() if runtime.run_by}
"""Those that run a bundle on this machine."""
PHONE_FILES = {name: runtime.file for name, runtime in RUNTIMES.items() if runtime.of_phones}
"""By runtime of phones, the file that its engine opens."""
OPENVINO, COREML = RUNTIMES["openvino"].file, RUNTIMES["coreml"].file
GRAPH_FOLDERS = ("onnx", *RUNTIMES)
"""Folders of a bundle that hold graphs."""
