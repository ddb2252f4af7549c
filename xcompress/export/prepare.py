"""Change a student before export: depth, vocabulary, longest text, dimension and centre of the vectors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import isqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xcompress import console
from xcompress.errors import InputError
from xcompress.export.config import ExportConfig
from xcompress.export.matmul import Level
from xcompress.modeling.centering import centering_map, mean_cosine
from xcompress.modeling.load import MIN_TEXT_TOKENS
from xcompress.modeling.pca import principal_axes
from xcompress.modeling.student import Student, encode, reconfigured, shallower
from xcompress.runtimes import PHONE_FILES
from xcompress.tokenizer_file import encode_batch
from xcompress.vocab.choose import choose_tokens
from xcompress.vocab.count import TokenCounts, count_words_and_files
from xcompress.vocab.student import encode_ids, trim_student

SHIFTED_ON = 256
"""Sentences whose mean is taken out before the head."""
MOST_SCORES = 2**31
"""Attention scores of one text in all heads: 9 GB in float32, and softmax needs as much again. Verification encodes a
text of the largest length."""
SENTENCES_PER_AXIS = 4
"""With fewer sentences than this per principal axis, the axes are not well determined."""


@dataclass(frozen=True)
class Prepared:
    """The student to export and its tokenizer, with a description of the changes for the manifest."""

    student: Student
    tokenizer: Tokenizer
    changes: dict[str, Any] = field(default_factory=dict)
    levels: Mapping[str, Level] = field(default_factory=dict)
    """Levels of the products that need others than their own, by name."""


def prepare(
    student: Student,
    tokenizer: Tokenizer,
    config: ExportConfig,
    read_text: Callable[[], Sequence[str]],
    prompts: Sequence[str] = (),
    counts: Sequence[TokenCounts] = (),
) -> Prepared:
    """Change a student as the options of an export say.

    :param prompts: texts whose tokens a trimmed vocabulary keeps, like those of the prefix.
    :param read_text: returns real sentences; called only where the vectors are reduced or centred.
    :param counts: of the tokens in the user's text, where the vocabulary is trimmed.
    :raises InputError: when the student cannot be changed in this way, or the target has no layers like its own.
    """
    kind = student.config.unusual_layers
    lacking = f"layers of {kind}" if kind else "lasttoken pooling" if student.config.pooling == "lasttoken" else None
    if lacking and config.target in (*PHONE_FILES, "coreml"):
        raise InputError(f"target: {config.target} has no {lacking}, as this model has; choose cpu or mobile")
    changes: dict[str, Any] = {}
    # A rounded head leaves a part of what all vectors of a narrow cone share: in int8, multilingual-e5-small had
    # a cosine of 0.87 for a single token. A student's own head may be rounded: tiny had 0.99, also in 4 bits.
    levels: dict[str, Level] = {"head": "fp32"} if config.center and student.head is None else {}
    if config.recurrences is not None:
        student = shallower(student, config.recurrences)
    if config.max_tokens is not None:
        before = student.config.max_tokens
        student = drop_positions(student, config.max_tokens)
        if config.max_tokens < before:
            changes["truncated"] = {"before": before}
        console.say(f"longest text: {before} to {config.max_tokens} tokens")
    _check_room(student, tokenizer)
    if config.languages or config.vocabulary:
        all_counts = [*count_words_and_files(tokenizer, config.languages, ()), *counts]
        in_prompts, _ = encode_ids(tokenizer, [student.config.prefix, *prompts])
        needed = [student.config.pad_token_id, *in_prompts.tolist()]
        kept = choose_tokens(tokenizer, all_counts, size=config.vocabulary, needed=needed)
        before = student.config.vocab_size
        student, tokenizer = trim_student(student, tokenizer, kept.ids)
        changes["vocabulary"] = asdict(kept.report)
        console.say(f"vocabulary: {before:,} to {len(kept.ids):,} rows")
    if config.dimension:
        before, sliced = student.config.dimension, config.shorten == "slice"
        student, share = reduce_dimension(student, tokenizer, read_text(), config.dimension, sliced=sliced)
        changes["shortened"] = {"before": before, "by": config.shorten, "kept": share}
        console.say(
            f"vectors: {before} to {config.dimension} dimensions, {100 * share:.1f} % of their squared lengths kept"
        )
    if config.center:
        texts = read_text()
        student, cosines = center(student, tokenizer, texts)
        student = shift_before_head(student, tokenizer, texts[:SHIFTED_ON])
        changes["centered"] = cosines
        console.say(
            f"centred: the mean cosine of two different sentences was {cosines['before']:.2f} and is "
            f"{cosines['after']:.2f}"
        )
    return Prepared(student, tokenizer, changes, levels)


def _check_room(student: Student, tokenizer: Tokenizer) -> None:
    """Check that the student reads more of a text than the prefix and the special tokens, and no more than fits.

    :raises InputError: when all texts would have one vector, or the attention scores of a long text are too many.
    """
    heads, longest = student.config.num_attention_heads, student.config.max_tokens
    if heads * longest**2 > MOST_SCORES:
        raise InputError(
            f"max_tokens: the attention of a text of {longest:,} tokens takes {4 * heads * longest**2 / 1e9:.0f} GB; "
            f"cut texts at {isqrt(MOST_SCORES // heads)} tokens or fewer, such as with --max-tokens 512"
        )
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # The space that ends a prefix belongs to the first word of the text.
    taken = len(encode_batch(tokenizer, [student.config.prefix.rstrip()])[0].ids)
    if taken >= student.config.max_tokens:
        raise InputError(
            f"max_tokens: {student.config.max_tokens}, but the prefix and the special tokens take {taken}, so all "
            f"texts would have the same vector; choose at least {taken + 1}, or a shorter prefix"
        )


def drop_positions(student: Student, max_tokens: int) -> Student:
    """Return a student with the same weights that truncates texts at `max_tokens` and has positions for no more.

    :raises InputError: when the student truncates earlier, or no text fits.
    """
    config, table = student.config, student.embeddings.position
    if not MIN_TEXT_TOKENS <= max_tokens <= config.max_tokens:
        raise InputError(
            f"max_tokens: {max_tokens} requested, but the student truncates at {config.max_tokens}; choose "
            f"{MIN_TEXT_TOKENS} to {config.max_tokens}"
        )
    positions = config.position_offset + max_tokens
    changes = {} if table is None else {"embeddings.position.weight": table.weight.detach()[:positions]}
    return reconfigured(student, replace(config, max_tokens=max_tokens, max_position_embeddings=positions), changes)


def reduce_dimension(
    student: Student, tokenizer: Tokenizer, texts: Sequence[str], dimension: int, *, sliced: bool
) -> tuple[Student, float]:
    """Project the vectors to fewer dimensions, by multiplying the head, or a new one, with the axes.

    :param texts: real sentences, whose vectors give the principal axes.
    :param sliced: keep the first dimensions, for models trained for that (Kusupati et al., 2022), in place of the
        coordinates on the principal axes.
    :returns: the student, and the share of the vectors' squared lengths that is kept.
    :raises InputError: when the vectors do not have more dimensions than that, or the head has an activation.
    """
    config = student.config
    if dimension >= config.dimension:
        raise InputError(f"dimension: {dimension} requested, but the vectors have {config.dimension}; choose fewer")
    if config.head_activation:
        raise InputError(
            f"dimension: the vectors pass {config.head_activation} and cannot be shortened; leave the option out"
        )
    if not sliced and len(texts) < SENTENCES_PER_AXIS * dimension:
        console.warn(f"dimension: {len(texts)} sentences for {dimension} axes; give more with --text")
    vectors = _vectors(student, tokenizer, texts)
    if sliced:
        rows = np.eye(config.dimension, dtype=np.float32)[:dimension]
    else:
        # Cosines do not depend on the signs. Contiguous rows keep the products below the same to the last bit.
        rows = np.ascontiguousarray(principal_axes(vectors, dimension, fix_signs=False))
    share = float(np.square(vectors @ rows.T).sum() / np.square(vectors).sum())
    return _mapped(student, rows), share


def center(student: Student, tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[Student, dict[str, float]]:
    """Bring the cosines of sentences with nothing in common near 0, by multiplying the head, or a new one.

    See `centering_map`.

    :param texts: real sentences, two or more.
    :returns: the student, and the mean cosine of two different sentences of the text `before` and `after`.
    :raises InputError: when the head has an activation, or there are fewer than two sentences.
    """
    config = student.config
    if config.head_activation:
        raise InputError(
            f"center: the vectors pass {config.head_activation} and cannot be centred; leave the option out"
        )
    if len(texts) < 2:
        raise InputError(f"center: needs 2 sentences or more, not {len(texts)}; give more with --text")
    vectors = _vectors(student, tokenizer, texts)
    rows = centering_map(vectors)
    return _mapped(student, rows), {"before": mean_cosine(vectors), "after": mean_cosine(vectors @ rows.T)}


def shift_before_head(student: Student, tokenizer: Tokenizer, texts: Sequence[str]) -> Student:
    """Return a student with the same vectors, whose last layer has outputs with a mean near 0.

    The norm of the layer adds less, and the head adds that much more. A centred head takes out what all outputs share.
    Of a large share, rounded weights would leave a part in every vector. Where the layer is applied more than once, or
    its norm adds nothing, the student stays as it is.

    :param student: with a head that has no activation.
    """
    config = student.config
    *others, last = config.stack
    if student.final_norm is not None or last in others or student.head is None:
        return student
    bare = reconfigured(student, replace(config, head_size=None, normalize=False), {})
    mean = torch.from_numpy(_vectors(bare, tokenizer, texts).mean(axis=0))
    added, head = f"{last}.output_norm.bias", student.head
    changes = {
        added: student.get_parameter(added).detach() - mean,
        "head.bias": head.bias.detach() + head.weight.detach() @ mean,
    }
    return reconfigured(student, config, changes)


def _vectors(student: Student, tokenizer: Tokenizer, texts: Sequence[str]) -> NDArray[np.float32]:
    """Encode texts and show how far it is, as there may be many."""
    with console.bar("encoded", len(texts)) as ticker:
        return encode(student, tokenizer, texts, advance=ticker.advance)


def _mapped(student: Student, rows: NDArray[np.float32]) -> Student:
    """Return a student whose vectors, before they are scaled to unit length, are multiplied by a matrix (D', D)."""
    axes, head = torch.from_numpy(rows), student.head
    weight = axes if head is None else axes @ head.weight.detach()
    bias = torch.zeros(len(axes)) if head is None else axes @ head.bias.detach()
    config = replace(student.config, head_size=len(axes))
    return reconfigured(student, config, {"head.weight": weight, "head.bias": bias})
