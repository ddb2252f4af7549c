"""Write figures into README.md and, of the demo, into benchmarks/demo.md, each between two markers.

    python benchmarks/readme.py demo runs/minilm_ru3      # what `make demo` printed
    python benchmarks/readme.py peers runs/peers          # what benchmarks/peers.py measured, with its picture
    python benchmarks/readme.py models                    # sizes and dev scores of the released models

Reads bench.json, and of a run manifest.json, which `xcompress distill` and `xcompress bench` wrote; of released models
what their cards say.
"""

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xcompress.bench.report.figures import write_pngs
from xcompress.bench.report.tables import NONE, grids, measured_on
from xcompress.bench.results import Accuracy, Report, Result
from xcompress.bundle.released import released_models
from xcompress.console import markdown_table
from xcompress.distillation.summary import MEANING, head, language_head, language_rows, rows
from xcompress.files import read_json, write_text

HERE = Path(__file__).parent
SPREAD = "calls spread by more than 15%"
README = HERE.parent / "README.md"
DEMO = HERE / "demo.md"
PICTURES = {False: "peers.png", True: "peers-dark.png"}
DEV = {
    "stsb-multi-mt": {"monolingual": "one language", "en-xx": "English with another"},
    "tatoeba": {"average": "translations found"},
    "held-out translations": {"average": "found"},
}
"""Averages of the dev sets that stand in the README, and what they are called there."""
PEERS = (
    "subject",
    "disk, MB",
    "memory, MB",
    "start, s",
    "one sentence, ms",
    "sentences/s",
    "STS, one language",
    "STS, en-xx",
    "retrieval",
)


def main() -> None:
    """Replace what stands between the markers."""
    what, *folders = sys.argv[1:]
    begin, end = f"<!-- {what}: begin, written by benchmarks/readme.py -->", f"<!-- {what}: end -->"
    page = DEMO if what == "demo" else README
    before, rest = page.read_text(encoding="utf-8").split(begin)
    text = _models() if what == "models" else _measured(what, Path(folders[0]))
    write_text(page, f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}")


def _measured(what: str, folder: Path) -> str:
    write: Callable[[Path, Report], str] = {"demo": _demo, "peers": _peers}[what]
    return write(folder, Report.from_json((folder / "bench.json").read_text(encoding="utf-8")))


def _models() -> str:
    sets = {test["test"]: test for one in released_models() for test in _scores(one)}
    columns = [(test, name) for test, names in DEV.items() if test in sets for name in names]
    head = ["model", "MB", "numbers", *(f"{test}, {DEV[test][name]}" for test, name in columns)]
    rows = [
        [
            one["name"],
            f"{one['bytes'] / 1e6:.1f}",
            str(one["dimension"]),
            *(f"{one['dev'][t][n]:.1f}" for t, n in columns),
        ]
        for one in released_models()
    ]
    legend = "; ".join(f"{name}: {sets[name]['metric']}, {sets[name]['rows']} rows" for name in DEV if name in sets)
    return f"{markdown_table(head, rows)}\n\n{legend}."


def _scores(model: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(read_json(Path(model["folder"]) / "manifest.json")["release"]["scores"])


def _demo(run: Path, report: Report) -> str:
    tables = [
        part for grid in grids(report) for part in (f"### {_title(grid.title)}", markdown_table(grid.head, grid.rows))
    ]
    described = read_json(run / "manifest.json")
    steps = markdown_table(head(described), rows(described))
    languages = markdown_table(language_head(described), language_rows(described))
    distillation = ("### Distillation, step by step", MEANING, steps, "By language:", languages)
    remarks = [f"* {line}" for line in (*report.notes, *report.warnings)]
    return "\n\n".join((*tables, *remarks, *distillation, f"Measured on: {measured_on(report)}"))


def _title(text: str) -> str:
    return text[0].upper() + text[1:]


def _peers(folder: Path, report: Report) -> str:
    for dark, name in PICTURES.items():
        made = write_pngs(report, folder, dark=dark)
        shutil.copy(next(path for path in made if path.stem in ("size", "size-dark")), HERE / name)
    picture = (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="benchmarks/{PICTURES[True]}">'
        f'<img alt="size on disk against accuracy" src="benchmarks/{PICTURES[False]}" width="640"></picture>'
    )
    return "\n\n".join(
        (
            picture,
            markdown_table(PEERS, [_row(result) for result in report.results]),
            _legend(report),
            *_remarks(report.warnings),
            f"Measured on: {measured_on(report)}",
        )
    )


def _remarks(warnings: Sequence[str]) -> list[str]:
    """Return the warnings; those on calls of fixed shapes, which the table does not show, as one line."""
    names = "; ".join(line.partition(f": {SPREAD}")[0] for line in warnings if SPREAD in line)
    others = [f"* {line}" for line in warnings if SPREAD not in line]
    return [*others, f"Of fixed shapes, whose times are not shown here, {SPREAD}: {names}."] if names else others


def _legend(report: Report) -> str:
    tests = {one.kind: one for result in report.results for one in result.accuracy if one.test != "built-in"}
    sets = "; ".join(f"{one.test}: {one.metric}, {one.rows} rows" for one in tests.values() if one.kind != "agreement")
    return (
        "disk: weights and tokenizer; memory: resident after three short calls, over the bare process; start: fresh "
        f"process to first vector; one sentence: text to vector. {sets}."
    )


def _row(result: Result) -> list[str]:
    disk = (result.size.weights + result.size.tokenizer) / 1e6
    speed = result.throughput
    return [
        result.name,
        f"{disk:.1f}" if disk else NONE,
        f"{result.memory.resident / 1e6:.0f}" if result.memory else NONE,
        f"{result.start.total:.1f}" if result.start else NONE,
        _milliseconds(speed.single) if speed and speed.single else NONE,
        f"{speed.per_second:.0f}" if speed else NONE,
        *(_figure(result, kind, name) for kind, name in _COLUMNS),
    ]


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.{1 if seconds >= 1e-4 else 2}f}"


_COLUMNS = (("similarity", "monolingual"), ("similarity", "en-xx"), ("retrieval", "average"))


def _figure(result: Result, kind: str, name: str) -> str:
    """Return an average of the last test of a kind: the user's data comes after the built-in set."""
    tests: list[Accuracy] = [one for one in result.accuracy if one.kind == kind and name in one.averages]
    return f"{tests[-1].averages[name].value:.1f}" if tests else NONE


if __name__ == "__main__":
    main()
