"""The only module that prints: one console for people, progress bars with an ETA, and tables."""

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

Item = TypeVar("Item")

SECONDS_BETWEEN_LINES = 10
COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TextColumn("{task.fields[note]}"),
    TimeElapsedColumn(),
    TextColumn("ETA"),
    TimeRemainingColumn(),
)

WIDTH_OF_LOGS = 140

QUIET = os.environ.get("RANK", "0") != "0"
"""Of several processes that work together, the first alone speaks."""

out = Console(quiet=QUIET, highlight=False, emoji=False, width=None if sys.stdout.isatty() else WIDTH_OF_LOGS)
err = Console(quiet=QUIET, stderr=True, highlight=False, emoji=False, soft_wrap=not sys.stderr.isatty())


def say(text: str) -> None:
    """Tell the user what happens, on standard error, so that standard output stays clean for results."""
    err.print(escape(text))


def warn(text: str) -> None:
    """Tell the user about something that may need attention."""
    err.print(f"[yellow]warning:[/] {escape(text)}")


def fail(text: str) -> None:
    """Print the one line of an error."""
    err.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)


def emit(text: str) -> None:
    """Print a result for machines or for pasting, on standard output, unchanged."""
    out.print(text, markup=False, soft_wrap=True)


@contextmanager
def bar(what: str, total: int) -> Iterator["Ticker"]:
    """Show a progress bar with an ETA while the block runs; where there is no terminal, a line now and then.

    :param what: the label in front of the bar.
    :param total: how many steps make it full.
    """
    if not err.is_terminal:
        yield LineTicker(what, total)
        return
    with Progress(*COLUMNS, console=err, transient=True) as progress:
        yield BarTicker(progress, what, total)


class Ticker(Protocol):
    """Moves one progress display."""

    def start_at(self, done: int) -> None:
        """Count `done` steps as done before, so that the ETA is of those done now."""

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Move by `steps` and show `note` beside it."""


class BarTicker:
    """Moves one bar of a terminal."""

    def __init__(self, progress: Progress, what: str, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task(escape(what), total=total, note="")

    def start_at(self, done: int) -> None:
        """Count `done` steps as done before, so that the ETA is of those done now."""
        self._progress.update(self._task, completed=done)

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Move the bar by `steps` and show `note` beside it."""
        self._progress.update(self._task, advance=steps, note=escape(note))


class LineTicker:
    """Prints a line every few seconds, for logs."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._shown = time.monotonic()
        self.start_at(0)

    def start_at(self, done: int) -> None:
        """Count `done` steps as done before, so that the ETA is of those done now."""
        self._before = self._done = done
        self._started = time.monotonic()

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Count `steps`; print how far it is when the last line is some seconds old."""
        self._done += steps
        now = time.monotonic()
        if now - self._shown < SECONDS_BETWEEN_LINES or self._done == self._before:
            return
        self._shown = now
        left = (now - self._started) / (self._done - self._before) * (self._total - self._done)
        say(f"{self._what} {self._done}/{self._total} {note + ' ' if note else ''}ETA {left:.0f} s")


def tracked(items: Sequence[Item], what: str) -> Iterator[Item]:
    """Yield the items while a bar shows how far they are."""
    with bar(what, len(items)) as ticker:
        for item in items:
            yield item
            ticker.advance()


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table on standard output; the first column is text, the others are figures."""
    grid = Table(title=title, title_justify="left")
    for number, name in enumerate(head):
        grid.add_column(name, justify="left" if number == 0 else "right", no_wrap=number == 0)
    for row in rows:
        grid.add_row(*(escape(cell) for cell in row))
    out.print(grid)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; the first column is text, the others are figures."""
    rule = ["---", *["--:"] * (len(head) - 1)]
    lines = [head, rule, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
