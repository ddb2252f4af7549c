import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.helpers.report import BROKEN, FP32, INT8, MB, REFERENCE, browser_report, small_report, without
from xcompress.bench.noise import differ, intervals_differ, latency_noise, memory_differs
from xcompress.bench.report.compare import HEAD, Comparison, compare, read_report
from xcompress.bench.results import Accuracy, Figure, Report, Result
from xcompress.errors import InputError


def changed(report: Report, name: str, change: Callable[[Result], Result]) -> Report:
    return replace(report, results=tuple(change(one) if one.name == name else one for one in report.results))


def part(report: Report, name: str, key: str, **values: object) -> Report:
    """Change fields of one part of one subject."""
    return changed(report, name, lambda one: replace(one, **{key: replace(getattr(one, key), **values)}))


def slower(report: Report, name: str, share: float, *, row: int = 0) -> Report:
    """Make one subject slower by `share` at one shape."""

    def change(one: Result) -> Result:
        old = one.latency[row]
        points = {point: getattr(old, point) * (1 + share) for point in ("p25", "p50", "p75", "p95", "p99")}
        new = replace(old, **points, speedup=old.speedup / (1 + share) if old.speedup else None)
        return replace(one, latency=tuple(new if time is old else time for time in one.latency))

    return changed(report, name, change)


def lost(report: Report, name: str, points: float, *, paired: bool = True) -> Report:
    """Lower the first figure of a subject's first test by some points."""

    def change(one: Result) -> Result:
        first, *others = one.accuracy
        pair, old = next(iter(first.figures.items()))
        moved = {key: getattr(old, key) - points for key in ("value", "low", "high")}
        drops = {key: getattr(old, key) + points if paired else None for key in ("drop", "drop_low", "drop_high")}
        figure = Figure(**moved, **drops)
        return replace(one, accuracy=(replace(first, figures={**first.figures, pair: figure}), *others))

    return changed(report, name, change)


def only(found: Comparison) -> tuple[str, ...]:
    """Return the cells of the only change."""
    assert len(found.changes) == 1, found.rows()
    return found.rows()[0]


@pytest.mark.parametrize("report", [small_report(), browser_report(), without(small_report(), "latency", "memory")])
def test_a_report_has_not_changed_against_itself(report: Report) -> None:
    found = compare(report, report)
    assert (found.changes, found.notes, found.warnings) == ((), (), ())
    assert found.verdict == "nothing changed beyond noise"


def test_a_report_without_a_reference_has_not_changed_against_itself() -> None:
    report = replace(small_report(), reference=None)
    assert compare(report, report).verdict == "nothing changed beyond noise"


def test_any_byte_of_size_is_a_change() -> None:
    report = small_report()
    found = compare(part(report, INT8, "size", weights=38 * MB + 16), report)
    assert only(found) == (INT8, "weights", "38.0 MB", "38.0 MB", "+16 bytes", "worse")
    found = compare(part(report, INT8, "size", tokenizer=3 * MB), report)
    assert only(found) == (INT8, "tokenizer", "4.00 MB", "3.00 MB", "-25.0%", "better")


def test_memory_changes_by_more_than_a_twentieth_and_a_megabyte() -> None:
    report = small_report()
    assert not compare(part(report, INT8, "memory", resident=82 * MB), report).changes
    found = compare(part(report, INT8, "memory", resident=84 * MB), report)
    assert only(found) == (INT8, "memory, resident", "79.0 MB", "84.0 MB", "+6.3%", "worse")
    assert not memory_differs(2_900_000, 2_000_000) and memory_differs(3_100_000, 2_000_000)
    below = part(report, INT8, "memory", resident=-MB)  # less than the bare interpreter, of which there is no share
    assert only(compare(report, below))[2:] == ("-1.00 MB", "79.0 MB", "+80,000,000 bytes", "worse")


def test_the_busy_peak_is_not_compared_over_other_shapes() -> None:
    report = small_report()
    cut = changed(report, INT8, lambda one: replace(one, latency=one.latency[1:]))
    found = compare(part(cut, INT8, "memory", busy_peak=300 * MB), report)
    assert not found.changes
    assert f"{INT8}: not compared: memory, busy peak (other shapes)" in found.notes
    assert only(compare(part(report, INT8, "memory", busy_peak=300 * MB), report))[1] == "memory, busy peak"


def test_latency_changes_when_the_ratio_does_by_more_than_its_noise() -> None:
    report = small_report()
    assert not compare(slower(report, INT8, 0.10), report).changes
    found = compare(slower(report, INT8, 0.5), report)
    expected = (INT8, "1x16 with 1 thread, speedup", "10.30x", "6.87x", "-33.3%", "worse")
    assert only(found) == expected
    assert found.verdict == "1 figure changed beyond noise: 1 worse, 0 better"


def test_the_same_change_is_noise_where_calls_spread_more() -> None:
    quiet, noisy = (small_report() for _ in range(2))
    wide = {"p25": 0.0014, "p75": 0.0028}
    spread = lambda one: replace(one, latency=(replace(one.latency[0], **wide), *one.latency[1:]))  # noqa: E731
    noisy = changed(noisy, INT8, spread)
    assert compare(slower(quiet, INT8, 0.3), quiet).changes
    assert not compare(slower(noisy, INT8, 0.3), noisy).changes


def test_a_machine_that_is_slower_as_a_whole_is_no_change() -> None:
    report = small_report()
    machine = replace(report.machine, cpu="another")

    def half(one: Result) -> Result:
        times = ("least", "p25", "p50", "p75", "p95", "p99", "most")
        slow = [replace(time, **{name: getattr(time, name) * 2 for name in times}) for time in one.latency]
        parts = ("imports", "model", "first_vector")
        start = one.start and replace(one.start, **{name: getattr(one.start, name) * 2 for name in parts})
        return replace(one, latency=tuple(slow), start=start)

    found = compare(replace(report, machine=machine, results=tuple(map(half, report.results))), report)
    assert not found.changes
    assert found.warnings == ("machine: another with 2 threads, was EPYC, 2 cores with 2 threads",)


def test_the_load_of_other_programs_is_told_where_it_differs() -> None:
    report = small_report()
    busy = replace(report, machine=replace(report.machine, load=1.04))
    assert compare(busy, report).warnings == ("load of other programs: high, was low",)
    assert not compare(busy, busy).warnings


def test_without_a_reference_times_are_compared_on_like_machines_alone() -> None:
    old = replace(small_report(), reference=None)
    slow = slower(old, INT8, 1.0)
    assert only(compare(slow, old)) == (INT8, "1x16 with 1 thread", "2.00 ms", "4.00 ms", "+100.0%", "worse")
    assert not compare(slower(old, INT8, 0.3), old).changes
    elsewhere = replace(slow, machine=replace(slow.machine, threads=8))
    found = compare(elsewhere, old)
    assert not found.changes
    assert any(
        note.startswith(f"{INT8}: not compared: start (no common reference, other machine or device), 1x16 with 1")
        for note in found.notes
    )


def test_a_reference_with_other_weights_is_no_common_one() -> None:
    old = small_report()
    new = part(old, REFERENCE, "size", sha256="0000")
    assert compare(slower(old, INT8, 0.3), old).changes and not compare(slower(new, INT8, 0.3), old).changes
    found = compare(slower(new, INT8, 0.6), old)
    assert only(found)[1] == "1x16 with 1 thread"
    assert f"reference: {REFERENCE} has other weights; ratios and drops are not compared" in found.warnings


def test_a_start_changes_when_it_does_beyond_both_spreads() -> None:
    report = small_report()
    assert not compare(part(report, INT8, "start", model=0.17), report).changes
    found = compare(part(report, INT8, "start", model=0.4), report)
    assert only(found)[1] == "start, speedup"
    assert only(found)[-1] == "worse"


def test_a_start_of_one_process_is_known_less_well() -> None:
    def quick(report: Report) -> Report:
        for name in (REFERENCE, INT8):
            report = part(report, name, "start", processes=1, spread=0.0)
        return report

    old, new = quick(small_report()), quick(part(small_report(), INT8, "start", model=0.18))
    assert not compare(new, old).changes  # 16 % slower
    assert compare(quick(part(small_report(), INT8, "start", model=0.4)), old).changes


def test_throughput_changes_and_is_not_compared_over_another_number_of_sentences() -> None:
    report = small_report()
    assert only(compare(part(report, INT8, "throughput", speedup=3.3), report))[1:4] == (
        "throughput, speedup",
        "6.60x",
        "3.30x",
    )
    found = compare(part(report, INT8, "throughput", speedup=3.3, sentences=48), report)
    assert not found.changes
    assert found.notes == (f"{INT8}: not compared: throughput (other number of sentences or threads)",)


def test_accuracy_changes_when_the_losses_are_further_apart_than_their_intervals_allow() -> None:
    report = small_report()  # half an interval is 1.05: the two allow hypot(1.05, 1.05) = 1.48
    assert not compare(lost(report, INT8, 1.4), report).changes
    found = compare(lost(report, INT8, 1.6), report)
    assert only(found) == (INT8, "stsb-multi-mt, en-en, lost", "6.3", "7.9", "+1.6", "worse")
    assert only(compare(report, lost(report, INT8, 1.6)))[-1] == "better"


def test_accuracy_without_losses_is_compared_by_its_own_wider_interval() -> None:
    old, new = (lost(small_report(), INT8, points, paired=False) for points in (0.0, 2.5))
    assert not compare(new, old).changes
    assert only(compare(lost(small_report(), INT8, 3.0, paired=False), old))[1:4] == (
        "stsb-multi-mt, en-en",
        "75.8",
        "72.8",
    )


def test_agreement_with_another_reference_is_not_compared() -> None:
    def agreeing(points: float) -> Report:
        metric, figure = "Spearman x 100 with the reference's similarities", Figure(points, points - 1, points + 1)
        test = Accuracy("news: agreement", "agreement", metric, 500, {"de": figure}, {})
        return changed(small_report(), INT8, lambda one: replace(one, accuracy=(*one.accuracy, test)))

    assert only(compare(agreeing(80), agreeing(95)))[1:4] == ("news: agreement, de", "95.0", "80.0")
    found = compare(part(agreeing(80), REFERENCE, "size", sha256="0000"), agreeing(95))
    assert not found.changes
    assert f"{INT8}: not compared: news: agreement (no common reference)" in found.notes


def test_other_rows_are_named_and_not_compared() -> None:
    def fewer(one: Result) -> Result:
        return replace(one, accuracy=tuple(replace(test, rows=500) for test in one.accuracy[:1]))

    old = small_report()
    found = compare(replace(old, results=tuple(map(fewer, lost(old, INT8, 9).results))), old)
    assert not found.changes
    first, *others = [note for note in found.notes if note.startswith("accuracy")]
    assert first == "accuracy on stsb-multi-mt (Spearman × 100, 500 rows): only in the new report"
    assert all("1500 rows): only in the old report" in note for note in others) and len(others) == 3
    assert found.verdict == "nothing that can be compared changed beyond noise"


def test_a_language_pair_that_only_one_report_has_is_named() -> None:
    def cut(one: Result) -> Result:
        tests = [replace(test, figures=dict(list(test.figures.items())[1:])) for test in one.accuracy]
        return replace(one, accuracy=tuple(tests))

    old = small_report()
    notes = compare(replace(old, results=tuple(map(cut, old.results))), old).notes
    assert "accuracy on tatoeba (nearest neighbour, %, 1500 rows): de>en: only in the old report" in notes


def test_shapes_that_only_one_report_has_are_named() -> None:
    old = small_report()
    new = replace(old, results=tuple(replace(one, latency=one.latency[:3]) for one in old.results))
    notes = [note for note in compare(new, old).notes if note.startswith("latency")]
    assert notes == [
        f"latency at {shape} with 2 threads: only in the old report" for shape in ("1x16", "1x128", "32x32")
    ]


def test_subjects_that_came_went_fail_or_work_again_are_named() -> None:
    old = small_report()
    kept = tuple(one for one in old.results if one.name != FP32)
    assert compare(replace(old, results=kept), old).notes == (f"{FP32}: no longer there",)
    assert compare(old, replace(old, results=kept)).notes == (f"{FP32}: new",)
    failing = changed(old, INT8, lambda one: replace(one, start=None, memory=None, failed="ran out of memory"))
    found = compare(failing, old)
    assert found.warnings == (f"{INT8}: fails now, was measured before: ran out of memory",)
    assert compare(old, failing).notes == (f"{INT8}: measured now; failed before: ran out of memory",)


def test_what_differs_beside_the_models_is_warned_of() -> None:
    old = small_report()
    libraries = old.machine.libraries | {"onnxruntime": "1.32.0"}
    device = replace(old.device, name="cpu", memory_ceiling=None)
    machine = replace(old.machine, libraries=libraries)
    new = replace(old, device=device, quick=True, machine=machine, reference=None)
    assert compare(new, old).warnings == (
        "device: cpu, was mobile",
        "memory ceiling: none, was 512 MB",
        "bench: quick, was full",
        f"reference: none, was {REFERENCE}",
        "libraries: onnxruntime 1.32.0, was onnxruntime 1.31.1",
    )


def test_browser_figures_are_compared() -> None:
    report = browser_report()
    found = compare(part(report, INT8, "browser", wasm_memory=120 * MB, parity=0.9), report)
    assert [change.figure for change in found.changes] == ["wasm memory", "parity"]
    assert found.rows()[1][2:] == ("0.9999", "0.9000", "-0.0999", "worse")


def test_times_of_a_browser_are_not_compared_across_slow_downs() -> None:
    old = browser_report()
    slow = part(old, INT8, "browser", slow_down=8.0)
    slow = part(slow, FP32, "browser", slow_down=8.0)
    found = compare(slower(slow, INT8, 1.0), old)  # the reference beside the browser has its speed
    assert not found.changes
    assert found.notes[-1] == (
        f"{INT8}: not compared: start, latency, throughput (in a browser in one report only, or slowed down by another "
        "factor)"
    )
    assert found.warnings == ("slow-down: 8, was 4",)


def test_a_subject_that_fails_in_a_browser_has_nothing_to_compare() -> None:
    failing = changed(
        browser_report(), INT8, lambda one: Result(INT8, "onnx", "int8", one.path, one.size, failed="the page crashed")
    )
    assert not any("not compared" in note for note in compare(failing, browser_report()).notes)


def test_memory_in_a_browser_is_not_compared_with_that_of_a_process() -> None:
    found = compare(part(browser_report(), INT8, "memory", resident=300 * MB), small_report())
    assert not found.changes
    assert all("memory (in a browser in one report only)" in note for note in found.notes if INT8 in note)


def test_a_comparison_is_written_as_markdown_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    old = small_report()
    found = compare(slower(lost(old, INT8, 5), FP32, -0.5), old)
    text = found.markdown()
    assert "2 figures changed beyond noise: 1 worse, 1 better." in text
    assert f"| {' | '.join(HEAD)} |" in text and text.count(f"| {INT8} |") == 1
    described = json.loads(found.with_report(old))["comparison"]
    assert described["changes"][1] == asdict(found.changes[1])
    assert described["verdict"] == found.verdict
    found.show()
    printed = capsys.readouterr()
    assert "lost" in printed.out and found.verdict in printed.out


def test_a_report_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(small_report().to_json(), encoding="utf-8")
    assert not compare(read_report(path), small_report()).changes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"not valid JSON \(.*\); write or fetch it again"),
        (b"\xff\xfe\x00", "not valid JSON"),
        ("[1]", "expected names and values, found list; write"),
        ('{"name": "other"}', "not a report of `xcompress bench`; give"),
        ("[" * 100_000, "not valid JSON"),
        (small_report().to_json().replace('"schema": 2', '"schema": 1'), "schema 1, this xcompress reads 2; run"),
        (small_report().to_json().replace('"kind": "onnx"', '"kind": "tflite"'), r"results\.1\.kind"),
        (None, "no such file"),
    ],
)
def test_a_file_that_is_no_report_is_explained(text: str | bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=message) as caught:
        read_report(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rounds", "0"),
        ("rounds", "-1"),
        ("p50", "1e400"),
        ("p50", "-1"),
        ("p75", "Infinity"),
        ("speedup", "NaN"),
        ("imports", "NaN"),
        ("per_second", "1e999"),
        ("weights", "1" * 400),
        ("resident", "1" * 400),
    ],
)
def test_a_figure_that_cannot_be_compared_is_refused_when_the_report_is_read(
    field: str, value: str, tmp_path: Path
) -> None:
    text, count = re.subn(rf'"{field}": [\d.]+', f'"{field}": {value}', small_report().to_json())
    assert count
    (tmp_path / "old.json").write_text(text)
    with pytest.raises(InputError, match=rf"bench report: results\..*{field}"):
        read_report(tmp_path / "old.json")


def test_figures_of_any_size_are_compared() -> None:
    report = small_report()
    assert compare(part(report, INT8, "throughput", per_second=1e300, speedup=1e300), report).changes
    assert differ(5e-324, 1e308, 0.1)


def test_rules_of_noise() -> None:
    report = small_report()
    own = report.results[2].latency[0]
    assert latency_noise(own) == pytest.approx(1.57 * 0.09 / 7**0.5)
    assert latency_noise(own, report.results[0].latency[0]) == pytest.approx(1.57 * 0.09 * 2**0.5 / 7**0.5)
    assert differ(0.0, 1.0, 9.0) and not differ(0.0, 0.0, 0.0)
    assert differ(2.0, 1.0, 0.69) and not differ(2.0, 1.0, 0.70)  # log 2 = 0.693
    assert BROKEN in {one.name for one in report.results}


def test_intervals_are_compared_by_the_arms_that_face_each_other() -> None:
    assert not intervals_differ((10, 7, 11), (5, 4, 9))  # 5 apart, and arms of 3 and 4
    assert intervals_differ((10.1, 7.1, 11), (5, 4, 9))
    assert intervals_differ((5, 4, 9), (10.1, 7.1, 11))
    assert not intervals_differ((100, 100, 100), (99, 97, 100))
