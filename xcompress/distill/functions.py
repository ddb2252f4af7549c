"""Python code as an encoder: `python:package.module:name`, a function or a class that maps sentences to vectors."""

import importlib.metadata
import importlib.util
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xcompress.distill.targets import VectorsOf, in_batches
from xcompress.errors import InputError
from xcompress.files import sha256_of
from xcompress.python_code import FAILURES, current_folder_importable, open_code
from xcompress.recipe import Encoder


def open_function(part: Encoder, key: str) -> VectorsOf:
    """Import what `python:package.module:name` names, as `open_code` does.

    :param key: the part's key in the recipe, for error texts.
    :raises InputError: when there is no such code, it fails, or what it gives is not an (N, D) array of finite numbers.
    """
    where = f"{key}.source: {part.source}"
    code = open_code(part.source, where)

    def encode_batch(texts: Sequence[str]) -> NDArray[np.float32]:
        return code([part.prefix + text for text in texts])

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
    with suppress(*FAILURES), current_folder_importable():
        found = importlib.util.find_spec(module)
        return sha256_of(Path(found.origin)) if found and found.origin else None
    return None


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
