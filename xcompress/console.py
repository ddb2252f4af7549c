"""The only module that prints: one console for people, progress bars with an ETA, and tables."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

Item = TypeVar("Item")

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


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


def bars() -> Progress:
    """Build a progress display: what, a bar, how many, time taken, time left."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(),
        console=err,
        transient=not err.is_terminal,
    )


@contextmanager
def bar(what: str, total: int) -> Iterator["Ticker"]:
    """Show one progress bar while the block runs.

    :param what: the label in front of the bar.
    :param total: how many steps make it full.
    """
    with bars() as progress:
        yield Ticker(progress, what, total)


class Ticker:
    """Moves one bar."""

    def __init__(self, progress: Progress, what: str, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task(what, total=total, note="")

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Move the bar by `steps` and show `note` beside it."""
        self._progress.update(self._task, advance=steps, note=note)


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
