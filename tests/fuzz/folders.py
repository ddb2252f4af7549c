"""Damaged bundles and model folders."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
from hypothesis import strategies as st

from tests.fuzz.inputs import VALUES, flip
from tests.fuzz.tally import SEED, Tally, generate
from xcompress.bundle.encoder import Encoder
from xcompress.modeling.load import import_encoder

TEXTS = ["Where is the station?", "Der Zug kommt heute nicht.", "one word after another " * 60]
Change = Callable[[bytes, Random], bytes]


def _flip_any(content: bytes, random: Random) -> bytes:
    return flip(content, random.randrange(len(content)), random.randrange(8))


def _cut_anywhere(content: bytes, random: Random) -> bytes:
    return content[: random.randrange(len(content))]


def flip_bits(folder: Path, bundle: Path, count: int) -> Tally:
    """Flip one bit in a random file of a bundle."""
    return _damage_files(Tally("bits flipped in bundles"), folder, bundle, count, _flip_any)


def cut_files(folder: Path, bundle: Path, count: int) -> Tally:
    """Cut a random file of a bundle at a random place."""
    return _damage_files(Tally("files of bundles cut"), folder, bundle, count, _cut_anywhere)


def _damage_files(tally: Tally, folder: Path, bundle: Path, count: int, change: Change) -> Tally:
    """Damage one file at a time; the bundle is refused, or gives the same vectors to the bit."""
    copy = Path(shutil.copytree(bundle, folder / "copy"))
    files = sorted(path for path in copy.rglob("*") if path.is_file() and path.stat().st_size)
    expected, random = Encoder(copy, threads=1).encode(TEXTS), Random(SEED)

    def encode() -> str:
        vectors = Encoder(copy, threads=1).encode(TEXTS)
        assert np.array_equal(vectors, expected), f"other vectors, by up to {np.abs(vectors - expected).max():g}"
        return "the same vectors"

    for number in range(count):
        file = random.choice(files)
        content = file.read_bytes()
        file.write_bytes(change(content, random))
        tally.attempt((number, file.name), encode)
        file.write_bytes(content)
    shutil.rmtree(copy)
    return tally


def change_manifests(folder: Path, bundle: Path, count: int) -> Tally:
    """Put any value at any key of a bundle's manifest."""
    tally, copy = Tally("manifests changed"), Path(shutil.copytree(bundle, folder / "copy"))
    file = copy / "manifest.json"
    manifest = json.loads(file.read_text(encoding="utf-8"))
    expected = Encoder(copy, threads=1).encode(TEXTS)

    def use(change: tuple[str, object]) -> None:
        file.write_text(json.dumps({**manifest, change[0]: change[1]}), encoding="utf-8")
        tally.attempt(change, encode)

    def encode() -> str:
        vectors = Encoder(copy, threads=1).encode(TEXTS)
        assert np.array_equal(vectors, expected), "other vectors"
        return "the same vectors"

    generate(st.tuples(st.sampled_from(sorted(manifest)), VALUES), count, use)
    shutil.rmtree(copy)
    return tally


def change_models(folder: Path, model: Path, count: int) -> Tally:
    """Put any value at any key of the JSON files of a model's folder, or cut them; the model is read or refused."""
    tally, copy = Tally("model folders read"), Path(shutil.copytree(model, folder / "copy"))
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(copy.rglob("*.json"))}
    places = sorted(
        (path, key) for path, text in texts.items() if isinstance(found := json.loads(text), dict) for key in found
    )

    @st.composite
    def changes(draw: st.DrawFn) -> tuple[Path, str]:
        if draw(st.integers(0, 3)):
            path, key = draw(st.sampled_from(places))
            return path, json.dumps({**json.loads(texts[path]), key: draw(VALUES)})
        path = draw(st.sampled_from(sorted(texts)))
        kind = draw(st.sampled_from(["cut", "value", "deep"]))
        if kind == "cut":
            return path, texts[path][: draw(st.integers(0, len(texts[path])))]
        return path, json.dumps(draw(VALUES)) if kind == "value" else "[" * 100_000

    def use(change: tuple[Path, str]) -> None:
        path, text = change
        path.write_text(text, encoding="utf-8")
        tally.attempt((path.name, text), partial(import_encoder, copy))
        path.write_text(texts[path], encoding="utf-8")

    generate(changes(), count, use)
    shutil.rmtree(copy)
    return tally
