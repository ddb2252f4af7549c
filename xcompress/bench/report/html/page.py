"""One page with everything a bench found: nothing is fetched from anywhere, and nothing is needed to read it."""

from collections.abc import Iterable
from importlib.resources import files
from urllib.parse import quote
from xml.etree.ElementTree import Element

from xcompress.bench.report.figures import Picture, pictures, svg
from xcompress.bench.report.html import method, scores, summary, tables
from xcompress.bench.report.html.element import document, each, tag
from xcompress.bench.report.notes import threads_text
from xcompress.bench.results import Report

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""A browser refuses whatever else the page might ask for."""
UNQUOTED = " !$'()*,-./:;=?@_~"
"""Characters of an SVG that stand for themselves in an address; far shorter than base64."""


def html(report: Report) -> str:
    """Write the report as one HTML page with its pictures in it.

    :raises InputError: when matplotlib is missing.
    """
    return document(tag("html", _head(report), tag("body", _heading(report), _main(report)), lang="en"))


def _head(report: Report) -> Element:
    style = files("xcompress.bench.report.html").joinpath("report.css").read_text(encoding="utf-8")
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("title", f"xcompress bench: {report.device.name}, {report.date[:10]}"),
        tag("style", style),
    )


def _heading(report: Report) -> Element:
    machine = report.machine
    where = f"{machine.cpu}, {threads_text(machine.threads)}, {machine.system}"
    return tag(
        "header",
        tag("h1", f"xcompress bench: {report.device.name}"),
        tag("p", where),
        tag(
            "p",
            tag("time", report.date.replace("T", " ").replace("+00:00", " UTC"), datetime=report.date),
            f", xcompress {report.xcompress}, {sum(report.seconds.values()):,.0f} s",
            " " if report.quick else None,
            tag("span", "quick", class_="tag warn") if report.quick else None,
            class_="muted",
        ),
    )


def _main(report: Report) -> Element:
    return tag(
        "main",
        _warnings(report),
        summary.summary(report),
        _pictures(report),
        _section("Size, start and memory", tables.sizes(report), tables.starts(report), tables.memories(report)),
        _section("Latency", *tables.latencies(report)),
        _section("Throughput", tables.throughputs(report)),
        _section("Accuracy", *scores.accuracies(report)),
        _section("Browser", tables.browsers(report)),
        _failures(report),
        _section("Notes", tag("ul", *each("li", report.notes)) if report.notes else None),
        tag("section", *method.device(report)),
        tag("section", *method.method(report)),
        tag("section", *method.libraries(report)),
    )


def _section(title: str, *parts: Element | None) -> Element | None:
    """Put a heading above parts; nothing where there are none."""
    present = [part for part in parts if part is not None]
    return tag("section", tag("h2", title), *present) if present else None


def _warnings(report: Report) -> Element | None:
    lines = tag("ul", *each("li", report.warnings))
    return tag("section", tag("h2", "Warnings"), lines, class_="warnings") if report.warnings else None


def _failures(report: Report) -> Element | None:
    failed = [(one.name, one.failed) for one in report.results if one.failed]
    lines = (tag("li", tag("strong", name), f": {reason}") for name, reason in failed)
    return _section("Failed", tag("ul", *lines) if failed else None)


def _pictures(report: Report) -> Element | None:
    drawn = [_picture(report, picture) for picture in pictures(report)]
    return _section("Pictures", tag("div", *drawn, class_="pictures") if drawn else None)


def _picture(report: Report, picture: Picture) -> Element:
    themes: Iterable[tuple[str, bool]] = (("light", False), ("dark", True))
    images = (
        tag("img", src=_address(svg(report, picture.name, dark)), alt=picture.alt, class_=f"only-{theme}")
        for theme, dark in themes
    )
    return tag("figure", *images, tag("figcaption", picture.caption))


def _address(drawn: str) -> str:
    """Put a picture into an address, so that it needs no file."""
    return f"data:image/svg+xml,{quote(drawn, safe=UNQUOTED)}"
