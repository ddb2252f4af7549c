"""Put a bundle into the package as a released model, with a card that says what it is and how to make it again.

    python benchmarks/release.py runs/release --name small --data DIR
    python benchmarks/release.py runs/release --name tiny --data DIR --bundle runs/release/bundle-r2

Scores the bundle's smaller graph on the dev sets in DIR, on the built-in graded pairs and on the run's held-out
translations; takes what the run read from its manifest, and licences from recipes/release.data.yaml; writes
xcompress/models/<name>, and checks it: hashes, sizes (small 24 MB, tiny 10), what fits in the package. The float32
graph and the student's weights stay in the run. Exit code 2: something is missing or not listed; 3: too large.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xcompress.bench.eval import collect
from xcompress.bench.results import Accuracy
from xcompress.bundle.encoder import Encoder, Vectors
from xcompress.bundle.manifest import read_manifest
from xcompress.bundle.released import MODELS
from xcompress.console import Ticker, bar, emit, fail, say, warn
from xcompress.errors import XCompressError
from xcompress.export.provenance import Table, read_table, table_file
from xcompress.export.release import describe_scores, release_facts, write_release
from xcompress.files import size_of

AT_ONCE = 512
"""Sentences between two steps of the progress bar."""


def main() -> None:
    """Score, copy, write the card, check."""
    asked = _arguments()
    bundle = asked.bundle or asked.run / "bundle"
    try:
        table = read_table(asked.table)
        facts = release_facts(asked.run, bundle, table, name=asked.name, recipe=asked.recipe)
        scores = _scores(asked.run, bundle, asked.data, table)
        folder = write_release(bundle, asked.into / asked.name, {**facts, "scores": scores})
    except XCompressError as error:
        fail(str(error))
        sys.exit(error.exit_code)
    say(f"{folder}: {size_of(folder) / 1e6:.1f} MB")
    emit(str(folder / "README.md"))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--name", required=True, help="of the released model: small or tiny")
    parser.add_argument("--data", type=Path, required=True, help="folder with dev sets, as of `bench --data`")
    parser.add_argument("--bundle", type=Path, help="RUN/bundle when not given")
    parser.add_argument("--recipe", help="shipped recipe that trained it; the run's name when not given")
    parser.add_argument("--table", type=Path, default=table_file(), help="licences; recipes/release.data.yaml")
    parser.add_argument("--into", type=Path, default=MODELS, help="folder of released models")
    return parser.parse_args()


def _scores(run: Path, bundle: Path, data: Path, table: Table) -> list[dict[str, Any]]:
    """Score what a released model opens, on dev sets alone; sets that the table does not know are refused."""
    exam = collect(data, list(read_manifest(bundle)["languages"]), run=run, split="dev")
    for note in exam.notes:
        warn(note)
    sentences = exam.sentences()
    encoder = Encoder(bundle)
    with bar("sentences scored on", len(sentences)) as ticker:
        vectors = [_encoded(encoder, part, ticker) for part in _parts(sentences)]
    return describe_scores([_plain(one) for one in exam.evaluate(sentences, np.concatenate(vectors))], table)


def _parts(sentences: Sequence[str]) -> Iterator[Sequence[str]]:
    return (sentences[start : start + AT_ONCE] for start in range(0, len(sentences), AT_ONCE))


def _encoded(encoder: Encoder, sentences: Sequence[str], ticker: Ticker) -> Vectors:
    vectors = encoder.encode(sentences)
    ticker.advance(len(sentences))
    return vectors


def _plain(one: Accuracy) -> dict[str, Any]:
    return {
        "test": one.test,
        "metric": one.metric,
        "rows": one.rows,
        "figures": {key: round(figure.value, 2) for key, figure in one.figures.items()},
        "averages": {key: round(figure.value, 2) for key, figure in one.averages.items()},
    }


if __name__ == "__main__":
    main()
