import gzip
import lzma
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.limits import frugal
from xcompress.corpus.graded import GradedPairs, GradedSet, averages, builtin, read_folder, score
from xcompress.errors import InputError

ENGLISH = ["a cat sleeps\tthe cat naps\t4.5", "rain falls\tthe sun shines\t1", "buy bread\tsell bread\t2"]
GERMAN = ["eine Katze schläft\tdie Katze döst\t4.5", "Regen fällt\tdie Sonne scheint\t1", "kauf Brot\tverkauf Brot\t2"]


def write(path: Path, lines: Sequence[str], opener: Callable[..., object] = open) -> None:
    with opener(path, "wt", encoding="utf-8") as stream:  # type: ignore[attr-defined]
        stream.write("".join(f"{line}\n" for line in lines))


def aligned(folder: Path, german: Sequence[str] = GERMAN) -> Path:
    write(folder / "graded.en.tsv", ENGLISH)
    write(folder / "graded.de.tsv", german)
    return folder


def test_aligned_files_are_crossed(tmp_path: Path) -> None:
    pairs = read_folder(aligned(tmp_path)).language_pairs
    assert set(pairs) == {"en-en", "de-de", "en-de"}
    assert pairs["en-de"].first[0] == "a cat sleeps"
    assert pairs["en-de"].second[0] == "die Katze döst"
    assert pairs["en-de"].scores == (4.5, 1.0, 2.0)


def test_files_named_after_pairs(tmp_path: Path) -> None:
    write(tmp_path / "STS.en-en.txt", ENGLISH)
    write(tmp_path / "STS2017.es-en.tsv", ["un gato duerme\ta cat naps\t4.2", "llueve\ta dog runs\t0"])
    (tmp_path / "LICENSE").write_text("text", encoding="utf-8")
    found = read_folder(tmp_path)
    assert found.name == tmp_path.name
    assert {pair: len(rows) for pair, rows in found.language_pairs.items()} == {"es-en": 2, "en-en": 3}


def test_csv_files_packed_or_not(tmp_path: Path) -> None:
    write(tmp_path / "stsb-en-dev.csv", ['"a cat, a dog",two pets,3.5', "rain,sun,0.5"])
    write(tmp_path / "stsb-de-dev.csv.xz", ['"Katze, Hund",zwei Tiere,3.5', "Regen,Sonne,0.5"], lzma.open)
    write(tmp_path / "stsb-fr-dev.csv.gz", ["chat et chien,deux animaux,3.5", "pluie,soleil,0.5"], gzip.open)
    write(tmp_path / "stsb-en-train.csv", ["never,read,x"])
    found = read_folder(tmp_path).language_pairs
    assert set(found) == {"en-en", "de-de", "fr-fr", "en-de", "en-fr", "de-fr"}
    assert found["en-de"].first[0] == "a cat, a dog"
    assert (found["de-fr"].first[1], found["de-fr"].second[1]) == ("Regen", "soleil")
    assert found["en-fr"].second == ("deux animaux", "soleil")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("only one column", "graded.de.tsv:2: 1 column instead"),
        ("Regen\tSonne\tviel", "graded.de.tsv:2: score 'viel' is not a number"),
        ("Regen\tSonne\tnan", "graded.de.tsv:2: score 'nan' is not a number"),
        ("Regen\t \t1", "graded.de.tsv:2: an empty sentence"),
        ("Regen\tSonne\t3", "graded.de.tsv: row 2 has score 3, but graded.en.tsv has 1"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: str, says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        read_folder(aligned(tmp_path, [GERMAN[0], line, GERMAN[2]]))


def test_row_counts_must_agree(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"graded\.de\.tsv: 2 rows, but graded\.en\.tsv has 3"):
        read_folder(aligned(tmp_path, GERMAN[:2]))


@pytest.mark.parametrize("name", ["STS.en-en.txt", "graded.en.tsv"])
def test_equal_scores_cannot_be_ranked(tmp_path: Path, name: str) -> None:
    """They counted as a correlation of 0 with an interval without width."""
    write(tmp_path / name, ["a cat sleeps\tthe cat naps\t3", "rain falls\tthe sun shines\t3.0"])
    with pytest.raises(InputError, match=re.escape(f"{name}: all scores are 3; a rank correlation needs different")):
        read_folder(tmp_path)


def test_broken_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "stsb-en-dev.csv.xz").write_bytes(b"not xz")
    with pytest.raises(InputError, match=r"stsb-en-dev\.csv\.xz: cannot be read"):
        read_folder(tmp_path)


def test_a_named_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(aligned(tmp_path) / "graded.fr.tsv")
    with frugal():
        assert set(read_folder(tmp_path).language_pairs) == {"en-en", "de-de", "en-de"}


def test_folders_without_a_set(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        read_folder(tmp_path / "missing")
    with pytest.raises(InputError, match=r"expected graded\.<lang>\.tsv, stsb-"):
        read_folder(tmp_path)


def test_score_by_hand() -> None:
    """Ranks of cosines 4 3 1 2 against ranks of scores 4 2 1 3: rho = 1 - 6 x (0 + 1 + 0 + 1) / (4 x 15) = 0.8."""
    angles = {"b0": 0.1, "b1": 0.2, "b2": 0.9, "b3": 0.5, "a": 0.0}
    asked: list[str] = []

    def encode(texts: Sequence[str]) -> np.ndarray:
        asked.extend(texts)
        return np.array([[np.cos(angles[text]), np.sin(angles[text])] for text in texts], dtype=np.float32)

    rows = GradedPairs(("a",) * 4, ("b0", "b1", "b2", "b3"), (5.0, 2.0, 0.0, 3.0))
    scores = score(encode, GradedSet("tiny", {"en-en": rows, "en-de": rows}))
    assert scores == pytest.approx({"en-en": 80.0, "en-de": 80.0})
    assert sorted(asked) == ["a", "b0", "b1", "b2", "b3"]


def test_averages() -> None:
    scores = {"en-en": 80.0, "de-de": 70.0, "ar-ar": 60.0, "en-de": 50.0, "es-en": 40.0, "de-fr": 0.0}
    means = {"en-en": 80.0, "monolingual": 70.0, "other monolingual": 65.0, "en-xx": 45.0, "xx-yy": 0.0}
    assert averages(scores) == means
    assert averages({"en-de": 50.0}) == {"en-xx": 50.0}


def test_subsets(tmp_path: Path) -> None:
    found = read_folder(aligned(tmp_path))
    assert found.every(2).language_pairs["en-de"].scores == (4.5, 2.0)
    assert set(found.within(["de"]).language_pairs) == {"de-de"}


def test_rows_with_a_sentence_that_was_seen_are_left_out_in_every_language(tmp_path: Path) -> None:
    found = read_folder(aligned(tmp_path))
    german = found.language_pairs["de-de"]
    assert found.unseen([german.first[1].upper() + " !"]) == found.rows([0, 2])
    assert found.unseen([*german.first[1:], "new"]).language_pairs == {}, "one row cannot be ranked"
    assert found.unseen(["new"]) == found
    without_languages = found.within(["ja"])
    assert without_languages.unseen(["new"]) == without_languages


def test_rows_of_pairs_of_languages_that_are_not_aligned_are_left_out_each_on_its_own() -> None:
    rows = {
        pair: GradedPairs((f"{pair} one", f"{pair} two", f"{pair} three"), ("a", "b", "c"), (1.0, 2.0, 3.0))
        for pair in ("en-en", "de-de")
    }
    unseen = GradedSet("sts", rows).unseen(["en-en one"])
    assert unseen.language_pairs == {"en-en": rows["en-en"].rows([1, 2]), "de-de": rows["de-de"]}


@pytest.mark.parametrize(("rows", "captions"), [(1500, 625), (1379, 625), (1375, 500)])
def test_genres_of_the_sts_benchmark(rows: int, captions: int) -> None:
    texts = tuple(map(str, range(rows)))
    graded = GradedSet("stsb", {"en-en": GradedPairs(texts, texts, tuple(map(float, range(rows))))}, is_stsb=True)
    genres = graded.by_genre()
    assert [(part.name, len(part.language_pairs["en-en"])) for part in genres.values()] == [
        ("stsb: captions", captions),
        ("stsb: forums", rows - captions - 500),
        ("stsb: news", 500),
    ]
    assert genres["forums"].language_pairs["en-en"].first[0] == str(captions)
    assert [text for part in genres.values() for text in part.language_pairs["en-en"].first] == list(texts)
    assert graded.every(2).by_genre() == {}, "the rows of another set have no known genre"
    assert replace(graded, is_stsb=False).by_genre() == {}


def test_builtin_set() -> None:
    pairs = builtin().language_pairs
    languages = {pair.split("-")[1] for pair in pairs}
    assert {"en", "ar", "de", "es", "fr", "it", "nl", "tr"} <= languages
    assert len(pairs) == len(languages) * (len(languages) + 1) / 2
    assert len(pairs["en-de"]) >= 100
    assert max(pairs["en-en"].scores) <= 5
