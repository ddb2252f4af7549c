"""Python code as an encoder: `python:package.module:name`, a function or a class that maps sentences to vectors."""

import difflib
import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from xcompress.distill.targets import VectorsOf, in_batches
from xcompress.errors import InputError
from xcompress.files import sha256_of
from xcompress.recipe import Encoder
from xcompress.recipe.schema import PYTHON_REFERENCE

_FAILURES = (Exception, SystemExit)
"""What foreign code may end with."""


def open_function(part: Encoder, key: str) -> VectorsOf:
    """Import what `python:package.module:name` names; the current folder is searched first, as with `python -m`.

    A class is instantiated without arguments; where there is a method `encode`, it is called, else the thing itself.

    :param key: the part's key in the recipe, for error texts.
    :raises InputError: when there is no such code, it fails, or what it gives is not an (N, D) array of finite numbers.
    """
    where = f"{key}.source: {part.source}"
    match = PYTHON_REFERENCE.fullmatch(part.source)
    if not match:
        raise InputError(f"{where}: not of the form python:package.module:name")
    with _current_folder_importable():
        found = _attribute(_imported(match["module"], where), match["name"], where)
        function = _callable(found, where)

    def encode_batch(texts: Sequence[str]) -> NDArray[np.float32]:
        return _called(function, [part.prefix + text for text in texts], where)

    return lambda texts: _of_one_width(encode_batch, key, texts, where)


def function_fingerprint(source: str) -> list[str | None]:
    """Return what stands for the code: its name, the version of its distribution, the hash of its source file.

    The file counts beside the version, because an editable installation changes without a new version.
    """
    module = source.removeprefix("python:").rpartition(":")[0]
    owners = importlib.metadata.packages_distributions().get(module.split(".")[0], [])
    versions = sorted({f"{owner}=={importlib.metadata.version(owner)}" for owner in owners})
    return [source, " ".join(versions) or None, _source_hash(module)]


def _source_hash(module: str) -> str | None:
    with suppress(*_FAILURES), _current_folder_importable():
        found = importlib.util.find_spec(module)
        return sha256_of(Path(found.origin)) if found and found.origin else None
    return None


@contextmanager
def _current_folder_importable() -> Iterator[None]:
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
    except _FAILURES as error:
        raise InputError(f"{where}: importing {name} failed ({_reason(error)}); correct it") from error


def _attribute(module: ModuleType, name: str, where: str) -> object:
    try:
        return getattr(module, name)
    except AttributeError as error:
        close = difflib.get_close_matches(name, dir(module), n=3) or [other for other in dir(module) if other[0] != "_"]
        near = f"near it: {', '.join(close[:5])}" if close else "it has no public names"
        raise InputError(f"{where}: module {module.__name__} has no {name!r}; {near}") from error


def _callable(found: object, where: str) -> Callable[[list[str]], object]:
    try:
        instance = found() if isinstance(found, type) else found
    except _FAILURES as error:
        raise InputError(f"{where}: could not be made without arguments ({_reason(error)}); name a function") from error
    function = getattr(instance, "encode", instance)
    if not callable(function):
        raise InputError(f"{where}: is of type {type(instance).__name__}, which is neither callable nor has encode()")
    return function


def _called(function: Callable[[list[str]], object], texts: list[str], where: str) -> NDArray[np.float32]:
    try:
        vectors = np.asarray(function(texts))
    except _FAILURES as error:
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


def _of_one_width(encoder: VectorsOf, key: str, texts: Sequence[str], where: str) -> NDArray[np.float32]:
    widths: list[int] = []

    def same_width(batch: Sequence[str]) -> NDArray[np.float32]:
        vectors = encoder(batch)
        widths.append(vectors.shape[1])
        if widths[0] != widths[-1]:
            raise InputError(
                f"{where}: gave vectors of width {widths[0]} for a batch and {widths[-1]} for another; give one width"
            )
        return vectors

    return in_batches(key, same_width, texts)


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
