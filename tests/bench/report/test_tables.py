import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.report import small_report
from tests.test_printable import HOSTILE
from xcompress.bench.report.compare import read_report
from xcompress.bench.report.notes import notes_of
from xcompress.bench.report.tables import markdown, show
from xcompress.bench.results import Figure, Report
from xcompress.bench.run import write
from xcompress.console import emit
from xcompress.printable import UNPRINTABLE


@pytest.fixture
def hostile() -> Report:
    """A report of names that are markup."""
    report = small_report()
    results = tuple(
        replace(
            one,
            name=f"{HOSTILE} {one.name}",
            accuracy=tuple(replace(accuracy, test=f"{HOSTILE}\n{accuracy.test}") for accuracy in one.accuracy),
        )
        for one in report.results
    )
    return replace(report, results=results, notes=(HOSTILE,), warnings=(HOSTILE,))


def test_markdown_of_any_names_keeps_its_tables(hostile: Report) -> None:
    text = markdown(hostile)
    assert UNPRINTABLE.search(text) is None
    assert "\\<b>" in text
    assert "<b>" not in text.replace("\\<b>", "")
    table = [line for line in text.splitlines() if line.startswith("|")]
    clean = [line for line in markdown(small_report()).splitlines() if line.startswith("|")]
    assert [line.replace("\\|", "").count("|") for line in table] == [line.count("|") for line in clean]
    assert len(text.splitlines()) == len(markdown(small_report()).splitlines())


def test_tables_in_the_terminal_show_any_names(hostile: Report, capsys: pytest.CaptureFixture[str]) -> None:
    show(hostile)
    captured = capsys.readouterr()
    assert UNPRINTABLE.search(captured.out + captured.err) is None
    assert "[/] [red]b[/red]" in captured.out


def test_json_of_any_names_is_json(hostile: Report, capsys: pytest.CaptureFixture[str]) -> None:
    emit(hostile.to_json())
    assert json.loads(capsys.readouterr().out)["notes"] == [HOSTILE.replace("\ud800", "\ufffd")]


def test_a_score_like_the_references_differs_by_plus_zero() -> None:
    report = small_report()
    test = report.results[1].accuracy[0]
    equal = replace(test, averages=dict.fromkeys(test.averages, Figure(100.0, 100.0, 100.0, 0.0, 0.0, 0.04)))
    results = (report.results[0], replace(report.results[1], accuracy=(equal,)))
    assert "100.0  +0.0 [+0.0, +0.0]" in markdown(replace(report, results=results))


def test_the_note_on_calls_gives_a_range_only_where_there_is_one() -> None:
    one = small_report().results[0]
    two = replace(one, latency=tuple(replace(latency, calls=90) for latency in one.latency))
    assert notes_of([two], None, quick=False)[-1] == "calls per latency figure: 90"
    three = replace(two, latency=(replace(two.latency[0], calls=36), *two.latency[1:]))
    assert notes_of([two, three], None, quick=False)[-1] == "calls per latency figure: 36 to 90"


def test_a_report_of_any_names_is_written(hostile: Report, tmp_path: Path) -> None:
    json_file, _ = write(hostile, tmp_path)
    assert read_report(json_file).notes == (HOSTILE.replace("\ud800", "\ufffd"),)
