"""Python code that maps sentences to vectors, named `python:package.module:name`."""

import difflib
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from xcompress.errors import InputError

PYTHON = "python:"
"""Starts a reference to a Python function or class."""
PYTHON_REFERENCE = re.compile(r"python:(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<name>[^\W\d]\w*)")
"""python:package.module:name."""
FAILURES = (Exception, SystemExit)
"""What foreign code may end with."""


@dataclass(frozen=True)
class Code:
    """A function, an object with a method `encode`, or a class of such, of which an instance was made."""

    thing: object
    function: Callable[[list[str]], object]
    where: str
    """Stands in front of error texts."""

    def __call__(self, texts: list[str]) -> NDArray[np.float32]:
        """Map N texts to vectors (N, D).

        :raises InputError: when the code fails, or what it gives is not an (N, D) array of finite numbers.
        """
        return _called(self.function, texts, self.where)


def open_code(reference: str, where: str) -> Code:
    """Import what `python:package.module:name` names; the current folder is searched first, as with `python -m`.

    A class is instantiated without arguments; where there is a method `encode`, it is called, else the thing itself.

    :param where: stands in front of error texts.
    :raises InputError: when there is no such code, or it fails.
    """
    match = PYTHON_REFERENCE.fullmatch(reference)
    if not match:
        raise InputError(f"{where}: not of the form python:package.module:name")
    with current_folder_importable():
        found = _attribute(_imported(match["module"], where), match["name"], where)
        thing = _made(found, where)
    function = getattr(thing, "encode", thing)
    if not callable(function):
        raise InputError(f"{where}: is of type {type(thing).__name__}, which is neither callable nor has encode()")
    return Code(thing, function, where)


@contextmanager
def current_folder_importable() -> Iterator[None]:
    """Let modules of the current folder be imported."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(here)


def _imported(name: str, where: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{where}: there is no module {error.name!r}; install its package, or run in the folder that holds it"
        ) from error
    except FAILURES as error:
        raise InputError(f"{where}: importing {name} failed ({_reason(error)}); correct it") from error


def _attribute(module: ModuleType, name: str, where: str) -> object:
    try:
        return getattr(module, name)
    except AttributeError as error:
        close = difflib.get_close_matches(name, dir(module), n=3) or [other for other in dir(module) if other[0] != "_"]
        near = f"near it: {', '.join(close[:5])}" if close else "it has no public names"
        raise InputError(f"{where}: module {module.__name__} has no {name!r}; {near}") from error


def _made(found: object, where: str) -> object:
    try:
        return found() if isinstance(found, type) else found
    except FAILURES as error:
        raise InputError(f"{where}: could not be made without arguments ({_reason(error)}); name a function") from error


def _called(function: Callable[[list[str]], object], texts: list[str], where: str) -> NDArray[np.float32]:
    try:
        vectors = np.asarray(function(texts))
    except FAILURES as error:
        raise InputError(
            f"{where}: failed on {len(texts)} sentences, the first of which is {texts[0]!r} ({_reason(error)}); "
            "correct it"
        ) from error
    if vectors.ndim != 2 or len(vectors) != len(texts) or vectors.dtype.kind not in "fiu":
        raise InputError(
            f"{where}: gave an array of shape {vectors.shape} and type {vectors.dtype} for {len(texts)} sentences; "
            f"it must be of numbers and of shape ({len(texts)}, D)"
        )
    finite = np.isfinite(vectors).all(1)
    if not finite.all():
        raise InputError(
            f"{where}: gave NaN or infinity for {int((~finite).sum())} of {len(texts)} sentences, "
            f"the first of which is {texts[int(finite.argmin())]!r}; correct it"
        )
    return vectors.astype(np.float32)


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
