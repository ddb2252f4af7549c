"""The exported graphs against the PyTorch student on real sentences; what is too far off is refused."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from xcompress.errors import GateError, InputError
from xcompress.export.reference import BATCH, Advance, Batch, Reference, Vectors, in_batches, in_turn, reference_of
from xcompress.export.sentences import packaged_text, spread
from xcompress.metrics import cosine_matrix, cosines
from xcompress.student import pad

__all__ = [
    "Bounds",
    "Reference",
    "encode_with",
    "open_session",
    "real_sentences",
    "reference_of",
    "run",
    "similarity_correlation",
    "verify_fp32",
    "verify_quantized",
]

SAMPLE = 128
"""Sentences that are encoded alone and among others."""
MATES = 32
"""Sentences of such a batch."""
_ADVICE = (
    "export with --precision auto, calibrate on text like yours (--text), or pass wider bounds if the accuracy you "
    "measure is enough"
)
_OF_SAMPLE = {
    "similarity_correlation": "correlation of similarities with PyTorch's",
    "invariance_cosine": "worst cosine between a sentence alone and among others",
}
_VERSIONS = "install the torch, onnx and onnxruntime versions of constraints.txt"


@dataclass(frozen=True)
class Bounds:
    """How far an exported graph may be from the student; `Bounds.of` knows those of each precision."""

    fp32_difference: float = 1e-4
    """Largest absolute difference of any component of a float32 vector, in units of the student's vector's length."""
    fp32_cosine: float = 0.99999
    """Lowest cosine between the float32 graph's and PyTorch's vectors."""
    mean_cosine: float = 0.995
    """Between a quantised graph's and PyTorch's vectors, on average, in every language."""
    worst_cosine: float = 0.98
    similarity_correlation: float = 0.97
    """Between the similarities of sentences in the graph and in PyTorch: what search and ranking see."""
    invariance_cosine: float = 0.995
    """Lowest cosine between a graph's vectors of one sentence alone and among others."""

    @classmethod
    def of(cls, precision: str) -> "Bounds":
        """Return the bounds of a precision: int8, int4 or fp16.

        :raises InputError: when the precision is none of these.
        """
        if precision not in _BOUNDS:
            raise InputError(f"precision {precision!r} has no bounds; choose one of {', '.join(_BOUNDS)}")
        return cls(**_BOUNDS[precision])


_BOUNDS: dict[str, dict[str, float]] = {
    "int8": {},
    "int4": {"mean_cosine": 0.98, "worst_cosine": 0.9, "similarity_correlation": 0.95},
    "fp16": {
        "mean_cosine": 0.9999,
        "worst_cosine": 0.999,
        "similarity_correlation": 0.999,
        "invariance_cosine": 0.999,
    },
}


def verify_fp32(
    graph: Path | onnxruntime.InferenceSession,
    reference: Reference,
    bounds: Bounds | None = None,
    advance: Advance | None = None,
) -> dict[str, Any]:
    """Compare the float32 graph with PyTorch, on every sentence and shape.

    :param advance: told how many sentences are done after every batch.
    :returns: figures and bounds for the manifest.
    :raises GateError: when a vector is too far off.
    """
    limits = bounds or Bounds()
    found, shaped = _encoded(_session(graph), reference, advance)
    difference = _difference(np.concatenate([found, *shaped.values()]), _expected(reference))
    if not difference < limits.fp32_difference:
        raise GateError(
            f"export: {_name(graph)} differs from PyTorch by {difference:.2e}, bound {limits.fp32_difference:.0e}; "
            f"{_VERSIONS}"
        )
    figures = _agreement(found, shaped, reference)
    _check_worst(_name(graph), figures, limits.fp32_cosine, _VERSIONS)
    largest = {"max_abs_difference": difference, "bound": limits.fp32_difference}
    return {**largest, **figures, "bounds": {"worst_cosine": limits.fp32_cosine}}


def verify_quantized(
    graph: Path | onnxruntime.InferenceSession,
    reference: Reference,
    bounds: Bounds | None = None,
    precision: str = "int8",
    advance: Advance | None = None,
) -> dict[str, Any]:
    """Compare a graph of lower precision with PyTorch, and with itself at another batch size.

    :param bounds: by default those of the precision.
    :param advance: told how many sentences are done after every batch.
    :returns: figures and bounds for the manifest.
    :raises GateError: when a figure is beyond its bound.
    """
    limits, session, name = bounds or Bounds.of(precision), _session(graph), _name(graph)
    figures = _agreement(*_encoded(session, reference, advance), reference)
    for language, one in figures["languages"].items():
        _check(f"{name}: mean cosine to PyTorch in {language}", one["mean"], limits.mean_cosine, _ADVICE)
    _check_worst(name, figures, limits.worst_cosine, _ADVICE)
    figures |= _alone_and_among_others(session, reference)
    for figure, what in _OF_SAMPLE.items():
        _check(f"{name}: {what}", figures[figure], asdict(limits)[figure], _ADVICE)
    return {**figures, "bounds": {key: limit for key, limit in asdict(limits).items() if key in figures}}


def beyond_bounds(
    graph: onnxruntime.InferenceSession, reference: Reference, bounds: Bounds
) -> list[tuple[str, float, float]]:
    """List where a graph's cosines to PyTorch are beyond their bounds: (what and where, bound, figure)."""
    figures = _agreement(*_encoded(graph, reference, None), reference)
    means = [(f"mean cosine in {name}", bounds.mean_cosine, one["mean"]) for name, one in figures["languages"].items()]
    worst = [(f"worst cosine {place}", bounds.worst_cosine, one) for place, one in _worst_by_place(figures).items()]
    return [(what, bound, figure) for what, bound, figure in [*means, *worst] if not figure >= bound]


def encode_with(
    session: onnxruntime.InferenceSession,
    sequences: Batch,
    pad_token_id: int,
    batch_size: int = BATCH,
    advance: Advance | None = None,
) -> Vectors:
    """Return a graph's sentence vectors (N, D) of N rows of token ids; batches hold rows of like length.

    :param advance: told how many rows are done after every batch.
    """
    return in_batches(lambda batch: run(session, batch, pad_token_id), sequences, batch_size, advance)


def run(session: onnxruntime.InferenceSession, batch: Batch, pad_token_id: int) -> Vectors:
    """Return a graph's sentence vectors (N, D) of one batch, N rows of token ids."""
    input_ids, attention_mask = pad(batch, pad_token_id)
    feeds = {"input_ids": input_ids.numpy(), "attention_mask": attention_mask.numpy()}
    vectors: Vectors = session.run(["sentence_embedding"], feeds)[0].astype(np.float32)
    return vectors


def open_session(graph: Path) -> onnxruntime.InferenceSession:
    """Open a graph on the CPU, without messages."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])


def similarity_correlation(left: Vectors, right: Vectors) -> float:
    """Correlate the similarities between sentences in two sets of vectors (n, D) of the same n sentences.

    Where all vectors of a model lie close together, this tells more than the cosine between old and new vector.

    :returns: Pearson's r over all pairs of different sentences, after scaling the vectors to unit length; 1 where
        there are fewer than three sentences.
    """
    if len(left) < 3:
        return 1.0
    pairs = np.triu_indices(len(left), 1)
    old, new = (cosine_matrix(vectors, vectors)[pairs] for vectors in (left, right))
    return float(np.corrcoef(old, new)[0, 1])


def real_sentences() -> list[str]:
    """List the sentences that come with the package, languages in turn."""
    return in_turn(packaged_text())


def _session(graph: Path | onnxruntime.InferenceSession) -> onnxruntime.InferenceSession:
    return open_session(graph) if isinstance(graph, Path) else graph


def _name(graph: Path | onnxruntime.InferenceSession) -> str:
    return f"{graph.parent.name}/{graph.name}" if isinstance(graph, Path) else "the graph"


def _encoded(
    session: onnxruntime.InferenceSession, reference: Reference, advance: Advance | None
) -> tuple[Vectors, dict[str, Vectors]]:
    pad_token_id = reference.pad_token_id
    shaped = {shape: run(session, batch, pad_token_id) for shape, batch in reference.batches.items()}
    return encode_with(session, reference.flat, pad_token_id, advance=advance), shaped


def _expected(reference: Reference) -> Vectors:
    return np.concatenate([reference.flat_vectors, *reference.batch_vectors.values()])


def _difference(found: Vectors, expected: Vectors) -> float:
    """Return the largest absolute difference of any component, in units of the length of the expected vector."""
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    return float((np.abs(found - expected) / lengths).max())


def _agreement(found: Vectors, shaped: dict[str, Vectors], reference: Reference) -> dict[str, Any]:
    """Compare with PyTorch: cosines over everything, by language and by shape."""
    every = cosines(found, reference.flat_vectors)
    by_shape = {shape: cosines(vectors, reference.batch_vectors[shape]) for shape, vectors in shaped.items()}
    return {
        "mean_cosine": float(every.mean()),
        "worst_cosine": float(np.concatenate([every, *by_shape.values()]).min()),
        "languages": {
            language: {"sentences": len(own), "mean": float(own.mean()), "worst": float(own.min())}
            for language, own in reference.by_language(every).items()
        },
        "shapes": {shape: {"mean": float(own.mean()), "worst": float(own.min())} for shape, own in by_shape.items()},
    }


def _alone_and_among_others(session: onnxruntime.InferenceSession, reference: Reference) -> dict[str, float]:
    """Encode sentences of all languages alone, and in batches of all lengths."""
    rows = spread(range(len(reference.flat)), SAMPLE)
    sample, expected = [reference.flat[row] for row in rows], reference.flat_vectors[rows]
    alone = np.concatenate([run(session, [ids], reference.pad_token_id) for ids in sample])
    groups = max(1, len(sample) // MATES)
    worst = [
        cosines(run(session, sample[group::groups], reference.pad_token_id), alone[group::groups]).min()
        for group in range(groups)
    ]
    return {
        "similarity_correlation": similarity_correlation(alone, expected),
        "invariance_cosine": float(np.min(worst)),
    }


def _check_worst(name: str, figures: dict[str, Any], bound: float, advice: str) -> None:
    for place, worst in _worst_by_place(figures).items():
        _check(f"{name}: worst cosine to PyTorch {place}", worst, bound, advice)


def _worst_by_place(figures: dict[str, Any]) -> dict[str, float]:
    places = {f"in {language}": one["worst"] for language, one in figures["languages"].items()}
    return places | {f"at shape {shape}": one["worst"] for shape, one in figures["shapes"].items()}


def _check(what: str, figure: float, bound: float, advice: str) -> None:
    if not figure >= bound:
        raise GateError(f"export: {what} is {figure:.{_digits(bound)}f}, bound {bound}; {advice}")


def _digits(bound: float) -> int:
    """As many decimals as tell a figure from its bound."""
    return max(4, len(f"{bound}") - 1)
