"""Write the model card of a released model: what it was trained on, how it scores, what it is bad at."""

import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from xcompress.bundle.manifest import CARD, MANIFEST
from xcompress.console import markdown_table
from xcompress.corpus.graded import PART, PIVOT, UNSEEN
from xcompress.export.card import ReleaseNotes, model_card
from xcompress.files import megabytes

NONE = "-"
TWO_LANGUAGES = "two languages"
_PAIR = re.compile(r"(?P<first>[a-z]{2,3})(?P<sign>[->])(?P<second>[a-z]{2,3})")

Columns = dict[tuple[str, str], dict[str, float]]
"""Figures by test and kind of figure (such as `with English`), then by language."""

_SECTIONS = """
## What it was trained on

{text}

Pairs are those of English with a language that training could read, after filters. Graded pairs count under the
language of their first sentence.

Models whose vectors, layers or token embeddings were used:

{models}

## How to make it again

    {commands}

DIR holds the dev sets named below.{centered} Recipe `{recipe}`, hash {recipe_hash}, finished {finished}.

## Dev scores

Of the graph in this folder. Choices were made on these sets, and nothing was trained on them.{seen}

{scores}

{genres}{sets}
{cosines}"""

_CENTERED = """ TEXT holds the text that the vectors were centred on:
sentences of the table above in each language, one per line in files named NAME.LANGUAGE.txt."""

_SEEN = """ Some rows have
a sentence of the train split of their set, which training read; `unseen` below are the rows without one."""

_GENRES_SECTION = """By genre, means over languages; xx-yy are two languages other than English:

{scores}

"""

_COSINES_SECTION = """
## Cosines

Of the sentences of the built-in pairs, English with the other languages: with their translations, and with the
translations of other sentences. Shares in %:

{shares}
"""


def released_card(manifest: Mapping[str, Any]) -> str:
    """Return the card of a released model; its manifest has an entry `release` (see `release_facts`)."""
    release = manifest["release"]
    size = sum(entry["bytes"] for name, entry in manifest["files"].items() if name != CARD)
    columns = _score_columns(release["scores"])
    weakest = []
    for (test, kind), column in columns.items():
        worst = min(column, key=column.__getitem__)
        if len(column) > 1:
            mean = fmean(column.values())
            weakest.append(f"Weakest in {test}, {kind}: {worst}, {column[worst]:.1f} (mean {mean:.1f}).")
    sections = _SECTIONS.format(
        text=_text_table(release["text"]),
        models=_models_table(release["models"]),
        commands="\n    ".join(release["commands"]),
        centered=_CENTERED if any("--text TEXT/*" in command for command in release["commands"]) else "",
        recipe=release["recipe"],
        recipe_hash=release["recipe_hash"],
        finished=release["finished"] or "not recorded",
        seen=_SEEN if any(test["test"].endswith(UNSEEN) for test in release["scores"]) else "",
        scores=_scores_table(columns),
        sets="\n".join(
            f"- {test['test']}: {test['title']} ({test['source']}; {test['licence']}); {test['metric']}, "
            f"{test['rows']} rows"
            for test in release["scores"]
            if PART not in test["test"]
        ),
        genres=_genres_section(release["scores"]),
        cosines=_cosines_section(release["cosines"]),
    )
    notes = ReleaseNotes(
        name=release["name"],
        licence=release["licence"],
        rows=f"| all files but {CARD} and {MANIFEST} | {megabytes(size)} |\n",
        sections=sections,
        limits="".join(f"- {line}\n" for line in [*release["limits"], *weakest]),
    )
    return model_card(manifest, notes)


def _text_table(corpora: Sequence[Mapping[str, Any]]) -> str:
    """Return the training text with its licences and its pairs by language."""
    rows = [
        [f"{corpus['title']} ({corpus['source']})", corpus["licence"], *_pair_counts(corpus["pairs"])]
        for corpus in corpora
    ]
    totals: dict[str, int] = {}
    for corpus in corpora:
        for language, count in corpus["pairs"].items():
            totals[language] = totals.get(language, 0) + count
    total = ["all together", "", f"{sum(totals.values()):,}", _pair_counts(totals)[1]]
    return _table(["text", "licence", "pairs", "by language"], [*rows, total])


def _pair_counts(pairs: Mapping[str, int]) -> list[str]:
    """Return the number of pairs, and the numbers by language."""
    by_language = ", ".join(f"{language} {count:,}" for language, count in sorted(pairs.items()) if count)
    return [f"{sum(pairs.values()):,}" if by_language else NONE, by_language]


def _models_table(models: Sequence[Mapping[str, str]]) -> str:
    rows = [
        [model["role"], f"{model['title']} ({model['source']})", model["licence"], f"`{model['reference']}`"]
        for model in models
    ]
    return _table(["role", "model", "licence", "reference"], rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table of text, aligned left."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _scores_table(columns: Columns) -> str:
    """Return a row per language and a last one with the means."""

    def cell(value: float | None) -> str:
        return NONE if value is None else f"{value:.1f}"

    languages = sorted({language for column in columns.values() for language in column})
    rows = [[language, *(cell(column.get(language)) for column in columns.values())] for language in languages]
    means = ["mean", *(cell(fmean(column.values())) for column in columns.values())]
    return markdown_table(["language", *(f"{test}: {kind}" for test, kind in columns)], [*rows, means])


def _genres_section(scores: Sequence[Mapping[str, Any]]) -> str:
    """Return a row per genre with its averages, after a row of the whole set; empty without genres."""
    parted = {test["test"].partition(PART)[0] for test in scores if PART in test["test"]}
    of_sets = [test for test in scores if test["test"].partition(PART)[0] in parted]
    if not of_sets:
        return ""
    averages = list(dict.fromkeys(name for test in of_sets for name in test["averages"]))
    rows = [
        [test["test"], str(test["rows"]), *(f"{test['averages'][name]:.1f}" for name in averages)] for test in of_sets
    ]
    return _GENRES_SECTION.format(scores=markdown_table(["set", "rows", *averages], rows))


def _cosines_section(shares: Mapping[str, Mapping[str, float]]) -> str:
    """Return a histogram as a table, without its empty intervals; empty without shares."""
    if not shares:
        return ""
    used = [cosine for cosine in shares if any(shares[cosine].values())]
    rows = [[cosine, *(f"{share:.1f}" for share in shares[cosine].values())] for cosine in used]
    return _COSINES_SECTION.format(shares=markdown_table(["cosine", *shares[used[0]]], rows))


def _score_columns(scores: Sequence[Mapping[str, Any]]) -> Columns:
    """Sort the figures of all tests, by language pair, direction or language, into columns of languages.

    Genres, and pairs without English, are left out: see `_genres_section`.
    """
    columns: Columns = {}
    for test in scores:
        if PART in test["test"]:
            continue
        for key, value in test["figures"].items():
            kind, language = _kind_and_language(key)
            if kind == TWO_LANGUAGES:
                continue
            columns.setdefault((test["test"], kind), {})[language] = value
    return columns


def _kind_and_language(key: str) -> tuple[str, str]:
    """Return the kind of a figure and its language, or the pair itself where neither language is English."""
    match = _PAIR.fullmatch(key)
    if match is None:
        return "score", key
    first, second = match["first"], match["second"]
    if first == second:
        return "one language", first
    if PIVOT not in (first, second):
        return TWO_LANGUAGES, key
    language = second if first == PIVOT else first
    if match["sign"] == "-":
        return "with English", language
    return ("from English" if first == PIVOT else "to English"), language
