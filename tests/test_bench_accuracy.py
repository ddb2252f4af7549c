from pathlib import Path

import numpy as np
import pytest

from xcompress.bench.accuracy import Exam, mark_retrieval, prepare, read_holdouts
from xcompress.bench.subjects import Place
from xcompress.corpus.similarity import GradedPairs, GradedSet
from xcompress.errors import InputError

ROWS = "one\teins\ntwo\tzwei\nthree\tdrei\nfour\tvier\n"


def holdout(folder: Path, language: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"holdout.{language}.tsv").write_text(text, encoding="utf-8")
    return folder


def test_holdouts_are_read_and_sampled_alike(tmp_path: Path) -> None:
    holdout(tmp_path, "de", ROWS)
    holdout(tmp_path, "fr", "four\tquatre\nthree\ttrois\ntwo\tdeux\none\tun\n")
    assert {code: len(rows) for code, rows in read_holdouts(tmp_path, 500).items()} == {"de": 4, "fr": 4}
    sample = read_holdouts(tmp_path, 2)
    assert [row[0] for row in sample["de"]] == [row[0] for row in sample["fr"]], "the same English sentences"


def test_repeated_sentences_are_left_out(tmp_path: Path) -> None:
    holdout(tmp_path, "de", ROWS + "one\tein\nfive\tvier\n")
    assert len(read_holdouts(tmp_path, 500)["de"]) == 4


def test_bad_holdout_lines_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holdout\.de\.tsv:2: 1 columns"):
        read_holdouts(holdout(tmp_path, "de", "one\teins\ntwo\n"), 500)


def test_retrieval_by_hand() -> None:
    """Forwards a, b and c find A, B and C; backwards C finds b: 5 of 6."""
    vectors = {"a": (1, 0, 0), "b": (0, 1, 0), "c": (0, 0, 1), "A": (1, 0, 0), "B": (0, 1, 0), "C": (0, 0.9, 0.3)}
    found = mark_retrieval(
        lambda texts: np.array([vectors[text] for text in texts], dtype=np.float32),
        {"de": (("a", "A"), ("b", "B"), ("c", "C")), "fr": (("a", "A"), ("b", "B"))},
    )
    assert found.figures == pytest.approx({"de": 100 * 5 / 6, "fr": 100.0})
    assert found.averages == pytest.approx({"average": 100 * 11 / 12})
    assert found.rows == 3


def test_exam_asks_every_sentence_once_and_marks() -> None:
    rows = GradedPairs(("aa", "aa", "aa"), ("aa", "b", "cccc"), (5.0, 3.0, 0.0))
    exam = Exam((GradedSet("tiny", {"en-en": rows}),), {"de": (("aa", "b"), ("cccc", "ddd"))})
    sentences = exam.sentences()
    assert sentences == ["b", "aa", "ddd", "cccc"], "shortest first"
    vectors = np.array([[0.9, 0.1], [1, 0], [0, 1], [0.1, 0.9]], dtype=np.float32)
    graded, retrieval = exam.mark(sentences, vectors)
    assert graded.averages["en-en"] == pytest.approx(100)
    assert retrieval.averages["average"] == pytest.approx(100)


def test_further_data_in_the_runs_languages(tmp_path: Path) -> None:
    run = tmp_path / "run"
    holdout(run / "corpus", "de", ROWS)
    data = tmp_path / "sts"
    data.mkdir()
    for pair in ("en-de", "en-fr"):
        (data / f"STS.{pair}.txt").write_text("one\teins\t5\ntwo\tdrei\t1\n", encoding="utf-8")
    exam = prepare(Place(run / "bundle", run), data, quick=False)
    assert set(exam.graded[1].language_pairs) == {"en-de"}
    (data / "STS.en-de.txt").unlink()
    with pytest.raises(InputError, match="no language pair of en, de"):
        prepare(Place(run / "bundle", run), data, quick=False)
