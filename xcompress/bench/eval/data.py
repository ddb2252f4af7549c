"""Turn the files of a user's folder into tasks."""

import os
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from xcompress.bench.eval.classification import Classification
from xcompress.bench.eval.readers import LABELLED, PLAIN, TATOEBA, matching, read_labelled, read_plain, read_tatoeba
from xcompress.bench.eval.retrieval import Retrieval
from xcompress.bench.eval.similarity import Agreement, Similarity
from xcompress.bench.eval.task import EvalTask, SentencePairs
from xcompress.corpus.graded import ALIGNED_CSV, ALIGNED_TSV, PAIR_FILE, PART, UNSEEN, read_folder, train_sentences
from xcompress.corpus.lines import text_lines
from xcompress.errors import InputError
from xcompress.files import explain_read_error
from xcompress.packages import install_command, is_installed
from xcompress.paths import as_path

TEXT = re.compile(r".+\.(tsv|csv|txt|jsonl?)(\.xz|\.gz)?")
"""Files that look like data; those left out are worth a note."""
FORMATS = (
    "STS.<xx-yy>.txt or graded.<lang>.tsv (sentence, sentence, score), stsb-<lang>-dev.csv, "
    "tatoeba.<xxx>-eng.<xxx> with .eng, <lang>.train.tsv with <lang>.dev.tsv (label, text) or <name>.<lang>.txt (a "
    "sentence a line), each also as .xz or .gz"
)
AGREEMENT_PAIRS = 250
"""Sentence pairs per language."""
MIN_PAIRS = 2
_MANY_REPEATED = 0.01
"""Share of rows of a graded set; of stsb-multi-mt, 0.2 % repeat others."""
SEED = 0


@dataclass
class DataFolder:
    """The tasks, the plain text and the notes of a user's folder."""

    with_parts: bool = True
    """Whether to add the parts of graded sets."""
    tasks: list[EvalTask] = field(default_factory=list)
    parts: list[EvalTask] = field(default_factory=list)
    """Parts of graded sets: a mean may hide a weak genre, and rows that a model learned from flatter it."""
    plain: dict[str, list[str]] = field(default_factory=dict)
    """Sentences by language."""
    notes: list[str] = field(default_factory=list)

    def languages(self) -> set[str]:
        """List the languages of all tasks and of the plain text."""
        return {language for task in self.tasks for language in task.languages()} | set(self.plain)


def read_data(path: Path, *, with_parts: bool) -> DataFolder:
    """Read the tasks in a folder and its subfolders.

    :param with_parts: add the parts of graded sets; the train split is read for these alone.
    :raises InputError: naming file and line, or listing the formats when no file is recognised.
    """
    path = as_path(str(path))
    if not path.is_dir():
        raise InputError(f"{path}: no such folder; name one with {FORMATS}")
    with explain_read_error(path):
        subfolders = list(_walk(path))
    taken = Counter(folder.resolve().name for folder in subfolders)
    data = DataFolder(with_parts)
    recognized = False
    for folder in subfolders:
        name = folder.resolve().name
        if taken[name] > 1:
            name = folder.relative_to(path).as_posix()
        before = len(data.tasks)
        readers = _read_graded, _read_translations, _read_classification, _read_plain
        patterns = [pattern for read in readers if (pattern := read(folder, name, data))]
        data.tasks[before:] = _named_apart(data.tasks[before:])
        recognized = recognized or bool(patterns)
        used = {file for pattern in patterns for _, file in matching(folder, pattern)}
        if unused := [file.name for _, file in matching(folder, TEXT) if file not in used]:
            more = f" and {len(unused) - 1} more" if unused[1:] else ""
            data.notes.append(f"{name}: not recognised and left out: {unused[0]}{more}")
    if not recognized:
        notes = f" ({'; '.join(data.notes)})" if data.notes else ""
        raise InputError(f"{path}: no test set recognised{notes}; expected {FORMATS}")
    return data


def sample(sentences: Sequence[str], count: int) -> list[str]:
    """Return `count` of the distinct sentences, or all when there are fewer: in order, the same ones each time."""
    distinct = list(dict.fromkeys(sentences))
    if len(distinct) <= count:
        return distinct
    return [distinct[row] for row in sorted(random.Random(SEED).sample(range(len(distinct)), count))]


def pair_up(sentences: Sequence[str], count: int) -> SentencePairs:
    """Make at most `count` pairs of distinct sentences: half of adjacent lines, half of distant ones.

    Adjacent lines are often related, so there is more to rank than between unrelated sentences.
    """
    starts = range(0, len(sentences) - 1, 2)
    chosen = sorted(random.Random(SEED).sample(starts, min(count, len(starts))))
    adjacent, distant = chosen[::2], chosen[1::2]
    seconds = [start + 1 for start in adjacent] + [start + 1 for start in distant[1:] + distant[:1]]
    return tuple(
        (sentences[first], sentences[second]) for first, second in zip(adjacent + distant, seconds, strict=True)
    )


def _walk(root: Path) -> Iterator[Path]:
    """Yield each folder that holds files once: no hidden folders, but linked ones."""
    seen = {_identity(root)}
    for place, subfolders, files in os.walk(root, followlinks=True):
        folder = Path(place)
        found = {name: _identity(folder / name) for name in subfolders if not name.startswith(".")}
        subfolders[:] = sorted(name for name, identity in found.items() if identity not in seen)
        seen.update(found.values())
        if files:
            yield folder


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return what tells a folder from all others, by whatever path or link; None where it cannot be read."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


# Each of these adds the tasks of one format and returns the pattern of the files it recognised.


def _read_graded(folder: Path, name: str, data: DataFolder) -> re.Pattern[str] | None:
    splits = [match["split"] for match, _ in matching(folder, ALIGNED_CSV)]
    if matching(folder, ALIGNED_TSV):
        pattern = ALIGNED_TSV
    elif splits and "dev" not in splits:
        data.notes.append(f"{name}: no stsb-<lang>-dev.csv, so nothing is tested")
        return ALIGNED_CSV
    elif splits:
        pattern = ALIGNED_CSV
    elif _has_scores([path for _, path in matching(folder, PAIR_FILE)]):
        pattern = PAIR_FILE
    else:
        return None
    graded = replace(read_folder(folder), name=name)
    data.tasks.append(Similarity(graded))
    pairs = graded.language_pairs.items()
    repeated = {pair: len(rows) - len(set(zip(rows.first, rows.second, strict=True))) for pair, rows in pairs}
    most = max(repeated, key=repeated.__getitem__)
    if repeated[most] >= _MANY_REPEATED * (rows := len(graded.language_pairs[most])):
        data.notes.append(
            f"{name}: {repeated[most]:,} of {rows:,} rows of {most} repeat others; its intervals are too narrow"
        )
    if graded.is_stsb and data.with_parts:
        parts = {part.name: Similarity(part) for part in graded.parts(train_sentences(folder))}
        data.parts += [part for part in parts.values() if part.rows]
        if unseen := parts.get(f"{name}{PART}{UNSEEN}"):
            rows = data.tasks[-1].rows
            data.notes.append(
                f"{name}: `{UNSEEN}` is without {rows - unseen.rows:,} of {rows:,} rows, which have a sentence of the "
                "train split in one of its languages"
            )
    return pattern


def _named_apart(tasks: Sequence[EvalTask]) -> list[EvalTask]:
    """Add what it tests to the name of each task of a folder with several kinds of tests: reports go by the names."""
    tests = [task for task in tasks if not isinstance(task, Agreement)]  # which belongs to graded sets, too
    if len({type(task) for task in tests}) < 2:
        return list(tasks)

    return [
        replace(task, name=f"{task.name}: {'translations' if isinstance(task, Retrieval) else 'classes'}")
        if isinstance(task, Retrieval | Classification)
        else task
        for task in tasks
    ]


def _has_scores(paths: list[Path]) -> bool:
    """Tell graded pairs from parallel text, which has the same file names but no third column.

    Looks at the first lines. Files of which none can be read count as graded, so that reading them reports the error.
    """

    def columns(path: Path) -> int:
        try:
            return next((line.count("\t") + 1 for line in text_lines(path)), 0)
        except InputError:
            return 0

    counts = [columns(path) for path in paths]
    return any(count > 2 for count in counts) or (bool(counts) and not any(counts))


def _read_translations(folder: Path, name: str, data: DataFolder) -> re.Pattern[str] | None:
    sets = read_tatoeba(folder)
    for prefix, pairs in sets.items():
        data.tasks.append(Retrieval(name if len(sets) == 1 else f"{name}/{prefix}", pairs))
    return TATOEBA if sets else None


def _read_classification(folder: Path, name: str, data: DataFolder) -> re.Pattern[str] | None:
    if not matching(folder, LABELLED):
        return None
    if not is_installed("sklearn"):
        data.notes.append(f"{name}: classification is left out; it needs: {install_command('bench')}")
        return LABELLED
    task = Classification(name, read_labelled(folder, "train"), read_labelled(folder, "dev"))
    if task.rows:
        task.check_labels()
        data.tasks.append(task)
    else:
        data.notes.append(f"{name}: no <lang>.train.tsv with a <lang>.dev.tsv, so nothing is tested")
    return LABELLED


def _read_plain(folder: Path, name: str, data: DataFolder) -> re.Pattern[str] | None:
    sentences = read_plain(folder)
    for language, texts in sentences.items():
        data.plain.setdefault(language, []).extend(texts)
    pairs = {language: pair_up(texts, AGREEMENT_PAIRS) for language, texts in sentences.items()}
    if enough := {language: rows for language, rows in pairs.items() if len(rows) >= MIN_PAIRS}:
        data.tasks.append(Agreement(name, enough))
    return PLAIN if sentences else None
