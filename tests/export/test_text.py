import gzip
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.files import pipe_with
from tests.helpers.vocabularies import make
from xcompress.corpus.split import sentence_key
from xcompress.corpus.store import write_lines
from xcompress.errors import InputError
from xcompress.export import text as sentences
from xcompress.export.source import Source
from xcompress.export.text import (
    CALIBRATED,
    UNKNOWN,
    VERIFIED,
    calibration_text,
    language_codes,
    packaged_languages,
    packaged_text,
    read_files,
    take_evenly,
    unverified_languages,
    verification_text,
)
from xcompress.vocab.count import FileCounter, count_file


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source("trial", tmp_path / "run/student", tmp_path / "run/bundle", {})


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in for the package's data: 8 sentences of German and of English, and 2 graded pairs of German."""
    folder = tmp_path / "data"
    folder.mkdir()
    for code in ("de", "en"):
        lines = "".join(f"Line {number} in {code}.\n" for number in range(8))
        (folder / f"sentences.{code}.txt").write_text(lines, encoding="utf-8")
    (folder / "graded.de.tsv").write_text("Erster.\tZweiter.\t4\nDritter.\tLINE 4 IN DE\t1\n", encoding="utf-8")
    monkeypatch.setattr(sentences, "DATA", folder)
    return folder


def corpus(source: Source, part: str, language: str, count: int) -> None:
    folder = source.student.parent / "corpus"
    folder.mkdir(parents=True, exist_ok=True)
    lines = (f"{part} {number}\t{part} {language} {number}\n".encode() for number in range(count))
    write_lines(folder / f"{part}.{language}.tsv", lines)


def keys(found: list[str]) -> set[str]:
    return {sentence_key(sentence) for sentence in found}


def test_the_package_has_eight_languages_and_no_sentence_for_both_purposes(source: Source) -> None:
    text, calibration = verification_text(source, []), calibration_text(source, [])
    assert list(text) == packaged_languages() == ["ar", "de", "en", "es", "fr", "it", "nl", "tr"]
    assert all(300 < len(found) <= VERIFIED for found in text.values())
    assert not keys(calibration) & {key for found in text.values() for key in keys(found)}


def test_every_packaged_language_has_enough_sentences(source: Source) -> None:
    assert min(map(len, verification_text(source, []).values())) >= 500
    assert len(calibration_text(source, [])) > 400


def test_every_fourth_packaged_line_calibrates_unless_another_source_verifies_on_it(source: Source, data: Path) -> None:
    text, calibration = verification_text(source, ["de"]), calibration_text(source, ["de"])
    assert text["de"][:4] == ["Erster.", "Zweiter.", "Dritter.", "LINE 4 IN DE"]
    assert text["de"][4:] == [f"Line {number} in de." for number in (1, 2, 3, 5, 6, 7)]
    assert calibration == ["Line 0 in de."]


def test_languages_calibrate_in_turn(source: Source, data: Path) -> None:
    (data / "graded.de.tsv").unlink()
    expected = ["Line 0 in de.", "Line 0 in en.", "Line 4 in de.", "Line 4 in en."]
    assert calibration_text(source, ["de", "en"]) == expected


def test_the_runs_corpus_is_used_with_english_from_every_language(source: Source, data: Path) -> None:
    for language in ("it", "fi"):
        corpus(source, "holdout", language, 7)
        corpus(source, "train", language, 300)
    text, calibration = verification_text(source, ["en", "it"]), calibration_text(source, ["en", "it"])
    assert text["it"] == [f"holdout it {number}" for number in range(7)]
    assert text["en"][:7] == [f"holdout {number}" for number in range(7)]
    assert "fi" not in text
    italian = [sentence for sentence in calibration if "train it" in sentence]
    assert len(italian) == sentences.FROM_TRAINING * CALIBRATED
    assert {"train it 0", "train it 292", "train 0", "Line 4 in en."} <= set(calibration)


def test_no_more_than_the_most_sentences_of_a_language(source: Source, data: Path) -> None:
    corpus(source, "holdout", "it", 2000)
    corpus(source, "train", "it", 50)
    found = verification_text(source, ["it"])["it"]
    assert len(found) == VERIFIED
    assert found[-1] == "holdout it 1996"
    assert len(calibration_text(source, ["it"])) <= CALIBRATED


def test_a_users_file_is_split_by_the_sentences_alone(source: Source, data: Path, tmp_path: Path) -> None:
    lines = [f"Sentence {number} of mine" for number in range(200)]
    for name, order in (("one.txt", lines), ("two.ja.txt.gz", lines[::-1])):
        opener = gzip.open if name.endswith(".gz") else open
        with opener(tmp_path / name, "wt", encoding="utf-8") as stream:  # type: ignore[operator]
            stream.write("\n".join(order))
    own, again = read_files([tmp_path / "one.txt"], ["ja"]), read_files([str(tmp_path / "two.ja.txt.gz")], ["ja", "ko"])
    one, rest = verification_text(source, ["ja"], own)["ja"], calibration_text(source, ["ja"], own)
    assert one == verification_text(source, ["ja", "ko"], again)["ja"]
    assert 70 < len(one) < 130
    assert set(one) | set(rest) == set(lines)
    assert not set(one) & set(rest)


def test_all_columns_of_a_users_table_are_read_but_not_its_scores(source: Source, data: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.ja.tsv").write_text(
        "\ufeffA cat\tEin Hund\t4.5\n\n \nA  mouse\tEine Maus\t1\n", encoding="utf-8"
    )
    given = read_files([tmp_path / "pairs.ja.tsv"], ["de", "ja"])
    text, rest = verification_text(source, ["de", "ja"], given), calibration_text(source, ["de", "ja"], given)
    assert set(text[UNKNOWN]) | set(rest) - {"Line 0 in de."} == {"A cat", "Ein Hund", "A mouse", "Eine Maus"}


@pytest.mark.parametrize("content", [b"", b"12\t4.5\n", b"\xff\xfe\xfa\n", b"x" * 30_000, "a\nb\nc\n".encode("utf-16")])
def test_a_users_file_without_text_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mine.txt").write_bytes(content)
    with pytest.raises(InputError, match=r"mine\.txt: contains no sentence; write"):
        read_files([tmp_path / "mine.txt"], [])
    with pytest.raises(InputError, match="cannot be read"):
        read_files([tmp_path / "absent.txt"], [])


def test_bad_lines_are_passed_over_with_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.ja.txt").write_bytes(b"Guter Satz\n" + b"\xff\n" + b"x" * 30_000 + b"\nNoch einer\n")
    (rows,) = read_files([tmp_path / "mine.ja.txt"], ["ja"])
    assert {row[1:] for row in rows} == {("ja", "Guter Satz"), ("ja", "Noch einer")}
    assert "2 lines are not UTF-8, have control characters or over" in capsys.readouterr().err


def test_the_tokens_of_a_file_are_counted_while_it_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, tokenizer = b"der Zug\n" * 45 + b"\xff\n" + b"\tHafen\n", make("wordpiece")
    (tmp_path / "mine.txt").write_bytes(content)
    expected = count_file(tokenizer, tmp_path / "mine.txt")
    capsys.readouterr()
    with pipe_with(content) as pipe:
        counter = FileCounter(tokenizer, pipe)
        (rows,) = read_files([pipe], ["de"], [counter])
    assert {row[2] for row in rows} == {"der Zug", "Hafen"}
    assert np.array_equal(counter.counts().seen, expected.seen)
    assert counter.counts().held_out == expected.held_out == ("der Zug",) * 2
    assert capsys.readouterr().err.count("UTF-8") == 1


@pytest.mark.parametrize(("name", "language"), [("my.fil.txt", "fil"), ("my.old.txt", UNKNOWN), ("my.ja.txt", "ja")])
def test_a_name_says_two_letters_or_a_language_of_the_model(tmp_path: Path, name: str, language: str) -> None:
    (tmp_path / name).write_text("Isang pangungusap\n")
    assert [row[1] for row in read_files([tmp_path / name], ["fil", "de"])[0]] == [language]


def test_of_a_large_file_the_same_sentences_are_kept_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [(1, f"cell {number}") for number in range(1000)]
    kept = sentences._smallest_hashes(cells, 10)
    assert len(kept) == 10
    assert kept == sentences._smallest_hashes(cells[::-1] + cells, 10)
    assert kept == sorted(kept)


def test_languages_without_text_are_named(source: Source, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = verification_text(source, ["de", "ja", "ko"])
    said = " ".join(capsys.readouterr().err.split())
    assert "no sentences in ja, ko to verify with; give some with --text NAME.ja.txt" in said
    assert "fewer than 500 sentences to verify with in de (10); give more with --text NAME.de.txt" in said
    assert unverified_languages(text, ["de", "ja", "ko"]) == ["ja", "ko"]
    assert unverified_languages({**text, UNKNOWN: ["x"]}, ["de", "ja"]) == []


def test_a_line_says_which_languages_are_verified_where_the_model_names_none(
    source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    verification_text(source, [])
    said = " ".join(capsys.readouterr().err.split())
    assert "README.md names no language, so ar, de, en, es, fr, it, nl, tr are verified; to choose" in said
    verification_text(source, ["de"])
    assert "names no language" not in capsys.readouterr().err


def test_a_model_of_other_languages_is_verified_all_the_same(source: Source, data: Path) -> None:
    assert verification_text(source, ["ja"]) == packaged_text()
    assert calibration_text(source, ["ja"]) == ["Line 0 in de.", "Line 0 in en.", "Line 4 in en."]


def test_codes_of_model_cards() -> None:
    assert language_codes(["multilingual", "pt-BR", "zh_CN", "EN", "pt"]) == ["pt", "zh", "en"]
    assert language_codes([]) == language_codes(["multilingual"]) == packaged_languages()


def test_a_spread_is_even() -> None:
    assert take_evenly(range(10), 4) == [0, 2, 5, 7]
    assert take_evenly(range(3), 4) == [0, 1, 2]
    assert take_evenly([], 4) == []
