"""Gathering the tests: the built-in set, a run's held-out translations, and the user's data."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from xcompress.bench.eval.agreement import Agreement
from xcompress.bench.eval.classification import Classification
from xcompress.bench.eval.data import Found, read_data
from xcompress.bench.eval.languages import short, wanted
from xcompress.bench.eval.plain import sample
from xcompress.bench.eval.reading import read_holdouts, sample_pairs
from xcompress.bench.eval.retrieval import Retrieval
from xcompress.bench.eval.similarity import Similarity
from xcompress.bench.eval.task import EvalSuite, EvalTask
from xcompress.corpus.graded import BUILTIN, PIVOT, builtin
from xcompress.errors import InputError
from xcompress.recipe.lineage import lineage, trained_on

HOLDOUTS = "held-out translations"
HOLDOUT_PAIRS = 100
"""Translations per language among which the right one has to be found; a 12-layer model takes longest with these."""
QUICK_PAIRS = 20
QUICK_STEP = 3
"""A quick bench takes every third row of the built-in set."""
QUICK_SENTENCES = 1500
"""Sentences of a quick bench, about."""
QUICK_DATA = 500
"""Of which at least these are for the user's data."""
QUICK_ROWS = 8
"""Rows per language that a quick bench keeps, if there are as many."""
MOST_DISTRACTORS = 200_000
SPLITS = ("dev", "test")


def collect(
    data: Path | None,
    languages: Sequence[str] = (),
    *,
    run: Path | None = None,
    quick: bool = False,
    distractors: int = 0,
    margin: bool = False,
    split: str = "dev",
) -> EvalSuite:
    """Gather the tests.

    :param data: a folder with tests in any known format, at any depth.
    :param languages: keep what needs only these and English; everything when empty.
    :param run: a run folder, whose held-out translations are a test; those that earlier runs of its lineage trained on
        are left out.
    :param quick: take fewer rows, so that about 1,500 sentences are encoded.
    :param distractors: sentences per language, from the plain text in `data`, among which translations have to be found
        too; at most 200,000.
    :param margin: rank translations by the ratio margin instead of the cosine.
    :param split: the part that is tested where a set has parts: dev or test.
    :raises InputError: naming file and line, the formats when none is recognised, or the languages when none is left.
    """
    _check(distractors, split)
    found = read_data(data, split) if data else Found()
    own: list[EvalTask] = [Similarity(builtin().every(QUICK_STEP if quick else 1)), _held_out(run, quick, found.notes)]
    if languages:
        own = [test.within(wanted(languages)) for test in own]
        _narrow(found, data, languages)
    if margin:
        _require_translations([*own, *found.tests])
        own, found.tests = _by_margin(own), _by_margin(found.tests)
    if distractors and quick:
        found.notes.append("distractors are left out of a quick bench")
    elif distractors:
        _distract([*own, *found.tests], found, distractors)
    if quick:
        _shorten(found, own)
    basics = [test for test in own if test.rows]
    return EvalSuite((*basics, *found.tests, *_fallback(basics, found)), tuple(found.notes))


def _check(distractors: int, split: str) -> None:
    if split not in SPLITS:
        raise InputError(f"split: {split!r}; choose {' or '.join(SPLITS)}")
    if not 0 <= distractors <= MOST_DISTRACTORS:
        raise InputError(f"distractors: {distractors:,}; choose 0 to {MOST_DISTRACTORS:,}")


def _held_out(run: Path | None, quick: bool, notes: list[str]) -> Retrieval:
    """Return the held-out translations of a run; what was left out of them is noted."""
    pairs = read_holdouts(run / "corpus") if run else {}
    earlier = lineage(run)[:-1] if run and (run / "recipe.yaml").is_file() else []
    seen = trained_on({text for rows in pairs.values() for row in rows for text in row}, earlier)
    unseen = {language: [row for row in rows if seen.isdisjoint(row)] for language, rows in pairs.items()}
    before, after = (sum(map(len, rows.values())) for rows in (pairs, unseen))
    if after < before:
        notes.append(
            f"{HOLDOUTS}: {before - after:,} of {before:,} pairs were left out, as {', '.join(map(str, earlier))} "
            "trained on one of their sentences"
        )
    most = QUICK_PAIRS if quick else HOLDOUT_PAIRS
    return Retrieval(
        HOLDOUTS, {language: sample_pairs(rows, most) for language, rows in unseen.items() if len(rows) > 1}
    )


def _narrow(found: Found, data: Path | None, languages: Sequence[str]) -> None:
    """Keep the wanted languages.

    :raises InputError: when there were tests, but none is left.
    """
    kept, present, before = wanted(languages), found.languages(), list(found.tests)
    found.tests = [narrowed for test in before if (narrowed := test.within(kept)).rows]
    found.plain = {language: texts for language, texts in found.plain.items() if language in kept}
    if before and not found.tests:
        raise InputError(
            f"{data}: tests in {', '.join(sorted(present))}, but none for {', '.join(languages)} and {PIVOT}; "
            "name languages that it has"
        )
    missing = sorted(set(map(short, languages)) - present)
    if before and missing:
        found.notes.append(f"no test in {data} has {', '.join(missing)}")


def _require_translations(tests: Sequence[EvalTask]) -> None:
    if not _retrieval(tests):
        raise InputError("margin: there are no translations to find; give a folder with tatoeba.<xxx>-eng.<xxx> files")


def _by_margin(tests: Sequence[EvalTask]) -> list[EvalTask]:
    return [replace(test, margin=True) if isinstance(test, Retrieval) else test for test in tests]


def _retrieval(tests: Sequence[EvalTask]) -> list[Retrieval]:
    return [test for test in tests if isinstance(test, Retrieval) and test.rows]


def _distract(tests: Sequence[EvalTask], found: Found, count: int) -> None:
    """Add each retrieval test among distractors.

    :raises InputError: when there are no translations, or no plain text.
    """
    pools = {language: sample(texts, count) for language, texts in found.plain.items()}
    retrieval = _retrieval(tests)
    asked = {language for test in retrieval for language in test.languages()}
    if not asked or PIVOT not in pools or not asked & set(pools):
        raise InputError(
            f"distractors: {len(asked)} languages with translations, plain text in {', '.join(pools) or 'none'}; "
            f"give a folder with tatoeba.<xxx>-eng.<xxx> and <name>.<lang>.txt files, of {PIVOT} too"
        )
    among = [test.within(frozenset(pools)).among(pools, count) for test in retrieval]
    found.tests += [test for test in among if test.rows]
    fewer = [
        f"{code} {len(pools.get(code, ())):,}" for code in sorted({PIVOT, *asked}) if len(pools.get(code, ())) < count
    ]
    if fewer:
        found.notes.append(f"fewer than {count:,} distractors: {', '.join(fewer)}")


def _shorten(found: Found, own: Sequence[EvalTask]) -> None:
    """Thin out the user's tests until they fit in a quick bench; what small ones leave of their share is for others."""
    _learn_one_way(found)
    spent = len({text for test in own for text in test.sentences()})
    allowance = max(QUICK_DATA, QUICK_SENTENCES - spent)
    sizes = {number: len(set(test.sentences())) for number, test in enumerate(found.tests)}
    for left, number in zip(range(len(sizes), 0, -1), sorted(sizes, key=sizes.__getitem__), strict=True):
        test = found.tests[number]
        step = max(1, min(-(-sizes[number] * left // allowance), test.rows // QUICK_ROWS))
        allowance = max(1, allowance - sizes[number] // step)
        if step > 1:
            found.tests[number] = test.every(step)
            found.notes.append(f"{test.name}: one row in {step} is used, as the bench is quick")


def _learn_one_way(found: Found) -> None:
    """Learn to classify from one language alone: each other one would be as many sentences again."""
    for number, test in enumerate(found.tests):
        if isinstance(test, Classification) and len(test.learnt) > 1:
            found.tests[number] = test.one_way()
            found.notes.append(f"{test.name}: learnt from {test.learnt[0]} alone, as the bench is quick")


def _fallback(basics: Sequence[EvalTask], found: Found) -> list[EvalTask]:
    """Return the built-in sentences to compare with the reference on, where the user has given no plain text."""
    if any(isinstance(test, Agreement) for test in found.tests):
        return []
    return [Agreement.of(BUILTIN, test.graded) for test in basics if isinstance(test, Similarity)]
