"""Score the released models again, after the built-in graded pairs or tokenizers have changed, and renew their cards.

    python benchmarks/release/rescore.py [--data DIR]

Scores on sets that are neither built in nor in DIR stay as they are, among them those on translations that a run held
out. Sets in DIR that the card has no scores of are added. Graphs stay as they are. Tokenizers are packed as
`release.py` does.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from provenance import Table, read_table, table_file
from release import add_origins, cosine_shares, score_on, write_release

from xcompress.bench.eval import collect
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.manifest import read_manifest
from xcompress.bundle.released import MODELS, released_names
from xcompress.console import run_script, say


def main() -> None:
    """Rescore every released model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with dev sets, as in `bench --data`")
    data = parser.parse_args().data
    table = read_table(table_file())
    for name in released_names():
        for test in rescore(MODELS / name, table, data):
            say(f"{name}: {test['test']}, {test['rows']} rows, {test['averages']}")


def rescore(folder: Path, table: Table, data: Path | None = None) -> list[dict[str, Any]]:
    """Replace what the card and the manifest of a model say of the built-in pairs and of dev sets; return the scores.

    :param data: folder with dev sets; default: none.
    :raises InputError: when `data` cannot be read, or has a set that the table does not list; nothing is written then.
    """
    manifest = read_manifest(folder)
    evaluation = collect(data, manifest["languages"])
    with TemporaryDirectory() as scratch:
        packed = write_release(folder, Path(scratch) / folder.name, manifest["release"])  # with a packed tokenizer
        renewed = add_origins(score_on(packed, evaluation), table)
        scores = {test["test"]: test for test in (*manifest["release"]["scores"], *renewed)}
        facts = {**manifest["release"], "scores": list(scores.values()), "cosines": cosine_shares(Encoder(packed))}
        write_release(packed, folder, facts)
    return renewed


if __name__ == "__main__":
    run_script(main)
