import io
import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from rich.progress import Progress
from rich.table import Table

from tests.test_printable import HOSTILE
from xcompress import console
from xcompress.printable import UNPRINTABLE


def test_a_log_gets_a_line_with_an_eta_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 0.0, 1.0, 20.0, 21.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    ticker = console.LineTicker("training", 40)
    ticker.advance(2)
    ticker.advance(8, note="loss 0.5")
    ticker.advance(1)
    assert capsys.readouterr().err.strip() == "training 10/40 loss 0.5 ETA 60 s"


def test_the_eta_of_work_that_goes_on_is_of_the_steps_done_now(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 0.0, 5.0, 25.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    ticker = console.LineTicker("training", 4000)
    ticker.start_at(2000)
    ticker.advance(10)
    assert capsys.readouterr().err.strip() == "training 2010/4000 ETA 3980 s"


@pytest.mark.parametrize("show", [console.say, console.warn, console.fail])
def test_a_message_is_one_line_whatever_it_quotes(
    show: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    show("de\nerror: all is lost.po: skipped")
    printed = capsys.readouterr().err
    assert printed.endswith("de error: all is lost.po: skipped\n") and printed.count("\n") == 1


@pytest.mark.parametrize("show", [console.say, console.warn, console.fail])
def test_of_a_very_long_message_the_start_and_the_end_are_shown(
    show: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    show(f"no such option: {'a' * 1_000_000}; see --help")
    printed = capsys.readouterr().err
    assert len(printed) < 1600
    assert "no such option: aaa" in printed
    assert "aaa ... aaa" in printed
    assert printed.endswith("aaa; see --help\n")


def test_what_libraries_log_is_escaped_by_the_program(capfd: pytest.CaptureFixture[str]) -> None:
    code = "import logging; from xcompress.console import escape_unprintable; escape_unprintable(); "
    code += r"logging.getLogger('a').warning('num_labels=%s', '\x1b]0;title\x07')"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert capfd.readouterr().err == "num_labels=\\u001b]0;title\\u0007\n"


def test_names_from_users_are_not_read_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    console.fail("runs/[bold]: no such folder")
    assert "runs/[bold]: no such folder" in capsys.readouterr().err


def test_markdown_tables_align_figures_to_the_right() -> None:
    expected = "| model | size |\n| --- | --: |\n| small | 13 |"
    assert console.markdown_table(["model", "size"], [["small", "13"]]) == expected


def assert_safe(printed: str) -> None:
    """Nothing for the terminal is in it, and what looks like markup is."""
    assert UNPRINTABLE.search(printed) is None
    together = "".join(printed.split())  # tables wrap
    assert "a[/][red]b[/red]\\u001b[31m" in together
    assert ":smile:$x$|`c`<b>" in together


def test_any_text_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    for show in (console.say, console.warn, console.fail, console.emit):
        show(HOSTILE)
        captured = capsys.readouterr()
        assert_safe(captured.out + captured.err)


def test_tables_show_any_title_head_and_cell(capsys: pytest.CaptureFixture[str]) -> None:
    for cells in ((HOSTILE, "b", "c"), ("a", HOSTILE, "c"), ("a", "b", HOSTILE)):
        console.table(cells[0], ["x", cells[1]], [[cells[2], "1"]])
        assert_safe(capsys.readouterr().out)


def test_json_stays_json(capsys: pytest.CaptureFixture[str]) -> None:
    console.emit(json.dumps([HOSTILE], ensure_ascii=False))
    printed = capsys.readouterr().out
    assert UNPRINTABLE.search(printed) is None
    assert json.loads(printed) == [HOSTILE.replace("\ud800", "\ufffd")]


def test_a_progress_bar_shows_any_label_and_note() -> None:
    stream = io.StringIO()
    screen = console.PlainConsole(file=stream, force_terminal=True, color_system=None, width=300)
    with Progress(*console.COLUMNS, console=screen) as progress:
        console.BarTicker(progress, HOSTILE, 2).advance(note=HOSTILE)
    printed = stream.getvalue().replace("\x1b[?25l", "").replace("\x1b[?25h", "").replace("\x1b[2K", "")
    assert_safe("".join(line.rpartition("\r")[2] for line in printed.splitlines()))


def test_what_is_escaped_counts_for_the_width_of_a_column() -> None:
    stream = io.StringIO()
    grid = Table("a\x1b[31m", "b")
    grid.add_row("\u202e\u202e", "1")
    console.PlainConsole(file=stream, width=80).print(grid)
    assert len({len(line) for line in stream.getvalue().splitlines()}) == 1


def test_markdown_tables_keep_their_columns() -> None:
    lines = console.markdown_table(["a|b", "c"], [["x\ny", "1 \\| 2"]]).splitlines()
    assert lines == ["| a\\|b | c |", "| --- | --: |", "| x y | 1 \\| 2 |"]


def test_a_worker_that_prints_nothing_prints_its_own_errors(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_err", console.PlainConsole(stderr=True, quiet=True))
    console.fail("bad input")
    console.fail("the disk is full", by_any_worker=True)
    assert capsys.readouterr().err == "error: the disk is full\n"


def test_a_bar_inside_a_training_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with console.without_bars(), console.bar("vectors", 2) as ticker:
        ticker.start_at(1)
        ticker.advance(1, "texts")
    assert capsys.readouterr().err == ""
    with console.bar("vectors", 2) as ticker:
        assert isinstance(ticker, console.LineTicker)


NARROW_ROWS = [
    ["When the old station was closed, nobody knew where the trains would stop. " * 2, "0.812", "84.0 [81.7, 85.9]"],
    ["Short", "0.700", "91.2 [89.9, 92.2]"],
]


@pytest.mark.parametrize("width", [10, 23, 30, 50, 80])
def test_a_narrow_table_keeps_all_figures(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(console, "_out", console.PlainConsole(file=stream, width=width))
    console.table("nearest", ["text", "cosine", "monolingual other"], NARROW_ROWS)
    printed = stream.getvalue()
    assert max(map(len, printed.splitlines())) <= max(width, 30)
    cells = [cell.strip() for line in printed.splitlines() for cell in line.split("│")]
    assert {"0.812", "0.700"} <= set(cells)
    assert "…" not in printed
    for words in ("84.0 [81.7, 85.9]", "91.2 [89.9, 92.2]"):
        assert width <= 30 or words in cells
        assert all(any(word in cell for cell in cells) for word in words.split())


def test_a_table_that_is_too_wide_is_cut_into_several(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(console, "_out", console.PlainConsole(file=stream, width=60))
    head = ["subject", *(f"figure {number}" for number in range(8))]
    console.table("figures", head, [["small, ONNX int8", *(f"{number}.25" for number in range(8))]])
    printed = stream.getvalue()
    assert printed.count("┏") > 1 and printed.count("small, ONNX int8") == printed.count("┏")
    assert printed.count("figures") == 1
    assert all(f" {number}.25 " in printed for number in range(8))
