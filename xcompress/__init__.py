"""xcompress: small, fast multilingual sentence encoders, with the loss measured.

`from xcompress import Encoder` opens an exported bundle, `Encoder.released("small")` one that comes with the package.
The verbs have a folder each: `xcompress.distillation.distill`, `xcompress.export.export` and `xcompress.bench.bench`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xcompress.bundle.encoder import Encoder as Encoder
    from xcompress.bundle.released import released_names as released_names

__version__ = "0.1.0"
__all__ = ["Encoder", "__version__", "released_names"]


def __getattr__(name: str) -> object:
    if name == "Encoder":
        from xcompress.bundle.encoder import Encoder

        return Encoder
    if name == "released_names":
        from xcompress.bundle.released import released_names

        return released_names
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
