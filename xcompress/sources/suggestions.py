"""Suggestions for names of files that do not exist, for error messages."""

import difflib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath


def suggest_path(path: Path) -> str:
    """Return files and folders with a name similar to that of a missing one, for an error message."""
    names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    return suggest(difflib.get_close_matches(path.name, names, n=3), "check the path")


def suggest_inside(folder: Path, name: str) -> str:
    """Return files inside a folder that a wrong name may mean, for an error message.

    First those of the same base name, then those of a similar path, then its neighbours, else the uppermost ones.
    """
    wanted = PurePosixPath(name)
    pattern = "**/*" if len(wanted.parts) > 1 else "*"
    names = [path.relative_to(folder).as_posix() for path in folder.glob(pattern)]
    same_base = [path for path in sorted(names) if PurePosixPath(path).name == wanted.name]
    similar = difflib.get_close_matches(name, names, n=5, cutoff=0.75)
    neighbours = [path for path in sorted(names) if PurePosixPath(path).parent == wanted.parent]
    likely = dict.fromkeys([*same_base, *similar, *neighbours])
    return suggest(likely or sorted(names, key=lambda path: (path.count("/"), path)), "nothing is there")


def suggest(names: Iterable[str], otherwise: str) -> str:
    """Return up to five names in the words of an error message, or another text if there are none."""
    some = list(names)[:5]
    return f"near it: {', '.join(some)}" if some else otherwise
