"""xcompress: small, fast multilingual sentence encoders, with the loss measured.

`from xcompress import Encoder` opens an exported bundle. The verbs have a folder each: `xcompress.distill.distill`,
`xcompress.export.export` and `xcompress.bench.bench`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xcompress.runtime import Encoder as Encoder

__version__ = "0.1.0"
__all__ = ["Encoder", "__version__"]


def __getattr__(name: str) -> object:
    if name == "Encoder":
        from xcompress.runtime import Encoder

        return Encoder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
