"""Write what more languages cost the languages of an earlier run: dev scores at each state of the student between.

    python benchmarks/release/languages.py runs/release_14

Reads the scores that the run recorded during training, and those of the run whose student gave it its layers. Writes
benchmarks/release.md. Trains and scores nothing.
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

from xcompress.console import emit, markdown_table, run_script
from xcompress.corpus.graded import averages
from xcompress.errors import InputError
from xcompress.files import read_json, write_between_markers
from xcompress.recipe import load_recipe
from xcompress.recipe.lineage import student_before

PAGE = Path(__file__).parents[1] / "release.md"
GROUPS = {"monolingual": "one language", "en-xx": "en-xx"}
Scores = Mapping[str, float]


def main() -> None:
    """Read the two runs, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    run = parser.parse_args().run
    write_between_markers(PAGE, "languages", "benchmarks/release/languages.py", table(run))
    emit(str(PAGE))


def table(run: Path) -> str:
    """Return STS scores over the earlier run's languages and over the new ones, at each state of the student.

    :raises InputError: when the student's layers do not come from an earlier run.
    """
    earlier = student_before(load_recipe(run / "recipe.yaml"))
    if earlier is None:
        raise InputError(f"{run}: its layers come from no earlier run's student; name a run whose assistant is one")
    known = {"en", *load_recipe(earlier.parent / "recipe.yaml").languages}
    rows = []
    for state, scores in student_states(run, earlier):
        row = [state]
        for within in (True, False):
            # pairs within the known languages, then all other pairs
            chosen = {pair: score for pair, score in scores.items() if (known >= {*pair.split("-")}) == within}
            means = averages(chosen)
            row += [f"{means[group]:.1f}" if group in means else "-" for group in GROUPS]
        rows.append(row)
    heads = [f"{which}, {group}" for which in ("languages before", "the others") for group in GROUPS.values()]
    return markdown_table(["student", *heads], rows)


def student_states(run: Path, earlier: Path) -> Iterator[tuple[str, Scores]]:
    """Yield the STS scores by language pair of the earlier student, then of the run's student from start to end."""
    steps = {name: step["facts"] for name, step in read_json(run / "manifest.json")["steps"].items()}
    start, (*_, trained) = steps["start"], steps.values()
    width = trained["sizes"]["word"] // start["vocabulary"]["after"]
    first = next(facts for facts in steps.values() if "untrained" in facts)
    yield "of the earlier run", read_json(earlier / "step.json")["facts"]["dev"]["sts"]
    yield f"its layers, {start['vocabulary']['before']:,} token embeddings", start["as_it_comes"]["sts"]
    yield f"the same, {start['vocabulary']['after']:,} token embeddings", start["dev"]["sts"]
    yield f"the same, in {width} dimensions", first["untrained"]["sts"]
    yield "trained", trained["dev"]["sts"]


if __name__ == "__main__":
    run_script(main)
