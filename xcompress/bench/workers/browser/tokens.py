"""Text to token ids outside the browser, exactly as the bundle's own encoder does it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from xcompress.bundle.encoder import clean
from xcompress.bundle.manifest import inside, read_manifest
from xcompress.errors import InputError

BATCH_TOKENS = 32 * 128
"""Most tokens of a batch, padding included, as in `xcompress.bundle.encoder`."""
_LONGEST = 100_000
"""Characters of a text that are read."""


class Tokens:
    """A bundle's tokenizer, without a session of its graph.

    :raises InputError: when the folder is no bundle or its tokenizer cannot be read.
    """

    def __init__(self, bundle: Path) -> None:
        manifest = read_manifest(bundle)
        self.pad = int(manifest["pad_token_id"])
        self._prefix = str(manifest["prefix"])
        file = inside(bundle, "tokenizer.json")
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # tokenizers raises nothing more precise
            raise InputError(f"{file}: not a tokenizer ({error}); export the bundle again") from error
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(manifest["max_tokens"])

    def of(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, special tokens included, and one of padding where there are none."""
        given = [self._prefix + clean(text[:_LONGEST]) for text in texts]
        return [encoding.ids or [self.pad] for encoding in self._tokenizer.encode_batch_fast(given)]


def by_length(sequences: Sequence[Sequence[int]], batch_size: int) -> Iterator[list[int]]:
    """Yield rows of like length in batches, as the bundle's encoder forms them: an int8 vector depends on its batch."""
    batch: list[int] = []
    for row in sorted(range(len(sequences)), key=lambda row: len(sequences[row])):
        if batch and (len(batch) == batch_size or (len(batch) + 1) * len(sequences[row]) > BATCH_TOKENS):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
