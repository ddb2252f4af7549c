"""benchmarks/genres.py says before it encodes that a set has no genres, or lacks a language."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from xcompress.errors import InputError


@pytest.fixture
def genres() -> ModuleType:
    return import_module("genres")


def stsb(folder: Path, rows: int, languages: Sequence[str] = ("en", "de")) -> Path:
    for language in languages:
        lines = [f"Row {row},Its {language} pair,{row % 6}.0\n" for row in range(rows)]
        (folder / f"stsb-{language}-dev.csv").write_text("".join(lines))
    return folder


def test_the_rows_of_the_dev_set_have_three_genres(genres: ModuleType, tmp_path: Path) -> None:
    found = genres.read_genres(stsb(tmp_path, 1375), ["en", "de"])
    assert {genre: len(graded.language_pairs["en-de"]) for genre, graded in found.items()} == {
        "captions": 500,
        "forums": 375,
        "news": 500,
    }


def test_another_number_of_rows_has_no_genres(genres: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"20 rows have no known genres; .* \(1375, 1379, 1500\)"):
        genres.read_genres(stsb(tmp_path, 20), ["en", "de"])


def test_rows_that_the_train_split_has_in_any_language_are_left_out(genres: ModuleType, tmp_path: Path) -> None:
    folder = stsb(tmp_path, 1375, ["en", "de", "fr"])
    with pytest.raises(InputError, match=r"has no stsb-<language>-train\.csv, which --unseen needs"):
        genres.read_genres(folder, ["en", "de"], unseen=True)
    (folder / "stsb-fr-train.csv").write_text("Row 600,new,1\nnew,row 0,2\n")
    found = genres.read_genres(folder, ["en", "de"], slice(0, None, 2), unseen=True)
    assert {genre: len(graded.language_pairs["en-de"]) for genre, graded in found.items()} == {
        "captions": 249,
        "forums": 187,
        "news": 250,
    }, "of every other row; row 600 is row 100 of the forums"
    assert set(found["news"].language_pairs) == {"en-en", "de-de", "en-de"}


def test_english_and_every_language_are_needed(genres: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--languages de: has no en; add it"):
        genres.read_genres(stsb(tmp_path, 1375), ["de"])
    with pytest.raises(InputError, match="has no rows in it, tr; add them, or correct --languages"):
        genres.read_genres(tmp_path, ["en", "it", "de", "tr"])
