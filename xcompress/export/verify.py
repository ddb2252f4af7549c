"""The exported graphs against the PyTorch student on real sentences; what is too far off is refused."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xcompress.errors import GateError
from xcompress.metrics import cosine_matrix, cosines
from xcompress.student import Student, pad, token_ids

SHAPES = ((1, 1), (1, 7), (8, 33), (32, 128))
"""(batch, tokens) of the comparison."""
WHOLE = 64
"""Whole sentences, encoded alone and among each other."""
DATA = Path(__file__).parents[1] / "data"
_SPARE = (
    "The last train to the coast leaves at nine in the evening.",
    "Bitte bewahren Sie die Rechnung bis zum Ende der Garantie auf.",
    "La bibliothèque reste ouverte pendant les vacances d'été.",
    "Han pasado tres semanas desde que pedimos las piezas nuevas.",
    "Il ponte vecchio è stato riaperto dopo due anni di lavori.",
    "Yeni sürüm, dosyaları arka planda güvenle kaydeder.",
)

Vectors = NDArray[np.float32]
Batch = list[list[int]]


@dataclass(frozen=True)
class Bounds:
    """How far an exported graph may be from the student."""

    fp32_difference: float = 1e-4
    """Largest absolute difference of any component of a sentence vector."""
    int8_mean_cosine: float = 0.99
    """Between int8 and PyTorch vectors."""
    int8_min_cosine: float = 0.95
    similarity_correlation: float = 0.97
    """Between the similarities of sentences in int8 and in PyTorch: what search and ranking see."""
    invariance_min_cosine: float = 0.95
    """Between the int8 vectors of one sentence alone and in a batch."""


@dataclass(frozen=True)
class Reference:
    """Real text as token ids, and what PyTorch makes of it."""

    batches: list[Batch]
    """One batch per shape of `SHAPES`."""
    vectors: list[Vectors]
    """PyTorch's sentence vectors of each batch."""
    sentences: Batch
    """Whole sentences, for batch invariance and similarities."""
    sentence_vectors: Vectors
    """PyTorch's vectors of these."""
    pad_token_id: int

    @property
    def shapes(self) -> list[list[int]]:
        """The (batch, tokens) compared."""
        return [[len(batch), len(batch[0])] for batch in self.batches]


def reference_of(student: Student, tokenizer: Tokenizer) -> Reference:
    """Encode real text with PyTorch at every shape, with no more tokens than the student takes."""
    sentences = real_sentences()
    limit = student.config.max_tokens
    batches = [_batch(student, tokenizer, sentences, size, min(tokens, limit)) for size, tokens in SHAPES]
    pad_token_id = student.config.pad_token_id
    whole = token_ids(tokenizer, sentences[:WHOLE], student.config)
    with torch.inference_mode():
        *vectors, last = [student(*pad(batch, pad_token_id))[1].float().numpy() for batch in [*batches, whole]]
    return Reference(batches, vectors, whole, last, pad_token_id)


def verify_fp32(graph: Path, reference: Reference, bounds: Bounds) -> dict[str, Any]:
    """Compare the float32 graph with PyTorch.

    :returns: the largest absolute difference and its bound, for the manifest.
    :raises GateError: when the difference is not below its bound.
    """
    session = open_session(graph)
    found = [run(session, batch, reference.pad_token_id) for batch in reference.batches]
    difference = max(float(np.abs(a - b).max()) for a, b in zip(found, reference.vectors, strict=True))
    if not difference < bounds.fp32_difference:
        raise GateError(
            f"export: onnx/model.onnx differs from PyTorch by {difference:.2e}, bound {bounds.fp32_difference:.0e}; "
            "install the torch, onnx and onnxruntime versions of constraints.txt"
        )
    return {"max_abs_difference": difference, "bound": bounds.fp32_difference, "shapes": reference.shapes}


def verify_int8(graph: Path, reference: Reference, bounds: Bounds) -> dict[str, Any]:
    """Compare the int8 graph with PyTorch, and with itself at another batch size.

    :returns: the cosines and their bounds, for the manifest.
    :raises GateError: when one of them is below its bound.
    """
    session = open_session(graph)
    found = [run(session, batch, reference.pad_token_id) for batch in reference.batches]
    agreement = np.concatenate([cosines(a, b) for a, b in zip(found, reference.vectors, strict=True)])
    alone = np.concatenate([run(session, [ids], reference.pad_token_id) for ids in reference.sentences])
    together = run(session, reference.sentences, reference.pad_token_id)
    figures = {
        "int8_mean_cosine": float(agreement.mean()),
        "int8_min_cosine": float(agreement.min()),
        "similarity_correlation": similarity_correlation(alone, reference.sentence_vectors),
        "invariance_min_cosine": float(cosines(alone, together).min()),
    }
    limits = {name: asdict(bounds)[name] for name in figures}
    for name, bound in limits.items():
        if not figures[name] >= bound:
            raise GateError(
                f"export: {name} of onnx/model_quantized.onnx is {figures[name]:.4f}, bound {bound}; "
                "export without quantisation, or pass other bounds if the accuracy you measure is enough"
            )
    return {**figures, "bounds": limits, "shapes": reference.shapes}


def similarity_correlation(left: Vectors, right: Vectors) -> float:
    """Correlate the similarities between sentences in two sets of vectors (n, D) of the same n sentences.

    Where all vectors of a model lie close together, this tells more than the cosine between old and new vector.

    :returns: Pearson's r over all pairs of different sentences, after scaling the vectors to unit length.
    """
    pairs = np.triu_indices(len(left), 1)
    old, new = (cosine_matrix(vectors, vectors)[pairs] for vectors in (left, right))
    return float(np.corrcoef(old, new)[0, 1])


def real_sentences() -> list[str]:
    """Read the sentences that come with the package, languages in turn."""
    files = sorted(DATA.glob("graded.??.tsv"))
    lines = [file.read_text(encoding="utf-8").splitlines() for file in files]
    firsts = [line.split("\t")[0] for group in zip(*lines, strict=False) for line in group if "\t" in line]
    return [*(first for first in firsts if first and first != "sentence1"), *_SPARE]


def open_session(graph: Path) -> onnxruntime.InferenceSession:
    """Open a graph on the CPU, without messages."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])


def run(session: onnxruntime.InferenceSession, batch: Batch, pad_token_id: int) -> Vectors:
    """Return a graph's sentence vectors (N, D) of N rows of token ids."""
    input_ids, attention_mask = pad(batch, pad_token_id)
    feeds = {"input_ids": input_ids.numpy(), "attention_mask": attention_mask.numpy()}
    vectors: Vectors = session.run(["sentence_embedding"], feeds)[0]
    return vectors


def _batch(student: Student, tokenizer: Tokenizer, sentences: list[str], size: int, tokens: int) -> Batch:
    """Fill the first row with `tokens` tokens and the others with fewer and fewer, down to half."""
    lengths = [max(1, tokens - row * tokens // (2 * size)) for row in range(size)]
    prefix = student.config.prefix
    return [_exactly(tokenizer, prefix, sentences[row:] + sentences[:row], count) for row, count in enumerate(lengths)]


def _exactly(tokenizer: Tokenizer, prefix: str, sentences: list[str], tokens: int) -> list[int]:
    """Join sentences until there are enough tokens; cut in the middle, so that the closing token stays."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    ids: list[int] = []
    joined = 0
    while len(ids) < tokens:
        joined = 2 * joined + 1
        ids = tokenizer.encode(prefix + " ".join(sentences[:joined] * (1 + joined // len(sentences)))).ids
    return [*ids[: tokens - 1], ids[-1]]
