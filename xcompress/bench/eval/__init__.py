"""Accuracy of sentence vectors: the tasks of a bench, from the built-in set, a run and the user's data.

`collect` gathers the tasks, `EvalSuite.sentences` lists the sentences to encode, `EvalSuite.score` scores their
vectors, and `EvalSuite.summarize` returns the figures.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from xcompress.bench import MOST_DISTRACTORS
from xcompress.bench.eval.classification import Classification
from xcompress.bench.eval.data import DataFolder, read_data, sample
from xcompress.bench.eval.readers import read_holdouts, sample_pairs
from xcompress.bench.eval.retrieval import Retrieval
from xcompress.bench.eval.similarity import Agreement, Similarity
from xcompress.bench.eval.task import EvalSuite, EvalTask
from xcompress.corpus.graded import BUILTIN, PIVOT, builtin
from xcompress.corpus.languages import short_code
from xcompress.errors import InputError
from xcompress.recipe.lineage import lineage, trained_on

__all__ = ["EvalSuite", "collect"]

HOLDOUTS = "held-out translations"
HOLDOUT_PAIRS = 100
"""Translations per language to search among; a 12-layer model spends most of its time on these."""
QUICK_PAIRS = 20
QUICK_STEP = 12
"""A quick bench takes every twelfth row of the built-in set."""
QUICK_SENTENCES = 1500
"""Sentences of a quick bench, approximately."""
QUICK_DATA = 500
"""Sentences of the user's data among them, at least."""
QUICK_ROWS = 8
"""Rows per language that a quick bench keeps, if there are as many."""


def collect(
    data: Path | None,
    languages: Sequence[str] = (),
    *,
    run: Path | None = None,
    quick: bool = False,
    distractors: int = 0,
    margin: bool = False,
) -> EvalSuite:
    """Collect the tasks; sets with splits are tested on the dev split.

    :param data: a folder with test sets in any known format, at any depth.
    :param languages: keep the rows that need only these and English; all rows when empty.
    :param run: a run folder. Its held-out translations are a task, less those that earlier runs of its lineage trained
        on.
    :param quick: take fewer rows, so that about 1,500 sentences are encoded.
    :param distractors: also search translations among this many sentences per language of the plain text in `data`; at
        most 200,000.
    :param margin: rank translations by the ratio margin instead of the cosine.
    :raises InputError: naming file and line, the formats when no file is recognised, or the languages when no row is
        left.
    """
    if not 0 <= distractors <= MOST_DISTRACTORS:
        raise InputError(f"distractors: {distractors:,}; choose 0 to {MOST_DISTRACTORS:,}")
    # Read all tasks, and keep the languages.
    user = read_data(data, with_parts=not quick) if data else DataFolder()
    basics: list[EvalTask] = [
        Similarity(builtin().every(QUICK_STEP if quick else 1)),
        _read_held_out(run, quick, user.notes),
    ]
    if languages:
        basics = [task.within(_with_english(languages)) for task in basics]
        _select_languages(user, data, languages)
    # Make retrieval harder.
    if margin:
        if not _retrieval_tasks([*basics, *user.tasks]):
            raise InputError(
                "margin: there are no translations to find; give a folder with tatoeba.<xxx>-eng.<xxx> files"
            )
        basics, user.tasks = (
            [replace(task, margin=True) if isinstance(task, Retrieval) else task for task in tasks]
            for tasks in (basics, user.tasks)
        )
    if distractors and quick:
        user.notes.append("distractors are left out of a quick bench")
    elif distractors:
        _add_distractors([*basics, *user.tasks], user, distractors)
    # Thin out, and add what needs no further sentences: parts of sets, and the agreement with a reference.
    if quick:
        _thin_out(user, basics)
    user.tasks += user.parts
    basics = [task for task in basics if task.rows]
    if not any(isinstance(task, Agreement) for task in user.tasks):
        # without plain text of the user's, on the built-in sentences
        user.tasks += [Agreement.from_graded(BUILTIN, task.graded) for task in basics if isinstance(task, Similarity)]
    return EvalSuite((*basics, *user.tasks), tuple(user.notes))


def _read_held_out(run: Path | None, quick: bool, notes: list[str]) -> Retrieval:
    """Return the held-out translations of a run; note how many were left out."""
    pairs = read_holdouts(run / "corpus") if run else {}
    earlier = lineage(run)[:-1] if run and (run / "recipe.yaml").is_file() else []
    seen = trained_on({text for rows in pairs.values() for row in rows for text in row}, earlier)
    unseen = {language: [row for row in rows if seen.isdisjoint(row)] for language, rows in pairs.items()}
    before, after = (sum(map(len, rows.values())) for rows in (pairs, unseen))
    if after < before:
        notes.append(
            f"{HOLDOUTS}: without {before - after:,} of {before:,} pairs, because {', '.join(map(str, earlier))} "
            "trained on one of their sentences"
        )
    most = QUICK_PAIRS if quick else HOLDOUT_PAIRS
    return Retrieval(
        HOLDOUTS, {language: sample_pairs(rows, most) for language, rows in unseen.items() if len(rows) > 1}
    )


def _select_languages(user: DataFolder, data: Path | None, languages: Sequence[str]) -> None:
    """Keep the languages asked for in the user's data.

    :raises InputError: when there were tasks, and none is left.
    """
    kept, present, before = _with_english(languages), user.languages(), user.tasks
    user.tasks, user.parts = (
        [narrowed for task in tasks if (narrowed := task.within(kept)).rows] for tasks in (before, user.parts)
    )
    user.plain = {language: texts for language, texts in user.plain.items() if language in kept}
    if before and not user.tasks:
        raise InputError(
            f"{data}: test sets in {', '.join(sorted(present))}, but none for {', '.join(languages)} and {PIVOT}; "
            "name languages that it has"
        )
    missing = sorted(set(map(short_code, languages)) - present - {PIVOT})  # translations do not list English
    if data and missing:
        user.notes.append(f"no test set in {data} has {', '.join(missing)}")


def _with_english(languages: Iterable[str]) -> frozenset[str]:
    """Return the languages, their two-letter codes, and English."""
    codes = set(languages)
    return frozenset({PIVOT, *codes, *map(short_code, codes)})


def _retrieval_tasks(tasks: Sequence[EvalTask]) -> list[Retrieval]:
    return [task for task in tasks if isinstance(task, Retrieval) and task.rows]


def _add_distractors(tasks: Sequence[EvalTask], user: DataFolder, count: int) -> None:
    """Add every retrieval task once more, with distractors.

    :raises InputError: when there are no translations, or no plain text.
    """
    pools = {language: sample(texts, count) for language, texts in user.plain.items()}
    retrieval = _retrieval_tasks(tasks)
    languages = {language for task in retrieval for language in task.languages()}
    if not languages or PIVOT not in pools or not languages & set(pools):
        raise InputError(
            f"distractors: translations in {', '.join(sorted(languages)) or 'none'}, plain text in "
            f"{', '.join(pools) or 'none'}; "
            f"give a folder with tatoeba.<xxx>-eng.<xxx> and <name>.<lang>.txt files, {PIVOT} included"
        )
    harder = [task.within(frozenset(pools)).with_distractors(pools, count) for task in retrieval]
    user.tasks += [task for task in harder if task.rows]
    sizes = {code: len(pools.get(code, ())) for code in sorted({PIVOT, *languages})}
    if fewer := [f"{code} {size:,}" for code, size in sizes.items() if size < count]:
        user.notes.append(f"fewer than {count:,} distractors: {', '.join(fewer)}")


def _thin_out(user: DataFolder, basics: Sequence[EvalTask]) -> None:
    """Thin out the user's tasks until they fit into a quick bench; small tasks leave their share to large ones."""
    for number, task in enumerate(user.tasks):
        # each further training language would need as many sentences again
        if isinstance(task, Classification) and len(task.train_languages) > 1:
            user.tasks[number] = task.first_language_only()
            user.notes.append(f"{task.name}: quick: trained on {task.train_languages[0]} only")
    spent = len({text for task in basics for text in task.sentences()})
    allowance = max(QUICK_DATA, QUICK_SENTENCES - spent)
    sizes = {number: len(set(task.sentences())) for number, task in enumerate(user.tasks)}
    for done, number in enumerate(sorted(sizes, key=sizes.__getitem__)):
        task, remaining = user.tasks[number], len(sizes) - done
        needed = -(-sizes[number] * remaining // allowance)  # to fit into an equal share of what is left, rounded up
        step = max(1, min(needed, task.rows // QUICK_ROWS))
        allowance = max(1, allowance - sizes[number] // step)
        if step > 1:
            user.tasks[number] = task.every(step)
            user.notes.append(f"{task.name}: quick: one row in {step}")
