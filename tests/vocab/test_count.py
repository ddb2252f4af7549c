import gzip
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.student import make_tokenizer
from tests.helpers.vocabularies import make, text_file
from tests.vocab.watched import WatchedTokenizer
from xcompress.errors import InputError
from xcompress.vocab.count import check_languages, count_file, count_words, count_words_and_files

pytestmark = pytest.mark.usefixtures("word_lists")


def test_frequent_words_are_counted_in_both_cases_and_several_places() -> None:
    tokenizer = make("byte_level")
    counted = count_words(tokenizer, "de")
    for text in ("der", "Der", " der", " Der", " (der", " (Der"):
        assert all(counted.seen[number] for number in tokenizer.encode(text, add_special_tokens=False).ids)
    assert counted.shares.sum() == pytest.approx(1)
    assert counted.words_only


def test_a_word_of_rank_one_weighs_more_than_a_later_one() -> None:
    tokenizer = make("wordpiece")
    counted = count_words(tokenizer, "de")
    first, later = (tokenizer.token_to_id(word) for word in ("der", "nicht"))
    assert counted.seen[first] == counted.seen[later] == 2  # der, Der
    assert counted.shares[first] == pytest.approx(4 * counted.shares[later])


def test_some_rarer_words_are_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcompress.vocab.count.ALWAYS_COUNTED", 2)
    monkeypatch.setattr("xcompress.vocab.count.HELD_OUT", 3)
    tokenizer = make("wordpiece")
    without = count_words(tokenizer, "de")
    assert without.held_out == ("heute",)
    monkeypatch.setattr("xcompress.vocab.count.HELD_OUT", 99)
    assert count_words(tokenizer, "de").seen.sum() > without.seen.sum()


def test_a_language_without_a_list_is_refused_before_the_lists_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcompress.vocab.count.resolve", lambda _: pytest.fail("fetched"))
    check_languages(["de", "zh"])
    with pytest.raises(InputError, match=r"no word frequencies for 'xx', 'de en', only for ar .* zh; write these"):
        check_languages(["xx", "de", "de en"])
    with pytest.raises(InputError, match="no word frequencies for 'xx'"):
        count_words(make("wordpiece"), "xx")


def test_a_tokenizer_that_cannot_be_trimmed_is_refused_before_the_lists_are_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("xcompress.vocab.count.resolve", lambda _: pytest.fail("fetched"))
    with pytest.raises(InputError, match="tokenizer is WordLevel, only Unigram, WordPiece, BPE can be trimmed"):
        count_words_and_files(make_tokenizer(), ["de"], [])


def test_every_twentieth_line_of_a_text_is_held_out(tmp_path: Path) -> None:
    tokenizer = make("wordpiece")
    lines = ["der Zug"] * 19 + ["Hafen"] + ["der Zug"] * 19 + ["Boot\tHafen"] + ["nicht"]
    counted = count_file(tokenizer, text_file(tmp_path, lines))
    assert counted.held_out == ("Hafen", "Boot", "Hafen")
    assert counted.seen[tokenizer.token_to_id("der")] == 38
    assert counted.seen[tokenizer.token_to_id("nicht")] == 1


def test_only_so_many_lines_are_held_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcompress.vocab.count.HELD_OUT_AT_MOST", 2)
    tokenizer = make("wordpiece")
    counted = count_file(tokenizer, text_file(tmp_path, ["der"] * 100))
    assert len(counted.held_out) == 2
    assert counted.seen.sum() == 98


def test_long_lines_are_tokenized_a_few_at_a_time_and_counted_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = text_file(tmp_path, [f"der Zug {'Hafen ' * (number % 7)}" for number in range(90)])
    whole = count_file(make("wordpiece"), path)
    monkeypatch.setattr("xcompress.vocab.student.CHUNK_CHARACTERS", 100)
    tokenizer = WatchedTokenizer(make("wordpiece"))
    parts = count_file(tokenizer, path)  # type: ignore[arg-type]
    assert max(tokenizer.characters) <= 100 < sum(tokenizer.characters)
    assert parts.held_out == whole.held_out
    assert np.array_equal(parts.seen, whole.seen)
    assert np.array_equal(parts.shares, whole.shares)


def test_compressed_text_with_columns_is_read(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv.gz"
    path.write_bytes(gzip.compress("\ufeffder\tZug\n\n".encode()))
    tokenizer = make("wordpiece")
    counted = count_file(tokenizer, path)
    assert np.flatnonzero(counted.seen).tolist() == sorted(tokenizer.encode("der Zug", add_special_tokens=False).ids)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "contains no text"),
        ("a.txt", b"Z\xfcrich " * 5000, "contains no text"),
        ("a.txt", "Z\u00fcrich\n".encode("utf-16"), r"a\.txt:1: not UTF-8"),
        ("a.txt", "Zurich\nBern\n".encode("utf-16-le"), "contains no text"),
        ("a.txt.gz", b"no gzip", "contains no text"),
    ],
)
def test_bad_text_is_refused_in_one_line(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        count_file(make("wordpiece"), tmp_path / name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"der Zug\n\xff\xfe\nder Zug\n", "a.txt: 1 line not in UTF-8 left out"),
        ("a.txt.gz", gzip.compress(b"der Zug\n" * 2, mtime=0)[:-8], "cut off after line 2"),
    ],
)
def test_of_a_file_with_bad_lines_the_others_are_counted(
    name: str, content: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    tokenizer = make("wordpiece")
    assert count_file(tokenizer, tmp_path / name).seen[tokenizer.token_to_id("der")] == 2
    assert message in capsys.readouterr().err


def test_missing_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.txt: cannot be read"):
        count_file(make("wordpiece"), tmp_path / "absent.txt")
