"""On what and how a report was measured, for those who want to judge the figures or take them again."""

from collections.abc import Mapping
from xml.etree.ElementTree import Element

from xcompress.bench.report.figures.format import megabytes
from xcompress.bench.report.html.element import each, tag
from xcompress.bench.report.html.tables import table
from xcompress.bench.report.notes import threads_text
from xcompress.bench.results import NOISY, Report

HOW = {
    "Turns": "Subjects take turns within one run, so that whatever slows the machine slows them alike.",
    "Start": "A fresh process, one thread, the files in the system's cache; medians over several processes. Spread is "
    "(most − least) / median.",
    "Memory": "Of a fresh process with one thread, over the bare interpreter. Resident: after loading, a first vector "
    "and three calls of 1 × 16 tokens. Peak: the highest until then. Busy peak: the highest after all shapes with one "
    "thread. The tokenizer's part was measured by itself in another process.",
    "Latency": "Calls on batches without padding, after a warm-up. Times as fast: the median over the rounds of the "
    f"ratio of medians. Spread: interquartile range over median; above {100 * NOISY:.0f} % it is called noisy. Share "
    "of peak: multiply-adds per second over those of one large product of matrices on this machine.",
    "Throughput": "Real sentences from text to vectors, all threads, batches by length. The tokenizer's share of the "
    "time was measured by itself.",
    "Accuracy": "Intervals are 95 % bootstrap intervals, rows drawn with replacement. A drop is the reference's figure "
    "less this one, with the same rows drawn for both (paired); ▼ and ▲ mark what is lost or won beyond chance.",
}
BROWSER = (
    "JS heap and WebAssembly memory after three calls of 1 × 16 tokens; the cosine is the least between a vector "
    "of the browser and that of the same model outside it."
)


def method(report: Report) -> list[Element]:
    """Say how each figure was taken."""
    how = HOW | ({"Browser": BROWSER} if any(one.browser for one in report.results) else {})
    return [
        tag("h2", "How it was measured"),
        _pairs(how),
        *_peaks(report),
        _short_table("How long each part took", ("seconds",), {k: f"{v:,.1f}" for k, v in report.seconds.items()}),
    ]


def device(report: Report) -> list[Element]:
    """Say what is emulated, and what the machine is."""
    machine, ceiling = report.machine, report.device.memory_ceiling
    facts = {
        "DeviceInfo": report.device.name + (f", {megabytes(ceiling)} MB for a process at most" if ceiling else ""),
        "Processor": f"{machine.cpu}, {threads_text(machine.threads)}",
        "Instructions": " ".join(machine.flags) or "unknown",
        "Memory": f"{machine.memory / 1e9:.0f} GB" if machine.memory else "unknown",
        "Kept busy by others": f"{machine.load:g} processors in the second before the bench",
        "System": f"{machine.system}, Python {machine.python}",
    }
    emulated = [tag("h3", "Emulated, or left out"), tag("ul", *each("li", report.device.emulated))]
    return [tag("h2", "DeviceInfo"), *(emulated if report.device.emulated else []), _pairs(facts)]


def libraries(report: Report) -> list[Element]:
    """List what was installed."""
    found = {"xcompress": report.xcompress} | report.machine.libraries
    return [tag("h2", "Libraries"), _short_table("Installed", ("version",), found, first="library")]


def _peaks(report: Report) -> list[Element]:
    peaks = {name: f"{value / 1e9:,.0f}" for name, value in report.peaks.items()}
    caption = "Peak of this machine: multiply-adds per second of one large product, in thousand millions"
    return [_short_table(caption, ("G/s",), peaks, first="product")] if peaks else []


def _pairs(facts: Mapping[str, str]) -> Element:
    nodes = (tag("div", tag("dt", name), tag("dd", text)) for name, text in facts.items())
    return tag("dl", *nodes, class_="pairs")


def _short_table(caption: str, head: tuple[str, ...], cells: Mapping[str, str], first: str = "part") -> Element:
    lines = (tag("tr", tag("th", name, scope="row"), tag("td", text)) for name, text in cells.items())
    return table(caption, head, tag("tbody", *lines), first=first)
