"""All printing: results on standard output; messages and progress bars on standard error."""

import codecs
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import IO, Protocol, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

Item = TypeVar("Item")

_SECONDS_BETWEEN_LINES = 10
_LOG_WIDTH = 140
"""Width of tables where standard output is no terminal."""
_COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TextColumn("{task.fields[note]}"),
    TimeElapsedColumn(),
    TextColumn("ETA"),
    TimeRemainingColumn(),
)
_QUIET = os.environ.get("RANK", "0") != "0"
"""Under torchrun only the first process prints."""


def _is_terminal(stream: IO[str] | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()  # None: a program without a console


_out = Console(quiet=_QUIET, highlight=False, emoji=False, width=None if _is_terminal(sys.stdout) else _LOG_WIDTH)
_err = Console(quiet=_QUIET, stderr=True, highlight=False, emoji=False, soft_wrap=not _is_terminal(sys.stderr))


def escape_unprintable() -> None:
    r"""Print characters that the encoding of standard output lacks as \uXXXX, as JSON does."""
    if isinstance(sys.stdout, TextIOWrapper):
        codecs.register_error("xcompress.escape", _escape_for_json)
        sys.stdout.reconfigure(errors="xcompress.escape")


def _escape_for_json(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4)), error.end


def flush_output() -> int:
    """Write what is still in the buffers of the standard streams, before the program ends.

    :returns: the exit code if that failed, else 0. A reader that has enough, such as `head`, is no failure.
    """
    code = 0
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError) as error:  # ValueError: it was closed
            # Python flushes again at its end: let that go nowhere.
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if not isinstance(error, BrokenPipeError):
                fail(f"the output cannot be written ({error}); free space or choose another place")
                code = 1
    return code


def say(text: str) -> None:
    """Print a message on standard error."""
    _err.print(escape(text))


def warn(text: str) -> None:
    """Print a warning on standard error."""
    _err.print(f"[yellow]warning:[/] {escape(text)}")


def fail(text: str) -> None:
    """Print an error on standard error, as one line."""
    _err.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)


def emit(text: str) -> None:
    """Print a result on standard output, unchanged, to be read by programs or pasted."""
    _out.print(text, markup=False, soft_wrap=True)


@contextmanager
def bar(label: str, total: int) -> Iterator["Ticker"]:
    """Show a progress bar with an ETA during the block; without a terminal, print a line every few seconds.

    :param label: the text in front of the bar.
    :param total: the number of steps.
    """
    if not _err.is_terminal:
        yield LineTicker(label, total)
        return
    with Progress(*_COLUMNS, console=_err, transient=True) as progress:
        yield BarTicker(progress, label, total)


def tracked(items: Sequence[Item], label: str) -> Iterator[Item]:
    """Yield the items and advance a progress bar after each."""
    with bar(label, len(items)) as ticker:
        for item in items:
            yield item
            ticker.advance()


class Ticker(Protocol):
    """Advances a progress display."""

    def start_at(self, done: int) -> None:
        """Count `done` steps as finished earlier, so that the ETA follows from the steps of this process alone."""

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Advance by `steps` and show `note` beside the count."""


class BarTicker:
    """Advances a bar on a terminal."""

    def __init__(self, progress: Progress, label: str, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task(escape(label), total=total, note="")

    def start_at(self, done: int) -> None:
        """Count `done` steps as finished earlier."""
        self._progress.update(self._task, completed=done)

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Advance the bar by `steps` and show `note` beside it."""
        self._progress.update(self._task, advance=steps, note=escape(note))


class LineTicker:
    """Prints a line every few seconds, for logs."""

    def __init__(self, label: str, total: int) -> None:
        self._label, self._total = label, total
        self._printed_at = time.monotonic()
        self.start_at(0)

    def start_at(self, done: int) -> None:
        """Count `done` steps as finished earlier."""
        self._done_before = self._done = done
        self._started_at = time.monotonic()

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Count `steps`; print the progress if the last line is some seconds old."""
        self._done += steps
        now = time.monotonic()
        if now - self._printed_at < _SECONDS_BETWEEN_LINES or self._done == self._done_before:
            return
        self._printed_at = now
        left = (now - self._started_at) / (self._done - self._done_before) * (self._total - self._done)
        say(f"{self._label} {self._done}/{self._total} {note + ' ' if note else ''}ETA {left:.0f} s")


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table on standard output: text in the first column, figures in the others."""
    grid = Table(title=title, title_justify="left")
    for number, name in enumerate(head):
        grid.add_column(name, justify="left" if number == 0 else "right", no_wrap=number == 0)
    for row in rows:
        grid.add_row(*(escape(cell) for cell in row))
    _out.print(grid)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table: text in the first column, figures in the others."""
    rule = ["---", *["--:"] * (len(head) - 1)]
    lines = [head, rule, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
