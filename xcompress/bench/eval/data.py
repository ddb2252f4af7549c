"""All tests in a user's folder, whatever their formats."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from xcompress.bench.eval.agreement import Agreement
from xcompress.bench.eval.classification import Classification, available
from xcompress.bench.eval.folders import FORMATS, LABELLED, PLAIN, TATOEBA, folders, leftover, matching
from xcompress.bench.eval.plain import pair_up, read_plain
from xcompress.bench.eval.reading import read_labelled, read_tatoeba
from xcompress.bench.eval.retrieval import Retrieval
from xcompress.bench.eval.similarity import Similarity
from xcompress.bench.eval.task import EvalTask
from xcompress.corpus.graded import ALIGNED_CSV, ALIGNED_TSV, PAIR_FILE, read_folder
from xcompress.corpus.lines import text_lines
from xcompress.errors import InputError

AGREEMENT_PAIRS = 250
"""Pairs of plain sentences per language."""
LEAST = 2
"""Rows that a language needs."""


@dataclass
class Found:
    """What a user's folder holds."""

    tests: list[EvalTask] = field(default_factory=list)
    plain: dict[str, list[str]] = field(default_factory=dict)
    """Sentences by language."""
    notes: list[str] = field(default_factory=list)

    def languages(self) -> set[str]:
        """List the languages of all tests."""
        return {language for test in self.tests for language in test.languages()} | set(self.plain)


def read_data(data: Path, split: str) -> Found:
    """Read every test in a folder and those below it.

    :param split: the part that is tested where a set has parts: dev or test.
    :raises InputError: naming file and line, or the formats when nothing is recognised.
    """
    found = Found()
    known = [_read(folder, name, split, found) for folder, name in folders(data).items()]
    if not any(known):
        seen = f" ({'; '.join(found.notes)})" if found.notes else ""
        raise InputError(f"{data}: no test is recognised{seen}; expected {FORMATS}")
    return found


def _read(folder: Path, name: str, split: str, found: Found) -> bool:
    """Add what one folder holds; tell whether it is of any use."""
    used = [_graded(folder, name, split, found), *_translations(folder, name, found)]
    used += [_labelled(folder, name, split, found), _plain(folder, name, found)]
    known = [pattern for pattern in used if pattern]
    if left := leftover(folder, known):
        found.notes.append(f"{name}: {left}")
    return bool(known)


def _graded(folder: Path, name: str, split: str, found: Found) -> re.Pattern[str] | None:
    tables = [match["split"] for match, _ in matching(folder, ALIGNED_CSV)]
    if matching(folder, ALIGNED_TSV):
        pattern = ALIGNED_TSV
    elif tables and split not in tables:
        found.notes.append(f"{name}: no stsb-<lang>-{split}.csv, so that nothing is tested")
        return ALIGNED_CSV
    elif tables:
        pattern = ALIGNED_CSV
    elif _scored([path for _, path in matching(folder, PAIR_FILE)]):
        pattern = PAIR_FILE
    else:
        return None
    graded = read_folder(folder, split)
    found.tests.append(Similarity(type(graded)(name, graded.language_pairs)))
    return pattern


def _scored(paths: list[Path]) -> bool:
    """Tell graded pairs from parallel text, which has the same names but no third column, by the first lines.

    Files of which none can be read are taken for graded, so that the fault comes out.
    """
    columns = [_columns(path) for path in paths]
    return any(count > 2 for count in columns) or (bool(columns) and not any(columns))


def _columns(path: Path) -> int:
    """Count the columns of the first line; 0 when it cannot be read."""
    try:
        return next((line.count("\t") + 1 for line in text_lines(path)), 0)
    except InputError:
        return 0


def _translations(folder: Path, name: str, found: Found) -> list[re.Pattern[str]]:
    sets = read_tatoeba(folder)
    for prefix, pairs in sets.items():
        found.tests.append(Retrieval(name if len(sets) == 1 else f"{name}/{prefix}", pairs))
    return [TATOEBA] if sets else []


def _labelled(folder: Path, name: str, split: str, found: Found) -> re.Pattern[str] | None:
    if not matching(folder, LABELLED):
        return None
    if not available():
        found.notes.append(f"{name}: classification was left out; it needs: pip install 'xcompress[bench]'")
        return LABELLED
    test = Classification(name, read_labelled(folder, "train"), read_labelled(folder, split))
    if test.rows:
        test.check()
        found.tests.append(test)
    else:
        found.notes.append(f"{name}: no <lang>.train.tsv with a <lang>.{split}.tsv, so that nothing is tested")
    return LABELLED


def _plain(folder: Path, name: str, found: Found) -> re.Pattern[str] | None:
    sentences = read_plain(folder)
    for language, texts in sentences.items():
        found.plain.setdefault(language, []).extend(texts)
    pairs = {language: pair_up(texts, AGREEMENT_PAIRS) for language, texts in sentences.items()}
    if enough := {language: rows for language, rows in pairs.items() if len(rows) >= LEAST}:
        found.tests.append(Agreement(name, enough))
    return PLAIN if sentences else None
