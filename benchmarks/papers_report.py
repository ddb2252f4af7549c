"""Write the results of benchmarks/papers.py into benchmarks/papers.md, each table between two markers.

    python benchmarks/papers_report.py [--runs runs/papers]

Every figure is a mean over training seeds, with half the width of its 95 % confidence interval (Student's t). Variants
without results are named and left out, and figures of a single seed have no interval. A claim compares two variants
seed by seed: it holds if the interval of the mean difference is above 0.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from ablation import LANGUAGES, SCORES
from ablation_report import cell, verdict
from papers import COST, COST_STEPS, DECAYS, DUAL_LANGUAGES, LAST, ONE_LANGUAGE, SEEDS, TASKS

from xcompress.console import markdown_table, run_script, say
from xcompress.errors import InputError
from xcompress.files import read_json, write_between_markers

PAGE = Path(__file__).parent / "papers.md"
NONE = "–"
Column = tuple[str, str]
"""A test and one of its figures."""
Claim = tuple[str, str, str, str, Sequence[str]]
"""What is claimed, the variant that is said to be better, the other one, a test, and its figures to average."""

STS_COLUMNS: Mapping[str, Column] = {
    "STS, one language": ("sts", "monolingual"),
    "STS, en-xx": ("sts", "en-xx"),
    "retrieval": ("tatoeba", "average"),
}
MOVING_NAMES = {
    "start": "multilingual-e5-small, before training",
    "before": "after phase 1",
    **{name: f"tau {'too ' if name in ('small', 'large') else ''}{name}, {decay:g}" for name, decay in DECAYS.items()},
    "frozen": "frozen teacher",
}
PRINTED_MOVING = {
    "before": (85.2, 77.0, 89.1),
    "small": (68.6, 67.1, 91.1),
    "right": (84.8, 84.5, 95.4),
    "large": (78.0, 74.1, 92.4),
    "frozen": (77.7, 74.2, 91.9),
}
"""Table 4 and, before phase 2, tables 1 and 2 and section 6.3: monolingual, cross-lingual, retrieval."""
BY_LANGUAGE = {name: MOVING_NAMES[name] for name in ("start", "before", "right")} | {
    "one-language": f"aligned with {ONE_LANGUAGE} alone"
}
AUGMENTED = {
    "before": "after phase 1",
    "before-augmented": "after phase 1, with augmented pairs",
    "right": "after phase 2",
    "augmented": "after phase 2, with augmented pairs",
}
MOVING_CLAIMS: Sequence[Claim] = (
    ("Phase 1 raises similarity within one language", "before", "start", "sts", ("monolingual",)),
    ("Phase 2 raises similarity across languages (table 1)", "right", "before", "sts", ("en-xx",)),
    ("Phase 2 raises it within one language (table 2)", "right", "before", "sts", ("monolingual",)),
    ("Phase 2 finds more translations (table 3)", "right", "before", "tatoeba", ("average",)),
    ("Both phases raise similarity across languages above the start", "right", "start", "sts", ("en-xx",)),
    ("Both phases find more translations than the start", "right", "start", "tatoeba", ("average",)),
    ("Too small a tau costs similarity across languages (table 4)", "right", "small", "sts", ("en-xx",)),
    ("Too small a tau costs it within one language (table 4)", "right", "small", "sts", ("monolingual",)),
    ("Too large a tau costs similarity across languages (table 4)", "right", "large", "sts", ("en-xx",)),
    ("A frozen teacher costs similarity across languages (table 4)", "right", "frozen", "sts", ("en-xx",)),
    (
        f"Aligning with {ONE_LANGUAGE} alone finds more translations from other languages",
        "one-language",
        "before",
        "tatoeba",
        [f"{language}>en" for language in LANGUAGES if language != ONE_LANGUAGE],
    ),
    (
        f"Aligning with {ONE_LANGUAGE} alone raises the similarity of English with other languages",
        "one-language",
        "before",
        "sts",
        [f"en-{language}" for language in LANGUAGES if language not in ("ar", ONE_LANGUAGE)],
    ),
    (
        f"Aligning with all languages raises it more than with {ONE_LANGUAGE} alone",
        "right",
        "one-language",
        "sts",
        [f"en-{language}" for language in LANGUAGES if language not in ("ar", ONE_LANGUAGE)],
    ),
    ("Augmented pairs raise similarity within one language", "augmented", "right", "sts", ("monolingual",)),
    ("Augmented pairs raise it across languages", "augmented", "right", "sts", ("en-xx",)),
)
SHIPPED = {
    "start": "multilingual-e5-small, before training",
    "calibrated_similarity": "recipes/calibrated_similarity.yaml",
}

DUAL_NAMES = {
    "layers1": "1 layer, unified + align + sim",
    "full": "2 layers, unified + align + sim",
    "layers4": "4 layers, unified + align + sim",
    "layers6": "6 layers, unified + align + sim",
    "masked": "masked word alone (SMLM)",
    "reconstruction": "reconstruction alone (XTR)",
    "unified": "unified alone (UGT)",
    "unified-align": "unified + align",
    "unified-transform": "unified alone, head and bias of the authors' code",
    "transform": "unified + align + sim, head and bias of the authors' code",
    "batch24": "batches of 24, twice the steps",
    "batch96": "batches of 96, half the steps",
    "corpus50": "50 % of the text",
    "corpus25": "25 % of the text",
    "corpus12": "12.5 % of the text",
    "start": "multilingual-e5-small with a head fitted to its teacher, before training",
    "distilled": "the same after distillation (Reimers and Gurevych, 2020)",
}
SHIPPED_DUAL = {"lightweight_dual": "recipes/lightweight_dual.yaml"}
DOCUMENTS, RETRIEVED = (f"en>{DUAL_LANGUAGES[0]}", f"{DUAL_LANGUAGES[0]}>en"), ("average",)
DUAL_CLAIMS: Sequence[Claim] = (
    ("Two layers find more translations than one (table 5)", "full", "layers1", "tatoeba", RETRIEVED),
    ("Four layers find more than two (table 5)", "layers4", "full", "tatoeba", RETRIEVED),
    ("Six layers find more than four (table 5)", "layers6", "layers4", "tatoeba", RETRIEVED),
    ("The unified task finds more than a masked word (table 6)", "unified", "masked", "tatoeba", RETRIEVED),
    ("The unified task finds more than reconstruction (table 6)", "unified", "reconstruction", "tatoeba", RETRIEVED),
    ("Alignment raises retrieval (table 7)", "unified-align", "unified", "tatoeba", RETRIEVED),
    ("Similarity raises it further (table 7)", "full", "unified-align", "tatoeba", RETRIEVED),
    ("The unified task alone is best at documents (table 7)", "unified", "full", "sib200", DOCUMENTS),
    ("The head of the authors' code helps the unified task", "unified-transform", "unified", "tatoeba", RETRIEVED),
    ("It helps all objectives together", "transform", "full", "tatoeba", RETRIEVED),
    ("More text helps, 100 % against 12.5 % (table 10, retrieval)", "full", "corpus12", "tatoeba", RETRIEVED),
    ("Larger batches help, 96 against 24 (table 9, retrieval)", "batch96", "batch24", "tatoeba", RETRIEVED),
)
PRINTED_DUAL = {
    "layers1": (81.7, 79.4, 89.4, 90.0),
    "full": (82.3, 80.3, 90.2, 90.8),
    "layers4": (84.2, 82.0, 91.4, 91.5),
    "layers6": (83.0, 80.8, 91.2, 92.0),
    "masked": (75.0, 78.7, 85.0, 85.3),
    "reconstruction": (84.2, 81.2, 89.5, 90.8),
    "unified": (85.1, 82.4, 89.8, 90.6),
    "unified-align": (84.1, 81.9, 89.9, 90.4),
    "batch24": (82.9, 82.6, 89.6, 90.3),
    "batch96": (82.9, 81.1, 90.2, 90.7),
    "corpus50": (83.0, 81.5, 90.2, 91.0),
    "corpus25": (82.5, 80.3, 90.5, 91.2),
    "corpus12": (82.5, 80.7, 90.8, 90.5),
    "distilled": (68.0, 78.5, 93.0, 92.3),
}
"""Tables 5 to 10 for English-French: documents en>fr and fr>en, retrieval en>fr and fr>en. `full` is table 7; table 9
has batches of 64 and 256 for 24 and 96, beside 128 for 48."""
PRINTED_LANGUAGES = {
    "fr": (85.1, 82.4, 90.2, 90.8),
    "de": (88.8, 80.8, 86.3, 86.9),
    "es": (80.8, 79.2, 90.7, 91.2),
    "it": (74.3, 79.9, 86.9, 87.6),
}
"""Tables 3 and 4: documents from and into English, by the generative task alone; retrieval, by all objectives."""
PRINTED_COST = {1: (7_135, 19), 2: (11_607, 24), 4: (16_804, 29), 6: (28_024, 44)}
"""Table 5: megabytes on a GPU, and minutes for 10,000 steps."""
TOGETHER_NAMES = {
    "mcl": "stage 4 with MCL",
    "teacher-alone": "stage 4, eq. 6 alone",
    "moving-beside": "stage 4, eq. 6 and the moving teacher in place of MCL",
    "moving-alone": "stage 4, the moving teacher alone",
    "vocabulary": "new vocabulary of 30,000 tokens",
    "vocabulary-words": "the same, with the generative task in stage 3 (weight 0.05)",
}


def main() -> None:
    """Write all tables whose runs are there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/papers"))
    runs = parser.parse_args().runs
    tables: dict[str, Callable[[Path], str]] = {
        "moving": moving_tables,
        "dual": dual_tables,
        "together": lambda runs: table(runs, "together", TOGETHER_NAMES, STS_COLUMNS),
    }
    measured = {name: make for name, make in tables.items() if any(runs.glob(f"{name}-*/{SCORES}"))}
    if not measured:
        raise InputError(f"{runs}: no {SCORES} of benchmarks/papers.py in folders there; correct --runs")
    for name, make in measured.items():
        write_between_markers(PAGE, name, "benchmarks/papers_report.py", make(runs))


def moving_tables(runs: Path) -> str:
    """Return the tables of calibrated similarity."""
    languages = [language for language in LANGUAGES if language != "ar"]
    across = {f"en-{language}": ("sts", f"en-{language}") for language in languages}
    within = {f"{language}-{language}": ("sts", f"{language}-{language}") for language in ("en", *languages)}
    found = {language: ("tatoeba", f"{language}>en") for language in LANGUAGES}
    printed = ("printed: one language", "en-xx", "retrieval")
    return "\n\n".join(
        [
            "The decay of the moving teacher (table 4):",
            table(runs, "moving", MOVING_NAMES, STS_COLUMNS, PRINTED_MOVING, printed),
            "Similarity between English and each language (table 1):",
            table(runs, "moving", BY_LANGUAGE, across),
            "Similarity within each language (table 2):",
            table(runs, "moving", BY_LANGUAGE, within),
            "Retrieval from each language into English (table 3):",
            table(runs, "moving", BY_LANGUAGE, found),
            "Graded pairs added by a cross-encoder (section 5.1):",
            table(runs, "moving", AUGMENTED, STS_COLUMNS),
            "The shipped recipe for users without labelled text, as it is:",
            table(runs, "shipped", SHIPPED, STS_COLUMNS),
            "Which claims hold, by the difference of seeds:",
            claims(runs, "moving", MOVING_CLAIMS),
        ]
    )


def dual_tables(runs: Path) -> str:
    """Return the tables of the dual transformer."""
    # Four languages: documents by the generative task alone, retrieval by all objectives, as in print.
    head = ["", *(f"{language}{arrow}" for language in DUAL_LANGUAGES for arrow in (" →", " ←"))]
    rows = []
    for label, task, test in (
        ("documents, unified alone (table 3)", "unified", "sib200"),
        ("retrieval among 1,000, all objectives", "full", "tatoeba"),
        ("retrieval among 200,000, all objectives (table 4)", "full", "xsr"),
    ):
        cells = []
        for language in DUAL_LANGUAGES:
            for direction in (f"en>{language}", f"{language}>en"):
                cells.append(_mean(runs, f"dual-{language}-{task}", (test, direction)))
        rows.append([label, *cells])
    for label, first in (("printed: documents (table 3)", 0), ("printed: retrieval among 200,000 (table 4)", 2)):
        values = [PRINTED_LANGUAGES[language][first : first + 2] for language in DUAL_LANGUAGES]
        rows.append([label, *(f"{value:.1f}" for both in values for value in both)])

    # Variants of English-French, and what layers cost.
    columns = {
        f"{name}, {direction}": (test, direction)
        for test, name in (("sib200", "documents"), ("tatoeba", "retrieval"))
        for direction in ("en>fr", "fr>en")
    }
    printed = ("printed: documents, en>fr", "fr>en", "retrieval, en>fr", "fr>en")
    parts = [
        "Four pairs of languages, from English (→) and into it (←):",
        markdown_table(head, rows),
        "Variants, English with French (tables 5 to 10):",
        table(runs, "dual-fr", DUAL_NAMES, columns, PRINTED_DUAL, printed),
    ]
    if (runs / COST).is_file():
        parts += ["Time and memory of training (table 5):", _cost_table(runs)]
    shipped = {
        f"{name}, {direction}": (test, direction)
        for test, name in (("sib200", "documents"), ("tatoeba", "retrieval"))
        for direction in ("en>de", "de>en")
    }
    parts += ["The shipped recipe as it is, on messages of software:", table(runs, "shipped", SHIPPED_DUAL, shipped)]
    parts += ["Which claims hold, English with French, by the difference of seeds:"]
    return "\n\n".join([*parts, claims(runs, "dual-fr", DUAL_CLAIMS)])


def claims(runs: Path, part: str, compared: Sequence[Claim]) -> str:
    """Return a list with a verdict on each claim."""
    return "\n".join(
        f"- **{claim}:** {verdict(*(_by_seed(runs, f'{part}-{name}', test, figures) for name in (better, worse)))}"
        for claim, better, worse, test, figures in compared
    )


def _cost_table(runs: Path) -> str:
    costs = {int(layers): cost for layers, cost in read_json(runs / COST).items()}
    rows = [
        [
            str(layers),
            f"{cost['seconds'] / COST_STEPS:.2f}",
            f"{cost['seconds'] / costs[2]['seconds']:.2f}",
            f"{cost['megabytes']:,.0f}",
            f"{cost['megabytes'] / costs[2]['megabytes']:.2f}",
            f"{PRINTED_COST[layers][1] / PRINTED_COST[2][1]:.2f}",
            f"{PRINTED_COST[layers][0] / PRINTED_COST[2][0]:.2f}",
        ]
        for layers, cost in costs.items()
    ]
    head = ("layers", "s per step", "against 2", "peak, MB", "against 2", "printed: time against 2", "memory against 2")
    return markdown_table(head, rows)


def table(
    runs: Path,
    part: str,
    names: Mapping[str, str],
    columns: Mapping[str, Column],
    printed: Mapping[str, Sequence[float]] | None = None,
    printed_heads: Sequence[str] = (),
) -> str:
    """Return a table with a row per variant: its label, its scores, and those printed in the paper."""
    rows = []
    for name, label in names.items():
        cells = [_mean(runs, f"{part}-{name}", column) for column in columns.values()]
        if set(cells) == {NONE}:
            say(f"{part}-{name}: no results, left out")
            continue
        in_print = [f"{value:.1f}" for value in (printed or {}).get(name, ())]
        rows.append([label, *cells, *(in_print or [NONE] * len(printed_heads))])
    return markdown_table(("model", *columns, *printed_heads), rows)


def _mean(runs: Path, name: str, column: Column) -> str:
    """Return the mean over seeds of one figure, with its interval where there are several seeds."""
    test, figure = column
    values = list(_by_seed(runs, name, test, [figure]).values())
    return cell(values) if values else NONE


def _by_seed(runs: Path, name: str, test: str, figures: Sequence[str]) -> dict[int, float]:
    """Return the mean of the figures of each seed that has them all; a run without a seed counts as seed 0."""
    found = {}
    for seed, folder in ((0, runs / name), *((seed, runs / f"{name}-s{seed}") for seed in SEEDS)):
        scores = read_json(folder / SCORES).get(test, {}) if (folder / SCORES).is_file() else {}
        if set(figures) <= set(scores):
            found[seed] = fmean(scores[figure] for figure in figures)
    return found


if __name__ == "__main__":
    assert set(TASKS) < set(DUAL_NAMES) and set(LAST) < set(TOGETHER_NAMES)
    run_script(main)
