"""Write the demo's figures into README.md, between its two markers.

    python benchmarks/readme.py runs/minilm_ru3

Reads manifest.json and bench.json, which `xcompress distill` and `xcompress bench` wrote.
"""

import sys
from pathlib import Path

from xcompress.bench.results import Report
from xcompress.bench.tables import grids, measured_on
from xcompress.console import markdown_table
from xcompress.distill.summary import MEANING, head, language_head, language_rows, rows
from xcompress.files import read_json, write_text

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- demo: begin, written by benchmarks/readme.py -->", "<!-- demo: end -->"


def main() -> None:
    """Replace what stands between the markers."""
    run = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/minilm_ru3")
    report = Report.from_json((run / "bench.json").read_text(encoding="utf-8"))
    before, rest = README.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    write_text(README, f"{before}{BEGIN}\n{_demo(run, report)}\n{END}{after}")


def _demo(run: Path, report: Report) -> str:
    tables = [part for grid in grids(report) for part in (f"### {grid.title}", markdown_table(grid.head, grid.rows))]
    described = read_json(run / "manifest.json")
    steps = markdown_table(head(described), rows(described))
    languages = markdown_table(language_head(described), language_rows(described))
    distillation = ("### Distillation, step by step", MEANING, steps, "By language:", languages)
    remarks = [f"* {line}" for line in (*report.notes, *report.warnings)]
    return "\n\n".join((*tables, *remarks, *distillation, f"Measured on: {measured_on(report)}"))


if __name__ == "__main__":
    main()
