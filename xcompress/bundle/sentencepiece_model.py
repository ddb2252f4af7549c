"""A Unigram vocabulary as a SentencePiece model.

ExecuTorch's C++ tokenizers load such models, but no tokenizer.json with a Unigram vocabulary. In Python, SentencePiece
takes a sixth of the time and a quarter of the memory of the tokenizers library.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from xcompress.tokenizer_file import SCORE_STEPS, SPACE, steps_of, tokenizer_to_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_XLM_R_TABLE = "0942789e0111452f1cc446f70036e26d24458c3c7858c53cc12ca4d87531279b"
"""SHA-256 of the table by which XLM-R and its relatives normalise characters (NFKC, with exceptions)."""
_ONE_SPACE = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
_SIMPLE = (
    "\t\n !-;=-~"  # ASCII without <, with which special tokens begin
    "\xa0-\xa7\xa9-\xae\xb0-\xb3\xb5-\xb7\xb9-\u02d7\u1e00-\u1eff"  # Latin
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386-\u0482\u048a-\u0530\u05d0-\u05ea"  # Greek, Cyrillic, Hebrew
    "\u060c\u061b\u061f\u0621-\u0652\u0660-\u066d\u0671-\u0674\u0679-\u06d5"  # Arabic
    "\u2010-\u2016\u2018-\u2027\u202f-\u203d\u20a0-\u20bf\u2100-\u22ff\u25a0-\u25ff"  # punctuation and signs
    "\u3001-\u3011\u3041-\u3096\u30a1-\u30fe\u4e00-\u9fff\uac00-\ud7a3\uff01-\uff60"  # East Asia
)
"""Characters that both libraries normalise one by one, as they do not combine with what precedes them."""
_UNUSUAL = re.compile(rf"[^{_SIMPLE}]")
_OTHER = re.compile(rf"{_UNUSUAL.pattern}|(?<![\u0621-\u0652])[\u064b-\u0652]|\s\Z")
"""What only the tokenizers library reads as it does: other characters, vowel signs after anything but Arabic letters,
and a space at the end."""
_LONGEST, _GROWTH = 1_050, 4
"""Characters of a text, and how many normalising makes of one: float32 adds up exactly the scores of so many tokens."""
_UNKNOWN_PENALTY = 10
"""An unknown character scores this below the rarest token, in both libraries."""


class SentencePieceTokenizer:
    """Tokenizes with SentencePiece.

    :param file: a file of `write_sentencepiece`. If `is_exact` holds for the tokenizer, the ids of a text that `reads`
        are those of tokenizer.json.
    :raises ImportError: when sentencepiece is not installed.
    :raises RuntimeError: when it cannot read the file.
    """

    def __init__(self, file: Path) -> None:
        import sentencepiece

        self._processor = sentencepiece.SentencePieceProcessor(model_file=str(file))

    def reads(self, text: str) -> bool:
        """Tell whether a text has the same ids here."""
        return len(text) <= _LONGEST and _OTHER.search(text) is None

    def token_ids(self, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """Return the token ids of texts, with the special tokens around them, truncated to `max_tokens`."""
        first, last = self._processor.bos_id(), self._processor.eos_id()
        try:
            sequences: list[list[int]] = self._processor.encode(list(texts), num_threads=1)
        except RuntimeError:  # no thread can start, of which a list takes one
            sequences = [self._processor.encode(text) for text in texts]
        return [[first, *ids[: max_tokens - 2], last] for ids in sequences]


def is_exact(tokenizer: "Tokenizer") -> bool:
    """Tell whether `SentencePieceTokenizer` has the same ids as a tokenizer, for the texts that it reads.

    The tokenizer must normalise by XLM-R's table, put `<s>` and `</s>` or others around a text, split it at spaces
    only, and have scores that are multiples of 1 / `SCORE_STEPS`, so that ties are broken alike.
    """
    description = tokenizer_to_json(tokenizer)
    model = description["model"]
    if model["type"] != "Unigram" or model.get("byte_fallback") or model.get("unk_id") is None:
        return False
    # normalisation, and splitting at spaces
    table, *others = list(steps_of(description["normalizer"])) or [{"type": None}]
    characters = base64.b64decode(table["precompiled_charsmap"]) if table["type"] == "Precompiled" else b""
    is_table = hashlib.sha256(characters).hexdigest() == _XLM_R_TABLE
    *before, splitter = list(steps_of(description["pre_tokenizer"])) or [{"type": None}]
    marks_words = splitter["type"] == "Metaspace" and splitter.get("prepend_scheme", "always") == "always"
    is_split = (others, [step["type"] for step in before]) in (([_ONE_SPACE], []), ([], ["WhitespaceSplit"]))
    if not (is_table and marks_words and splitter.get("split", True) and is_split):
        return False
    # tokens: none continues after a space, and no text that is read here holds an added token, even once normalised
    added = description["added_tokens"]
    names = [token["content"] for token in added]
    names += [tokenizer.normalizer.normalize_str(token["content"]) for token in added if token["normalized"]]
    if any(SPACE in token[1:] for token, _ in model["vocab"]) or not all(map(_UNUSUAL.search, names)):
        return False
    around = tokenizer.encode("", add_special_tokens=True).ids
    word = tokenizer.encode("a", add_special_tokens=True).ids
    if len(around) != 2 or len(word) < 3 or [word[0], word[-1]] != around or max(around) >= len(model["vocab"]):
        return False
    # sums of scores are exact in float32, which has 24 bits
    scores = [score for _, score in model["vocab"]]
    largest = (max(map(abs, scores)) + _UNKNOWN_PENALTY) * _LONGEST * _GROWTH * SCORE_STEPS
    return largest < 2**24 and all((score * SCORE_STEPS).is_integer() for score in scores)


def beyond_sentencepiece(tokenizer: "Tokenizer") -> str | None:
    """Return what `write_sentencepiece` cannot write, in a few words; None where it can write the tokenizer.

    A SentencePiece model holds a Unigram vocabulary with Metaspace and without bytes, whose text is normalised by a
    table alone, and which puts one token before and one after a text.
    """
    description = tokenizer_to_json(tokenizer)
    model = description["model"]
    normalizers = [step["type"] for step in steps_of(description["normalizer"])]
    splitters = [step["type"] for step in steps_of(description["pre_tokenizer"])]
    others = [kind for kind in normalizers if kind not in ("Precompiled", "Replace", "Strip")]
    tokenizer.no_padding()
    problems = {
        f"a vocabulary of {model['type']}": model["type"] != "Unigram",
        "byte fallback": bool(model.get("byte_fallback")),
        "a vocabulary without an unknown token": model.get("unk_id") is None,
        f"the normalizer {', '.join(others)}": bool(others),
        f"the pre-tokenizer {', '.join(splitters) or 'null'}": splitters[-1:] != ["Metaspace"],
        "other special tokens than one before and one after a text": len(tokenizer.encode("").ids) != 2,
    }
    return next((problem for problem, is_there in problems.items() if is_there), None)


def write_sentencepiece(tokenizer: "Tokenizer", file: Path) -> None:
    """Write the vocabulary with the same ids, special tokens included.

    :param tokenizer: not `beyond_sentencepiece`.
    """
    description = tokenizer_to_json(tokenizer)
    tokenizer.no_padding()
    model, around = description["model"], tokenizer.encode("").ids

    from sentencepiece import sentencepiece_model_pb2

    # the pieces in the order of their ids
    written = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]  # the module makes it when imported
    kinds = written.SentencePiece
    special = {token["id"] for token in description["added_tokens"] if token["special"]}
    for number, (piece, score) in enumerate(model["vocab"]):
        kind = kinds.UNKNOWN if number == model["unk_id"] else kinds.CONTROL if number in special else kinds.NORMAL
        written.pieces.add(piece=piece, score=score, type=kind)
    first, last = around
    names = {"unk": model["unk_id"], "bos": first, "eos": last}
    for name, number in names.items():
        setattr(written.trainer_spec, f"{name}_id", number)
        setattr(written.trainer_spec, f"{name}_piece", model["vocab"][number][0])
    written.trainer_spec.pad_id = -1
    written.trainer_spec.model_type = written.trainer_spec.UNIGRAM
    written.trainer_spec.vocab_size = len(model["vocab"])
    # the table of characters, and a blank in front of each word
    steps = steps_of(description["normalizer"])
    tables = [step["precompiled_charsmap"] for step in steps if step["type"] == "Precompiled"]
    written.normalizer_spec.precompiled_charsmap = base64.b64decode(tables[0]) if tables else b""
    written.normalizer_spec.add_dummy_prefix = True
    written.normalizer_spec.remove_extra_whitespaces = True
    written.normalizer_spec.escape_whitespaces = True
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(written.SerializeToString())
