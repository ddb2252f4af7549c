"""From a picture's name to the picture, drawn in one of the two themes."""

import re
import warnings
from io import BytesIO
from typing import Any, cast

from matplotlib.figure import Figure as Canvas

from xcompress.bench.report.figures import dots as pairs
from xcompress.bench.report.figures import latency as length
from xcompress.bench.report.figures import memory, scatter
from xcompress.bench.report.figures.catalogue import Picture
from xcompress.bench.report.figures.headline import Headline
from xcompress.bench.report.figures.style import DARK, LIGHT, Theme, styled
from xcompress.bench.results import Report

DPI = 180
NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}
"""Leaves out what differs between runs, and the addresses of standards."""


def png(report: Report, picture: Picture, dark: bool) -> bytes:
    """Draw a picture as PNG."""
    return _saved(report, picture, dark, {"format": "png", "dpi": DPI, "metadata": {"Software": None}})


def svg(report: Report, picture: Picture, dark: bool) -> str:
    """Draw a picture as the `svg` element of an SVG document, in one line and without comments."""
    text = _saved(report, picture, dark, {"format": "svg", "metadata": NO_METADATA}).decode()
    return re.sub(r"\s*\n\s*", " ", re.sub(r"<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL))


def _saved(report: Report, picture: Picture, dark: bool, options: dict[str, Any]) -> bytes:
    theme, stream = DARK if dark else LIGHT, BytesIO()
    with styled(theme), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a script that the font lacks is drawn as boxes
        _draw(report, picture, theme).savefig(stream, **options)
    return stream.getvalue()


def _draw(report: Report, picture: Picture, theme: Theme) -> Canvas:
    match picture.kind:
        case "size":
            return scatter.draw(report, cast(Headline, picture.subject), theme)
        case "latency":
            return length.draw(report, cast(int, picture.subject), theme)
        case "accuracy":
            return pairs.draw(report, cast(str, picture.subject), theme)
        case _:
            return memory.draw(report, theme)
