"""Score the released models again on the built-in graded pairs, after these have changed, and renew their cards.

    python benchmarks/release/rescore.py

Scores on other sets, which this needs no data for, stay as they are. Graphs and tokenizers stay as they are, too.
"""

import argparse
from pathlib import Path
from typing import Any

from provenance import Table, read_table, table_file
from release import add_origins, cosine_shares, score_on, write_release

from xcompress.bench.eval import collect
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.manifest import read_manifest
from xcompress.bundle.released import MODELS, released_names
from xcompress.console import say


def main() -> None:
    """Rescore every released model."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    table = read_table(table_file())
    for name in released_names():
        for test in rescore(MODELS / name, table):
            say(f"{name}: {test['test']}, {test['rows']} rows, {test['averages']}")


def rescore(folder: Path, table: Table) -> list[dict[str, Any]]:
    """Replace what the card and the manifest of a model say of the built-in pairs; return the scores."""
    manifest = read_manifest(folder)
    facts = manifest["release"]
    renewed = add_origins(score_on(folder, collect(None, list(manifest["languages"]))), table)
    by_name = {test["test"]: test for test in renewed}
    scores = [by_name.get(test["test"], test) for test in facts["scores"]]
    write_release(folder, folder, {**facts, "scores": scores, "cosines": cosine_shares(Encoder(folder))})
    return renewed


if __name__ == "__main__":
    main()
