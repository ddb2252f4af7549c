"""Write what more languages cost those that were there: dev scores of a student on the way from one run to the next.

    python benchmarks/release_languages.py runs/release_14

Reads what the run, and the run whose student lent it its layers, noted while they trained, and writes
benchmarks/release.md. Nothing is trained or scored here.
"""

import argparse
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

from xcompress.console import emit, markdown_table
from xcompress.corpus.graded import averages
from xcompress.errors import InputError
from xcompress.files import read_json, write_text
from xcompress.recipe import load_recipe
from xcompress.recipe.lineage import student_before

PAGE = Path(__file__).parent / "release.md"
BEGIN, END = "<!-- languages: begin, written by benchmarks/release_languages.py -->", "<!-- languages: end -->"
GROUPS = {"monolingual": "one language", "en-xx": "en-xx"}
Scores = Mapping[str, float]


def main() -> None:
    """Read the two runs, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    run = parser.parse_args().run
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    write_text(PAGE, f"{before}{BEGIN}\n{table(run)}\n{END}{rest.split(END)[1]}")
    emit(str(PAGE))


def table(run: Path) -> str:
    """Return STS scores over the earlier run's languages and over the others, at each state of the student.

    :raises InputError: when no earlier run lent the student its layers.
    """
    lender = student_before(load_recipe(run / "recipe.yaml"))
    if lender is None:
        raise InputError(f"{run}: no earlier run's student lent it layers; name a run whose assistant is one")
    known = {"en", *load_recipe(lender.parent / "recipe.yaml").languages}
    rows = [
        [what, *_means(scores, known, within=True), *_means(scores, known, within=False)]
        for what, scores in states(run, lender)
    ]
    heads = [f"{which}, {group}" for which in ("languages before", "the others") for group in GROUPS.values()]
    return markdown_table(["student", *heads], rows)


def states(run: Path, lender: Path) -> Iterator[tuple[str, Scores]]:
    """Give the STS scores by language pair of the lender and of the student, from its first state to its last."""
    steps = {name: step["facts"] for name, step in read_json(run / "manifest.json")["steps"].items()}
    start, (*_, trained) = steps["start"], steps.values()
    width = trained["sizes"]["word"] // start["vocabulary"]["after"]
    first = next(facts for facts in steps.values() if "untrained" in facts)
    yield "of the earlier run", read_json(lender / "step.json")["facts"]["dev"]["sts"]
    yield f"its layers, {start['vocabulary']['before']:,} rows lent", start["as_it_comes"]["sts"]
    yield f"{start['vocabulary']['after']:,} of these", start["dev"]["sts"]
    yield f"these in {width} dimensions", first["untrained"]["sts"]
    yield "trained", trained["dev"]["sts"]


def _means(scores: Scores, known: Set[str], *, within: bool) -> list[str]:
    """Average the language pairs that are within the known languages, or those that are not."""
    chosen = {pair: score for pair, score in scores.items() if (known >= {*pair.split("-")}) == within}
    means = averages(chosen)
    return [f"{means[group]:.1f}" if group in means else "-" for group in GROUPS]


if __name__ == "__main__":
    main()
