"""Sentence encoders that are Python functions or classes, named `python:package.module:name`."""

import difflib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xcompress.errors import InputError, with_class
from xcompress.machine import available_threads
from xcompress.printable import counted
from xcompress.sources.suggestions import suggest

PYTHON = "python:"
"""Starts a reference to a Python function or class."""
PYTHON_REFERENCE = re.compile(r"python:(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<name>[^\W\d]\w*)")
"""python:package.module:name."""
FAILURES = (Exception, SystemExit)
"""What the user's code may raise."""


@dataclass(frozen=True)
class Code:
    """An imported function, or the method `encode` of an imported object or of an instance of an imported class."""

    thing: object
    """The object that `function` is, or belongs to."""
    function: Callable[[list[str]], object]
    where: str
    """Stands in front of error messages."""

    def __call__(self, texts: list[str]) -> NDArray[np.float32]:
        """Map N texts to vectors (N, D).

        :raises InputError: when the code fails, or does not return an (N, D) array of finite numbers.
        """
        sentences = counted(len(texts), "sentence")
        try:
            vectors = np.asarray(self.function(texts))
        except FAILURES as error:
            raise InputError(
                f"{self.where}: failed on {sentences}, starting with {texts[0]!r} ({with_class(error)}); correct it"
            ) from error
        if vectors.ndim != 2 or len(vectors) != len(texts) or vectors.dtype.kind not in "fiu":
            raise InputError(
                f"{self.where}: returned an array of shape {vectors.shape} and type {vectors.dtype} for {sentences}; "
                f"expected numbers of shape ({len(texts)}, D)"
            )
        with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite
            found: NDArray[np.float32] = vectors.astype(np.float32)
        finite = np.isfinite(found).all(1)
        if not finite.all():
            raise InputError(
                f"{self.where}: returned NaN or infinity (in float32) for {int((~finite).sum())} of {sentences}, such "
                f"as {texts[int(finite.argmin())]!r}; correct it"
            )
        return found


def open_code(reference: str, where: str) -> Code:
    """Import what `python:package.module:name` names; the current folder is searched first, as with `python -m`.

    A class is instantiated without arguments, but for `threads` where its constructor takes that. If the object has a
    method `encode`, that is called, else the object.

    :param where: prefix of error messages.
    :raises InputError: when there is no such code, or it fails.
    """
    match = PYTHON_REFERENCE.fullmatch(reference)
    if not match:
        raise InputError(f"{where}: not of the form python:package.module:name")
    with current_folder_importable():
        thing = _import(match["module"], match["name"], where)
        if isinstance(thing, type):
            try:
                thing = thing(**_threads_for(thing))
            except FAILURES as error:
                raise InputError(
                    f"{where}: could not be created without arguments ({with_class(error)}); name a function"
                ) from error
    function = getattr(thing, "encode", thing)
    if not callable(function):
        raise InputError(f"{where}: is of type {type(thing).__name__}, which is neither callable nor has encode()")
    return Code(thing, function, where)


@contextmanager
def current_folder_importable() -> Iterator[None]:
    """Let modules of the current folder be imported."""
    current = ""  # as Python names it; the folder may have been removed
    sys.path.insert(0, current)
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(current)


def _import(module_name: str, name: str, where: str) -> object:
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{where}: no module {error.name!r}; install its package, or run in the folder that holds it"
        ) from error
    except FAILURES as error:
        raise InputError(f"{where}: importing {module_name} failed ({with_class(error)}); correct it") from error
    try:
        return getattr(module, name)
    except AttributeError as error:
        public = [attribute for attribute in dir(module) if attribute[0] != "_"]
        near = suggest(difflib.get_close_matches(name, dir(module), n=3) or public, "it has no public names")
        raise InputError(f"{where}: module {module.__name__} has no {name!r}; {near}") from error


def _threads_for(kind: type) -> dict[str, int]:
    """Return `threads`, the processors that this process may use, if the constructor of `kind` takes it.

    A default that is too high can be slow: mUSE's is 4, and takes some 15 times as long on two processors.
    """
    try:
        parameters = inspect.signature(kind).parameters
    except (TypeError, ValueError):  # some classes written in C have no signature
        return {}
    if "threads" not in parameters:
        return {}
    threads, limit = available_threads(), os.environ.get("OMP_NUM_THREADS", "")
    return {"threads": min(threads, int(limit)) if limit.isdecimal() and int(limit) else threads}
