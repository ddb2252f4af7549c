import gzip
from collections import Counter
from pathlib import Path

import msgpack
import numpy as np
import pytest

from tests.helpers.limits import frugal
from xcompress.corpus.word_lists import read_words, with_capitals, word_sequences
from xcompress.errors import InputError

HEADER = b"\x92" + msgpack.packb({"format": "cB"})


def test_frequency_bins_are_read_most_frequent_first(tmp_path: Path) -> None:
    path = tmp_path / "small_de.msgpack.gz"
    path.write_bytes(gzip.compress(msgpack.packb([{"format": "cB", "version": 1}, [], ["und", "der"], ["Haus"]])))
    assert read_words(path, 10) == ["und", "der", "Haus"]
    assert read_words(path, 2) == ["und", "der"]


def test_plain_lists_have_a_word_a_line(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("und\nder\nHaus\n", encoding="utf-8")
    assert read_words(path, 2) == ["und", "der"]


def test_lists_of_words_and_counts_are_refused_and_a_few_expressions_are_not(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("und 912\nder 850\nHaus\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"not a word list \(most lines have more than a word, such as 'und 912'\)"):
        read_words(path, 3)
    path.write_text("und\nzum Beispiel\nder\n", encoding="utf-8")
    assert read_words(path, 3) == ["und", "zum Beispiel", "der"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("words.msgpack.gz", b"not gzip"),
        ("words.msgpack.gz", gzip.compress(msgpack.packb([{"format": "other"}, ["a"]]))),
        ("words.msgpack.gz", gzip.compress(msgpack.packb([{"format": "cB"}, ["a"]]))[:-12]),
        ("words.msgpack.gz", gzip.compress(msgpack.packb([{"format": "cB"}, ["a"]]))[:-3]),
        ("words.msgpack.gz", gzip.compress(msgpack.packb([{"format": "cB"}, ["a"]])[:-1])),
        ("words.msgpack.gz", gzip.compress(b"\xdd\xff\xff\xff\xff")),
        ("words.msgpack.gz", gzip.compress(b"\x91" * 100_000)),
        ("words.msgpack.gz", gzip.compress(b"")),
        ("words.msgpack.gz", gzip.compress(msgpack.packb([1, ["a"]]))),
        ("words.msgpack.gz", gzip.compress(msgpack.packb(["cB", 5]))),
        ("words.msgpack.gz", gzip.compress(msgpack.packb([{"format": "cB"}, 5]))),
        ("words.msgpack.gz", gzip.compress(msgpack.packb([{"format": "cB"}, [5]]))),
        ("words.msgpack.gz", gzip.compress(bytes(120_000_000), 1)),
        ("words.msgpack.gz", gzip.compress(HEADER + b"\xdd\x01\x80\x00\x00" + b"\x90" * 25_165_824, 1)),
        ("words.msgpack.gz", gzip.compress(HEADER + b"\x91\xdd\x01\x80\x00\x00" + b"\x90" * 25_165_824, 1)),
        ("words.msgpack.gz", gzip.compress(b"\xdd\x01\x80\x00\x01" + HEADER[1:] + b"\x90" * 25_165_824, 1)),
        ("words.txt", b" \n\n"),
    ],
    ids=range(17),
)
def test_other_files_are_refused(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with frugal(300), pytest.raises(InputError, match=f"{name}: not a word list") as caught:
        read_words(tmp_path / name, 5)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("words.txt", b"und\n\xff\xfe\xff", ":2: not UTF-8"),
        ("words.txt", b"x" * 1_000_000, ":1: longer than 20,000 bytes"),
        ("words.txt.gz", gzip.compress(b"x" * 50_000_000, 1), ":1: longer than 20,000 bytes"),
    ],
    ids=range(3),
)
def test_lines_that_are_no_text_are_named(name: str, content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with frugal(300), pytest.raises(InputError, match=f"{name}{says}"):
        read_words(tmp_path / name, 5)


def test_words_also_stand_at_the_start_of_a_sentence() -> None:
    assert with_capitals(["haus", "Berlin", "élan"]) == ["haus", "Berlin", "élan", "Haus", "Élan"]


def test_word_sequences_have_two_to_eight_words_and_prefer_frequent_ones() -> None:
    words = [f"w{row}" for row in range(1000)]
    sequences = word_sequences(words, 3000, np.random.default_rng(1))
    assert {len(sequence.split()) for sequence in sequences} == {*range(2, 9)}
    counts = Counter(word for sequence in sequences for word in sequence.split())
    first, last = (sum(counts[word] for word in part) for part in (words[:100], words[-100:]))
    assert first > 3 * last > 0
    assert sequences == word_sequences(words, 3000, np.random.default_rng(1))
