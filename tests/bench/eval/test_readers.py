"""Files of test sets, valid and broken."""

import gzip
import lzma
import re
from pathlib import Path

import pytest

from xcompress.bench.eval import collect
from xcompress.bench.eval.readers import read_holdouts, read_labelled, read_sentences, read_tatoeba, sample_pairs
from xcompress.errors import InputError

ROWS = "one\teins\ntwo\tzwei\nthree\tdrei\nfour\tvier\n"


def write(folder: Path, **files: str) -> Path:
    """Write files; in the keys, _ means a dot and __ a hyphen."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", "-").replace("_", ".")).write_text(text, encoding="utf-8")
    return folder


def test_holdouts_are_read_and_sampled_alike(tmp_path: Path) -> None:
    write(tmp_path, holdout_de_tsv=ROWS, holdout_fr_tsv="four\tquatre\nthree\ttrois\ntwo\tdeux\none\tun\n")
    assert {code: len(rows) for code, rows in read_holdouts(tmp_path).items()} == {"de": 4, "fr": 4}
    sample = {code: sample_pairs(rows, 2) for code, rows in read_holdouts(tmp_path).items()}
    assert [row[0] for row in sample["de"]] == [row[0] for row in sample["fr"]], "the same English sentences"


def test_repeated_sentences_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, holdout_de_tsv=ROWS + "one\tein\nfive\tvier\n")
    assert len(read_holdouts(tmp_path)["de"]) == 4


def test_bad_holdout_lines_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holdout\.de\.tsv:2: expected 2 columns \(english, translation\), found 1"):
        read_holdouts(write(tmp_path, holdout_de_tsv="one\teins\ntwo\n"))


def test_tatoeba_files_by_name_and_language(tmp_path: Path) -> None:
    write(tmp_path, tatoeba_deu__eng_deu="eins\nzwei\n", tatoeba_deu__eng_eng="one\ntwo\n")
    write(tmp_path, news_cmn__eng_cmn="一\n二\n", news_cmn__eng_eng="one\ntwo\n")
    (tmp_path / "tatoeba.ber-eng.ber.xz").write_bytes(lzma.compress(b"yan\nsin\n"))
    (tmp_path / "tatoeba.ber-eng.eng.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    found = read_tatoeba(tmp_path)
    assert {name: set(pairs) for name, pairs in found.items()} == {"tatoeba": {"de", "ber"}, "news": {"zh"}}
    assert found["tatoeba"]["de"] == (("one", "eins"), ("two", "zwei"))
    assert found["tatoeba"]["ber"] == (("one", "yan"), ("two", "sin"))


def test_labelled_files_with_two_and_with_three_columns(tmp_path: Path) -> None:
    write(
        tmp_path, en_train_tsv="sports\ta game\ntravel\ta trip\n", en_dev_tsv="7\tsports\ta ball\n9\ttravel\ta ticket\n"
    )
    write(tmp_path, deu_dev_tsv="sports\tein Ball\ntravel\teine Karte\n", notes_dev_tsv="no language")
    assert read_labelled(tmp_path, "train") == {"en": (("sports", "a game"), ("travel", "a trip"))}
    assert read_labelled(tmp_path, "dev") == {
        "en": (("sports", "a ball"), ("travel", "a ticket")),
        "de": (("sports", "ein Ball"), ("travel", "eine Karte")),
    }


def test_plain_sentences_once_each(tmp_path: Path) -> None:
    write(tmp_path, x_de_txt="eins\n\n zwei \neins\n")
    assert read_sentences(tmp_path / "x.de.txt") == ["eins", "zwei"]


BROKEN = {
    "STS.en-de.txt": ("a\tb\t1\nc\td\n", ":2: 2 columns instead of sentence1, sentence2, score"),
    "STS.en-fr.txt": ("a\tb\t1\nc\td\tvery\n", ":2: score 'very' is not a number"),
    "graded.en.tsv": ("a\tb\t1\n\td\t2\n", ":2: an empty sentence"),
    "stsb-en-dev.csv": ("a,b,1\nc,2\n", ":2: 2 columns"),
    "tatoeba.deu-eng.deu": ("eins\nzwei\n", ": 2 lines, but tatoeba.deu-eng.eng has 3"),
    "tatoeba.fra-eng.fra": ("un\ndeux\n", ": the other side is missing"),
    "tatoeba.ita-eng.ita": ("uno\n\ndue\n", ":2: an empty line"),
    "tatoeba.spa-eng.spa": ("uno\n", ": retrieval needs at least 2 lines, found 1"),
    "de.dev.tsv": ("travel\tZug\nsports\tBall\textra\n", ":2: expected 2 columns (label, text), found 3"),
    "fr.dev.tsv": ("1\ttravel\ttrain\nsports\tballon\n", ":2: expected 3 columns (label, text), found 2"),
    "it.dev.tsv": ("travel\ttreno\n \tpalla\n", ":2: an empty label"),
    "es.dev.tsv": ("travel\ttren\nsports\t\n", ":2: an empty text"),
    "pl.dev.tsv": ("Label\ttext\ntravel\tbilet\n", ":1: the names of the columns; remove this line"),
    "nl.dev.tsv": ("travel\ttrein\n", ": classification needs at least 2 rows, found 1"),
}
BESIDE = {
    "tatoeba.deu-eng.deu": ("tatoeba.deu-eng.eng", "one\ntwo\nthree\n"),
    "tatoeba.ita-eng.ita": ("tatoeba.ita-eng.eng", "one\ntwo\nthree\n"),
    "tatoeba.spa-eng.spa": ("tatoeba.spa-eng.eng", "one\n"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_named_with_their_line(tmp_path: Path, name: str) -> None:
    text, says = BROKEN[name]
    (tmp_path / name).write_text(text, encoding="utf-8")
    if name in BESIDE:
        (tmp_path / BESIDE[name][0]).write_text(BESIDE[name][1], encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(f"{name}{says}")):
        collect(tmp_path)


NAMES = ["STS.en-de.txt", "graded.en.tsv", "stsb-en-dev.csv", "tatoeba.deu-eng.deu", "en.dev.tsv", "mine.de.txt"]


@pytest.mark.parametrize("name", NAMES)
def test_a_line_that_is_not_utf8_is_named(tmp_path: Path, name: str) -> None:
    beside = {"tatoeba.deu-eng.deu": "tatoeba.deu-eng.eng", "en.dev.tsv": "en.train.tsv"}
    if name in beside:
        (tmp_path / beside[name]).write_bytes(b"x\ta\ny\tb\n")
    comma = b"," if name.endswith("csv") else b"\t"
    (tmp_path / name).write_bytes(comma.join([b"a", b"b", b"1\n"]) + comma.join([b"\xff", b"d", b"2\n"]))
    with pytest.raises(InputError, match=re.escape(f"{name}:2: not UTF-8")):
        collect(tmp_path)


@pytest.mark.parametrize("name", [f"{name}.xz" for name in NAMES])
def test_broken_archives_are_named(tmp_path: Path, name: str) -> None:
    if name.startswith("tatoeba"):
        (tmp_path / "tatoeba.deu-eng.eng").write_bytes(b"one\ntwo\n")
    line = b"a,b,1\n" if "csv" in name else b"a\tb\t1\n"
    (tmp_path / name).write_bytes(lzma.compress(line * 500)[:-20])
    with pytest.raises(InputError, match=rf"{re.escape(name)}: cannot be read \(cut off after line"):
        collect(tmp_path)


def test_a_language_given_twice_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", de_dev_tsv="x\tb\ny\tc\n", deu_dev_tsv="x\tb\ny\tc\n")
    with pytest.raises(InputError, match=r"deu\.dev\.tsv: de\.dev\.tsv holds de too; keep one"):
        collect(tmp_path / "a")
    write(tmp_path / "b", STS_en__de_txt="a\tb\t1\nc\td\t2\n", STS2_en__de_txt="a\tb\t1\nc\td\t2\n")
    with pytest.raises(InputError, match="holds en-de too; keep one"):
        collect(tmp_path / "b")
