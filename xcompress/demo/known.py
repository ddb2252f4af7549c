"""Which tokenizers the page's script can do: it refuses the others, so they are refused before a folder is written."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from xcompress.errors import InputError

KNOWN: Mapping[str, AbstractSet[str]] = {
    "normalizer": {
        "Sequence",
        "Precompiled",
        "Replace",
        "Prepend",
        "Strip",
        "Lowercase",
        "StripAccents",
        "NFC",
        "NFD",
        "NFKC",
        "NFKD",
        "BertNormalizer",
    },
    "pre_tokenizer": {
        "Sequence",
        "Whitespace",
        "WhitespaceSplit",
        "BertPreTokenizer",
        "Punctuation",
        "Digits",
        "Split",
        "Metaspace",
        "ByteLevel",
    },
    "model": {"Unigram", "WordPiece", "BPE", "WordLevel"},
    "post_processor": {"Sequence", "TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel"},
}
"""The parts of tokenizer.json and their kinds, as page/tokenizer/ has them."""
_LISTS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors"}


def check_tokenizer(file: Path, described: Mapping[str, Any]) -> None:
    """Refuse a tokenizer that the page could not do.

    :param file: its tokenizer.json, for the message.
    :param described: what is in it.
    :raises InputError: naming the first part that is not known.
    """
    for part, kinds in KNOWN.items():
        for kind in _kinds(part, described.get(part)):
            if kind not in kinds:
                raise InputError(
                    f"{file}: its {part} is {kind}, which the demo's page cannot do "
                    f"(it can do {', '.join(sorted(kinds))}); choose another bundle with --model"
                )


def _kinds(part: str, described: Mapping[str, Any] | None) -> Iterator[str]:
    if described is None:
        return
    yield str(described.get("type"))
    for inner in described.get(_LISTS.get(part, ""), ()):
        yield from _kinds(part, inner)
