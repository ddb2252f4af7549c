"""xcompress: small, fast multilingual sentence encoders, with the loss measured.

`Encoder` opens an exported bundle or a released model; it needs numpy, tokenizers and onnxruntime only. The other
steps are functions of their own: `xcompress.distillation.pipeline.distill`, `xcompress.export.exporter.export` and
`xcompress.bench.run.bench`.

    from xcompress import Encoder

    encoder = Encoder.from_pretrained("small")
    vector = encoder.encode("Where is the station?")
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xcompress.bundle.encoder import Encoder as Encoder
    from xcompress.bundle.released import released_names as released_names

__version__ = "0.1.0"
__all__ = ["Encoder", "__version__", "released_names"]

_MODULES = {"Encoder": "xcompress.bundle.encoder", "released_names": "xcompress.bundle.released"}
"""Where each public name is defined; imported on first use, so that `import xcompress` loads no library."""


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
