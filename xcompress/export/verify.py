"""Compare the exported graphs with the PyTorch student on real sentences, and refuse those that differ too much."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xcompress.batches import group_by_length
from xcompress.bundle.engines import OpenVinoSession, Session, open_on_cpu
from xcompress.bundle.manifest import OUTPUT
from xcompress.bundle.phone_runtimes import PhoneSession
from xcompress.errors import GateError, InputError
from xcompress.export.config import Precision
from xcompress.export.text import interleave, take_evenly
from xcompress.metrics import Vectors, cosine_matrix, cosines, unit_length
from xcompress.modeling.student import Student, StudentConfig, pad, token_ids
from xcompress.runtimes import RUNTIMES

SHAPES = ((1, 1), (1, 7), (8, 33), (32, 128))
"""(batch, tokens) of test batches; their first row is full, the last half full."""
MIXED_ROWS = 16
"""Rows of one more batch, with 1 token up to the longest text."""
BATCH = 16
"""Sentences per batch, in PyTorch and in the graphs."""
MOST_CELLS = 2**23
"""Attention scores of a batch for each head, rows x tokens x tokens: 0.5 GB in float32 for 16 heads. One text may have
more."""
SAMPLE = 128
"""Sentences that are encoded alone and in batches of mixed lengths."""
SAMPLE_BATCH = 32
"""Most sentences in such a batch."""
SLOW_SAMPLE = 32
"""Sentences for a graph that is slow to evaluate."""
ADVICE = "export for another --target"
"""What may be done about a graph of lower precision beyond its bounds, where no other precision is closer."""
_ALIKE = 1e-6
"""The vectors of different texts, scaled to length 1, are the same where no number differs by more."""
_NO_NUMBERS = "as its vectors hold NaN or infinity, or are all alike"
"""Why a figure of a graph is NaN, where PyTorch's vectors were fine."""
_FLOAT_ADVICE = "install the torch, onnx and onnxruntime versions of constraints.txt"

TokenRows = list[list[int]]
"""Rows of token ids."""
Advance = Callable[[int], None]
"""Called after each batch with the number of sentences done."""
Graph: TypeAlias = Path | Session


@dataclass(frozen=True)
class Bounds:
    """How far the vectors of a graph may be from PyTorch's; `Bounds.of` has those of each precision."""

    fp32_difference: float = 1e-4
    """float32: largest absolute difference of any component, relative to the length of the student's vector."""
    fp32_cosine: float = 0.99999
    """float32: lowest cosine."""
    mean_cosine: float = 0.995
    """Quantised: lowest mean cosine of a language."""
    worst_cosine: float = 0.98
    """Quantised: lowest cosine."""
    similarity_correlation: float = 0.97
    """Quantised: lowest correlation of the similarities between sentences, which decide search and ranking."""
    invariance_cosine: float = 0.995
    """Quantised: lowest cosine between the graph's own vectors of a sentence alone and in a batch."""

    @classmethod
    def of(cls, precision: Precision) -> "Bounds":
        """Return the bounds of a precision; those of float32 are the same for all."""
        return cls(**_BOUNDS.get(precision, {}))


_BOUNDS: dict[Precision, dict[str, float]] = {
    "int4": {"mean_cosine": 0.98, "worst_cosine": 0.9, "similarity_correlation": 0.95},
    "fp16": {"mean_cosine": 0.9999, "worst_cosine": 0.999, "similarity_correlation": 0.999, "invariance_cosine": 0.999},
}


@dataclass(frozen=True)
class Reference:
    """Sentences and batches of several shapes, with PyTorch's vectors (n, D)."""

    sentences: dict[str, TokenRows]
    """By language."""
    vectors: dict[str, Vectors]
    """By language."""
    batches: dict[str, TokenRows]
    """By shape, such as `8x33`: those of `SHAPES`, and one of mixed lengths."""
    batch_vectors: dict[str, Vectors]
    """By shape."""
    pad_token_id: int

    @property
    def all_sentences(self) -> TokenRows:
        """All sentences, language by language."""
        return list(chain.from_iterable(self.sentences.values()))

    @property
    def all_vectors(self) -> Vectors:
        """The vectors of all sentences, in the same order."""
        return np.concatenate(list(self.vectors.values()))

    @property
    def mean_vector(self) -> list[float]:
        """The mean of the vectors of all sentences, scaled to length 1 before, (D,)."""
        return [round(float(value), 6) for value in unit_length(self.all_vectors).mean(axis=0)]


def make_reference(
    student: Student, tokenizer: Tokenizer, text: Mapping[str, Sequence[str]], advance: Advance | None = None
) -> Reference:
    """Encode sentences and test batches with PyTorch, once for all graphs.

    :param text: sentences by language.
    :raises InputError: when the vectors cannot tell whether a graph is right.
    """
    config = student.config

    def encode(batch: TokenRows) -> Vectors:
        with torch.inference_mode():
            vectors: Vectors = student(*pad(batch, config.pad_token_id))[1].float().numpy()
        return vectors

    sentences = {language: token_ids(tokenizer, texts, config) for language, texts in text.items()}
    rows = list(chain.from_iterable(sentences.values()))
    vectors = encode_in_batches(encode, rows, advance)
    batches = _make_batches(tokenizer, config, interleave(text))
    batch_vectors = {shape: encode(batch) for shape, batch in batches.items()}
    _check_reference(rows, vectors, batch_vectors)
    return Reference(sentences, _split_by_language(vectors, sentences), batches, batch_vectors, config.pad_token_id)


def _check_reference(sentences: TokenRows, vectors: Vectors, batch_vectors: Mapping[str, Vectors]) -> None:
    """Refuse a student whose weights are finite but useless: its cosines and correlations would be NaN."""
    every = np.concatenate([vectors, *batch_vectors.values()])
    problem = ""
    if not np.isfinite(every).all():
        problem = "vectors with NaN or infinity"
    elif not every.any(axis=1).all():
        problem = "a vector of zeros"
    elif len(set(map(tuple, sentences))) > 1 and np.ptp(unit_length(vectors), axis=0).max() <= _ALIKE:
        problem = "all texts the same vector"
    if problem:
        raise InputError(f"export: the model gives {problem}, so its weights are damaged; fetch or train it again")


def _make_batches(tokenizer: Tokenizer, config: StudentConfig, sentences: Sequence[str]) -> dict[str, TokenRows]:
    """Fill a batch of each shape with text, with no more tokens than the student accepts."""
    longest = config.max_tokens
    lengths = {}
    for rows, most in SHAPES:
        tokens = min(most, longest)
        # two shapes may have the same name once they are cut; the later one counts
        lengths[f"{rows}x{tokens}"] = [max(1, tokens - row * tokens // (2 * rows)) for row in range(rows)]
    rows = min(MIXED_ROWS, most_rows(longest))
    mixed = [1 + row * (longest - 1) // (rows - 1) for row in range(rows)] if rows > 1 else [longest]
    lengths[f"{rows}x{longest} mixed"] = mixed
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return {
        shape: [
            _make_row(tokenizer, config, [*sentences[row:], *sentences[:row]], count)
            for row, count in enumerate(counts)
        ]
        for shape, counts in lengths.items()
    }


def most_rows(tokens: int) -> int:
    """Return how many rows of this many tokens a batch may have; long rows are few, see `MOST_CELLS`."""
    return max(1, MOST_CELLS // tokens**2)


def _make_row(tokenizer: Tokenizer, config: StudentConfig, sentences: Sequence[str], tokens: int) -> list[int]:
    """Join sentences to exactly this many tokens, and keep the closing special token.

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
    repeated = ids * (1 + tokens // len(ids))  # for text in which a tokenizer finds next to nothing
    return [*repeated[: tokens - 1], ids[-1]]


def verify_fp32(graph: Graph, reference: Reference, bounds: Bounds, advance: Advance | None = None) -> dict[str, Any]:
    """Compare a float32 graph with PyTorch, on every sentence and shape.

    :returns: measurements and bounds for the manifest.
    :raises GateError: when a vector differs too much.
    """
    name = _name(graph)
    vectors, batch_vectors = _encode_reference(_session(graph), reference, advance)
    found = np.concatenate([vectors, *batch_vectors.values()])
    expected = np.concatenate([reference.all_vectors, *reference.batch_vectors.values()])
    difference = float((np.abs(found - expected) / np.linalg.norm(expected, axis=1, keepdims=True)).max())
    if math.isnan(difference):
        raise GateError(f"export: {name} differs from PyTorch by nan, {_NO_NUMBERS}; {_FLOAT_ADVICE}")
    if not difference < bounds.fp32_difference:
        raise GateError(
            f"export: {name} differs from PyTorch by {difference:.2e}, bound {bounds.fp32_difference:.0e}; "
            f"{_FLOAT_ADVICE}"
        )
    agreement = _compare(vectors, batch_vectors, reference)
    for place, cosine in _worst_cosines(agreement).items():
        _check(f"{name}: worst cosine to PyTorch {place}", cosine, bounds.fp32_cosine, _FLOAT_ADVICE)
    largest = {"max_abs_difference": difference, "bound": bounds.fp32_difference}
    return {**largest, **agreement, "bounds": {"worst_cosine": bounds.fp32_cosine}}


def verify_quantized(
    graph: Graph, reference: Reference, bounds: Bounds, advance: Advance | None = None, advice: str = ADVICE
) -> dict[str, Any]:
    """Compare a graph of lower precision with PyTorch, and with itself at another batch size.

    :param advice: what to do about a figure beyond its bound.
    :returns: measurements and bounds for the manifest.
    :raises GateError: when one is beyond its bound.
    """
    name = _name(graph)
    measured = _measure(_session(graph), reference, advance)
    for what, figure, bound in _bounded_figures(measured, bounds):
        _check(f"{name}: {what}", figure, bound, advice)
    return {**measured, "bounds": {key: bound for key, bound in asdict(bounds).items() if key in measured}}


def _measure(session: Session, reference: Reference, advance: Advance | None = None) -> dict[str, Any]:
    """Measure all that has a bound in a graph of lower precision, for the manifest."""
    measured = _compare(*_encode_reference(session, reference, advance), reference)
    # sentences of all languages alone, then in batches of all lengths
    sentences = reference.all_sentences
    rows = take_evenly(range(len(sentences)), SAMPLE)
    sample, expected = [sentences[row] for row in rows], reference.all_vectors[rows]
    alone = np.concatenate([run_graph(session, [ids], reference.pad_token_id) for ids in sample])
    groups = math.ceil(len(sample) / min(SAMPLE_BATCH, most_rows(max(map(len, sample)))))
    worst = [
        cosines(run_graph(session, sample[group::groups], reference.pad_token_id), alone[group::groups]).min()
        for group in range(groups)
    ]
    correlation = similarity_correlation(alone, expected)
    return {**measured, "similarity_correlation": correlation, "invariance_cosine": float(np.min(worst))}


def _bounded_figures(measured: dict[str, Any], bounds: Bounds) -> list[tuple[str, float, float]]:
    """List what `_measure` returned as (figure in words, its value, its bound)."""
    means = {language: figures["mean"] for language, figures in measured["languages"].items()}
    correlation, invariance = measured["similarity_correlation"], measured["invariance_cosine"]
    return [
        *((f"mean cosine to PyTorch in {language}", mean, bounds.mean_cosine) for language, mean in means.items()),
        *(
            (f"worst cosine to PyTorch {place}", cosine, bounds.worst_cosine)
            for place, cosine in _worst_cosines(measured).items()
        ),
        ("correlation of similarities with PyTorch's", correlation, bounds.similarity_correlation),
        ("worst cosine between a sentence alone and in a batch", invariance, bounds.invariance_cosine),
    ]


def verify_sample(
    encode: Callable[[list[int]], Vectors],
    name: str,
    reference: Reference,
    bounds: Bounds,
    advance: Advance | None = None,
    advice: str = ADVICE,
) -> dict[str, Any]:
    """Compare a graph that is slow to evaluate with PyTorch: on a few sentences alone, and on the longest text.

    :param encode: takes the token ids of one text, and returns its vector (1, D).
    :param name: the graph's name in errors.
    :param advice: what to do about a cosine below its bound.
    :returns: measurements for the manifest.
    :raises GateError: when a cosine is below its bound.
    """
    rows = take_evenly(range(len(reference.all_sentences)), SLOW_SAMPLE)
    *_, shape = reference.batches  # the last row of mixed lengths is the longest
    texts = [*(reference.all_sentences[row] for row in rows), reference.batches[shape][-1]]
    expected = np.concatenate([reference.all_vectors[rows], reference.batch_vectors[shape][-1:]])
    vectors = []
    for ids in texts:
        vectors.append(encode(ids))
        if advance:
            advance(1)
    measured = cosines(np.concatenate(vectors), expected)
    mean, worst = float(measured.mean()), float(measured.min())
    _check(f"{name}: mean cosine to PyTorch", mean, bounds.mean_cosine, advice)
    _check(f"{name}: worst cosine to PyTorch", worst, bounds.worst_cosine, advice)
    return {"texts": len(texts), "mean_cosine": mean, "worst_cosine": worst}


def find_violations(session: Session, reference: Reference, bounds: Bounds) -> list[tuple[str, float, float]]:
    """List what `verify_quantized` would refuse of a graph: (figure in words, its value, its bound)."""
    figures = _bounded_figures(_measure(session, reference), bounds)
    return [(what, figure, bound) for what, figure, bound in figures if not figure >= bound]


def _encode_reference(
    session: Session, reference: Reference, advance: Advance | None
) -> tuple[Vectors, dict[str, Vectors]]:
    """Encode all sentences, and the batches of each shape."""
    pad_token_id = reference.pad_token_id
    shaped = {shape: run_graph(session, batch, pad_token_id) for shape, batch in reference.batches.items()}
    return encode_with(session, reference.all_sentences, pad_token_id, advance), shaped


def _compare(vectors: Vectors, batch_vectors: dict[str, Vectors], reference: Reference) -> dict[str, Any]:
    """Measure cosines to PyTorch: over everything, by language and by shape."""
    every = cosines(vectors, reference.all_vectors)
    by_language = _split_by_language(every, reference.sentences)
    by_shape = {shape: cosines(batch, reference.batch_vectors[shape]) for shape, batch in batch_vectors.items()}
    return {
        "mean_cosine": float(every.mean()),
        "worst_cosine": float(np.concatenate([every, *by_shape.values()]).min()),
        "languages": {
            language: {"sentences": len(values), "mean": float(values.mean()), "worst": float(values.min())}
            for language, values in by_language.items()
        },
        "shapes": {
            shape: {"mean": float(values.mean()), "worst": float(values.min())} for shape, values in by_shape.items()
        },
    }


def _split_by_language(values: NDArray[Any], sentences: Mapping[str, TokenRows]) -> dict[str, NDArray[Any]]:
    """Split values of all sentences into those of each language."""
    ends = np.cumsum([len(rows) for rows in sentences.values()])
    return dict(zip(sentences, np.split(values, ends[:-1]), strict=True))


def _worst_cosines(measured: dict[str, Any]) -> dict[str, float]:
    """Map each language and shape, in words, to its lowest cosine."""
    places = {f"in {language}": figures["worst"] for language, figures in measured["languages"].items()}
    return places | {f"at shape {shape}": figures["worst"] for shape, figures in measured["shapes"].items()}


def _check(what: str, measured: float, bound: float, advice: str) -> None:
    if math.isnan(measured):
        raise GateError(f"export: {what} is nan, {_NO_NUMBERS}; {advice}")
    if not measured >= bound:
        digits = max(4, len(f"{bound}") - 1)
        shown = math.floor(measured * 10**digits) / 10**digits  # rounded up, it could look like the bound
        raise GateError(f"export: {what} is {shown:.{digits}f}, bound {bound}; {advice}")


def _session(graph: Graph) -> Session:
    return open_on_cpu(graph) if isinstance(graph, Path) else graph


def _name(graph: Graph) -> str:
    if isinstance(graph, Path):
        return f"{graph.parent.name}/{graph.name}"
    if isinstance(graph, PhoneSession):
        return f"the file in {RUNTIMES[graph.runtime].label}"
    return "the graph in OpenVINO" if isinstance(graph, OpenVinoSession) else "the graph"


def encode_in_batches(
    encode: Callable[[TokenRows], Vectors], sequences: TokenRows, advance: Advance | None = None
) -> Vectors:
    """Encode rows of token ids in batches of similar length, at most `BATCH`, long ones fewer.

    :returns: vectors (N, D) in the order of `sequences`.
    """
    encoded, order = [], list[int]()
    for rows in group_by_length(list(map(len, sequences)), lambda tokens: min(BATCH, most_rows(tokens))):
        encoded.append(encode([sequences[row] for row in rows]))
        order += rows
        if advance:
            advance(len(rows))
    return np.concatenate(encoded)[np.argsort(order)]


def encode_with(session: Session, sequences: TokenRows, pad_token_id: int, advance: Advance | None = None) -> Vectors:
    """Return a graph's sentence vectors (N, D) of N rows of token ids, in batches of similar length."""
    return encode_in_batches(lambda batch: run_graph(session, batch, pad_token_id), sequences, advance)


def run_graph(session: Session, batch: TokenRows, pad_token_id: int) -> Vectors:
    """Return a graph's sentence vectors (N, D) of one batch, N rows of token ids.

    :raises GateError: when it gives something else.
    """
    input_ids, attention_mask = pad(batch, pad_token_id)
    inputs = {"input_ids": input_ids.numpy(), "attention_mask": attention_mask.numpy()}
    vectors: Vectors = session.run([OUTPUT], inputs)[0].astype(np.float32)
    if vectors.ndim != 2 or len(vectors) != len(batch):
        raise GateError(
            f"export: {_name(session)} gives the shape {list(vectors.shape)} for {len(batch)} texts; choose another "
            "--target or --precision"
        )
    return vectors


def similarity_correlation(left: Vectors, right: Vectors) -> float:
    """Correlate the similarities between sentences in two sets of vectors (n, D) of the same n sentences.

    Where all vectors of a model are close together, this says more than the cosine between old and new vector.

    :returns: Pearson's r over all pairs of different sentences, with vectors scaled to unit length; 1 for fewer than
        three sentences.
    """
    if len(left) < 3:
        return 1.0
    pairs = np.triu_indices(len(left), 1)
    old, new = (cosine_matrix(vectors, vectors)[pairs] for vectors in (left, right))
    with np.errstate(invalid="ignore"):  # equal vectors have no correlation: NaN, which is within no bound
        return float(np.corrcoef(old, new)[0, 1])
