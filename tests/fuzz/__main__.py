"""Run all of it: `python -m tests.fuzz [share]` writes benchmarks/reliability.md."""

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pytest import MonkeyPatch
from tokenizers import Tokenizer

from tests.fuzz.folders import change_manifests, change_models, cut_files, flip_bits
from tests.fuzz.inputs import encode_texts, load_recipes, read_corpora, run_command_lines
from tests.fuzz.processes import kill_distill, kill_embed, kill_export, send_requests
from tests.fuzz.tally import FAILED, Tally
from tests.helpers import ROOT
from tests.helpers.export import use_little_text
from tests.helpers.recipe import write_recipe
from tests.helpers.student import bundle, make_student, save_student
from xcompress import Encoder
from xcompress.bundle.released import released_folder
from xcompress.export.exporter import export

PAGE = ROOT / "benchmarks/reliability.md"
SHARE = 0.02
"""What of each job runs with the other tests, if that is an attempt or more."""


class Job(NamedTuple):
    """A kind of attempts."""

    count: int
    attempt: Callable[[Path, int], Tally]
    """Runs as many attempts as it is told in an empty folder."""
    starts_processes: bool = False


JOBS = {
    "texts": Job(
        100_000, lambda folder, count: encode_texts(fast_encoder(folder), "with the tokenizer of tiny", count)
    ),
    "tiny": Job(4_000, lambda _, count: encode_texts(Encoder(released_folder("tiny"), threads=1), "by tiny", count)),
    "flips": Job(10_000, lambda folder, count: flip_bits(folder, bundle(), count)),
    "cuts": Job(2_000, lambda folder, count: cut_files(folder, bundle(), count)),
    "manifests": Job(2_000, lambda folder, count: change_manifests(folder, bundle(), count)),
    "models": Job(2_000, lambda folder, count: change_models(folder, save_student(folder / "student"), count)),
    "recipes": Job(5_000, load_recipes),
    "commands": Job(1_000, run_command_lines),
    "corpora": Job(1_000, read_corpora),
    "embed": Job(70, lambda folder, count: kill_embed(folder, bundle(), count), True),
    "export": Job(15, lambda folder, count: kill_export(folder, save_student(folder / "student"), count), True),
    "distill": Job(15, lambda folder, count: kill_distill(folder, write_recipe(folder / "recipe"), count), True),
    "requests": Job(1_000, send_requests, True),
}
HEAD = """# Random and damaged input

Written by `make fuzz`, which repeats all of it with the same seeds. Each attempt must end with a right result, or with
an error of one printable line; tests/fuzz/ says what is right. A fiftieth of it runs in `make test`,
but for killed exports and distillations.

| attempts | number | how they ended | failed | seconds |
|---|--:|---|--:|--:|
"""


def fast_encoder(folder: Path) -> Encoder:
    """Export a small random student with the tokenizer of the released model `tiny`."""
    tokenizer = Tokenizer.from_file(str(released_folder("tiny") / "tokenizer.json"))
    tokenizer.no_padding()
    student = make_student(vocab_size=tokenizer.get_vocab_size())
    (folder / "fast").mkdir()
    student.save(folder / "fast", tokenizer)
    with MonkeyPatch.context() as monkeypatch:
        use_little_text(monkeypatch)
        return Encoder(export(folder / "fast"), threads=1)


def run(name: str, share: float = 1) -> Tally:
    """Run a share of a job in a folder of its own."""
    job = JOBS[name]
    with TemporaryDirectory() as folder:
        return job.attempt(Path(folder), math.ceil(job.count * share))


def check_share(name: str) -> None:
    """Run the share of a job that belongs to the other tests, and check that every attempt ends well."""
    tally = run(name, SHARE)
    assert not tally.failures, "\n".join(tally.failures)
    assert tally.attempts >= SHARE * JOBS[name].count


def main() -> None:
    """Run all jobs, or those named; after all of them, write the page. Exit with 1 if anything failed."""
    rows, failures = [], []
    for name in sys.argv[1:] or JOBS:
        started = time.monotonic()
        tally = run(name)
        seconds = time.monotonic() - started
        ends = ", ".join(f"{count:,} {end}" for end, count in tally.counts.most_common() if end != FAILED)
        rows.append(f"| {tally.title} | {tally.attempts:,} | {ends} | {tally.counts[FAILED]} | {seconds:.0f} |\n")
        failures += tally.failures
        sys.stdout.write(rows[-1])
        sys.stdout.flush()
    if not sys.argv[1:]:
        PAGE.write_text(HEAD + "".join(rows), encoding="utf-8")
    sys.exit("\n".join(failures) or 0)


if __name__ == "__main__":
    main()
