"""What the card of a released model says more: what it was trained on, how it scores, what it is bad at."""

import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from xcompress.console import markdown_table

PIVOT = "en"
NONE = "-"
_PAIR = re.compile(r"(?P<first>[a-z]{2,3})(?P<sign>[->])(?P<second>[a-z]{2,3})")

Column = tuple[str, str]
"""A test and a kind of figure, such as `with English`."""
Cells = dict[Column, dict[str, float]]
"""Figures by column and language."""

_TEXT = """
## What it was trained on

{text}

Pairs are those of English with a language that training could read, after filters; {en} counts labelled English pairs.

Models that lent vectors, layers or rows:

{models}

## How to make it again

    {commands}

DIR holds the dev sets named below. Recipe `{recipe}`, hash {recipe_hash}, finished {finished}.

## Dev scores

Of the graph in this folder. Choices were made on these sets, and nothing was trained on them.

{scores}

{sets}
"""


def release_rows(manifest: Mapping[str, Any]) -> str:
    """Write the rows of the card's first table that a released model adds: what all files but this card take."""
    everything = sum(entry["bytes"] for name, entry in manifest["files"].items() if name != "README.md")
    return f"| all files together | {everything / 1e6:.1f} MB |\n"


def release_text(release: Mapping[str, Any]) -> str:
    """Write text, models, commands and dev scores."""
    return _TEXT.format(
        text=_text_table(release["text"]),
        en=f"`{PIVOT}`",
        models=_models_table(release["models"]),
        commands="\n    ".join(release["commands"]),
        recipe=release["recipe"],
        recipe_hash=release["recipe_hash"],
        finished=release["finished"] or "not recorded",
        scores=_scores_table(release["scores"]),
        sets="\n".join(_set_line(test) for test in release["scores"]),
    )


def release_limits(release: Mapping[str, Any]) -> str:
    """Write what the model is bad at: what is known, and the weakest language of each kind of score."""
    lines = [*release["limits"], *_weakest(_cells(release["scores"]))]
    return "".join(f"- {line}\n" for line in lines)


def _text_table(text: Sequence[Mapping[str, Any]]) -> str:
    rows = [[f"{one['title']} ({one['source']})", one["licence"], *_counts(one["pairs"])] for one in text]
    total = sum(count for one in text for count in one["pairs"].values())
    return _table(
        ["text", "licence", "pairs", "by language"], [*rows, ["all together", "", f"{total:,}", _by_language(text)]]
    )


def _counts(pairs: Mapping[str, int]) -> list[str]:
    listed = ", ".join(f"{language} {count:,}" for language, count in sorted(pairs.items()) if count)
    return [f"{sum(pairs.values()):,}" if listed else NONE, listed]


def _by_language(text: Sequence[Mapping[str, Any]]) -> str:
    languages = {language for one in text for language in one["pairs"]}
    return _counts({language: sum(one["pairs"].get(language, 0) for one in text) for language in languages})[1]


def _models_table(models: Sequence[Mapping[str, str]]) -> str:
    rows = [
        [one["role"], f"{one['title']} ({one['source']})", one["licence"], f"`{one['reference']}`"] for one in models
    ]
    return _table(["role", "model", "licence", "reference"], rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table of words, which start at the left."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _scores_table(scores: Sequence[Mapping[str, Any]]) -> str:
    cells = _cells(scores)
    languages = sorted({language for column in cells.values() for language in column})
    rows = [[language, *(_cell(column.get(language)) for column in cells.values())] for language in languages]
    mean = ["mean", *(_cell(fmean(column.values())) for column in cells.values())]
    return markdown_table(["language", *(f"{test}: {kind}" for test, kind in cells)], [*rows, mean])


def _cell(value: float | None) -> str:
    return NONE if value is None else f"{value:.1f}"


def _cells(scores: Sequence[Mapping[str, Any]]) -> Cells:
    """Sort figures by language pair, direction or language into columns of languages."""
    cells: Cells = {}
    for test in scores:
        for key, value in test["figures"].items():
            kind, language = _place(key)
            cells.setdefault((test["test"], kind), {})[language] = value
    return cells


def _place(key: str) -> tuple[str, str]:
    """Return the kind of a figure and its language, or the pair itself where neither is English."""
    match = _PAIR.fullmatch(key)
    if match is None:
        return "score", key
    first, second = match["first"], match["second"]
    if first == second:
        return "one language", first
    if PIVOT not in (first, second):
        return "two languages", key
    other = second if first == PIVOT else first
    if match["sign"] == "-":
        return "with English", other
    return ("from English" if first == PIVOT else "to English"), other


def _weakest(cells: Cells) -> Iterator[str]:
    for (test, kind), column in cells.items():
        worst = min(column, key=column.__getitem__)
        if len(column) > 1:
            yield f"Weakest in {test}, {kind}: {worst}, {column[worst]:.1f} (mean {fmean(column.values()):.1f})."


def _set_line(test: Mapping[str, Any]) -> str:
    where = f"{test['title']} ({test['source']}; {test['licence']})"
    return f"- {test['test']}: {where}; {test['metric']}, {test['rows']} rows"
