"""Tables of a finished run: time, loss and dev scores of every step."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from xcompress.bundle.manifest import MANIFEST
from xcompress.console import say, table
from xcompress.distillation.dev import DevScores
from xcompress.files import read_json

HEAD = ("step", "time", "loss, first", "loss, last")
SCORES = {"spearman": "agreement", "retrieval": "translations found"}
"""Column names of kinds of dev scores; other kinds keep their names."""
MEANING = (
    "agreement: Spearman x 100 of the model's cosines, English against translation, with the teacher's on English. "
    "translations found: how often the nearest sentence is the translation, in percent, mean of both directions. "
    "All on held-out pairs."
)
BEFORE_TRAINING = {
    "as_it_comes": "unmodified assistant",
    "assistant": "assistant, vectors only",
    "untrained": "student before training",
}
"""Facts of a step that are dev scores of a model before the step, and their labels."""

Dev = Mapping[str, Mapping[str, float]]
Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Header and rows."""


def show(folder: Path) -> None:
    """Print the tables of a finished run."""
    manifest = read_json(folder / MANIFEST)
    table(f"{folder}: steps; dev scores are means over languages", *table_of_steps(manifest))
    kinds = " / ".join(name for kind, name in SCORES.items() if kind in manifest["dev"])
    table(f"dev scores by language: {kinds}", *table_of_languages(manifest))
    say(MEANING)
    say(f"student: {folder / 'student'}; next: xcompress export {shlex.quote(str(folder))}")


def table_of_steps(manifest: Mapping[str, Any]) -> Table:
    """Return a table with a row per step, and one without a time for each model that was only scored."""
    rows = []
    for name, step, dev in _scored_models(manifest):
        losses = [point["loss"] for point in step["facts"].get("loss", ())] if step else []
        first_and_last = (f"{losses[0]:.4f}", f"{losses[-1]:.4f}") if losses else ("", "")
        means = DevScores(**dev).means() if dev else {}
        scores = [f"{means[kind]:.1f}" if kind in means else "" for kind in manifest["dev"]]
        rows.append((name, f"{step['seconds']:.0f} s" if step else "", *first_and_last, *scores))
    return (*HEAD, *(SCORES.get(kind, kind) for kind in manifest["dev"])), rows


def table_of_languages(manifest: Mapping[str, Any]) -> Table:
    """Return a row per scored model, with `agreement / translations found` for each language where there are both."""
    languages = [language for language in manifest["languages"] if language != "en"]
    rows = []
    for name, _, dev in _scored_models(manifest):
        if dev:
            scores = [[f"{dev[kind][code]:.0f}" for kind in SCORES if code in dev[kind]] for code in languages]
            rows.append((name, *map(" / ".join, scores)))
    return ("step", *languages), rows


def _scored_models(manifest: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any] | None, Dev | None]]:
    """Yield (name, step, dev scores) of each step, and of the models that were scored beside it, without a step."""
    for name, step in manifest["steps"].items():
        facts = step["facts"]
        for fact, label in BEFORE_TRAINING.items():
            if fact in facts:
                yield label, None, facts[fact]
        yield name, step, facts.get("dev")
        for depth, dev in facts.get("dev_by_depth", {}).items():
            yield f"{name}, depth {depth}", None, dev
