"""The report as one page: it loads nothing from elsewhere, and needs nothing but a browser."""

from collections.abc import Mapping
from importlib.resources import files
from urllib.parse import quote
from xml.etree.ElementTree import Element

from xcompress.bench.report.format import in_megabytes, threads_text
from xcompress.bench.report.html import tables
from xcompress.bench.report.html.element import document, each, table, tag
from xcompress.bench.report.html.summary import summary
from xcompress.bench.report.pictures import Picture, pictures, svg
from xcompress.bench.results import NOISY, Report

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""A browser refuses everything else that the page might request."""
UNQUOTED = " !$'()*,-./:;=?@_~"
"""Characters of an SVG that need no escape in an address; far shorter than base64."""

METHOD = {
    "Turns": "Subjects take turns within one run, so that anything that slows the machine slows all of them alike.",
    "Start": "Fresh process, one thread, files in the system's cache; medians over several processes. Spread: "
    "(highest − lowest) / median.",
    "Memory": "Fresh process with one thread, above the bare interpreter. Resident: after loading, a first vector and "
    "three calls of 1 × 16 tokens. Peak: the highest until then. Busy peak: the highest after all shapes with one "
    "thread. The tokenizer was measured alone in another process.",
    "Latency": "Calls on batches without padding, after a warm-up; p95 needs 20 of them, p99 100. Speedup: reference "
    "time / subject time, from the medians of each round; the median over the rounds. Spread: interquartile range / "
    f"median; noisy above {100 * NOISY:.0f} %. Share of peak: multiply-adds per second, relative to one large matrix "
    "product on this machine.",
    "Throughput": "Real sentences from text to vectors, all threads, batches sorted by length. The tokenizer's share "
    "of the time was measured separately.",
    "Accuracy": "95 % intervals: of correlations from a bootstrap of the rows, of shares after Wilson. Below it the "
    "change: this figure minus the reference's, on the same rows (paired). ▼ and ▲ mark losses and gains beyond "
    "chance.",
}
METHOD_BROWSER = (
    "JS heap and WebAssembly memory after three calls of 1 × 16 tokens. Cosine: the lowest between a vector from the "
    "browser and the vector of the same model outside it."
)


def html(report: Report) -> str:
    """Return the report as one HTML page with embedded pictures.

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
    return tag(
        "header",
        tag("h1", f"xcompress bench: {report.device.name}"),
        tag("p", f"{machine.cpu}, {threads_text(machine.threads)}, {machine.system}"),
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
    warnings = tag("ul", *each("li", report.warnings))
    drawn = [_figure(report, picture) for picture in pictures(report)]
    failed = [tag("li", tag("strong", result.name), f": {result.failed}") for result in report.results if result.failed]
    return tag(
        "main",
        tag("section", tag("h2", "Warnings"), warnings, class_="warnings") if report.warnings else None,
        summary(report),
        _section("Pictures", tag("div", *drawn, class_="pictures") if drawn else None),
        _section("Size, start and memory", tables.sizes(report), tables.starts(report), tables.memories(report)),
        _section("Latency", *(tables.latencies(report, count) for count in report.thread_counts)),
        _section("Throughput", tables.throughputs(report)),
        _section("Accuracy", *tables.accuracies(report)),
        _section("Browser", tables.browsers(report)),
        _section("Failed", tag("ul", *failed) if failed else None),
        _section("Notes", tag("ul", *each("li", report.notes)) if report.notes else None),
        _device(report),
        _method(report),
        _section(
            "Libraries",
            _key_table("Installed", "version", {"xcompress": report.xcompress} | report.machine.libraries, "library"),
        ),
    )


def _section(title: str, *parts: Element | None) -> Element | None:
    """Put a heading above parts; nothing where there are none."""
    present = [part for part in parts if part is not None]
    return tag("section", tag("h2", title), *present) if present else None


def _figure(report: Report, picture: Picture) -> Element:
    """Embed a picture in both themes; the style sheet shows one."""
    images = []
    for theme, dark in (("light", False), ("dark", True)):
        address = f"data:image/svg+xml,{quote(svg(report, picture, dark), safe=UNQUOTED)}"
        images.append(tag("img", src=address, alt=picture.alt, class_=f"only-{theme}"))
    return tag("figure", *images, tag("figcaption", picture.caption))


def _device(report: Report) -> Element | None:
    """Describe the machine, and what is emulated."""
    machine, ceiling = report.machine, report.device.memory_ceiling
    facts = {
        "Device": report.device.name + (f", at most {in_megabytes(ceiling)} MB per process" if ceiling else ""),
        "Processor": f"{machine.cpu}, {threads_text(machine.threads)}",
        "Instructions": " ".join(machine.flags) or "unknown",
        "Memory": f"{machine.memory / 1e9:.0f} GB" if machine.memory else "unknown",
        "Load": f"{machine.load:g}, in processors that were busy in the second before the bench",
        "System": f"{machine.system}, Python {machine.python}",
    }
    emulated = report.device.emulated
    return _section(
        "Device",
        tag("h3", "Emulated or left out") if emulated else None,
        tag("ul", *each("li", emulated)) if emulated else None,
        _pairs(facts),
    )


def _method(report: Report) -> Element | None:
    """Describe how each figure was measured."""
    browser = {"Browser": METHOD_BROWSER} if any(result.browser for result in report.results) else {}
    peaks = {name: f"{value / 1e9:,.0f}" for name, value in report.peaks.items()}
    caption = "Peak of this machine: one large matrix product, 10^9 multiply-adds per second"
    seconds = {name: f"{value:,.1f}" for name, value in report.seconds.items()}
    return _section(
        "How it was measured",
        _pairs(METHOD | browser),
        _key_table(caption, "G/s", peaks, "product") if peaks else None,
        _key_table("Duration of each part", "seconds", seconds, "part"),
    )


def _pairs(facts: Mapping[str, str]) -> Element:
    nodes = (tag("div", tag("dt", name), tag("dd", text)) for name, text in facts.items())
    return tag("dl", *nodes, class_="pairs")


def _key_table(caption: str, head: str, values: Mapping[str, str], first: str) -> Element:
    rows = (tag("tr", tag("th", name, scope="row"), tag("td", text)) for name, text in values.items())
    return table(caption, (head,), tag("tbody", *rows), first=first)
