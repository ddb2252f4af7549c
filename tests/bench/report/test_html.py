import re
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest

from tests.helpers.report import (
    BROKEN,
    FP32,
    INT8,
    MB,
    REASON,
    REFERENCE,
    SCORES,
    STATIC,
    browser_report,
    small_report,
    without,
)
from xcompress.bench.results import Report, Start
from xcompress.printable import UNPRINTABLE

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from xcompress.bench.report.html import html
from xcompress.bench.report.html.summary import compared
from xcompress.bench.report.html.tables import change_text
from xcompress.bench.report.pictures import svg

VOID = {"meta", "img", "br", "hr", "link", "input", "col"}
NAMESPACES = ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink")
NASTY = '<b>&"x'


class Reader(HTMLParser):
    """Check that tags are balanced, and collect their text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.cells: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("td", "th", "caption", "h2", "h3", "dd"):
            self.cells.append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)
            if self.cells and {"td", "th", "caption", "h2", "h3", "dd"} & set(self.open):
                self.cells[-1] = (self.cells[-1][0], self.cells[-1][1] + data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.seen if name == tag]

    def texts(self, tag: str) -> list[str]:
        return [text for name, text in self.cells if name == tag]


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def renamed(report: Report, old: str, new: str) -> Report:
    results = tuple(replace(one, name=new) if one.name == old else one for one in report.results)
    return replace(report, results=results, reference=new if report.reference == old else report.reference)


@pytest.fixture(scope="module")
def page() -> str:
    """Return a page with one of its pictures; each has a test of its own."""
    drawn = lambda *picture: svg(*picture) if picture[1].name == "memory" else "<svg/>"  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("xcompress.bench.report.html.svg", drawn)
        return html(renamed(small_report(), INT8, NASTY))


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw only that of `page`: of other pages, the text is read."""
    monkeypatch.setattr("xcompress.bench.report.html.svg", lambda *_: "<svg/>")


def test_the_page_is_one_document_with_balanced_tags(page: str) -> None:
    reader = read(page)
    assert page.startswith("<!DOCTYPE html>\n<html")
    assert reader.all("html")[0]["lang"] == "en"
    assert len(reader.all("h1")) == len(reader.all("title")) == len(reader.all("main")) == 1
    assert {"script", "link", "iframe", "object", "base"}.isdisjoint(tag for tag, _ in reader.seen)


def test_the_page_loads_no_external_file(page: str) -> None:
    plain = unquote(page)
    for namespace in NAMESPACES:
        plain = plain.replace(namespace, "")
    assert not re.search(r"https?:|//www|@import|src=\"(?!data:)|url\((?!#)", plain)
    policy = next(one["content"] for one in read(page).all("meta") if "http-equiv" in one)
    assert policy is not None and policy.startswith("default-src 'none'")


def test_every_subject_is_named_and_escaped(page: str) -> None:
    assert NASTY not in page.replace("alt=", "")
    assert escape(NASTY, quote=False) in page
    headers = " ".join(read(page).texts("th"))
    for name in (REFERENCE, FP32, STATIC, BROKEN, NASTY):
        assert name in headers


def test_the_reason_of_a_failure_is_shown(page: str) -> None:
    reader = read(page)
    assert "Failed" in reader.texts("h2")
    assert "".join(reader.text).count(REASON) == 2


def test_every_accuracy_figure_is_in_a_table(page: str) -> None:
    cells = read(page).texts("td")
    for scores in SCORES.values():
        for figures in scores.values():
            for value in (*figures.values(), sum(figures.values()) / len(figures)):
                assert any(cell.startswith(f"{value:.1f}") for cell in cells)


def test_intervals_and_drops_stand_with_their_figures(page: str) -> None:
    assert "76.073.9 to 77.9▼ −6.1 (−7.1 to −5.0)" in read(page).texts("td")


def test_latency_holds_the_percentiles_that_90_calls_give_ratio_and_peak(page: str) -> None:
    cells = read(page).texts("td")
    start = cells.index("5.30")
    assert cells[start : start + 7] == ["5.30", "5.94", "–", "3.9×", "15 %", "340", "9 %"]
    assert any(cell.endswith("noisy") for cell in cells)


def test_cards_show_gains_and_losses(page: str) -> None:
    facts = read(page).texts("dd")
    assert {"3.1× smaller", "155 MB against 487 MB", "3.9× faster", "5.30 ms against 20.9 ms"} <= set(facts)
    start = facts.index("−6.1")
    assert facts[start + 1] == "71.9 against 78.0, change −6.6 to −5.6 (95\N{NO-BREAK SPACE}%)"


def test_the_front_is_named(page: str) -> None:
    assert f"than: {STATIC} (18.0 MB, 43.1), {NASTY} (42.0 MB, 71.6)" in "".join(read(page).text)


def test_notes_warnings_device_and_libraries_are_shown(page: str) -> None:
    report, text = small_report(), "".join(read(page).text)
    for line in (*report.notes, *report.warnings, *report.device.emulated):
        assert line in text
    for told in ("mobile, at most 512 MB per process", "EPYC, 2 cores", "avx512_vnni", "2026-11-20 13:36:38 UTC"):
        assert told in text
    assert {"onnxruntime", "1.31.1"} <= set(read(page).texts("th") + read(page).texts("td"))


def test_tables_have_captions_and_every_header_its_scope(page: str) -> None:
    reader = read(page)
    assert len(reader.all("caption")) == len(reader.all("table")) > 8
    assert {one["scope"] for one in reader.all("th")} == {"col", "row", "rowgroup"}
    assert all(reader.texts("caption"))


def test_pictures_are_there_in_both_themes_with_words(page: str) -> None:
    images = read(page).all("img")
    assert len(images) == 2 * len(read(page).all("figure")) == 18
    assert {one["class"] for one in images} == {"only-light", "only-dark"}
    assert all(len(one["alt"] or "") > 40 for one in images)
    assert all(unquote(one["src"] or "").startswith("data:image/svg+xml,<svg") for one in images)


def test_browser_figures_are_shown_where_there_are_any(page: str) -> None:
    assert "In the browser" not in read(page).texts("caption")
    reader = read(html(browser_report()))
    assert "In the browser" in reader.texts("caption")
    assert {"Chromium 141.0", "4×", "12.0", "91.0", "0.99993"} <= set(reader.texts("td"))


def test_without_a_reference_figures_stand_for_themselves() -> None:
    report = small_report()
    results = tuple(
        replace(one, latency=tuple(replace(t, speedup=None) for t in one.latency), accuracy=())
        for one in report.results
        if one.name != REFERENCE
    )
    reader = read(html(replace(report, reference=None, results=results)))
    assert {"42.0 MB", "2.00 ms", "79.0 MB"} <= set(reader.texts("dd"))
    assert "without a reference" in "".join(reader.text)
    assert not any("smaller" in fact for fact in reader.texts("dd"))


def test_without_accuracy_the_section_is_left_out() -> None:
    reader = read(html(without(small_report(), "accuracy", "latency")))
    assert "Accuracy" not in reader.texts("h2") and "Latency" not in reader.texts("h2")


def test_one_subject_alone() -> None:
    report = small_report()
    reader = read(html(replace(report, results=(report.results[2],), reference=None)))
    assert "1 subject in one run" in "".join(reader.text)


def test_all_failed_leaves_the_reasons() -> None:
    report = small_report()
    results = tuple(replace(one, failed=f"broke {one.name}") for one in report.results)
    bare = without(replace(report, results=results, reference=None), "accuracy", "latency", "memory", "throughput")
    reader = read(html(without(bare, "start")))
    assert reader.all("img") == []
    text = "".join(reader.text)
    assert all(f"broke {one.name}" in text for one in results)


def test_no_subject_at_all_is_still_a_page() -> None:
    read(html(replace(small_report(), results=(), reference=None, notes=(), warnings=(), seconds={}, peaks={})))


def test_everything_that_comes_from_outside_is_escaped() -> None:
    report = small_report()
    bad = "</style><script>alert(1)</script>"
    machine = replace(report.machine, cpu=bad, system=bad, flags=(bad,), libraries={bad: bad})
    results = tuple(replace(one, name=f"{bad}{n}", precision=bad) for n, one in enumerate(report.results))
    device = replace(report.device, name=bad, emulated=(bad,))
    nasty = replace(
        report, device=device, machine=machine, results=results, reference=f"{bad}0", notes=(bad,), warnings=(bad,)
    )
    reader = read(html(replace(nasty, date=f'"{bad}', xcompress=bad, seconds={bad: 1.0}, peaks={bad: 1e9})))
    assert not reader.all("script") and len(reader.all("style")) == 1


def test_control_characters_are_escapes_on_the_page() -> None:
    page = html(renamed(small_report(), INT8, "a\x1b[31m\x00\u202eb"))
    assert UNPRINTABLE.search(page) is None
    assert "a\\u001b[31m\\u0000\\u202eb" in "".join(read(page).text)


def test_many_subjects_are_split_into_tables_that_fit() -> None:
    report = small_report()
    results = tuple(
        replace(one, name=f"{one.name} {n}", accuracy=one.accuracy[:1]) for n in range(3) for one in report.results[:3]
    )
    captions = read(html(replace(report, results=results))).texts("caption")
    assert [one[-14:] for one in captions if one.startswith("stsb")] == ["(table 1 of 2)", "(table 2 of 2)"]


def test_a_name_that_is_no_text_is_still_written() -> None:
    html(renamed(small_report(), INT8, "bundle\udcff")).encode("utf-8")


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        ((0.5, 0.2, 1.0), "▼ −0.5 (−1.0 to −0.2)"),
        ((-0.5, -1.0, -0.1), "▲ +0.5 (+0.1 to +1.0)"),
        ((-0.26, -0.5, 0.04), "+0.3 (+0.0 to +0.5)"),
    ],
)
def test_only_a_change_beyond_chance_has_a_mark(figures: tuple[float, float, float], text: str) -> None:
    assert change_text(*figures) == text


@pytest.mark.parametrize(
    ("ratio", "words"), [(4.02, "4.0× smaller"), (0.5, "2.0× larger"), (1.001, "the same"), (1.2, "1.20× smaller")]
)
def test_ratios_in_words(ratio: float, words: str) -> None:
    assert compared(ratio, "smaller", "larger") == words


def test_the_spread_of_a_single_start_is_not_known() -> None:
    report = small_report()
    once = replace(report.results[0], start=Start(1, 0.2, 0.3, 0.01, 0.0))
    row = html(replace(report, results=(once,))).partition("From a fresh process")[2].partition("</tbody>")[0]
    assert [cell.strip() for cell in re.findall("<td>(.*?)</td>", row)][-2:] == ["–", "1"]


def test_memory_is_not_compared_with_a_reference_that_takes_less_than_the_bare_process() -> None:
    report = small_report()
    memory = report.results[0].memory
    for resident in (0, -MB):
        assert memory is not None
        base = replace(report.results[0], memory=replace(memory, resident=resident))
        page = html(replace(report, results=(base, *report.results[1:])))
        assert "79.0 MB" in read(page).texts("dd") and "above the bare process" in page
