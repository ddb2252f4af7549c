"""Measure the memory of the training data loader on millions of sentence pairs.

    python benchmarks/streaming.py [--pairs 5000000] [--batches 20000] [--folder FOLDER]

Writes synthetic pairs, their tokens and random float16 labels to files in a temporary folder (about 6 GB), then draws
batches from all of them as a training stage does. Prints the growth of resident memory after each step: in total, and
without pages of mapped files, which the system takes back when memory is short.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from scale import POOL, WORDS, made_up_sentences
from tokenizers import Tokenizer, models, pre_tokenizers

from xcompress.bench import memory
from xcompress.console import run_script, table, tracked
from xcompress.corpus.pairs import Pair, as_line
from xcompress.corpus.store import PairFile, write_lines
from xcompress.distillation.data.batches import PairBatches, draw
from xcompress.distillation.data.labels import VectorLabels
from xcompress.distillation.data.sentences import Sentences, distinct
from xcompress.distillation.data.tokens import write_tokens
from xcompress.distillation.teachers.vector_file import VectorFile
from xcompress.distillation.teachers.vectors import StoredVectors
from xcompress.errors import InputError
from xcompress.files import size_of
from xcompress.modeling.student import StudentConfig

WIDTH = 384
CHUNK = 500_000
BATCH = 32


def synthetic(count: int) -> Iterator[bytes]:
    """Yield pairs of made-up sentences as lines; a number makes each pair different."""
    pool = made_up_sentences()
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


def main() -> None:
    """Measure in a temporary folder, and remove it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5_000_000)
    parser.add_argument("--batches", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, default=None, help="a folder with 6 GB of free space")
    options = parser.parse_args()
    if options.folder and not options.folder.is_dir():
        raise InputError(f"{options.folder}: no such folder; make it, or correct --folder")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        _measure(Path(folder), options.pairs, options.batches)


def _measure(folder: Path, count: int, batches: int) -> None:
    """Run the steps of the loader, and print the memory after each."""
    config = StudentConfig(vocab_size=len(WORDS) + 1)
    rows_of_table: list[tuple[str, ...]] = []
    before, clock = _resident(), time.monotonic()

    def done(step: str) -> None:
        nonlocal clock
        growth = (f"{(now - then) / 1e6:.0f} MB" for now, then in zip(_resident(), before, strict=True))
        rows_of_table.append((step, f"{time.monotonic() - clock:.0f} s", *growth))
        clock = time.monotonic()

    write_lines(folder / "pairs.tsv", synthetic(count))
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
    for _ in tracked(range(batches), "batches"):
        loader(list(islice(order, BATCH)))
    done(f"{batches:,} batches of {BATCH} pairs")
    title = f"{count:,} pairs, {size_of(folder) / 1e9:.1f} GB of files: growth of resident memory"
    table(title, ("after", "time", "in total", "without pages of files"), rows_of_table)


def _resident() -> tuple[int, int]:
    """Return the resident bytes of this process, and those that are no pages of files."""
    return memory.resident(), memory.status_bytes("RssAnon")


if __name__ == "__main__":
    run_script(main)
