import gzip
import lzma
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import SHARED
from xcompress.corpus.labelled import (
    RELATIONS,
    Entailment,
    GradedPair,
    read_aligned_graded,
    read_entailment,
    read_graded,
)
from xcompress.errors import InputError

GOOD = "a cat sleeps\tthe cat naps\t4.5\n"
OPENERS: dict[str, Callable[..., object]] = {"": open, ".gz": gzip.open, ".xz": lzma.open}


def write(path: Path, text: str) -> Path:
    with OPENERS.get(path.suffix, open)(path, "wt", encoding="utf-8") as stream:  # type: ignore[attr-defined]
        stream.write(text)
    return path


@pytest.mark.parametrize("packed", OPENERS)
def test_graded_csv(tmp_path: Path, packed: str) -> None:
    text = '"A cat, a dog.",Two pets.,5.0\n"He said ""yes"".",  He\u00a0 agreed. ,3.8\n\nRain.,Sun.,0\n'
    assert read_graded(write(tmp_path / f"x.csv{packed}", text)) == [
        GradedPair("A cat, a dog.", "Two pets.", 1.0),
        GradedPair('He said "yes".', "He agreed.", 0.76),
        GradedPair("Rain.", "Sun.", 0.0),
    ]


@pytest.mark.parametrize("packed", OPENERS)
def test_graded_tsv(tmp_path: Path, packed: str) -> None:
    """Quotation marks mean nothing in .tsv; a byte order mark is passed over."""
    text = '\ufeffA cat\tan "animal"\t2.5\r\n"Rain\tSun\t1\r\n'
    assert read_graded(write(tmp_path / f"x.tsv{packed}", text)) == [
        GradedPair("A cat", 'an "animal"', 0.5),
        GradedPair('"Rain', "Sun", 0.2),
    ]


ROWS = {
    "en": "a cat sleeps,the cat naps,4.5\nrain,sun,0\n",
    "de": "eine Katze schläft,die Katze döst,4.5\nRegen,Sonne,0\n",
    "fr": "un chat dort,le chat somnole,4.5\npluie,soleil,0\n",
}


def test_aligned_files_give_pairs_within_a_language_and_with_another(tmp_path: Path) -> None:
    files = {language: write(tmp_path / f"{language}.csv.xz", text) for language, text in ROWS.items()}
    pairs = read_aligned_graded(files, seed=1)
    assert len(pairs) == 2 * 3 * 2 and [pair.score for pair in pairs] == [0.9, 0.9, 0.0, 0.0] * 3
    assert pairs[4] == GradedPair("eine Katze schläft", "die Katze döst", 0.9)
    assert pairs[5].first == "eine Katze schläft" and pairs[5].second in ("the cat naps", "le chat somnole")
    assert pairs == read_aligned_graded(files, seed=1)
    assert any(pairs != read_aligned_graded(files, seed=seed) for seed in range(2, 6))


def test_aligned_files_must_agree(tmp_path: Path) -> None:
    english = write(tmp_path / "en.csv", ROWS["en"])
    other = write(tmp_path / "de.csv", ROWS["de"].replace("4.5", "4"))
    with pytest.raises(InputError, match=r"de\.csv: row 1 has score 4, but en\.csv has 4\.5 there"):
        read_aligned_graded({"en": english, "de": other}, seed=1)
    with pytest.raises(InputError, match=r"some are \.csv and some \.tsv; use one format"):
        read_aligned_graded({"en": english, "de": write(tmp_path / "de.tsv", GOOD)}, seed=1)
    high = {code: write(tmp_path / f"high.{code}.csv", text.replace("4.5", "6")) for code, text in ROWS.items()}
    with pytest.raises(InputError, match=r"high\.en\.csv: row 1 has no score from 0 to 5; correct it"):
        read_aligned_graded(high, seed=1)


def test_entailment_in_both_layouts(tmp_path: Path) -> None:
    text = (
        "He came home.\tHe is at home.\tentailment\n"
        "He came home.\tHe is tired.\tNEUTRAL\tfiction\tentailment\n"
        "He came home.\tHe stayed away.\t1.3\tContradiction\tTRAIN\n"
    )
    assert read_entailment(write(tmp_path / "x.tsv", text)) == [
        Entailment("He came home.", "He is at home.", 0),
        Entailment("He came home.", "He is tired.", 1),
        Entailment("He came home.", "He stayed away.", 2),
    ]
    csv = write(tmp_path / "x.csv", '"He came, late.",He is late.,entailment\n')
    assert read_entailment(csv) == [Entailment("He came, late.", "He is late.", 0)]


def test_of_the_same_two_sentences_the_first_line_stays(tmp_path: Path) -> None:
    graded = read_graded(write(tmp_path / "x.tsv", "a\tb\t5\nb\ta\t4\na\tb \t0\n"))
    assert graded == [GradedPair("a", "b", 1.0), GradedPair("b", "a", 0.8)]
    relations = read_entailment(write(tmp_path / "y.tsv", "a\tb\tneutral\na\tb\tentailment\n"))
    assert relations == [Entailment("a", "b", 1)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("first\tsecond\tscore", "no score from 0 to 5"),
        ("a\tb\tnan", "no score from 0 to 5"),
        ("a\tb\t5.1", "no score from 0 to 5"),
        ("a\tb\t-0.1", "no score from 0 to 5"),
        ("a\t \t3", "an empty side"),
        ("a\t\u200f\t3", "an empty side"),
        ("a\tb", "fewer than three columns"),
        ("a, b, 3", "fewer than three columns"),
        ("a\tb\t3\tc", "more than three columns"),
    ],
)
def test_bad_graded_lines_are_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, reason: str
) -> None:
    path = write(tmp_path / "x.tsv", f"{GOOD}\n{line}\n")
    assert read_graded(path) == [GradedPair("a cat sleeps", "the cat naps", 0.9)]
    said = " ".join(capsys.readouterr().err.split())
    assert f"1 of 2 lines is bad: 1 {reason} (such as line 3); the rest is used" in said


def test_a_file_in_order_is_read_without_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read_graded(write(tmp_path / "x.tsv", GOOD))
    assert capsys.readouterr().err == ""


def test_pairs_without_a_label_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "x.tsv", "a\tb\tneutral\nc\td\t-\n")
    assert read_entailment(path) == [Entailment("a", "b", 1)]
    assert "1 no label (such as line 2)" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "line",
    [
        "7\tHe came home.\tHe is at home.\t4.1\tENTAILMENT\tTRAIN\n",  # SICK
        "neutral\t( He came )\t( He is at home )\tHe came.\tHe is at home.\tneutral\n",  # SNLI
        "en\tneutral\tHe came.\tHe is at home.\tneutral\n",  # XNLI
    ],
)
def test_columns_in_front_of_the_sentences_are_not_read_as_sentences(tmp_path: Path, line: str) -> None:
    with pytest.raises(InputError, match=r"1 a number or a label in place of a sentence .*; write premise, hypothesis"):
        read_entailment(write(tmp_path / "x.tsv", line))


def test_scores_that_may_be_on_another_scale_are_mentioned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {code: write(tmp_path / f"{code}.tsv", "a cat\ta pet\t1\nrain\tsun\t0.2\n") for code in ("en", "de")}
    for read in (lambda: read_graded(files["en"]), lambda: read_aligned_graded(files, seed=1)):
        read()
        said = " ".join(capsys.readouterr().err.split())
        assert "en.tsv: no score is above 1, of 5; if they are from 0 to 1, multiply them by 5" in said


def test_a_file_that_is_more_bad_than_good_is_refused(tmp_path: Path) -> None:
    graded = write(tmp_path / "x.tsv", f"{GOOD}a\tb\tneutral\nc\td\tneutral\n")
    says = r"x\.tsv: 2 of 3 lines are bad: 2 no score from 0 to 5 \(such as line 2\); write sentence, sentence, score"
    with pytest.raises(InputError, match=says):
        read_graded(graded)
    with pytest.raises(InputError, match=r"such as line 1\); write premise, hypothesis, entailment\|neutral\|contra"):
        read_entailment(write(tmp_path / "y.tsv", GOOD))


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin.tsv").write_bytes(GOOD.encode() + "naïve\tb\t3\n".encode("latin-1"))
    (tmp_path / "cut.tsv.xz").write_bytes(lzma.compress(GOOD.encode() * 999)[:-30])
    write(tmp_path / "blank.tsv", "\n \n")
    write(tmp_path / "open.csv", 'a,b,1\nc,"d,2\ne,f,3\n')
    write(tmp_path / "x.txt", GOOD)
    for name, says in {
        "latin.tsv": r"latin\.tsv:2: not UTF-8",
        "cut.tsv.xz": r"cut\.tsv\.xz: cannot be read \(cut off after line \d+",
        "blank.tsv": r"blank\.tsv: no line could be read, it is empty; write sentence, sentence, score",
        "open.csv": r"open\.csv:3: not valid CSV \(unexpected end of data\); correct its quotes",
        "x.txt": r"x\.txt: expected \.csv or \.tsv",
        "none.tsv": r"none\.tsv: cannot be read \(No such file",
    }.items():
        with pytest.raises(InputError, match=says):
            read_graded(tmp_path / name)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data is not beside this checkout")
def test_real_files(capsys: pytest.CaptureFixture[str]) -> None:
    xnli = read_entailment(SHARED / "nli" / "xnli.en.dev.tsv.xz")
    sick = read_entailment(SHARED / "nli" / "sick.en.train.tsv.xz")
    stsb = read_graded(SHARED / "stsb-multi-mt" / "stsb-en-train.csv.xz")
    assert xnli[2] == Entailment("And he said, Mama, I'm home.", "He told his mom he had gotten home.", 0)
    assert Counter(RELATIONS[one.label] for one in xnli) == dict.fromkeys(RELATIONS, 830)
    assert (len(xnli), len(sick), len(stsb)) == (2490, 4028, 5706)
    assert stsb[1] == GradedPair("A man is playing a large flute.", "A man is playing a flute.", 0.76)
    assert capsys.readouterr().err == ""
