"""Write measured tables into README.md or benchmarks/demo.md, between two markers.

    python benchmarks/readme.py demo runs/minilm_ru3      # the results of `make demo`, into benchmarks/demo.md
    python benchmarks/readme.py peers runs/peers          # the results of benchmarks/peers.py, into README.md
    python benchmarks/readme.py models                    # size and dev scores of the released models, into README.md

Reads the folder's bench.json, and for the demo its manifest.json; for the released models, their manifests. `peers`
also draws benchmarks/peers.png and peers-dark.png. Nothing is measured here.
"""

import argparse
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xcompress.bench.report.compare import read_report
from xcompress.bench.report.pictures import write_pngs
from xcompress.bench.report.tables import NONE, measured_on, tables_of
from xcompress.bench.results import Accuracy, Report, Result
from xcompress.bundle.released import released_models
from xcompress.console import markdown_table, run_script
from xcompress.corpus.graded import BUILTIN, PART, UNSEEN
from xcompress.distillation.summary import MEANING, table_of_languages, table_of_steps
from xcompress.files import read_json, write_between_markers

HERE = Path(__file__).parent
SPREAD = "calls spread by more than 15%"
README = HERE.parent / "README.md"
DEMO = HERE / "demo.md"
PICTURES = {False: "peers.png", True: "peers-dark.png"}
DEV = {
    "stsb-multi-mt: unseen": {"monolingual": "STS, one language", "en-xx": "STS, English with another"},
    "stsb-multi-mt: captions, unseen": {"en-xx": "of which captions"},
    "stsb-multi-mt: forums": {"en-xx": "forums"},
    "stsb-multi-mt: news, unseen": {"en-xx": "news"},
    "tatoeba": {"average": "Tatoeba"},
}
"""Averages of the dev sets in the README, and their names there."""
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
ACCURACY_COLUMNS = (("similarity", "monolingual"), ("similarity", "en-xx"), ("retrieval", "average"))


def main() -> None:
    """Replace the text between the markers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", choices=["demo", "peers", "models"])
    parser.add_argument("folder", type=Path, nargs="?", help="needed for demo and peers")
    options = parser.parse_args()
    if options.tables == "models":
        text = _models_text()
    elif options.folder is None:
        parser.error(f"{options.tables} needs a folder with bench.json")
    else:
        report = read_report(options.folder / "bench.json")
        text = (_demo_text if options.tables == "demo" else _peers_text)(options.folder, report)
    write_between_markers(DEMO if options.tables == "demo" else README, options.tables, "benchmarks/readme.py", text)


def _models_text() -> str:
    models = released_models()
    manifests = [read_json(Path(model["folder"]) / "manifest.json") for model in models]
    sets = {score["test"]: score for manifest in manifests for score in manifest["release"]["scores"]}
    columns = [(test, name) for test, names in DEV.items() if test in sets for name in names]
    head = ["model", "MB", "dimensions", *(DEV[test][name] for test, name in columns)]
    rows = [
        [
            model["name"],
            f"{model['bytes'] / 1e6:.1f}",
            str(model["dimension"]),
            *(f"{model['dev'][test][name]:.1f}" for test, name in columns),
        ]
        for model in models
    ]
    tests: dict[str, Mapping[str, Any]] = {}
    for name in filter(sets.__contains__, DEV):
        tests.setdefault(name.partition(PART)[0], sets[name])
    legend = "; ".join(f"{test['test']} ({test['metric']}, {test['rows']} rows)" for test in tests.values())
    return f"{markdown_table(head, rows)}\n\n{legend}."


def _demo_text(run: Path, report: Report) -> str:
    tables = []
    for table in tables_of(report):
        tables += [f"### {table.title[0].upper()}{table.title[1:]}", markdown_table(table.head, table.rows)]
    manifest = read_json(run / "manifest.json")
    steps = markdown_table(*table_of_steps(manifest))
    languages = markdown_table(*table_of_languages(manifest))
    distillation = ("### Distillation, step by step", MEANING, steps, "By language:", languages)
    remarks = [f"* {line}" for line in (*report.notes, *report.warnings)]
    return "\n\n".join((*tables, *remarks, *distillation, f"Measured on: {measured_on(report)}"))


def _peers_text(folder: Path, report: Report) -> str:
    for dark, name in PICTURES.items():
        pictures = write_pngs(report, folder, dark=dark)
        shutil.copy(next(path for path in pictures if path.stem in ("size", "size-dark")), HERE / name)
    picture = (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="benchmarks/{PICTURES[True]}">'
        f'<img alt="size on disk against accuracy" src="benchmarks/{PICTURES[False]}" width="640"></picture>'
    )
    sections = [picture, markdown_table(PEERS, [_row(result) for result in report.results])]
    tests = {test.kind: test for result in report.results for test in _whole_sets(result) if test.test != BUILTIN}
    sets = [f"{test.test} ({test.metric}, {test.rows} rows)" for test in tests.values() if test.kind != "agreement"]
    sections.append(
        "disk: weights and tokenizer; memory: resident after three short calls, over the bare process; start: fresh "
        f"process to first vector; one sentence: text to vector. {'; '.join(sets)}."
    )
    # Warnings about calls of fixed shapes become one line: the table does not show those times.
    sections += [f"* {line}" for line in report.warnings if SPREAD not in line]
    names = "; ".join(line.partition(f": {SPREAD}")[0] for line in report.warnings if SPREAD in line)
    if names:
        sections.append(f"Of fixed shapes, whose times are not shown here, {SPREAD}: {names}.")
    return "\n\n".join([*sections, f"Measured on: {measured_on(report)}"])


def _row(result: Result) -> list[str]:
    disk = (result.size.weights + result.size.tokenizer) / 1e6
    speed = result.throughput
    return [
        result.name,
        f"{disk:.1f}" if disk else NONE,
        f"{result.memory.resident / 1e6:.0f}" if result.memory else NONE,
        f"{result.start.total:.1f}" if result.start else NONE,
        f"{1000 * speed.single:.{1 if speed.single >= 1e-4 else 2}f}" if speed and speed.single else NONE,
        f"{speed.per_second:.0f}" if speed else NONE,
        *(_average(result, kind, name) for kind, name in ACCURACY_COLUMNS),
    ]


def _average(result: Result, kind: str, name: str) -> str:
    """Return an average of the last test of a kind: the user's data come after the built-in set."""
    tests = [test for test in _whole_sets(result) if test.kind == kind and name in test.averages]
    return f"{tests[-1].averages[name].value:.1f}" if tests else NONE


def _whole_sets(result: Result) -> list[Accuracy]:
    """Return the tests that are not on a genre: on the unseen rows where there are such, else on the whole set."""
    whole = [test for test in result.accuracy if PART not in test.test]
    return [result.accuracy_on(f"{test.test}{PART}{UNSEEN}") or test for test in whole]


if __name__ == "__main__":
    run_script(main)
