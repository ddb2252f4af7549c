"""Draw the pictures of a report as PNG or SVG, in a light and a dark theme.

Size against accuracy, latency, accuracy per language pair, memory. matplotlib is imported when a picture is drawn, not
before.
"""

import re
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

from xcompress.bench.report.headlines import Headline
from xcompress.bench.report.pictures.catalogue import Picture, pictures
from xcompress.bench.results import Report
from xcompress.errors import InputError
from xcompress.files import whole_file
from xcompress.packages import require_package

__all__ = ["Picture", "check_pictures", "pictures", "svg", "write_pngs"]

DPI = 180
NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}
"""Leaves out what differs between runs, and the addresses of standards."""


def check_pictures(folder: Path) -> None:
    """Refuse what `write_pngs` would refuse, before the measurements that it draws.

    :raises InputError: when matplotlib is missing, or the folder is a file.
    """
    require_package("matplotlib", "bench", "a picture")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; name a folder for the pictures")


def write_pngs(report: Report, folder: Path, *, dark: bool = False) -> list[Path]:
    """Write every picture that the report has data for as `<name>.png` (`<name>-dark.png`), each atomically.

    :raises InputError: when matplotlib is missing, or the folder cannot be written.
    """
    check_pictures(folder)
    paths = []
    for picture in pictures(report):
        path = folder / f"{picture.name}{'-dark' if dark else ''}.png"
        image = _render(report, picture, dark, format="png", dpi=DPI, metadata={"Software": None})
        with whole_file(path) as temporary:
            temporary.write_bytes(image)
        paths.append(path)
    return paths


def svg(report: Report, picture: Picture, dark: bool) -> str:
    """Draw one picture as a self-contained `svg` element, in one line and without comments.

    :raises InputError: when matplotlib is missing.
    """
    text = _render(report, picture, dark, format="svg", metadata=NO_METADATA).decode()
    return re.sub(r"\s*\n\s*", " ", re.sub(r"<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL))


def _render(report: Report, picture: Picture, dark: bool, **options: Any) -> bytes:  # noqa: ANN401 - of savefig
    require_package("matplotlib", "bench", "a picture")
    from xcompress.bench.report.pictures.charts import draw_accuracy, draw_latency, draw_memory
    from xcompress.bench.report.pictures.scatter import draw_size
    from xcompress.bench.report.pictures.style import DARK, LIGHT, styled

    theme, stream = DARK if dark else LIGHT, BytesIO()
    with styled(theme), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # scripts that the font lacks are drawn as boxes
        match picture.subject:
            case Headline() as headline:
                figure = draw_size(report, headline, theme)
            case int(threads):
                figure = draw_latency(report, threads, theme)
            case str(test):
                figure = draw_accuracy(report, test, theme)
            case None:
                figure = draw_memory(report, theme)
        figure.savefig(stream, **options)
    return stream.getvalue()
