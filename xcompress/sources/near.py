"""What comes close to a name that is missing."""

import difflib
from pathlib import Path, PurePosixPath


def near_path(path: Path) -> str:
    """Say which files and folders have a name like that of a missing one."""
    names = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, names, n=3)
    return _listed(close) if close else "check the path"


def near(folder: Path, name: str) -> str:
    """Say which files come close to one that is missing."""
    pattern = "**/*" if len(PurePosixPath(name).parts) > 1 else "*"
    return _suggest(name, [path.relative_to(folder).as_posix() for path in folder.glob(pattern)])


def _suggest(name: str, names: list[str]) -> str:
    base = PurePosixPath(name).name
    close = difflib.get_close_matches(name, names, n=5, cutoff=0.75)
    same = [other for other in sorted(names) if PurePosixPath(other).name == base]
    parent = PurePosixPath(name).parent
    beside = [other for other in sorted(names) if PurePosixPath(other).parent == parent]
    found = list(dict.fromkeys([*same, *close, *beside]))[:5] or sorted(names, key=lambda n: (n.count("/"), n))[:5]
    return _listed(found) if found else "nothing is there"


def _listed(names: list[str]) -> str:
    return f"near it: {', '.join(names)}"
