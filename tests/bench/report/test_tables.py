import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.report import small_report
from tests.test_printable import HOSTILE
from xcompress.bench.eval.similarity import Similarity
from xcompress.bench.report.compare import read_report
from xcompress.bench.report.notes import notes_of
from xcompress.bench.report.tables import markdown, show
from xcompress.bench.results import Figure, Report
from xcompress.bench.run import write
from xcompress.console import emit
from xcompress.corpus.graded import GradedPairs, GradedSet
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


def test_a_percentile_needs_as_many_calls_as_one_above_it_takes() -> None:
    report = small_report()
    timed = replace(report.results[0].latency[0], p50=0.02, p95=0.03, p99=0.04, speedup=None, peak_share=None)
    for calls, cell in ((19, "20.0 / - / -"), (99, "20.0 / 30.0 / -"), (100, "20.0 / 30.0 / 40.0")):
        one = replace(report.results[0], latency=(replace(timed, calls=calls),))
        assert f"| {cell} " in markdown(replace(report, results=(one,)))


def test_titles_speak_of_the_reference_only_where_there_is_one() -> None:
    report = small_report()
    assert "value, change to the reference [95 % interval]" in markdown(report)
    assert "speedup over the reference" in markdown(report)
    alone = markdown(replace(report, reference=None))
    assert "value [95 % interval]" in alone
    assert "the reference" not in alone


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_mean_of_one_language_is_no_second_column(language: str) -> None:
    report = small_report()
    graded = GradedSet("own", {f"{language}-{language}": GradedPairs(("a", "b"), ("a", "c"), (5.0, 0.0))})
    task = Similarity(graded)
    accuracy = task.summarize(
        task.score(lambda texts: np.eye(3, dtype=np.float32)[["abc".index(x) for x in texts]]), None
    )
    assert "monolingual" in accuracy.averages
    table = markdown(replace(report, results=(replace(report.results[0], accuracy=(accuracy,)),)))
    head = next(line for line in table.splitlines() if "| en-en |" in line or "| other monolingual |" in line)
    assert "| monolingual |" not in head


def test_the_note_on_calls_gives_a_range_only_where_there_is_one() -> None:
    one = small_report().results[0]
    two = replace(one, latency=tuple(replace(latency, calls=90) for latency in one.latency))
    assert notes_of([two], None, quick=False)[-1] == "calls per latency figure: 90"
    three = replace(two, latency=(replace(two.latency[0], calls=36), *two.latency[1:]))
    assert notes_of([two, three], None, quick=False)[-1] == "calls per latency figure: 36 to 90"


def test_a_report_of_any_names_is_written(hostile: Report, tmp_path: Path) -> None:
    json_file, _ = write(hostile, tmp_path)
    assert read_report(json_file).notes == (HOSTILE.replace("\ud800", "\ufffd"),)
