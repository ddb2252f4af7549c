"""Measure how the preparation of training data grows with the number of pairs.

    python benchmarks/scale.py run --pairs 1000000 10000000 [--folder FOLDER] [--results scale.json] [--steps NAME ...]
    python benchmarks/scale.py step NAME FOLDER PAIRS
    python benchmarks/scale.py report scale.json
    python benchmarks/scale.py distinct --pairs 1000000 10000000
    python benchmarks/scale.py start

`run` prepares generated pairs of two languages, each step in a process of its own that may have 256 descriptors open,
and adds the figures of each step to the results. `step` runs one step in a process that you start, and prints its
figures. `report` prints the figures a million pairs, fits a straight line to each step, and says from it what a billion
pairs take. `distinct` compares three ways to find the first of equal numbers. `start` says from how many pairs on a
second process is worth its start.

The teacher is a stand-in that computes a vector of 32 numbers from the length of a text: an encoder's own time is the
number of different sentences over its speed.
"""

import argparse
import json
import os
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from measuring import in_fresh_process
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xcompress.bench import memory
from xcompress.bundle.released import released_folder
from xcompress.console import emit, emit_json, markdown_table, run_script
from xcompress.corpus.build import Gathered, LanguageLines, build
from xcompress.corpus.clean import Cleaner, RawChunk
from xcompress.corpus.columns import BLOCK, ColumnFile, part_bits, partition
from xcompress.corpus.filters import Limits
from xcompress.corpus.pairs import Pair, as_line
from xcompress.corpus.sequences import ConcatSequence, DistinctTexts
from xcompress.corpus.split import split
from xcompress.corpus.store import PairFile, write_lines
from xcompress.distillation.data.batches import PairBatches, draw
from xcompress.distillation.data.labels import TextName, VectorTable
from xcompress.distillation.data.sentences import SIDES, Sentences
from xcompress.distillation.data.tokens import write_tokens
from xcompress.distillation.teachers.vectors import StoredVectors, VectorStore
from xcompress.errors import InputError, XCompressError
from xcompress.files import read_json, size_of
from xcompress.metrics import Encode
from xcompress.modeling.student import StudentConfig
from xcompress.processes import map_in_order

LANGUAGES = ("de", "fr")
DESCRIPTORS = 256
"""Descriptors that a step may have open."""
WIDTH = 32
"""Numbers in a vector of the stand-in for the teacher."""
BATCH, BATCHES = 64, 1000
TOKENIZER = "tiny"
"""The released model whose tokenizer is used."""
START_LINES = 10_000
POOL = 10_007
WORDS = [f"{first}{middle}{last}" for first in "bdfgk" for middle in "aeiou" for last in ("la", "mo", "ni", "ru", "st")]
WAYS = ("parts on disk (xcompress)", "unique of numpy", "is_first_distinct of polars")
COLUMNS: Mapping[str, Callable[[Mapping[str, Any], float], str]] = {
    "user CPU s a million": lambda row, millions: f"{row['user'] / millions:.1f}",
    "of this, main thread": lambda row, millions: f"{row['main_thread'] / millions:.1f}",
    "s a million": lambda row, millions: f"{row['seconds'] / millions:.1f}",
    "peak MB": lambda row, _: f"{row['memory'] / 1e6:.0f}",
    "without files": lambda row, _: f"{row['own_memory'] / 1e6:.0f}",
    "MB of a child": lambda row, _: f"{row['child_memory'] / 1e6:.0f}" if row["child_memory"] else "",
    "descriptors": lambda row, _: f"{row['descriptors']}",
    "maps": lambda row, _: f"{row['maps']}",
    "files": lambda row, _: f"{row['files']}",
    "MB of disk a million": lambda row, millions: f"{row['bytes'] / millions / 1e6:.0f}",
}
"""Figures of a step in the report, from its row and the millions of pairs."""
SAMPLED_EVERY = 0.2
"""Seconds between two looks at the open descriptors and memory maps."""


def made_up_sentences() -> list[str]:
    """Return sentences of 4 to 20 words, the same ones each time."""
    generator = np.random.default_rng(1)
    lengths = generator.integers(4, 20, POOL)
    return [" ".join(WORDS[word] for word in generator.integers(0, len(WORDS), length)) for length in lengths]


def generated(language: str, count: int) -> Iterator[bytes]:
    """Yield pairs of made-up sentences as lines; one in fifty has the English sentence before it.

    All languages translate the same English sentences.
    """
    pool = made_up_sentences()
    for number in range(count):
        number -= number % 50 == 49
        target = f"{pool[(7 * number + 1) % POOL]} {language} {number}"
        yield as_line(Pair(f"{pool[number % POOL]} {number}", target, "", ""))


def build_corpus(folder: Path, count: int, processes: int = 1) -> None:
    """Read, filter, tell apart, split and write pairs."""
    tables = [(folder / f"{name}.tsv", name, name) for name in LANGUAGES]
    build(folder / "built", [], tables, LANGUAGES, processes=processes)


def tell_apart(folder: Path, count: int) -> None:
    """Drop duplicates and choose the hold-out by random numbers, as they are hashes of text in a corpus."""
    gathered, generator = Gathered(folder), np.random.default_rng(1)
    for language in LANGUAGES:
        lines = gathered.languages[language] = LanguageLines(folder / f"{language}.numbers")
        english = np.random.default_rng(2)
        for start in range(0, count // 2, BLOCK):
            numbers = np.zeros(min(BLOCK, count // 2 - start), lines.all.dtype)
            numbers["source"] = english.integers(0, 2**63, len(numbers), np.uint64) * np.uint64(2)
            numbers["key"] = numbers["source"]
            numbers["key"][49::50] = numbers["key"][48:-1:50]  # duplicates of the pair before
            numbers["target"] = generator.integers(0, 2**63, len(numbers), np.uint64) * np.uint64(2)
            lines.all.append(numbers)
    gathered.found, gathered.count = {"": 0}, count
    gathered.drop_duplicates()
    split({language: gathered.languages[language].kept for language in LANGUAGES}, 1000, folder)


def write_pairs(folder: Path, count: int) -> None:
    """Write the pairs of a corpus, their offsets and their hashes."""
    for language in LANGUAGES:
        write_lines(folder / f"{language}.pairs", generated(language, count // 2))


def open_pairs(folder: Path) -> tuple[Sequence[Pair], NDArray[np.int64]]:
    """Open the pairs, and draw all of them."""
    files = [PairFile(folder / f"{language}.pairs", language) for language in LANGUAGES]
    ends = np.cumsum([0, *map(len, files)])
    return ConcatSequence(files), draw([np.arange(*bounds) for bounds in pairwise(ends)], int(ends[-1]), seed=1)


def stand_in() -> Encode:
    """Return a function from texts to vectors that takes next to no time."""
    ramp = np.linspace(0, 1, WIDTH, dtype=np.float32)
    return lambda texts: np.outer(np.fromiter(map(len, texts), np.float32, len(texts)), ramp)


def find_vectors(folder: Path, count: int) -> VectorTable:
    """Find the vectors of both sides of all pairs, and compute them where there are none."""
    pairs, rows = open_pairs(folder)

    def encode(texts: DistinctTexts, store: VectorStore) -> StoredVectors:
        return store.vectors("stand-in", "stand-in", texts, stand_in)

    texts: dict[TextName, Sequence[str]] = {side: Sentences(pairs, side, rows) for side in SIDES}
    return VectorTable.compute(texts, encode, VectorStore(folder / "vectors"))


def read_vectors(folder: Path, count: int) -> None:
    """Find the vectors, and read those of random pairs."""
    table = find_vectors(folder, count)
    labels, generator = [table.labels(side) for side in SIDES], np.random.default_rng(1)
    for _ in range(BATCHES):
        rows = generator.integers(0, len(labels[0].rows), BATCH).tolist()
        for side in labels:
            side.take(rows)


def tokenize(folder: Path, count: int) -> None:
    """Tokenise both sides of all pairs as a run does, in the order of the files."""
    tokenizer = Tokenizer.from_file(str(released_folder(TOKENIZER) / "tokenizer.json"))
    pairs, rows = open_pairs(folder)
    config = StudentConfig(vocab_size=tokenizer.get_vocab_size(), pad_token_id=tokenizer.token_to_id("<pad>"))
    write_tokens(folder / "tokens", pairs, np.sort(rows), tokenizer, config)


def read_batches(folder: Path, count: int) -> None:
    """Collate batches of random pairs, tokens and vectors, as a training stage does."""
    _, rows = open_pairs(folder)
    labels = {"teacher_sources": find_vectors(folder, count).labels("source")}
    batches, generator = PairBatches(folder / "tokens", labels, pad_token_id=0, rows=rows), np.random.default_rng(1)
    for _ in range(BATCHES):
        batches(generator.integers(0, len(rows), BATCH).tolist())


STEPS: Mapping[str, Callable[[Path, int], object]] = {
    "corpus built from text": build_corpus,
    "the same by two processes": partial(build_corpus, processes=2),
    "of this, told apart and split": tell_apart,
    "pairs written and indexed": write_pairs,
    "vectors computed": find_vectors,
    "vectors found again": find_vectors,
    "vectors found, and 1,000 batches read": read_vectors,
    "both sides tokenised": tokenize,
    "vectors found, and 1,000 batches with tokens read": read_batches,
}
FROM_TEXT = {"corpus built from text", "the same by two processes"}
"""Steps that read files of text."""


class Watch:
    """The open descriptors and the memory maps of this process at most, and its peak memory, from now on."""

    def __init__(self) -> None:
        self.descriptors = self.maps = self.own_memory = 0
        self._done = threading.Event()
        memory.reset_peak()
        self._bare, self._own_bare = memory.peak(), memory.status_bytes("RssAnon")
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> dict[str, float]:
        """Return the figures."""
        self._done.set()
        self._thread.join()
        figures: dict[str, float] = {"memory": memory.peak() - self._bare, "own_memory": self.own_memory}
        return figures | {"descriptors": self.descriptors, "maps": self.maps}

    def _sample(self) -> None:
        while True:
            self.descriptors = max(self.descriptors, len(list(Path("/proc/self/fd").iterdir())) - 1)
            with Path("/proc/self/maps").open("rb") as stream:
                self.maps = max(self.maps, sum(1 for _ in stream))
            self.own_memory = max(self.own_memory, memory.status_bytes("RssAnon") - self._own_bare)
            if self._done.wait(SAMPLED_EVERY):
                return


def measure_step(name: str, place: str, count: int) -> dict[str, float]:
    """Run a step in this process and folder; return its figures."""
    folder = Path(place)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    watch, started, before, of_thread = Watch(), time.monotonic(), os.times(), time.thread_time()
    STEPS[name](folder, count)
    seconds, after, of_thread = time.monotonic() - started, os.times(), time.thread_time() - of_thread
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    user = after.user + after.children_user - before.user - before.children_user
    files = [path for path in folder.rglob("*") if path.is_file()]
    figures = {"seconds": seconds, "user": user, "main_thread": of_thread, "child_memory": child}
    return figures | watch.stop() | {"files": len(files), "bytes": size_of(folder)}


def run(count: int, folder: Path, steps: Sequence[str]) -> Iterator[dict[str, object]]:
    """Yield the figures of each step on `count` pairs, or its error."""
    if not FROM_TEXT.isdisjoint(steps):
        for language in LANGUAGES:
            with (folder / f"{language}.tsv").open("wb") as stream:
                stream.writelines(generated(language, count // 2))
    for step in steps:
        figures: Mapping[str, object]
        try:
            figures = in_fresh_process(measure_step, step, folder, count)
        except XCompressError as error:
            figures = {"error": str(error)}
        emit(f"{count:,} pairs, {step}: {figures}")
        yield {"pairs": count, "step": step, **figures}


def report(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the figures, and one of the straight lines fitted to them."""
    measured, fitted = [], []
    for step in STEPS:
        of_step = sorted((row for row in rows if row["step"] == step), key=lambda row: int(row["pairs"]))
        for row in of_step:
            millions = row["pairs"] / 1e6
            cells = [row["error"]] if "error" in row else [cell(row, millions) for cell in COLUMNS.values()]
            measured.append([step, f"{millions:g}", *cells])
        good = [row for row in of_step if "error" not in row]
        if len(good) > 1:
            pairs = np.array([row["pairs"] / 1e6 for row in good])
            cells = [step]
            for name in ("user", "seconds"):
                slope, start = np.polyfit(pairs, [row[name] for row in good], 1)
                cells += [f"{start:.1f} + {slope:.2f} x", f"{(start + 1000 * slope) / 3600:.1f}"]
            growth, memory = np.polyfit(pairs, [row["memory"] / 1e6 for row in good], 1)
            fitted.append([*cells, f"{memory:.0f} + {growth:.1f} x", f"{(memory + 1000 * growth) / 1e3:.1f}"])
    lines = ["step", "user CPU s, x million pairs", "h for a billion", "s on the clock", "h for a billion"]
    lines += ["peak MB, x million pairs", "GB for a billion"]
    return f"{markdown_table(['step', 'million pairs', *COLUMNS], measured)}\n\n{markdown_table(lines, fitted)}"


def measure_start() -> str:
    """Return what it costs to start a process that filters text, and how many pairs take as long."""

    def user(processes: int, chunks: Sequence[RawChunk]) -> float:
        before = os.times()
        list(map_in_order(partial(Cleaner, Limits(), 0), chunks, processes, "start"))
        after = os.times()
        return after.user + after.children_user - before.user - before.children_user

    lines = list(generated("de", START_LINES))
    start, filtered = user(2, [RawChunk()] * 2) / 2, user(1, [RawChunk((), lines)]) / START_LINES
    pairs = start / (filtered / 2)  # the second process saves half of the time
    return (
        f"start of a process {start:.2f} s of CPU, a pair {filtered * 1e6:.0f} us: two pay off from {pairs:,.0f} pairs"
    )


def compare_distinct(count: int) -> str:
    """Return a table of the ways to find the first of equal numbers, each in a fresh process."""
    rows = []
    for way in WAYS:
        figures = in_fresh_process(measure_way, way, count)
        rows.append([way, f"{count / 1e6:g}", f"{figures['user']:.1f}", f"{figures['memory'] / 1e6:.0f}"])
    return markdown_table(["way", "million numbers", "user CPU s", "peak MB"], rows)


def measure_way(way: str, count: int) -> dict[str, float]:
    """Find the first of equal numbers in one way, in this process."""
    import polars

    with tempfile.TemporaryDirectory() as folder:
        file = ColumnFile(Path(folder) / "numbers", np.dtype(np.uint64))
        generator = np.random.default_rng(1)
        for start in range(0, count, BLOCK):
            file.append(generator.integers(0, 2**63, min(BLOCK, count - start), np.uint64))
        watch, before = Watch(), os.times()
        if way == WAYS[0]:
            for numbers, _ in partition(file.blocks, part_bits(count), Path(folder) / "scratch"):
                np.unique(numbers, return_index=True)
        elif way == WAYS[1]:
            np.unique(np.fromfile(file.path, np.uint64), return_index=True)
        else:
            polars.Series(np.fromfile(file.path, np.uint64)).is_first_distinct()
        return {"user": os.times().user - before.user, **watch.stop()}


def main() -> None:
    """Run the steps, or print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("--pairs", type=int, nargs="+", default=[1_000_000])
    runs.add_argument("--folder", type=Path, default=None, help="where temporary files go, 2 GB a million pairs")
    runs.add_argument("--results", type=Path, default=Path("scale.json"))
    runs.add_argument("--steps", nargs="+", choices=list(STEPS), default=list(STEPS))
    step = commands.add_parser("step")
    step.add_argument("name", choices=list(STEPS))
    step.add_argument("folder", type=Path)
    step.add_argument("count", type=int)
    commands.add_parser("report").add_argument("file", type=Path)
    commands.add_parser("distinct").add_argument("--pairs", type=int, nargs="+", default=[1_000_000, 10_000_000])
    commands.add_parser("start")
    options = parser.parse_args()
    if options.command == "step":
        emit_json(measure_step(options.name, options.folder, options.count))
    elif options.command == "start":
        emit(measure_start())
    elif options.command == "report":
        emit(report(read_json(options.file)))
    elif options.command == "distinct":
        for count in options.pairs:
            emit(compare_distinct(count))
    else:
        run_all(options.pairs, options.folder, options.steps, options.results)


def run_all(counts: Sequence[int], parent: Path | None, steps: Sequence[str], results: Path) -> None:
    """Run the steps for each number of pairs, and add their figures to a file."""
    if parent and not parent.is_dir():
        raise InputError(f"{parent}: no such folder; make it, or correct --folder")
    rows = read_json(results) if results.exists() else []
    for count in counts:
        with tempfile.TemporaryDirectory(dir=parent) as folder:
            for row in run(count, Path(folder), steps):
                rows.append(row)
                results.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run_script(main)
