"""Measure the memory of the training data loader on millions of sentence pairs.

    python benchmarks/streaming.py [--pairs 5000000] [--batches 20000] [--folder FOLDER]

Writes synthetic pairs, their tokens and random float16 labels to files in a temporary folder (about 6 GB), then draws
batches from all of them as a training stage does. Prints the growth of resident memory after each step: in total, and
without pages of mapped files, which the system takes back when memory is short.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import psutil
from tokenizers import Tokenizer, models, pre_tokenizers

from xcompress.console import bar, run_script, table
from xcompress.corpus.pairs import Pair, as_line
from xcompress.corpus.store import PairFile, write_lines
from xcompress.distillation.data.batches import PairBatches, draw
from xcompress.distillation.data.labels import VectorLabels
from xcompress.distillation.data.sentences import Sentences, distinct
from xcompress.distillation.data.tokens import write_tokens
from xcompress.distillation.teachers.vector_file import VectorFile
from xcompress.distillation.teachers.vectors import StoredVectors
from xcompress.errors import InputError
from xcompress.modeling.student import StudentConfig

WORDS = [f"{first}{middle}{last}" for first in "bdfgk" for middle in "aeiou" for last in ("la", "mo", "ni", "ru", "st")]
WIDTH = 384
CHUNK = 500_000
POOL = 10_007
BATCH = 32


def synthetic(count: int) -> Iterator[bytes]:
    """Yield pairs of made-up sentences of 4 to 20 words as lines; a number makes each pair different."""
    generator = np.random.default_rng(1)
    lengths = generator.integers(4, 20, POOL)
    pool = [" ".join(WORDS[word] for word in generator.integers(0, len(WORDS), length)) for length in lengths]
    for number in range(count):
        yield as_line(Pair(f"{pool[number % POOL]} {number}", pool[(7 * number + 1) % POOL], "xx", ""))


def tokenizer() -> Tokenizer:
    """Return a tokenizer for the made-up words."""
    vocabulary = {word: row for row, word in enumerate(["<unk>", *WORDS])}
    word_tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    word_tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return word_tokenizer


def write_labels(folder: Path, count: int) -> StoredVectors:
    """Write random vectors in the format of the teacher's."""
    generator = np.random.default_rng(1)
    block = generator.normal(size=(min(CHUNK, count), WIDTH)).astype(np.float16)
    file = VectorFile(folder, count, CHUNK)
    file.settle("random", "random")
    for number in file.blocks:
        file.write(number, block[: len(file.rows(number))], 0)
    file.settle("random", "random")
    return StoredVectors(file.open())


class Memory:
    """The growth of resident memory since this object was made, step by step."""

    def __init__(self) -> None:
        self.process = psutil.Process(os.getpid())
        self.start = self._now()
        self.rows: list[tuple[str, ...]] = []

    def _now(self) -> tuple[int, int]:
        info = self.process.memory_info()
        return info.rss, info.rss - info.shared

    def record(self, step: str, seconds: float) -> None:
        """Add a row to the table."""
        growth = [now - before for now, before in zip(self._now(), self.start, strict=True)]
        self.rows.append((step, f"{seconds:.0f} s", *(f"{value / 1e6:.0f} MB" for value in growth)))


def main() -> None:
    """Measure in a temporary folder, and remove it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5_000_000)
    parser.add_argument("--batches", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, default=None, help="a folder with 6 GB of free space")
    options = parser.parse_args()
    if options.folder and not options.folder.is_dir():
        raise InputError(f"{options.folder}: no such folder; make it, or correct --folder")
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        _measure(folder, options.pairs, options.batches)
    finally:
        shutil.rmtree(folder)


def _measure(folder: Path, count: int, batches: int) -> None:
    """Run the steps of the loader, and print the memory after each."""
    config = StudentConfig(vocab_size=len(WORDS) + 1)
    memory = Memory()
    clock = time.monotonic()

    def done(step: str) -> None:
        nonlocal clock
        memory.record(step, time.monotonic() - clock)
        clock = time.monotonic()

    with bar("pairs written", count) as ticker:
        write_lines(folder / "pairs.tsv", _advance_with(synthetic(count), ticker.advance))
    done("pairs written")
    pairs = PairFile(folder / "pairs.tsv", "xx")
    rows = draw([np.arange(len(pairs))], count, seed=1)
    done("pairs opened and drawn")
    texts, places = distinct(Sentences(pairs, "source", rows), folder)
    done(f"{len(texts):,} distinct sentences found")
    write_tokens(folder / "tokens", pairs, rows, tokenizer(), config)
    done("both sides tokenised")
    labels = VectorLabels(write_labels(folder / "labels", len(texts)), places)
    loader = PairBatches(folder / "tokens", {"teacher_sources": labels}, pad_token_id=0, rows=np.arange(len(rows)))
    done("labels written")
    order = iter(np.random.default_rng(1).permutation(len(loader)).tolist())
    with bar("batches", batches) as ticker:
        for _ in range(batches):
            loader(list(islice(order, BATCH)))
            ticker.advance()
    done(f"{batches:,} batches of {BATCH} pairs")
    sizes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    title = f"{count:,} pairs, {sizes / 1e9:.1f} GB of files: growth of resident memory"
    table(title, ("after", "time", "in total", "without pages of files"), memory.rows)


def _advance_with(lines: Iterator[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the lines, and advance the progress bar every 10,000."""
    for number, line in enumerate(lines, 1):
        if number % 10_000 == 0:
            advance(10_000)
        yield line


if __name__ == "__main__":
    run_script(main)
