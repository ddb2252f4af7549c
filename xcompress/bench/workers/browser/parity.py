"""Whether a bundle gives the same vectors in a browser as outside of it."""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from xcompress.bench.workers.client import WorkerClient
from xcompress.bundle.encoder import Encoder, Precision
from xcompress.corpus.graded import builtin
from xcompress.metrics import cosines

LEAST = 0.999
"""Least cosine that still counts as the same."""
_SENTENCES = 32


def parity(worker: WorkerClient, bundle: Path, sentences: Sequence[str], precision: str = "auto") -> float:
    """Return the least cosine between a browser's vectors and those of onnxruntime outside of it.

    Both encode every sentence by itself, for an int8 vector depends a little on its batch. It depends as well on how
    the last bit of a float32 is rounded, which is not the same in WebAssembly: activations on the edge between two
    integers fall to the other side. Weights changed by one part in a million turn int8 vectors as far, to cosines of
    0.9989 and more; float32 vectors agree to 1e-11.

    :param worker: a browser in which the bundle is loaded.
    :param precision: which graph it has open.
    :raises InputError: when the bundle cannot be opened outside the browser.
    :raises WorkerFailed: when the browser fails.
    """
    return agreement(worker.ask("encode", texts=list(sentences), batch_size=1), bundle, sentences, precision)


def agreement(reply: Mapping[str, Any], bundle: Path, sentences: Sequence[str], precision: str) -> float:
    """Return the least cosine between the vectors of a reply to `encode` and those of the bundle's own encoder."""
    native = Encoder(bundle, precision=cast(Precision, precision), threads=1).encode(list(sentences), batch_size=1)
    return float(cosines(unpacked(reply), native).min())


def unpacked(reply: Mapping[str, Any]) -> NDArray[np.float32]:
    """Return the vectors of a reply to `encode`, (n, D)."""
    return np.frombuffer(b64decode(reply["vectors"]), dtype="<f4").reshape(reply["shape"])


def sample(languages: Sequence[str]) -> list[str]:
    """Return sentences of the graded set that comes with the package.

    :param languages: those that count; all do where the set has none of them.
    """
    sentences = builtin().within(languages).sentences() or builtin().sentences()
    return sentences[:: max(1, len(sentences) // _SENTENCES)][:_SENTENCES]
