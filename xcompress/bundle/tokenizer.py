"""The tokenizer of a bundle, and batches of texts of similar length; needs tokenizers, and takes sentencepiece too."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xcompress
from xcompress.batches import group_by_length
from xcompress.bundle.cached import cached_folder
from xcompress.bundle.manifest import inside
from xcompress.bundle.native_calls import native_call
from xcompress.bundle.sentencepiece_model import SentencePieceTokenizer, is_exact, write_sentencepiece
from xcompress.errors import InputError, short_repr
from xcompress.files import check_json_size, explain_read_error
from xcompress.tokenizer_file import LONGEST_TEXT, clean, encode_batch, id_range, read_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BATCH_TOKENS = 1024
"""Maximum number of tokens of a batch, padding included. Memory grows with it. With 4,096, onnxruntime took a fifth
more time for texts of mixed lengths, and OpenVINO as long."""
_TEXTS_AT_ONCE = 10_000
"""Number of texts that are tokenized before they are sorted into batches."""
_CHARACTERS_AT_ONCE = 2_000_000
"""Characters of such texts that are given to the tokenizer: it takes about 35 bytes for each."""
_CHARACTERS_PER_TOKEN = 8
_SENTENCEPIECE = "tokenizer.model"


class BundleTokenizer:
    """Tokenizes texts into the token ids that a bundle's graph takes.

    Where SentencePiece has the same ids, it is used: it is quicker and smaller. Its model is made when tokenizer.json
    is first opened, and stays in the cache. tokenizer.json itself is then parsed for other texts alone, as it was when
    the bundle was opened: its file may have been replaced or removed since.

    :param folder: folder of the bundle.
    :param manifest: its manifest, from `read_manifest`.
    :raises InputError: when tokenizer.json is missing, cannot be read, or gives ids or lengths that the graph cannot
        take.
    """

    @native_call()  # a process that is forked while another thread has the lock of `tokenizer` would wait for it
    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        self.pad_token_id = int(manifest["pad_token_id"])
        self._prefix, self._max_tokens = manifest["prefix"], manifest["max_tokens"]
        self._checked_prompt = self._prefix  # by the export; later the last prompt, which most calls repeat
        self._file, self._manifest = inside(folder, "tokenizer.json"), manifest
        if not self._file.is_file():
            raise InputError(f"{self._file}: no such file; export the bundle again")
        with explain_read_error(self._file):
            check_json_size(self._file)
            self._content = self._file.read_bytes()
        self._sentencepiece = self._open_sentencepiece()
        if self._sentencepiece is None:
            _ = self.tokenizer  # refuse now what does not fit the graph
            self._content = b""  # is parsed, and may be large

    @cached_property
    def tokenizer(self) -> "Tokenizer":
        """The tokenizer of tokenizer.json, with truncation to `max_tokens` and without padding."""
        return _open_tokenizer(self._content, self._file, self._manifest)

    def token_ids(self, texts: Sequence[str], prompt: str | None = None) -> list[list[int]]:
        """Return the token ids of each text, with prefix and special tokens, truncated to `max_tokens`.

        A prompt replaces the prefix. A text without tokens gets one token of padding. Only the start of a long text is
        tokenized, and more of it if the start does not fill the sequence.
        """
        sequences: list[list[int]] = [[]] * len(texts)
        pending, width = list(range(len(texts))), self._max_tokens * _CHARACTERS_PER_TOKEN
        while pending:
            too_short = []
            for start, heads in text_steps([_head(texts[row], width) for row in pending], by_characters=True):
                rows = pending[start : start + len(heads)]
                for row, head, ids in zip(rows, heads, self._ids(heads, prompt), strict=True):
                    sequences[row] = ids or [self.pad_token_id]
                    if len(sequences[row]) < self._max_tokens and len(head) < min(len(texts[row]), LONGEST_TEXT):
                        too_short.append(row)
            pending, width = too_short, 8 * width
        return sequences

    @native_call()
    def _ids(self, texts: Sequence[str], prompt: str | None) -> list[list[int]]:
        """Return the token ids of each text, by SentencePiece if it can."""
        texts = self._with_prompt(texts, prompt)
        fast = self._sentencepiece
        is_simple = [fast is not None and fast.reads(text) for text in texts]
        simple = list(compress(texts, is_simple))
        others = [text for text, is_read in zip(texts, is_simple, strict=True) if not is_read]
        fast_ids = iter(fast.token_ids(simple, self._max_tokens) if fast is not None else ())
        # without others, tokenizer.json is not even parsed
        other_ids = (encoding.ids for encoding in (encode_batch(self.tokenizer, others, self._file) if others else ()))
        return [next(fast_ids if is_read else other_ids) for is_read in is_simple]

    @native_call()
    def windows(self, texts: Sequence[str], prompt: str | None = None) -> list[list[list[int]]]:
        """Return the token ids of each text in windows of at most `max_tokens`, each with its special tokens.

        The prefix, or the prompt that replaces it, stands in the first window. Of each text the first `LONGEST_TEXT`
        characters are read.
        """
        whole = self._with_prompt([text[:LONGEST_TEXT] for text in texts], prompt)
        return [
            [window.ids or [self.pad_token_id] for window in (encoding, *encoding.overflowing)]
            for encoding in encode_batch(self.tokenizer, whole, self._file)
        ]

    def check_prompt(self, prompt: str) -> None:
        """Check that a prompt leaves room for a text that is cut.

        :raises InputError: when it leaves none.
        """
        if prompt == self._checked_prompt:
            return
        if len(self.token_ids([""], prompt)[0]) >= self._max_tokens:
            raise InputError(
                f"the prompt fills all {self._max_tokens} tokens of a text, so all vectors would be the same; give a "
                "shorter one"
            )
        self._checked_prompt = prompt

    def _with_prompt(self, texts: Sequence[str], prompt: str | None) -> list[str]:
        prompt = self._prefix if prompt is None else prompt
        return [prompt + clean(text) for text in texts]

    def _open_sentencepiece(self) -> SentencePieceTokenizer | None:
        """Open the SentencePiece model in the cache, and make it if there is none; None where its ids would differ."""

        def make(place: Path) -> None:
            # An empty folder says that the ids would differ.
            if is_exact(self.tokenizer):
                write_sentencepiece(self.tokenizer, place / _SENTENCEPIECE)

        # Another version may decide and write otherwise.
        facts = [xcompress.__version__]
        facts += [str(self._manifest.get(key)) for key in ("max_tokens", "vocab_size", "pad_token_id")]
        folder = cached_folder("tokenizers", "-".join([sha256(self._content).hexdigest(), *facts]), make)
        if folder is None or not (folder / _SENTENCEPIECE).is_file():
            return None
        try:
            return SentencePieceTokenizer(folder / _SENTENCEPIECE)
        except (ImportError, OSError, RuntimeError):  # sentencepiece is missing, or refuses a token
            return None


def list_texts(function: str, texts: str | Iterable[str]) -> list[str]:
    """Return the texts that a function of this name was given, as a list.

    :raises InputError: when they are no texts.
    """
    if isinstance(texts, str):
        return [texts]
    kind = type(texts).__name__
    if isinstance(texts, bytes | bytearray | memoryview):
        raise InputError(f"{function}: texts are {kind}; decode them first: texts.decode('utf-8')")
    try:
        items: Iterator[str] | None = iter(texts)
    except TypeError:
        items = None
    # Tables of pandas yield the names of their columns, and those of polars and pyarrow the columns.
    dimensions = len(getattr(texts, "shape", (1,)))
    if items is not None and dimensions != 1:
        raise InputError(f"{function}: texts are {kind} of {dimensions} dimensions; give one column, as in df['text']")
    if items is None or isinstance(texts, Mapping):
        raise InputError(f"{function}: texts are {kind}; give a string or a list of strings")
    sentences = list(items)  # outside the block above: what the user's generator raises is no matter of types
    for number, sentence in enumerate(sentences):
        if not isinstance(sentence, str):
            what = f"{short_repr(sentence)} ({type(sentence).__name__})"  # "nan" says more than "float"
            raise InputError(f"{function}: item {number} is {what}, not str; give a list of strings")
    return sentences


def text_steps(texts: Sequence[str], *, by_characters: bool) -> Iterator[tuple[int, Sequence[str]]]:
    """Cut texts into steps of at most `_TEXTS_AT_ONCE`; yield the number of the first text of each, and its texts.

    :param by_characters: limit the characters of a step of several texts, too.
    """
    start = size = 0
    for row, text in enumerate(texts):
        size += len(text)
        if row > start and (row - start == _TEXTS_AT_ONCE or (by_characters and size > _CHARACTERS_AT_ONCE)):
            yield start, texts[start:row]
            start, size = row, len(text)
    if start < len(texts):
        yield start, texts[start:]


def batches_by_length(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Yield rows of similar length: at most `batch_size` rows and `_BATCH_TOKENS` tokens, padding included."""
    return group_by_length(lengths, lambda tokens: min(batch_size, _BATCH_TOKENS // tokens))


def _head(text: str, width: int) -> str:
    """Return the longest start of a text, of at most `width` characters, that ends before a space; else nothing.

    The tokens of the head are the first tokens of the whole text: tokenizers of sentence encoders split at spaces, or
    have no token that continues after a space, and normalizers look only at a character and its combining marks. So if
    the head fills the sequence, the rest of the text cannot change it. The head ends in a letter or digit, because
    other characters may become spaces, and several spaces one token.
    """
    if len(text) <= width or width >= LONGEST_TEXT:
        return text[:LONGEST_TEXT]
    end = text.rfind(" ", 0, width + 1)
    while end > 0 and not text[end - 1].isalnum():
        end = text.rfind(" ", 0, end)
    return text[: max(end, 0)]


def _open_tokenizer(content: bytes, file: Path, manifest: Mapping[str, Any]) -> "Tokenizer":
    """Open the content of tokenizer.json and refuse a tokenizer whose ids or lengths the graph cannot take."""
    tokenizer = read_tokenizer(file, content, "export the bundle again")
    max_tokens, cut = manifest["max_tokens"], (tokenizer.truncation or {}).get("max_length")
    if max_tokens != (cut or max_tokens) or max_tokens <= tokenizer.num_special_tokens_to_add(False):
        raise InputError(
            f"{file}: truncates at {cut} tokens, manifest.json says max_tokens {max_tokens}; export the bundle again"
        )
    highest = max(id_range(tokenizer) - 1, manifest["pad_token_id"])
    vocab_size = manifest.get("vocab_size", highest + 1)
    if highest >= vocab_size:
        raise InputError(
            f"{file}: has ids up to {highest}, manifest.json says vocab_size {vocab_size}; export the bundle again"
        )
    pad_token_id, padding = manifest["pad_token_id"], tokenizer.padding or {}
    if pad_token_id != padding.get("pad_id", pad_token_id):
        raise InputError(
            f"{file}: pads with {padding['pad_id']}, manifest.json says pad_token_id {pad_token_id}; "
            "export the bundle again"
        )
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens)
    return tokenizer
