"""Write a Unigram vocabulary as a SentencePiece model, which the tokenizers of phones read.

ExecuTorch's C++ tokenizers load SentencePiece models, but no tokenizer.json with a Unigram vocabulary.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3
"""Kinds of pieces in sentencepiece_model.proto."""
_UNIGRAM = 1
"""The kind of model there."""


def write_sentencepiece(tokenizer: Tokenizer, file: Path) -> bool:
    """Write the vocabulary with the same ids, special tokens included, if SentencePiece can hold it.

    :returns: False, with nothing written, unless the tokenizer is Unigram with Metaspace and without bytes, and its
        text is normalised by a table alone.
    """
    description = json.loads(tokenizer.to_str())
    tokenizer.no_padding()
    model, around = description["model"], tokenizer.encode("").ids
    normalizers = _steps(description["normalizer"], "normalizers")
    splitters = [step["type"] for step in _steps(description["pre_tokenizer"], "pretokenizers")]
    known = {step["type"] for step in normalizers} <= {"Precompiled", "Replace", "Strip"}
    is_unigram = model["type"] == "Unigram" and not model.get("byte_fallback") and model.get("unk_id") is not None
    if not (is_unigram and known and splitters[-1:] == ["Metaspace"] and len(around) == 2):
        return False

    from sentencepiece import sentencepiece_model_pb2

    # the pieces in the order of their ids
    written = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]  # the module makes it when imported
    special = {token["id"] for token in description["added_tokens"] if token["special"]}
    for number, (piece, score) in enumerate(model["vocab"]):
        kind = _UNKNOWN if number == model["unk_id"] else _CONTROL if number in special else _NORMAL
        written.pieces.add(piece=piece, score=score, type=kind)
    first, last = around
    names = {"unk": model["unk_id"], "bos": first, "eos": last}
    for name, number in names.items():
        setattr(written.trainer_spec, f"{name}_id", number)
        setattr(written.trainer_spec, f"{name}_piece", model["vocab"][number][0])
    written.trainer_spec.pad_id = -1
    written.trainer_spec.model_type = _UNIGRAM
    written.trainer_spec.vocab_size = len(model["vocab"])
    # the table of characters, and a blank in front of each word
    tables = [step["precompiled_charsmap"] for step in normalizers if step["type"] == "Precompiled"]
    written.normalizer_spec.precompiled_charsmap = base64.b64decode(tables[0]) if tables else b""
    written.normalizer_spec.add_dummy_prefix = True
    written.normalizer_spec.remove_extra_whitespaces = True
    written.normalizer_spec.escape_whitespaces = True
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(written.SerializeToString())
    return True


def count_equal(file: Path, texts: Sequence[str], expected: Sequence[Sequence[int]]) -> int:
    """Count the texts that SentencePiece gives the expected token ids.

    :param texts: with the prefix.
    :param expected: ids with the special tokens around, perhaps truncated.
    """
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(file))
    equal = 0
    for text, ids in zip(texts, expected, strict=True):
        found = processor.encode(text)[: len(ids) - 2]
        equal += [processor.bos_id(), *found, processor.eos_id()] == list(ids)
    return equal


def _steps(entry: Mapping[str, Any] | None, parts: str) -> Sequence[Mapping[str, Any]]:
    """List the steps of a normalizer or pre-tokenizer, which may be a sequence."""
    if entry is None:
        return []
    steps: Sequence[Mapping[str, Any]] = entry[parts] if entry["type"] == "Sequence" else [entry]
    return steps
