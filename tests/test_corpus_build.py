from pathlib import Path

import polib
import pytest

from xcompress.corpus.build import Corpus, build
from xcompress.corpus.filters import Limits
from xcompress.corpus.pairs import Pair, write_tsv
from xcompress.errors import InputError

COLOURS = ["red", "green", "blue", "white", "black", "brown"]


def make(folder: Path) -> tuple[Path, Path]:
    """Write a German catalogue and a Dutch table about the same coloured doors."""
    catalogue = polib.POFile()
    for colour in COLOURS:
        source = f"&Open the <b>{colour}</b> door of %s"
        catalogue.append(polib.POEntry(msgid=source, msgstr=f"&Die Tür ({colour}) von %s bitte öffnen"))
    catalogue.append(polib.POEntry(msgid="Door", msgstr="Tür"))
    (folder / "locale").mkdir()
    catalogue.save(str(folder / "locale/de.po"))
    table = folder / "nl.tsv"
    write_tsv(
        table, [Pair(f"Paint the big door {c} today", f"Verf de grote deur vandaag {c}", "nl", "") for c in COLOURS]
    )
    return folder / "locale", table


def made(folder: Path, **options: object) -> Corpus:
    locale, table = make(folder)
    return build([("app", locale)], [(table, "nl", "doors")], ["de", "nl"], **options)


def test_gathers_cleans_and_splits(tmp_path: Path) -> None:
    corpus = made(tmp_path, holdout_sentences=2)
    assert len(corpus.train) == 10 and len(corpus.holdout) == 2
    assert (
        Pair("Open the red door of X", "Die Tür (red) von X bitte öffnen", "de", "app") in corpus.train + corpus.holdout
    )
    assert corpus.counts() == {"de": {"app": 5}, "nl": {"doors": 5}}


def test_the_cap_is_per_language_and_repeatable(tmp_path: Path) -> None:
    corpus = made(tmp_path, holdout_sentences=0, max_pairs=3)
    assert corpus.counts() == {"de": {"app": 3}, "nl": {"doors": 3}}
    again = build(
        [("app", tmp_path / "locale")],
        [(tmp_path / "nl.tsv", "nl", "doors")],
        ["de", "nl"],
        holdout_sentences=0,
        max_pairs=3,
    )
    assert again == corpus


def test_the_cap_takes_the_same_sentences_in_each_language(tmp_path: Path) -> None:
    for language, word in (("de", "Wort"), ("nl", "woord")):
        rows = [Pair(f"This is the word number {n}", f"Hier kommt {word} {n}", language, "") for n in range(40)]
        write_tsv(tmp_path / f"{language}.tsv", rows)
    tables = [(tmp_path / f"{language}.tsv", language, "") for language in ("de", "nl")]
    corpus = build([], tables, ["de", "nl"], holdout_sentences=0, max_pairs=10)
    sources = {language: {p.source for p in corpus.train if p.language == language} for language in ("de", "nl")}
    assert len(sources["de"]) == 10 and sources["de"] == sources["nl"]


def test_the_fingerprint_follows_the_content(tmp_path: Path) -> None:
    one = made(tmp_path)
    same = Corpus(one.train, one.holdout)
    other = Corpus(one.train[1:], one.holdout)
    assert one.fingerprint == same.fingerprint != other.fingerprint


def test_a_language_without_pairs_is_refused_with_what_was_found(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no training pair for 'de': 7 read \(7 too short\)"):
        made(tmp_path, limits=Limits(min_words=9))
    with pytest.raises(InputError, match=r"no training pair for 'it': 0 read"):
        build([], [(tmp_path / "nl.tsv", "nl", "")], ["nl", "it"])


def test_languages_that_were_not_asked_for_are_left_out(tmp_path: Path) -> None:
    locale, table = make(tmp_path)
    assert set(build([("app", locale)], [(table, "nl", "")], ["de"]).counts()) == {"de"}
