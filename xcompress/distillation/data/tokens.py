"""Token ids of pairs, in memory-mapped files: written once for all stages of a run, and read by row.

A pair of n tokens takes n ids of 2 bytes, or of 4 where the vocabulary has more than 65,536 tokens, and 16 bytes of
offsets: two sentences of 25 tokens take 116 or 216 bytes, about as much as their text. Each pair is in the files once,
however many stages and epochs read it; where none reads it, it is left out, unless most are read.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xcompress import __version__
from xcompress.console import bar
from xcompress.corpus.columns import Rows, growing_npy
from xcompress.corpus.pairs import Pair
from xcompress.distillation import distributed
from xcompress.distillation.data.sentences import SIDES, Sentences
from xcompress.distillation.run_folder import Run
from xcompress.files import drop_pages
from xcompress.modeling.student import StudentConfig, token_ids

Ids = NDArray[np.int32]
"""Token ids of a sentence."""
CHUNK = 8192
"""Texts that are tokenised at a time."""
BYTES_OF_OFFSETS = 16
"""For each pair, in the files of both sides."""
MOST_READ = 0.5
"""Where stages read a larger share of the pairs, all are tokenised: then a change of the stages changes no token."""


def id_type(vocabulary: int) -> np.dtype[Any]:
    """Return the type in which the ids of a vocabulary are written."""
    return np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.uint32)


class TokenFile:
    """Token ids of one side of N pairs in memory-mapped files: `<name>.npy`, and `<name>.offsets.npy`, (N + 1)."""

    def __init__(self, folder: Path, name: str) -> None:
        self.ids = np.load(folder / f"{name}.npy", mmap_mode="r")
        self.offsets = np.load(folder / f"{name}.offsets.npy", mmap_mode="r")

    def __getitem__(self, row: int) -> Ids:
        """Return the ids of a sentence."""
        return np.asarray(self.ids[self.offsets[row] : self.offsets[row + 1]], np.int32)

    def take(self, rows: Rows) -> tuple[Ids, Rows]:
        """Return the ids of n sentences, one after the other, and the length of each, (n,)."""
        lengths: Rows = self.offsets[rows + 1] - self.offsets[rows]
        in_batch = np.cumsum(lengths) - lengths
        places = np.arange(lengths.sum()) + np.repeat(self.offsets[rows] - in_batch, lengths)
        return self.ids[places].astype(np.int32), lengths

    def release(self) -> None:
        """Release the memory of what was read."""
        drop_pages(self.ids)
        drop_pages(self.offsets)


def tokens_step(
    run: Run,
    name: str,
    text: str | None,
    pairs: Sequence[Pair],
    stages: Iterable[Rows],
    tokenizer: Tokenizer,
    config: StudentConfig,
) -> tuple[Path, Rows]:
    """Tokenise the pairs that the stages of a run read, or reuse their tokens. All workers must call it.

    :param name: of the step.
    :param text: key of the step that wrote the pairs.
    :param stages: rows of `pairs` that each stage reads.
    :returns: the folder of the tokens, and the rows of the pairs in it, in ascending order.
    """
    is_read = np.zeros(len(pairs), np.bool_)
    for of_stage in stages:
        is_read[of_stage] = True
    rows = np.flatnonzero(is_read | (is_read.mean() > MOST_READ))
    tokenizer.no_padding()
    tokenizer.enable_truncation(config.max_tokens)
    key = {
        "version": __version__,
        "text": text,
        "rows": "all" if len(rows) == len(pairs) else hashlib.sha256(rows.tobytes()).hexdigest(),
        "tokenizer": hashlib.sha256(tokenizer.to_str().encode()).hexdigest(),
        "max_tokens": config.max_tokens,
        "prefix": config.prefix,
        "pad_token_id": config.pad_token_id,
        "vocabulary": config.vocab_size,
    }
    return run.step(name, key, partial(_build, pairs, rows, tokenizer, config)).folder, rows


def _build(
    pairs: Sequence[Pair], rows: Rows, tokenizer: Tokenizer, config: StudentConfig, folder: Path
) -> dict[str, int]:
    """Tokenise a share of the pairs on each host, and put the shares together in the main process.

    :param folder: that of the step, in the main process.
    """
    hosts = distributed.hosts()
    if distributed.is_main():
        write_tokens(folder, pairs, rows, tokenizer, config)
    elif distributed.rank() in hosts:
        with distributed.own_work():
            for side in SIDES:
                host = hosts.index(distributed.rank())
                distributed.send(tokenise(Sentences(pairs, side, rows), tokenizer, config, host, len(hosts)))
    return {"pairs": len(rows)}


def tokenise(
    texts: Sequence[str], tokenizer: Tokenizer, config: StudentConfig, host: int = 0, hosts: int = 1
) -> Iterator[tuple[NDArray[Any], Rows]]:
    """Yield the ids of texts, chunk by chunk, one text after the other, and the length of each text.

    :param host: number of this host, which tokenises one in `hosts` chunks. The tokenizer uses all of its cores.
    """
    for start in range(host * CHUNK, len(texts), hosts * CHUNK):
        tokens = token_ids(tokenizer, texts[start : start + CHUNK], config)
        ids = np.fromiter(chain.from_iterable(tokens), id_type(config.vocab_size))
        yield ids, np.array([len(of_text) for of_text in tokens])


@contextmanager
def _token_writer(folder: Path, name: str, dtype: np.dtype[Any]) -> Iterator[Callable[[NDArray[Any], Rows], None]]:
    """Yield a function that appends sentences to a new `TokenFile`: their ids, joined, and the length of each."""
    with (
        growing_npy(folder / f"{name}.npy", dtype) as append_ids,
        growing_npy(folder / f"{name}.offsets.npy", np.dtype(np.int64)) as append_offsets,
    ):
        end = np.zeros(1, np.int64)
        append_offsets(end)

        def append(ids: NDArray[Any], lengths: Rows) -> None:
            nonlocal end
            append_ids(ids)
            offsets = end + np.cumsum(lengths)
            append_offsets(offsets)
            end = offsets[-1:]

        yield append


def write_tokens(folder: Path, pairs: Sequence[Pair], rows: Rows, tokenizer: Tokenizer, config: StudentConfig) -> None:
    """Write the tokens of both sides of some pairs into a folder; those of other hosts are received."""
    folder.mkdir(parents=True, exist_ok=True)
    with bar("tokens: texts", len(SIDES) * len(rows)) as ticker:
        for side in SIDES:
            own = tokenise(Sentences(pairs, side, rows), tokenizer, config, 0, len(distributed.hosts()))
            with _token_writer(folder, f"{side}s", id_type(config.vocab_size)) as append:
                for ids, lengths in distributed.in_turns(own):
                    append(ids, lengths)
                    ticker.advance(len(lengths))
