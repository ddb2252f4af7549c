"""Released models: one graph of a bundle with its card, small enough to come with the package."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from xcompress.bundle.encoder import Encoder
from xcompress.bundle.integrity import check_bundle, external_files
from xcompress.bundle.manifest import MANIFEST, graphs_of, read_manifest
from xcompress.errors import GateError, InputError
from xcompress.export.card import CARD, model_card
from xcompress.export.folder import list_files
from xcompress.export.provenance import (
    Table,
    changes,
    export_command,
    find_entry,
    models_of_all,
    text_of_all,
)
from xcompress.files import read_json, size_of, whole_folder, write_json, write_text
from xcompress.recipe import Recipe, load_recipe
from xcompress.recipe.lineage import lineage

MOST = {"small": 24_000_000, "tiny": 10_000_000}
"""Bytes on disk that a model of this name may take, all files together."""
WHEEL = 40_000_000
"""Bytes that the package may have."""
CODE = 2_000_000
"""Of which this much is for everything else than models."""
TOKENIZER = "tokenizer.json"


def release_facts(run: Path, bundle: Path, table: Table, *, name: str, recipe: str | None = None) -> dict[str, Any]:
    """Say what a bundle was made from and how to make it again.

    :param run: the run that trained the student.
    :param recipe: the shipped recipe that trained it; the run's name where not given.
    :raises InputError: when the bundle is not the run's, or text, models or recipe are not what they should be.
    """
    described, manifest = read_json(run / MANIFEST), read_manifest(bundle)
    for key in ("recipe_hash", "student_hash"):
        if manifest.get(key) != described.get(key):
            raise InputError(f"{bundle}: {key} is {manifest.get(key)}, {run} has {described.get(key)}; export it again")
    own = load_recipe(run / "recipe.yaml")
    shipped_as = recipe or own.name
    *earlier, _ = runs = lineage(run)
    return {
        "name": name,
        "licence": table.licence,
        "recipe": shipped_as,
        "recipe_hash": described["recipe_hash"],
        "finished": described.get("finished"),
        "commands": [
            *(_distill(load_recipe(one / "recipe.yaml")) for one in earlier),
            *_commands(own, bundle, manifest, shipped_as, name),
        ],
        "text": text_of_all(runs, table),
        "models": models_of_all(runs, table),
        "limits": list(table.limits),
    }


def _distill(own: Recipe, recipe: str | None = None) -> str:
    shipped_as = recipe or own.name
    return " ".join(["xcompress distill", f"recipes/{shipped_as}.yaml", *map(quote, changes(shipped_as, own))])


def _commands(own: Recipe, bundle: Path, manifest: Mapping[str, Any], recipe: str, name: str) -> list[str]:
    folder = f"runs/{own.name}"
    other = [f"--bundle {folder}/{bundle.name}"] if bundle.name != "bundle" else []
    shipped_as = [f"--recipe {recipe}"] if recipe != own.name else []
    return [
        _distill(own, recipe),
        export_command(folder, bundle, manifest.get("options", {})),
        " ".join(["python benchmarks/release.py", folder, f"--name {name}", *other, *shipped_as, "--data DIR"]),
    ]


def describe_scores(scores: Sequence[Mapping[str, Any]], table: Table) -> list[dict[str, Any]]:
    """Add to each test where it comes from.

    :param scores: tests with `test`, `metric`, `rows`, `figures` by language pair and `averages`.
    :raises InputError: when the table does not know a test.
    """
    described = []
    for one in scores:
        known = find_entry(table.dev, one["test"])
        if known is None:
            raise InputError(f"{one['test']}: the table of dev sets has no such entry; add title, source and licence")
        described.append({**one, **known.model_dump()})
    return described


def write_release(bundle: Path, target: Path, facts: Mapping[str, Any]) -> Path:
    """Copy a bundle with the one graph that it opens by default, and write the card of a released model.

    :param target: the model's folder, replaced as a whole; the folders beside it are the other released models.
    :param facts: the manifest's entry `release`.
    :raises InputError: when the bundle is not as its manifest says.
    :raises GateError: when it, or all released models together, are too large.
    """
    manifest = read_manifest(bundle)
    with whole_folder(target) as folder:
        manifest = _copied(bundle, folder, manifest) | {"release": dict(facts)}
        write_text(folder / CARD, model_card(manifest | {"files": list_files(folder)}))
        write_json(folder / MANIFEST, manifest | {"files": list_files(folder)})
        _check(folder, target)
    return target


def _copied(bundle: Path, folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Copy what stays; return the manifest without what does not."""
    graphs = graphs_of(bundle, manifest)
    precision = manifest.get("precision", next(iter(graphs), None))
    if precision not in graphs:
        raise InputError(f"{bundle}: its graph in {precision} is not here; export the bundle again")
    graph = graphs[precision]
    check_bundle(bundle, manifest, graph)
    kept = {graph, *external_files(bundle, graph)}
    for name in manifest["files"]:
        if name in kept or not name.startswith("onnx/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(bundle / name, folder / name)
    pack_tokenizer(folder / TOKENIZER)
    left_out = ("files", "graphs", "dev")
    return {key: value for key, value in manifest.items() if key not in left_out} | {"graphs": {precision: graph}}


def pack_tokenizer(file: Path) -> None:
    """Write JSON without the spaces, line ends and digits that take more than half of a tokenizer's file.

    Scores of Unigram pieces were float32 when they were trained, and are written with as many digits as these have.
    """
    described = json.loads(file.read_text(encoding="utf-8"))
    model = described["model"]
    if model["type"] == "Unigram":
        model["vocab"] = [[piece, float(str(np.float32(score)))] for piece, score in model["vocab"]]
    write_text(file, json.dumps(described, ensure_ascii=False, separators=(",", ":")))


def _check(folder: Path, target: Path) -> None:
    check_bundle(folder, read_manifest(folder), everything=True)
    Encoder(folder).encode("A sentence.")
    size, most = size_of(folder), MOST.get(target.name, WHEEL - CODE)
    if size > most:
        raise GateError(
            f"{target.name}: {size / 1e6:.1f} MB on disk, at most {most / 1e6:.0f} are allowed; trim its vocabulary, "
            "export it as int4, or with fewer layers"
        )
    others = [other for other in target.parent.glob("[!.]*") if other.is_dir() and other != target]
    together = size + sum(map(size_of, others))
    if together > WHEEL - CODE:
        raise GateError(
            f"{target.parent}: {together / 1e6:.1f} MB with {target.name}, at most {(WHEEL - CODE) / 1e6:.0f} fit in "
            "the package; remove a model, or make it smaller"
        )
