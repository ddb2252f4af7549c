"""The look of pictures: two themes, and for each subject its own colour and marker."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.style import context
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from xcompress.bench.report.format import wrap
from xcompress.bench.results import Report

WIDTH = 5.6
"""Inches: narrow enough for a phone."""
TITLE_WIDTH, KEY_WIDTH = 48, 60
"""Characters of a title line, and of two names that fit beside each other in the key."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Distinct for the colour-blind (Okabe and Ito); without their yellow, which is too faint on white."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h", "p")
"""Distinct in grey print; their number and that of the colours are coprime, so pairs repeat late."""


@dataclass(frozen=True)
class Theme:
    """The colours of everything except the data."""

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

    color: str
    marker: str
    reference: bool

    def marker_style(self, theme: Theme, larger: float = 0.0) -> dict[str, Any]:
        """Return the properties of a marker without a line.

        :param larger: points added to its size.
        """
        return {
            "linestyle": "none",
            "marker": self.marker,
            "color": self.color,
            "markersize": (11 if self.reference else 7) + larger,
            "markeredgecolor": theme.ink,
            "markeredgewidth": 0.7,
            "zorder": 4,
        }


def looks(report: Report, theme: Theme) -> dict[str, Look]:
    """Give every subject a look by its position in the report; the reference is a star in the text colour."""
    others = [result.name for result in report.results if result.name != report.reference]
    chosen = {
        name: Look(COLOURS[n % len(COLOURS)], MARKERS[n % len(MARKERS)], reference=False)
        for n, name in enumerate(others)
    }
    if report.reference is not None:
        chosen[report.reference] = Look(theme.ink, "*", reference=True)
    return chosen


@contextmanager
def styled(theme: Theme) -> Iterator[None]:
    """Set matplotlib's defaults for one picture; names are never parsed as formulas.

    A matplotlibrc has no effect: matplotlib takes the one in the current folder, and it could hand the names to LaTeX.
    """
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
    with context(settings, after_reset=True):
        yield


def canvas(height: float) -> tuple[Canvas, Axes]:
    """Make an empty picture of `height` inches."""
    figure = Canvas(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def head(figure: Canvas, title: str, key: Sequence[tuple[Artist, str]] = ()) -> None:
    """Write the title, and below it the key of the markers."""
    legend = figure.legend(
        [mark for mark, _ in key],
        [name for _, name in key],
        title=wrap(title, TITLE_WIDTH),
        loc="outside upper left",
        ncols=2 if sum(sorted(len(name) for _, name in key)[-2:]) <= KEY_WIDTH else 1,
        alignment="left",
        frameon=False,
        borderpad=0.2,
        fontsize=9,
        handletextpad=0.4,
        columnspacing=1.8,
        labelspacing=0.35,
    )
    legend.get_title().set(fontsize=11.5, fontweight="bold")


def label_log_axis(axis: Axis) -> None:
    """Put ticks at 1, 2 and 5 of each decade of a log scale, as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
