"""Turn a student into a self-contained, verified ONNX bundle."""

from xcompress.export.pipeline import export
from xcompress.export.verify import Bounds

__all__ = ["Bounds", "export"]
