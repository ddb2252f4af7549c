"""Write the results of benchmarks/papers.py into benchmarks/papers.md, each table between two markers.

    python benchmarks/papers_report.py [--runs runs/papers]

Variants without results are named and left out. A table without any results stays as it is.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from papers import DECAYS, DUAL_PAIRS, LAST, SCORES, TASKS

from xcompress.console import markdown_table, say
from xcompress.files import read_json, write_text

PAGE = Path(__file__).parent / "papers.md"
NONE = "–"
Scores = Mapping[str, Mapping[str, float]]
Rows = Iterator[tuple[str, ...]]

PRINTED_MOVING = {
    "before": (85.2, 77.0, 89.1),
    "small": (68.6, 67.1, 91.1),
    "right": (84.8, 84.5, 95.4),
    "large": (78.0, 74.1, 92.4),
    "frozen": (77.7, 74.2, 91.9),
}
"""Table 4 and, before phase 2, tables 1 and 2 and section 6.3: monolingual, cross-lingual, retrieval."""
PRINTED_DUAL = {
    "layers1": (81.7, 79.4, 89.4, 90.0),
    "full": (82.3, 80.3, 90.2, 90.8),
    "layers4": (84.2, 82.0, 91.4, 91.5),
    "masked": (75.0, 78.7, 85.0, 85.3),
    "reconstruction": (84.2, 81.2, 89.5, 90.8),
    "unified": (85.1, 82.4, 89.8, 90.6),
    "unified-align": (84.1, 81.9, 89.9, 90.4),
}
"""Tables 5 (1 and 4 layers), 6 and 7 for English-French: documents en>fr and fr>en, retrieval en>fr and fr>en."""
PRINTED_HEADS = ("printed: MLDoc, en>fr", "fr>en", "XSR, en>fr", "fr>en")
MOVING_NAMES = {
    "before": "after phase 1",
    **{name: f"tau {'too ' if name in ('small', 'large') else ''}{name}, {decay:g}" for name, decay in DECAYS.items()},
    "frozen": "frozen teacher",
}
DUAL_NAMES = {
    "layers1": "1 layer, unified + align + sim",
    "full": "2 layers, unified + align + sim",
    "layers4": "4 layers, unified + align + sim",
    "masked": "masked word alone",
    "reconstruction": "reconstruction alone",
    "unified": "unified alone",
    "unified-align": "unified + align",
}
TOGETHER_NAMES = {
    "mcl": "stage 4 with MCL, as shipped",
    "teacher-alone": "stage 4, eq. 6 alone",
    "moving-beside": "stage 4, eq. 6 and the moving teacher in place of MCL",
    "moving-alone": "stage 4, the moving teacher alone",
    "vocabulary": "new vocabulary of 30,000 tokens",
    "vocabulary-words": "the same, with the generative task in stage 3 (weight 0.05)",
}


def main() -> None:
    """Write all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/papers"))
    runs = parser.parse_args().runs
    tables: dict[str, Callable[[Path], str]] = {
        "moving": _moving_table,
        "dual": _dual_tables,
        "together": _together_table,
    }
    for name, make in tables.items():
        if any(runs.glob(f"{name}-*/{SCORES}")):
            begin, end = f"<!-- {name}: begin, written by benchmarks/papers_report.py -->", f"<!-- {name}: end -->"
            before, rest = PAGE.read_text(encoding="utf-8").split(begin)
            write_text(PAGE, f"{before}{begin}\n{make(runs)}\n{end}{rest.split(end)[1]}")


def _moving_table(runs: Path) -> str:
    columns = (("sts", "monolingual"), ("sts", "en-xx"), ("tatoeba", "average"))
    head = ("teacher", "STS, one language", "STS, en-xx", "retrieval", "printed: one language", "en-xx", "retrieval")
    return markdown_table(head, _rows(runs, "moving", MOVING_NAMES, columns, PRINTED_MOVING))


def _dual_tables(runs: Path) -> str:
    tables = []
    for language in DUAL_PAIRS:
        directions = (f"en>{language}", f"{language}>en")
        columns = [(task, direction) for task in ("sib200", "tatoeba") for direction in directions]
        printed = PRINTED_DUAL if language == "fr" else {}
        head = [
            "trained with",
            *(f"{task}, {direction}" for task, direction in columns),
            *(PRINTED_HEADS if printed else []),
        ]
        tables.append(markdown_table(head, _rows(runs, f"dual-{language}", DUAL_NAMES, columns, printed)))
    return "\n\n".join([*tables, "In parentheses: range over five seeds of the linear probe."])


def _together_table(runs: Path) -> str:
    columns = (("sts", "monolingual"), ("sts", "en-xx"), ("tatoeba", "average"))
    head = ("student", "STS, one language", "STS, en-xx", "retrieval")
    return markdown_table(head, _rows(runs, "together", TOGETHER_NAMES, columns, {}))


def _rows(
    runs: Path,
    part: str,
    names: Mapping[str, str],
    columns: Sequence[tuple[str, str]],
    printed: Mapping[str, Sequence[float]],
) -> Rows:
    """Yield a row per variant: its label, its scores, and those printed in the paper."""
    for name, label in names.items():
        file = runs / f"{part}-{name}" / SCORES
        if not file.is_file():
            say(f"{file.parent}: no results, left out")
            continue
        scores: Scores = read_json(file)
        in_print = (f"{value:.1f}" for value in printed.get(name, ()))
        yield (label, *(_cell(scores, task, figure) for task, figure in columns), *in_print)


def _cell(scores: Scores, task: str, figure: str) -> str:
    """Return a figure, and in parentheses its range over several seeds."""
    value, spread = (scores.get(name, {}).get(figure) for name in (task, f"{task}, spread"))
    if value is None:
        return NONE
    return f"{value:.1f}" if spread is None else f"{value:.1f} ({spread:.1f})"


if __name__ == "__main__":
    assert set(TASKS) == set(DUAL_NAMES) and set(LAST) < set(TOGETHER_NAMES)
    main()
