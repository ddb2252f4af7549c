"""The student as it is to be exported: depth, vocabulary, longest text, and length of its vectors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Tokenizer

from xcompress import console
from xcompress.export.dimension import shortened
from xcompress.export.options import Options
from xcompress.export.positions import for_shorter_texts
from xcompress.student import Student, shallower
from xcompress.trimming.choice import choose_pieces
from xcompress.trimming.run import count
from xcompress.vocabulary import trim


@dataclass(frozen=True)
class Prepared:
    """A student, its tokenizer, and what was changed, for the manifest."""

    student: Student
    tokenizer: Tokenizer
    changes: dict[str, Any] = field(default_factory=dict)


def prepare(
    student: Student, tokenizer: Tokenizer, options: Options, sentences: Callable[[], Sequence[str]]
) -> Prepared:
    """Change a student as the options say.

    :param sentences: gives real text, where vectors are shortened.
    :raises InputError: when it cannot be changed so.
    """
    changes: dict[str, Any] = {}
    if options.recurrences is not None:
        student = shallower(student, options.recurrences)
    if options.max_tokens is not None:
        before = student.config.max_position_embeddings
        student = for_shorter_texts(student, options.max_tokens)
        console.say(f"positions: {before} to {student.config.max_position_embeddings} rows")
    if options.languages or options.vocabulary:
        student, tokenizer, changes["vocabulary"] = _trimmed(student, tokenizer, options)
    if options.dimension:
        before, sliced = student.config.dimension, options.shorten == "slice"
        student, kept = shortened(student, tokenizer, sentences(), options.dimension, sliced=sliced)
        changes["shortened"] = {"before": before, "by": options.shorten, "kept": kept}
        console.say(f"vectors: {before} to {options.dimension} numbers, {100 * kept:.1f} % of their lengths kept")
    return Prepared(student, tokenizer, changes)


def _trimmed(student: Student, tokenizer: Tokenizer, options: Options) -> tuple[Student, Tokenizer, dict[str, Any]]:
    counts = count(tokenizer, options.languages, options.text)
    needed = [student.config.pad_token_id, *tokenizer.encode(student.config.prefix).ids]
    kept = choose_pieces(tokenizer, counts, size=options.vocabulary, needed=needed)
    before = student.config.vocab_size
    student, tokenizer = trim(student, tokenizer, kept.ids)
    console.say(f"vocabulary: {before:,} to {len(kept.ids):,} rows")
    return student, tokenizer, kept.report.to_json()
