"""What a finished run shows: time, loss and dev scores of every step."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from xcompress.console import say, table
from xcompress.distillation.dev import DevScores
from xcompress.files import read_json

HEAD = ("step", "time", "loss, first", "loss, last")
SCORES = {"spearman": "agreement", "retrieval": "translations found"}
"""Kinds of dev scores and what to call them; others keep their names."""
MEANING = (
    "agreement: Spearman x 100 of the model's cosines, English against translation, with the teacher's on English. "
    "translations found: how often the nearest sentence is the translation, in percent, mean of both directions. "
    "All on held-out pairs."
)

Dev = Mapping[str, Mapping[str, float]]


def show(folder: Path) -> None:
    """Print the tables of a finished run."""
    described = read_json(folder / "manifest.json")
    table(f"{folder}: steps; dev scores are means over languages", head(described), rows(described))
    kinds = " / ".join(what for kind, what in SCORES.items() if kind in described["dev"])
    table(f"dev scores by language: {kinds}", language_head(described), language_rows(described))
    say(MEANING)
    say(f"student: {folder / 'student'}; next: xcompress export --onnx --quantize")


def head(described: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the head of the table of steps."""
    return (*HEAD, *(SCORES.get(kind, kind) for kind in described["dev"]))


def rows(described: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield a row per step of a manifest.json, and one without a time for each model that was only scored."""
    for name, step, dev in _scored(described):
        losses = [point["loss"] for point in step["facts"].get("loss", ())] if step else []
        course = (f"{losses[0]:.4f}", f"{losses[-1]:.4f}") if losses else ("", "")
        means = DevScores(**dev).means() if dev else {}
        scores = [f"{means[kind]:.1f}" if kind in means else "" for kind in described["dev"]]
        yield (name, f"{step['seconds']:.0f} s" if step else "", *course, *scores)


def language_head(described: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the head of the table by language."""
    return ("step", *_languages(described))


def language_rows(described: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield a row per scored model, `agreement / translations found` for each language, or what there is of them."""
    for name, _, dev in _scored(described):
        if dev:
            yield (name, *(_of_language(dev, language) for language in _languages(described)))


def _of_language(dev: Dev, language: str) -> str:
    return " / ".join(f"{dev[kind][language]:.0f}" for kind in SCORES if language in dev[kind])


def _languages(described: Mapping[str, Any]) -> list[str]:
    return [language for language in described["languages"] if language != "en"]


def _scored(described: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any] | None, Dev | None]]:
    """Yield (name, step, dev scores); a model scored before training has no step of its own."""
    before = {
        "as_it_comes": "encoder as it comes",
        "assistant": "assistant, vectors only",
        "untrained": "student before training",
    }
    for name, step in described["steps"].items():
        for fact, label in before.items():
            if fact in step["facts"]:
                yield label, None, step["facts"][fact]
        yield name, step, step["facts"].get("dev")
        for depth, dev in step["facts"].get("dev_by_depth", {}).items():
            yield f"{name}, depth {depth}", None, dev
