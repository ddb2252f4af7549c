"""The folders of a user's data, and which of their files are in a known format."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from xcompress.bench.eval.languages import known
from xcompress.errors import InputError

_PACKED = r"(\.xz|\.gz)?"
TATOEBA = re.compile(rf"(?P<name>.+)\.(?P<other>[a-z]{{3}})-eng\.(?P<side>[a-z]{{3}}){_PACKED}")
LABELLED = re.compile(rf"(?P<lang>[a-z]{{2,3}})\.(?P<split>train|dev|test)\.tsv{_PACKED}")
PLAIN = re.compile(rf"(?P<name>.+)\.(?P<lang>[a-z]{{2,3}})\.txt{_PACKED}")
TEXT = re.compile(rf".+\.(tsv|csv|txt|jsonl?){_PACKED}")
"""Files that look like data, worth a note when they are left out."""
FORMATS = (
    "STS.<xx-yy>.txt or graded.<lang>.tsv (sentence, sentence, score), stsb-<lang>-dev.csv, "
    "tatoeba.<xxx>-eng.<xxx> with .eng, <lang>.{train,dev,test}.tsv (label, text) or <name>.<lang>.txt (a sentence a "
    "line), each also as .xz or .gz"
)


def folders(data: Path) -> dict[Path, str]:
    """List a folder and all below it that hold files, with a name for each: its own, or its path where that is taken.

    :raises InputError: when there is no such folder.
    """
    if not data.is_dir():
        raise InputError(f"{data}: no such folder; name one with {FORMATS}")
    found = list(_walk(data))
    taken = Counter(folder.resolve().name for folder in found)
    return {folder: _name(folder, data, taken) for folder in found}


def matching(folder: Path, pattern: re.Pattern[str]) -> list[tuple[re.Match[str], Path]]:
    """List the files whose names match; a part that stands for a language has to be one."""
    files = (path for path in sorted(folder.iterdir()) if path.is_file())
    matches = ((pattern.fullmatch(path.name), path) for path in files)
    return [(match, path) for match, path in matches if match and known(match.groupdict().get("lang") or "en")]


def leftover(folder: Path, used: Iterable[re.Pattern[str]]) -> str | None:
    """Describe the files that look like data but match none of the patterns."""
    read = {path for pattern in used for _, path in matching(folder, pattern)}
    left = [path.name for _, path in matching(folder, TEXT) if path not in read]
    return f"{len(left)} files are no test and were left out, such as {left[0]}" if left else None


def _walk(data: Path) -> Iterator[Path]:
    """Go through all folders that are not hidden, linked ones too, each once."""
    seen = {data.resolve()}
    for place, below, files in os.walk(data, followlinks=True):
        folder = Path(place)
        below[:] = sorted(name for name in below if not name.startswith(".") and (folder / name).resolve() not in seen)
        seen.update((folder / name).resolve() for name in below)
        if files:
            yield folder


def _name(folder: Path, data: Path, taken: Counter[str]) -> str:
    own = folder.resolve().name
    return own if taken[own] == 1 else folder.relative_to(data).as_posix()
