"""Pictures of a bench: size against accuracy, latency, accuracy per language pair, memory.

matplotlib is imported when a picture is drawn, not before.
"""

from importlib import import_module
from pathlib import Path
from types import ModuleType

from xcompress.bench.report.figures.catalogue import Picture, pictures
from xcompress.bench.report.figures.front import front
from xcompress.bench.results import Report
from xcompress.errors import InputError
from xcompress.files import whole_file

__all__ = ["Picture", "front", "pictures", "svg", "write_pngs"]


def write_pngs(report: Report, folder: Path, *, dark: bool = False) -> list[Path]:
    """Write every picture that the report has data for as `<name>.png` (`<name>-dark.png`), each whole or not at all.

    :raises InputError: when matplotlib is missing, or the folder cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; name a folder for the pictures")
    return [_write_png(report, picture, folder, dark) for picture in pictures(report)]


def svg(report: Report, name: str, dark: bool) -> str:
    """Draw one picture as an `svg` element that needs nothing from outside.

    :param name: one of those that `pictures` lists.
    :raises InputError: when there is no such picture, or matplotlib is missing.
    """
    found = {picture.name: picture for picture in pictures(report)}
    if name not in found:
        raise InputError(
            f"picture {name!r}: the report has none of this name; choose from {', '.join(found) or 'none'}"
        )
    return str(_drawing().svg(report, found[name], dark))


def _write_png(report: Report, picture: Picture, folder: Path, dark: bool) -> Path:
    path = folder / f"{picture.name}{'-dark' if dark else ''}.png"
    drawn = _drawing().png(report, picture, dark)
    with whole_file(path) as temporary:
        temporary.write_bytes(drawn)
    return path


def _drawing() -> ModuleType:
    try:
        return import_module("xcompress.bench.report.figures.drawing")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("matplotlib"):
            raise
        raise InputError("pictures: matplotlib is not installed; run `pip install 'xcompress[bench]'`") from error
