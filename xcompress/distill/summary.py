"""What a finished run shows: time, loss and dev scores of every step."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from xcompress.console import say, table
from xcompress.files import read_json

HEAD = ("step", "time", "loss, first", "loss, last", "agreement", "translations found")


def show(folder: Path) -> None:
    """Print the table of a finished run."""
    described = read_json(folder / "run.json")
    table(
        f"{folder}: dev scores on held-out pairs, mean of {len(described['languages']) - 1} languages",
        HEAD,
        rows(described),
    )
    say("agreement: Spearman x 100 of the model's cosines, English against translation, with the teacher's on English")
    say("translations found: how often, in percent, the nearest sentence is the translation (both directions)")
    say(f"student: {folder / 'student'}; next: xcompress export --onnx --quantize")


def rows(described: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the table's rows from a run.json: models before training without a time, then each step."""
    for name, step in described["steps"].items():
        facts = step["facts"]
        if "as_it_comes" in facts:
            yield ("assistant as it comes", "", "", "", *_scores(facts["as_it_comes"]))
        if "untrained" in facts:
            yield ("student before training", "", "", "", *_scores(facts["untrained"]))
        losses = [point["loss"] for point in facts.get("loss", ())]
        course = (f"{losses[0]:.4f}", f"{losses[-1]:.4f}") if losses else ("", "")
        yield (name, f"{step['seconds']:.0f} s", *course, *_scores(facts.get("dev")))


def _scores(dev: Mapping[str, Mapping[str, float]] | None) -> tuple[str, str]:
    if dev is None:
        return "", ""
    return f"{fmean(dev['spearman'].values()):.1f}", f"{fmean(dev['retrieval'].values()):.1f} %"
