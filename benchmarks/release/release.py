"""Put a bundle into the package as a released model, with a card that says what it is and how to make it again.

    python benchmarks/release/release.py runs/release --name small --data DIR
    python benchmarks/release/release.py runs/release --name tiny --data DIR --bundle runs/release/bundle-r2

Scores the bundle's smaller graph on the dev sets in DIR, on the built-in graded pairs and on the run's held-out
translations. Takes the training text from the run's manifest and the licences from recipes/release.data.yaml. Writes
xcompress/models/<name> and checks its hashes and sizes (small 24 MB, tiny 10 MB, the package 40 MB). The float32
graph and the student's weights stay in the run. Exit code 2: something is missing or not listed; 3: too large.
"""

import argparse
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
from card import released_card
from numpy.typing import NDArray
from provenance import (
    Table,
    differences,
    export_command,
    find_entry,
    models_of_runs,
    read_table,
    table_file,
    text_of_runs,
    with_text_of_export,
)

from xcompress.bench.eval import collect
from xcompress.bench.eval.task import EvalSuite
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.integrity import check_bundle, external_files
from xcompress.bundle.manifest import CARD, MANIFEST, graphs_of, list_files, read_manifest, write_manifest
from xcompress.bundle.released import MODELS
from xcompress.console import bar, emit, run_script, say, warn
from xcompress.corpus.graded import PART, builtin
from xcompress.errors import GateError, InputError
from xcompress.files import megabytes, read_json, size_of, whole_folder, write_text
from xcompress.metrics import cosine_matrix
from xcompress.recipe import Recipe, load_recipe
from xcompress.recipe.lineage import lineage
from xcompress.vocab.tokenizer_json import round_scores

MODEL_BYTES = {"small": 24_000_000, "tiny": 10_000_000}
"""Most bytes on disk of a model with this name, all files together."""
PACKAGE_BYTES = 40_000_000
"""Most bytes of the package."""
CODE_BYTES = 2_000_000
"""Bytes of these that are left for everything but models."""
DECIMALS = 4
"""Of a score in the manifest. Pages round it once more, to one: 76.145 would become 76.2 by way of 76.15."""
ENCODED_AT_ONCE = 512
"""Sentences between two steps of the progress bar."""


def main() -> None:
    """Score the bundle, copy it, write its card, check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--name", required=True, help="name of the released model: small or tiny")
    parser.add_argument("--data", type=Path, required=True, help="folder with dev sets, as in `bench --data`")
    parser.add_argument("--bundle", type=Path, help="by default RUN/bundle")
    parser.add_argument("--recipe", help="shipped recipe that trained the model; by default the run's name")
    parser.add_argument("--table", type=Path, default=table_file(), help="licences; recipes/release.data.yaml")
    parser.add_argument("--into", type=Path, default=MODELS, help="folder of the released models")
    arguments = parser.parse_args()
    bundle = arguments.bundle or arguments.run / "bundle"
    table = read_table(arguments.table)
    facts = release_facts(arguments.run, bundle, table, name=arguments.name, recipe=arguments.recipe)
    scores = score_bundle(bundle, arguments.run, arguments.data, table)
    facts = {**facts, "scores": scores, "cosines": cosine_shares(Encoder(bundle))}
    folder = write_release(bundle, arguments.into / arguments.name, facts)
    say(f"{folder}: {megabytes(size_of(folder))}")
    emit(str(folder / CARD))


def release_facts(run: Path, bundle: Path, table: Table, *, name: str, recipe: str | None = None) -> dict[str, Any]:
    """Describe what a bundle was made from and how to make it again.

    :param run: the run that trained the student.
    :param recipe: the shipped recipe that trained it; by default the one with the run's name.
    :raises InputError: when the bundle is not the run's, or its text, models or recipe are not in the table.
    """
    run_manifest, manifest = read_json(run / MANIFEST), read_manifest(bundle)
    for key in ("recipe_hash", "student_hash"):
        if manifest.get(key) != run_manifest.get(key):
            raise InputError(
                f"{bundle}: {key} is {manifest.get(key)}, {run} has {run_manifest.get(key)}; export it again"
            )
    run_recipe = load_recipe(run / "recipe.yaml")
    shipped_name = recipe or run_recipe.name
    *earlier, _ = runs = lineage(run)
    folder = f"runs/{run_recipe.name}"
    release_command = ["python benchmarks/release/release.py", folder, f"--name {name}"]
    if bundle.name != "bundle":
        release_command.append(f"--bundle {folder}/{bundle.name}")
    if shipped_name != run_recipe.name:
        release_command.append(f"--recipe {shipped_name}")
    return {
        "name": name,
        "licence": table.licence,
        "recipe": shipped_name,
        "recipe_hash": run_manifest["recipe_hash"],
        "finished": run_manifest.get("finished"),
        "commands": [
            *(_distill_command(load_recipe(earlier_run / "recipe.yaml")) for earlier_run in earlier),
            _distill_command(run_recipe, shipped_name),
            export_command(folder, bundle, manifest.get("options", {})),
            " ".join([*release_command, "--data DIR"]),
        ],
        "text": with_text_of_export(text_of_runs(runs, table), manifest.get("options", {}), table),
        "models": models_of_runs(runs, table),
        "limits": list(table.limits),
    }


def _distill_command(recipe: Recipe, shipped_name: str | None = None) -> str:
    shipped_name = shipped_name or recipe.name
    changes = map(quote, differences(shipped_name, recipe))
    return " ".join(["xcompress distill", f"recipes/{shipped_name}.yaml", *changes])


def score_bundle(bundle: Path, run: Path, data: Path, table: Table) -> list[dict[str, Any]]:
    """Score the graph that a bundle opens by default, on dev sets only.

    :raises InputError: when the table does not list a set.
    """
    evaluation = collect(data, read_manifest(bundle)["languages"], run=run)
    for note in evaluation.notes:
        warn(note)
    return add_origins(score_on(bundle, evaluation), table)


def score_on(bundle: Path, evaluation: EvalSuite) -> list[dict[str, Any]]:
    """Score the graph that a bundle opens by default; return a mapping for each test, as the manifest has it."""
    sentences = evaluation.sentences()
    encoder = Encoder(bundle)
    vectors = []
    with bar("sentences scored on", len(sentences)) as ticker:
        for start in range(0, len(sentences), ENCODED_AT_ONCE):
            vectors.append(encoder.encode(sentences[start : start + ENCODED_AT_ONCE]))
            ticker.advance(len(vectors[-1]))
    return [
        {
            "test": accuracy.test,
            "metric": accuracy.metric,
            "rows": accuracy.rows,
            "figures": {key: round(figure.value, DECIMALS) for key, figure in accuracy.figures.items()},
            "averages": {key: round(figure.value, DECIMALS) for key, figure in accuracy.averages.items()},
        }
        for accuracy in evaluation.summarize(evaluation.score(sentences, np.concatenate(vectors)))
    ]


def add_origins(scores: Sequence[Mapping[str, Any]], table: Table) -> list[dict[str, Any]]:
    """Add title, source and licence to each test.

    :param scores: tests with `test`, `metric`, `rows`, `figures` by language pair and `averages`.
    :raises InputError: when the table does not list a test.
    """
    with_origins = []
    for test in scores:
        entry = find_entry(table.dev, test["test"].partition(PART)[0])  # a part has its set's entry
        if entry is None:
            raise InputError(f"{test['test']}: the table of dev sets has no such entry; add title, source and licence")
        with_origins.append({**test, **entry.model_dump()})
    return with_origins


def cosine_shares(encoder: Encoder) -> dict[str, dict[str, float]]:
    """Return how many cosines of built-in sentences lie in each interval of 0.1, in % of their kind.

    :returns: by interval, then `translations` and `other sentences`; empty for a bundle without such languages.
    """
    pairs = builtin().language_pairs
    english = pairs["en-en"].first
    rows = [english.index(text) for text in dict.fromkeys(english)]  # each sentence once
    sources = encoder.encode([english[row] for row in rows])
    same = np.eye(len(rows), dtype=bool)
    cosines: dict[str, list[NDArray[np.float32]]] = {"translations": [], "other sentences": []}
    for language in encoder.languages:
        if language != "en" and f"{language}-{language}" in pairs:
            translated = pairs[f"{language}-{language}"].first
            matrix = cosine_matrix(sources, encoder.encode([translated[row] for row in rows]))
            cosines["translations"].append(matrix[same])
            cosines["other sentences"].append(matrix[~same])
    if not cosines["translations"]:
        return {}
    edges = np.linspace(-1, 1, 21)
    shares = {kind: np.histogram(np.concatenate(values).clip(-1, 1), edges)[0] for kind, values in cosines.items()}
    return {
        f"{edge:.1f} to {edge + 0.1:.1f}": {
            kind: round(100 * int(counts[number]) / int(counts.sum()), 2) for kind, counts in shares.items()
        }
        for number, edge in enumerate(edges[:-1])
    }


def write_release(bundle: Path, target: Path, facts: Mapping[str, Any]) -> Path:
    """Copy a bundle with only the graph that it opens by default, and write the card of a released model.

    :param target: the model's folder, replaced as a whole; the folders beside it are the other released models.
    :param facts: the manifest's entry `release`.
    :raises InputError: when the bundle is not as its manifest says.
    :raises GateError: when it, or all released models together, are too large.
    """
    manifest = read_manifest(bundle)
    graphs = graphs_of(bundle, manifest)
    precision = manifest.get("precision", next(iter(graphs), None))
    if precision not in graphs:
        raise InputError(f"{bundle}: its graph in {precision} is missing; export the bundle again")
    graph = graphs[precision]
    check_bundle(bundle, manifest, graph)
    with whole_folder(target) as folder:
        kept = {graph, *external_files(bundle, graph)}
        for name in manifest["files"]:
            if name in kept or not name.startswith("onnx/"):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(bundle / name, folder / name)
        pack_tokenizer(folder / "tokenizer.json")
        dropped = ("files", "graphs", "dev")
        manifest = {key: value for key, value in manifest.items() if key not in dropped}
        manifest |= {"graphs": {precision: graph}, "release": dict(facts)}
        write_text(folder / CARD, released_card(manifest | {"files": list_files(folder)}))
        write_manifest(folder, manifest | {"files": list_files(folder)})
        check_bundle(folder, read_manifest(folder), everything=True)
        Encoder(folder).encode("A sentence.")
        _check_sizes(folder, target)
    return target


def pack_tokenizer(file: Path) -> None:
    """Write a tokenizer's JSON without the spaces, line ends and digits that take more than half of the file.

    Scores of Unigram tokens are rounded as those of every student, which a run of an older version did not do.
    """
    tokenizer_json = round_scores(json.loads(file.read_text(encoding="utf-8")))
    write_text(file, json.dumps(tokenizer_json, ensure_ascii=False, separators=(",", ":")))


def _check_sizes(folder: Path, target: Path) -> None:
    """Check the bytes of the model, and of all released models together."""
    size, most = size_of(folder), MODEL_BYTES.get(target.name, PACKAGE_BYTES - CODE_BYTES)
    if size > most:
        raise GateError(
            f"{target.name}: {megabytes(size)} on disk, at most {most / 1e6:.0f} are allowed; trim its vocabulary, "
            "export it as int4, or with fewer layers"
        )
    others = [other for other in target.parent.glob("[!.]*") if other.is_dir() and other != target]
    together = size + sum(map(size_of, others))
    if together > PACKAGE_BYTES - CODE_BYTES:
        raise GateError(
            f"{target.parent}: {megabytes(together)} with {target.name}, at most "
            f"{(PACKAGE_BYTES - CODE_BYTES) / 1e6:.0f} fit in the package; remove a model, or make it smaller"
        )


if __name__ == "__main__":
    run_script(main)
