from collections import Counter

from tests.helpers import ROOT
from xcompress.corpus.graded import builtin

DATA = ROOT / "xcompress" / "data"
LANGUAGES = {"en", "ar", "de", "es", "fr", "it", "nl", "tr"}


def rows(language: str) -> list[list[str]]:
    return [line.split("\t") for line in (DATA / f"graded.{language}.tsv").read_text(encoding="utf-8").splitlines()]


def test_every_language_pair_can_be_scored() -> None:
    pairs = builtin().language_pairs
    assert {language for pair in pairs for language in pair.split("-")} == LANGUAGES
    assert all(len(graded) == len(rows("en")) >= 600 for graded in pairs.values())
    assert {f"en-{language}" for language in LANGUAGES} <= pairs.keys()


def test_rows_are_the_same_pair_with_the_same_grade_in_every_language() -> None:
    grades = [row[2] for row in rows("en")]
    for language in LANGUAGES:
        assert [row[2] for row in rows(language)] == grades
        assert all(len(row) == 3 and all(cell.strip() for cell in row) for row in rows(language))


def test_grades_are_spread_over_the_scale_in_quarters() -> None:
    grades = Counter(float(row[2]) for row in rows("en"))
    assert set(grades) <= {step / 4 for step in range(21)}
    whole = Counter(round(grade) for grade in grades.elements())
    assert all(whole[grade] >= 60 for grade in (0, 1, 2, 3, 4, 5))


def test_every_kind_of_difference_has_fitting_grades() -> None:
    kinds = [line.split("\t")[1] for line in (DATA / "graded.kinds.tsv").read_text(encoding="utf-8").splitlines()]
    limits = {
        "paraphrase": (4, 5),
        "added detail": (3, 4.5),
        "missing detail": (2.75, 4.5),
        "other number": (2, 3.75),
        "other time": (2, 3.75),
        "other place": (1.5, 3.75),
        "swapped roles": (2, 3),
        "negation": (1.25, 2.5),
        "shared details": (0.75, 3.75),
        "same topic": (0.5, 1.75),
        "unrelated": (0, 0.75),
    }
    assert set(kinds) == set(limits)
    for kind, row in zip(kinds, rows("en"), strict=True):
        low, high = limits[kind]
        assert low <= float(row[2]) <= high, row


def test_no_sentence_is_repeated_or_untranslated() -> None:
    for language in LANGUAGES:
        sentences = [cell for row in rows(language) for cell in row[:2]]
        assert len(set(sentences)) == len(sentences), language
    english = {cell for row in rows("en") for cell in row[:2]}
    for language in LANGUAGES - {"en"}:
        assert not english & {cell for row in rows(language) for cell in row[:2]}
