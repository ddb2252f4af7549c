"""All printing: results on standard output; messages and progress bars on standard error."""

import codecs
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict
from io import TextIOWrapper
from typing import IO, Any, TypeVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from xcompress.errors import XCompressError
from xcompress.printable import message_line, printable, table_cell

Item = TypeVar("Item")

_SECONDS_BETWEEN_LINES = 10
_LOG_WIDTH = 140
"""Width of tables where standard output is no terminal."""
_LEAST_TEXT = 16
"""Characters that the first column of a narrow table keeps."""
_WIDEST_FIGURE = 20
"""Characters of the other columns, where a narrow table must wrap them."""
_BORDERS = 3
"""Characters between two columns of a table."""
_LEAST_WIDTH = 30
"""Characters of a line: a narrower table has no room for figures beside its text."""
COLUMNS = (
    TextColumn("{task.description}", markup=False),
    BarColumn(),
    MofNCompleteColumn(),
    TextColumn("{task.fields[note]}", markup=False),
    TimeElapsedColumn(),
    TextColumn("ETA"),
    TimeRemainingColumn(),
)
_QUIET = os.environ.get("RANK", "0") != "0"
"""Under torchrun only the first process prints."""


class PlainConsole(Console):
    """Shows any text as it is: no markup, and control characters as escapes, as names and texts come from others.

    Where a reader has enough, such as `head`, the command goes on, and prints the rest nowhere.
    """

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - of rich's class
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401 - of rich's method
        """Escape control characters before the text is measured."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Escape control characters in what is no string, such as the description of a progress bar."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))

    def on_broken_pipe(self) -> None:
        """Leave the stream to `flush_output`, in place of an exit with code 1."""
        self.quiet = True


def _is_terminal(stream: IO[str] | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()  # None: a program without a console


_no_bars: ContextVar[bool] = ContextVar("no_bars", default=False)
_out = PlainConsole(quiet=_QUIET, width=None if _is_terminal(sys.stdout) else _LOG_WIDTH)
_err = PlainConsole(quiet=_QUIET, stderr=True, soft_wrap=not _is_terminal(sys.stderr))


class _PrintableRecord(logging.LogRecord):
    """A message that a library logs. It may quote the files of a model, such as transformers a config.json."""

    def getMessage(self) -> str:
        """Return the message with control characters as escapes."""
        return printable(super().getMessage())


def escape_unprintable() -> None:
    r"""Print characters that the encoding of standard output lacks as \uXXXX, as JSON does; escape what is logged."""
    logging.setLogRecordFactory(_PrintableRecord)
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
                fail(cannot_write(error))
                code = 1
    return code


def cannot_write(error: Exception) -> str:
    """Return the message on a standard stream that could not be written."""
    return f"the output cannot be written ({error}); free space or choose another place"


def say(text: str) -> None:
    """Print a message on standard error, as one line."""
    _err.print(message_line(text))


def warn(text: str) -> None:
    """Print a warning on standard error, as one line: a name with a line break must not look like another message."""
    _err.print(Text.assemble(("warning:", "yellow"), " ", message_line(text)))


def fail(text: str, by_any_worker: bool = False) -> None:
    """Print an error on standard error, as one line.

    :param by_any_worker: whether a worker that prints nothing else prints it.
    """
    console = (
        PlainConsole(stderr=True, soft_wrap=not _is_terminal(sys.stderr)) if _err.quiet and by_any_worker else _err
    )
    console.print(Text.assemble(("error:", "bold red"), " ", message_line(text)), soft_wrap=True)


def run_script(main: Callable[[], None]) -> None:
    """Run the `main` of a script. An error that users see becomes one line on standard error, and its exit code."""
    try:
        main()
    except XCompressError as error:
        fail(str(error))
        sys.exit(error.exit_code)


def emit(text: str) -> None:
    """Print a result on standard output, to be read by programs or pasted; JSON stays valid and keeps its meaning."""
    _out.print(text, soft_wrap=True)


def emit_json(value: object) -> None:
    """Print a result as indented JSON on standard output; objects of dataclasses become mappings."""
    emit(json.dumps(value, indent=2, ensure_ascii=False, default=asdict))


def reader_has_enough() -> bool:
    """Tell whether nothing reads standard output, as `head` that has gone: what only prints may end."""
    return _out.quiet


@contextmanager
def without_bars() -> Iterator[None]:
    """Show no progress bar during the block: a terminal has room for one, which may be that of a training."""
    token = _no_bars.set(True)
    try:
        yield
    finally:
        _no_bars.reset(token)


@contextmanager
def without_loading_bars() -> Iterator[None]:
    """Hide the progress bars of transformers during the block: version 5 shows one for every model that it loads."""
    from transformers.utils import logging as transformers_logging

    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


@contextmanager
def bar(label: str, total: int) -> Iterator["Ticker"]:
    """Show a progress bar with an ETA during the block; without a terminal, print a line every few seconds.

    :param label: the text in front of the bar.
    :param total: the number of steps.
    """
    if _no_bars.get():
        yield Ticker()
        return
    if not _err.is_terminal:
        yield LineTicker(label, total)
        return
    with Progress(*COLUMNS, console=_err, transient=True) as progress:
        yield BarTicker(progress, label, total)


def tracked(items: Sequence[Item], label: str) -> Iterator[Item]:
    """Yield the items and advance a progress bar after each."""
    with bar(label, len(items)) as ticker:
        for item in items:
            yield item
            ticker.advance()


class Ticker:
    """Advances a progress display; this one shows nothing."""

    def start_at(self, done: int) -> None:
        """Count `done` steps as finished earlier, so that the ETA follows from the steps of this process alone."""

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Advance by `steps` and show `note` beside the count."""


class BarTicker(Ticker):
    """Advances a bar on a terminal."""

    def __init__(self, progress: Progress, label: str, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task(printable(label), total=total, note="")

    def start_at(self, done: int) -> None:
        """Count `done` steps as finished earlier."""
        self._progress.update(self._task, completed=done)

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Advance the bar by `steps` and show `note` beside it."""
        self._progress.update(self._task, advance=steps, note=printable(note))


class LineTicker(Ticker):
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
    """Print a table on standard output: text in the first column, figures in the others.

    In a narrow terminal text and long cells wrap, and a table that is still too wide is cut into several. In one of
    fewer than 30 columns, lines are longer than it is wide.
    """
    if _out.width < _LEAST_WIDTH:
        _out.width = _LEAST_WIDTH
    head = [*map(printable, head)]
    lines = [[*map(printable, row)] for row in rows]
    cells = [[row[number] for row in lines if number < len(row)] for number in range(len(head))]
    widths = whole = [max(map(cell_len, [name, *column])) for name, column in zip(head, cells, strict=True)]
    # Set the widths: rich would narrow the columns of figures down to nothing where a text is long.
    if sum(whole) + len(whole) * _BORDERS + 1 > _out.width:
        widths = [min(whole[0], _LEAST_TEXT)]
        most = _out.width - widths[0] - 2 * _BORDERS - 1
        for name, column in zip(head[1:], cells[1:], strict=True):
            longest_word = max((cell_len(word) for cell in [name, *column] for word in cell.split()), default=1)
            longest_cell = max(map(cell_len, column), default=0)
            widths.append(min(most, max(longest_word, min(longest_cell, _WIDEST_FIGURE))))
    for part, numbers in enumerate(_columns_by_table(widths, _out.width)):
        others = 1 + _BORDERS + sum(widths[number] + _BORDERS for number in numbers[1:])
        grid = Table(title=None if part else title, title_justify="left")
        grid.add_column(head[0], width=max(widths[0], min(whole[0], _out.width - others)), overflow="fold")
        for number in numbers[1:]:
            grid.add_column(head[number], justify="right", width=widths[number], overflow="fold")
        for row in lines:
            grid.add_row(*(row[number] if number < len(row) else "" for number in numbers))
        _out.print(grid)


def _columns_by_table(widths: Sequence[int], width: int) -> list[list[int]]:
    """Cut columns into tables that fit into a width; each begins with the first column.

    :param widths: of the columns, without their borders.
    """
    tables, used = [[0]], widths[0] + _BORDERS + 1
    for number, needed in enumerate(widths[1:], 1):
        if used + needed + _BORDERS > width and len(tables[-1]) > 1:
            tables.append([0])
            used = widths[0] + _BORDERS + 1
        tables[-1].append(number)
        used += needed + _BORDERS
    return tables


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table: text in the first column, figures in the others.

    Cells may hold Markdown; only what would end a cell is escaped. See `printable.markdown_text` for text of others.
    """
    rule = ["---", *["--:"] * (len(head) - 1)]
    lines = [head, rule, *rows]
    return "\n".join(f"| {' | '.join(map(table_cell, line))} |" for line in lines)
