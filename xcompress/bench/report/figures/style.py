"""How pictures look: two themes, and for each subject a colour, a marker and a dash that only it has."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas

from xcompress.bench.report.figures.format import wrapped
from xcompress.bench.results import Report

WIDTH = 5.6
"""Inches: so narrow that it can be read on a phone."""
LINE, HALVES = 48, 60
"""Characters of a title, and of two names that fit beside each other."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Told apart by the colour-blind (Okabe and Ito); without their yellow, which is lost on white."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h", "p")
"""Told apart in grey print; their number and that of the colours have no divisor, so that pairs repeat late."""
Dash = str | tuple[float, tuple[float, ...]]
DASHES: tuple[Dash, ...] = ("-", "--", "-.", (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5, 1, 1.5)))


@dataclass(frozen=True)
class Theme:
    """Colours of everything but the data."""

    ink: str
    muted: str
    line: str
    band: str
    surface: str


LIGHT = Theme(ink="#1b1f24", muted="#57606a", line="#d0d7de", band="#f3f5f8", surface="#ffffff")
DARK = Theme(ink="#e6e9ee", muted="#a7b0bb", line="#3d4650", band="#1f262e", surface="#161b22")


@dataclass(frozen=True)
class Look:
    """How one subject is drawn."""

    colour: str
    marker: str
    dash: Dash
    reference: bool

    @property
    def size(self) -> float:
        """Points across."""
        return 11 if self.reference else 7


def looks(report: Report, theme: Theme) -> dict[str, Look]:
    """Give every subject its look by its place in the report; the reference is a star in the colour of the text."""
    others = [one.name for one in report.results if one.name != report.reference]
    found = {name: _look(number) for number, name in enumerate(others)}
    if report.reference is not None:
        found[report.reference] = Look(theme.ink, "*", "-", True)
    return found


def _look(number: int) -> Look:
    return Look(COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)], DASHES[number % len(DASHES)], False)


@contextmanager
def styled(theme: Theme) -> Iterator[None]:
    """Set matplotlib's defaults for one picture; names are never read as formulas."""
    settings: Any = {
        "font.family": ["DejaVu Sans"],
        "font.size": 9.5,
        "text.parse_math": False,
        "text.color": theme.ink,
        "axes.labelcolor": theme.muted,
        "axes.edgecolor": theme.line,
        "axes.facecolor": theme.surface,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.unicode_minus": True,
        "axes.grid": True,
        "grid.color": theme.line,
        "grid.linewidth": 0.6,
        "xtick.color": theme.line,
        "ytick.color": theme.line,
        "xtick.labelcolor": theme.muted,
        "ytick.labelcolor": theme.ink,
        "figure.facecolor": theme.surface,
        "savefig.facecolor": theme.surface,
        "hatch.linewidth": 1.2,
        "figure.constrained_layout.w_pad": 0.09,
        "figure.constrained_layout.h_pad": 0.06,
        "svg.fonttype": "path",
        "svg.hashsalt": "xcompress",
    }
    with rc_context(settings):
        yield


def canvas(height: float) -> tuple[Canvas, Axes]:
    """Open an empty picture of `height` inches."""
    figure = Canvas(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def head(figure: Canvas, title: str, key: Sequence[tuple[Artist, str]] = ()) -> None:
    """Write the title, and under it what the marks mean."""
    legend = figure.legend(
        [mark for mark, _ in key],
        [name for _, name in key],
        title=wrapped(title, LINE),
        loc="outside upper left",
        ncols=2 if sum(sorted(len(name) for _, name in key)[-2:]) <= HALVES else 1,
        alignment="left",
        frameon=False,
        borderpad=0.2,
        fontsize=9,
        handletextpad=0.4,
        columnspacing=1.8,
        labelspacing=0.35,
    )
    legend.get_title().set(fontsize=11.5, fontweight="bold")
