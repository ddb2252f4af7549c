"""Turn a student or an encoder into a self-contained, verified ONNX bundle."""

from xcompress.export.options import Options
from xcompress.export.pipeline import export
from xcompress.export.source import Reading
from xcompress.export.verify import Bounds

__all__ = ["Bounds", "Options", "Reading", "export"]
