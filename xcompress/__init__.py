"""xcompress: small, fast multilingual sentence encoders, with the loss measured.

    import xcompress

    encoder = xcompress.Encoder.from_pretrained("small")
    vector = encoder.encode("Where is the station?")

`Encoder` opens an exported bundle or a released model. It needs numpy, tokenizers and onnxruntime only. `distill`,
`export_model` and `bench_models` are the functions behind the commands; they need the extras `train`, `export` and
`bench`.
"""

import os
from importlib import import_module

# onnxruntime reads it when it is imported; see "Install" in README.md.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

TYPE_CHECKING = False
"""Type checkers take it for true. Importing it from `typing` would take longer than all else here."""
if TYPE_CHECKING:
    from xcompress.api import Bundle as Bundle
    from xcompress.api import Run as Run
    from xcompress.api import bench_models as bench_models
    from xcompress.api import distill as distill
    from xcompress.api import export_model as export_model
    from xcompress.bundle.encoder import Encoder as Encoder
    from xcompress.bundle.released import released_names as released_names
    from xcompress.errors import GateError as GateError
    from xcompress.errors import InputError as InputError
    from xcompress.errors import XCompressError as XCompressError

__version__ = "0.1.0"

_MODULES = {
    **dict.fromkeys(("Bundle", "Run", "bench_models", "distill", "export_model"), "xcompress.api"),
    "Encoder": "xcompress.bundle.encoder",
    "released_names": "xcompress.bundle.released",
    **dict.fromkeys(("GateError", "InputError", "XCompressError"), "xcompress.errors"),
}
"""Where each public name is defined. It is imported on first use, so that `import xcompress` loads no library."""
__all__ = [
    "Bundle",
    "Encoder",
    "GateError",
    "InputError",
    "Run",
    "XCompressError",
    "__version__",
    "bench_models",
    "distill",
    "export_model",
    "released_names",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
