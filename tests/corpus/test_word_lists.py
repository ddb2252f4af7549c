import gzip
from pathlib import Path

import msgpack
import pytest

from xcompress.corpus.word_lists import read_words, with_capitals
from xcompress.errors import InputError


def test_frequency_bins_are_read_most_frequent_first(tmp_path: Path) -> None:
    path = tmp_path / "small_de.msgpack.gz"
    path.write_bytes(gzip.compress(msgpack.packb([{"format": "cB", "version": 1}, [], ["und", "der"], ["Haus"]])))
    assert read_words(path, 10) == ["und", "der", "Haus"]
    assert read_words(path, 2) == ["und", "der"]


def test_plain_lists_have_a_word_a_line(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("und\nder\nHaus\n", encoding="utf-8")
    assert read_words(path, 2) == ["und", "der"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("words.msgpack.gz", b"not gzip"),
        ("words.msgpack.gz", gzip.compress(msgpack.packb([{"format": "other"}, ["a"]]))),
        ("words.txt", b"\xff\xfe\xff"),
    ],
)
def test_other_files_are_refused(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name}: not a word list"):
        read_words(tmp_path / name, 5)


def test_words_also_stand_at_the_start_of_a_sentence() -> None:
    assert with_capitals(["haus", "Berlin", "élan"]) == ["haus", "Berlin", "élan", "Haus", "Élan"]
