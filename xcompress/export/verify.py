"""The exported graphs against the PyTorch student on real sentences; what is too far off is refused."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, cycle, islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xcompress.errors import GateError, InputError
from xcompress.export.text import packaged_text, spread
from xcompress.metrics import cosine_matrix, cosines
from xcompress.modeling.student import Student, StudentConfig, pad, token_ids

SHAPES = ((1, 1), (1, 7), (8, 33), (32, 128))
"""(batch, tokens) of batches whose rows are between half full and full."""
MIXED_ROWS = 16
"""Rows of one more batch, of 1 token up to as many as the student takes."""
BATCH = 16
"""Sentences per batch, in PyTorch and in the graphs."""

Vectors = NDArray[np.float32]
Batch = list[list[int]]
Advance = Callable[[int], None]


@dataclass(frozen=True)
class Reference:
    """Sentences and batches of several shapes, with PyTorch's vectors (n, D) of them."""

    sentences: dict[str, Batch]
    """By language."""
    vectors: dict[str, Vectors]
    batches: dict[str, Batch]
    """By shape, such as `8x33`: those of `SHAPES`, and one of mixed lengths."""
    batch_vectors: dict[str, Vectors]
    pad_token_id: int

    @property
    def flat(self) -> Batch:
        """All sentences, language by language."""
        return list(chain.from_iterable(self.sentences.values()))

    @property
    def flat_vectors(self) -> Vectors:
        """The vectors of all sentences, in the same order."""
        return np.concatenate(list(self.vectors.values()))

    def by_language(self, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Take apart what was computed for each of all sentences."""
        return _taken_apart(values, self.sentences)


def reference_of(
    student: Student,
    tokenizer: Tokenizer,
    text: Mapping[str, Sequence[str]] | None = None,
    advance: Advance | None = None,
) -> Reference:
    """Encode real text with PyTorch, once: sentences among others of like length, and batches of several shapes.

    :param text: sentences by language; by default those of the package.
    :param advance: told how many sentences are done after every batch.
    """
    given = {language: list(found) for language, found in (text or {}).items() if found} or packaged_text()
    config = student.config

    def encode(batch: Batch) -> Vectors:
        with torch.inference_mode():
            vectors: Vectors = student(*pad(batch, config.pad_token_id))[1].float().numpy()
        return vectors

    sentences = {language: token_ids(tokenizer, found, config) for language, found in given.items()}
    vectors = in_batches(encode, list(chain.from_iterable(sentences.values())), BATCH, advance)
    batches = _shaped(tokenizer, config, in_turn(given))
    shaped = {shape: encode(batch) for shape, batch in batches.items()}
    return Reference(sentences, _taken_apart(vectors, sentences), batches, shaped, config.pad_token_id)


def in_batches(
    encode: Callable[[Batch], Vectors], sequences: Batch, size: int, advance: Advance | None = None
) -> Vectors:
    """Encode rows of token ids, those of like length together.

    :param advance: told how many rows are done after every batch.
    :returns: vectors (N, D) in the order of `sequences`.
    """
    order = sorted(range(len(sequences)), key=lambda row: len(sequences[row]))
    found = []
    for start in range(0, len(order), size):
        found.append(encode([sequences[row] for row in order[start : start + size]]))
        if advance:
            advance(len(found[-1]))
    vectors = np.concatenate(found)
    return vectors[np.argsort(order)]


def in_turn(text: Mapping[str, Sequence[str]]) -> list[str]:
    """List sentences by language in one sequence: the first of each language, the second of each, ..."""
    return [sentence for row in zip_longest(*text.values()) for sentence in row if sentence is not None]


def _taken_apart(values: NDArray[Any], sentences: Mapping[str, Batch]) -> dict[str, NDArray[Any]]:
    ends = np.cumsum([len(rows) for rows in sentences.values()])
    return dict(zip(sentences, np.split(values, ends[:-1]), strict=True))


def _shaped(tokenizer: Tokenizer, config: StudentConfig, sentences: Sequence[str]) -> dict[str, Batch]:
    """Fill batches of every shape with text, with no more tokens than the student takes.

    In those of `SHAPES` the first row is full and the others have fewer and fewer tokens, down to half.
    """
    most = config.max_tokens
    lengths = [[max(1, tokens - row * tokens // (2 * rows)) for row in range(rows)] for rows, tokens in _within(most)]
    lengths.append([1 + row * (most - 1) // (MIXED_ROWS - 1) for row in range(MIXED_ROWS)])
    tokenizer.no_truncation()
    tokenizer.no_padding()
    batches = [
        [_exactly(tokenizer, config, [*sentences[row:], *sentences[:row]], count) for row, count in enumerate(counts)]
        for counts in lengths
    ]
    names = [f"{rows}x{tokens}" for rows, tokens in _within(most)]
    return dict(zip([*names, f"{MIXED_ROWS}x{most} mixed"], batches, strict=True))


def _within(most: int) -> list[tuple[int, int]]:
    return [(rows, min(tokens, most)) for rows, tokens in SHAPES]


def _exactly(tokenizer: Tokenizer, config: StudentConfig, sentences: Sequence[str], tokens: int) -> list[int]:
    """Join sentences until there are enough tokens; cut in the middle, so that the closing token stays.

    A single token is one of a word: no client sends a special token alone.
    """
    if tokens == 1:
        return tokenizer.encode(sentences[0], add_special_tokens=False).ids[:1] or [config.pad_token_id]
    ids: list[int] = []
    joined = 1
    while len(ids) < tokens and joined <= 4 * tokens:
        ids = tokenizer.encode(config.prefix + " ".join(islice(cycle(sentences), joined))).ids
        joined *= 4
    ids = ids or [config.pad_token_id]
    enough = ids * (1 + tokens // len(ids))  # of text that a tokenizer makes next to nothing of
    return [*enough[: tokens - 1], ids[-1]]


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
