"""The evaluations that papers report: the files, and the averages."""

from pathlib import Path

import numpy as np
import pytest

from xcompress.bench.eval import collect
from xcompress.bench.eval.retrieval import GROUPS, complete_groups
from xcompress.bench.eval.task import EvalTask
from xcompress.bench.results import Accuracy, Figure
from xcompress.corpus.graded import averages
from xcompress.metrics import Encode

ALIKE, SWAPPED, REVERSED = (0.0, 0.3, 0.6, 0.9), (0.0, 0.3, 0.9, 0.6), (0.9, 0.6, 0.3, 0.0)
"""Angles between the sentences of four pairs, in the order of human scores: rho = 1, 0.8, -1."""
STS_2017 = {
    "STS.en-en.txt": ALIKE,
    "STS.es-es.txt": SWAPPED,
    "STS.ar-ar.txt": REVERSED,
    "STS.en-ar.txt": ALIKE,
    "STS.en-de.txt": SWAPPED,
    "STS.en-tr.txt": SWAPPED,
    "STS.es-en.txt": ALIKE,
    "STS.fr-en.txt": REVERSED,
    "STS.it-en.txt": SWAPPED,
    "STS.nl-en.txt": ALIKE,
}
"""The files of STS 2017 and its extension, by their original names."""
MONOLINGUAL = ("en-en", "es-es", "ar-ar")
CROSSED = ("en-ar", "en-de", "en-tr", "en-es", "en-fr", "en-it", "en-nl")
TATOEBA = (
    "afr ara bul ben deu ell spa est eus pes fin fra heb hin hun ind ita jpn jav kat kaz kor mal mar nld pol por rus "
    "swh tam tel tha tgl tur urd vie cmn"
)
"""Files of Tatoeba: XTREME's 36 languages, and Polish."""


def printed(folder: Path, encode: Encode) -> Accuracy:
    """Evaluate the only task of a folder, which comes after the built-in set."""
    task: EvalTask = collect(folder).tasks[1]
    found = task.summarize(task.score(encode), None)
    assert found is not None
    return found


def values(figures: dict[str, Figure]) -> dict[str, float]:
    return {name: figure.value for name, figure in figures.items()}


@pytest.fixture
def sts(tmp_path: Path) -> Path:
    folder = tmp_path / "STS2017-extended"
    folder.mkdir()
    for name, angles in STS_2017.items():
        rows = [f"{name} left {n}\t{angle}\t{5 - n}\n" for n, angle in enumerate(angles)]
        (folder / name).write_text("".join(rows), encoding="utf-8")
    return folder


def by_angle(texts: list[str]) -> np.ndarray:
    """Encode a first sentence as angle 0, a second one as the angle that is its text."""
    angles = np.array([0.0 if "left" in text else float(text) for text in texts])
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_sts_2017_and_its_extension(sts: Path) -> None:
    found = printed(sts, by_angle)
    assert (found.test, found.metric, found.rows) == ("STS2017-extended", "Spearman x 100", 4)
    expected = {"en-en": 100, "es-es": 80, "ar-ar": -100, "en-de": 80, "es-en": 100, "fr-en": -100}
    assert values(found.figures).items() >= {name: pytest.approx(value) for name, value in expected.items()}.items()
    assert len(found.figures) == 10
    assert values(found.averages) == pytest.approx(
        {"en-en": 100, "monolingual": 80 / 3, "other monolingual": -10, "en-xx": 440 / 7}
    )


@pytest.mark.parametrize(
    ("group", "pairs", "row", "average"),
    [
        ("monolingual", MONOLINGUAL, (89.3, 86.4, 78.8), 84.8),  # calibrated similarity, table 2
        ("monolingual", MONOLINGUAL, (77.6, 79.7, 68.9), 75.4),
        ("en-xx", CROSSED, (76.4, 87.1, 82.4, 86.0, 85.1, 87.6, 86.5), 84.5),  # the same, table 1
        ("en-xx", CROSSED, (66.5, 64.2, 72.0, 57.9, 69.1, 70.8, 68.5), 67.0),
        ("monolingual", MONOLINGUAL, (84.4, 79.3, 72.8), 78.8),  # multi-stage distillation, table 1
        ("en-xx", CROSSED, (73.0, 76.0, 63.7, 71.4, 71.8, 72.1, 74.7), 71.8),  # the same, table 2
    ],
)
def test_averages_of_sts_2017_are_those_printed(
    group: str, pairs: tuple[str, ...], row: tuple[float, ...], average: float
) -> None:
    """Papers round figures and averages to a tenth independently."""
    every = dict.fromkeys((*MONOLINGUAL, *CROSSED), 0.0) | dict(zip(pairs, row, strict=True))
    assert averages(every)[group] == pytest.approx(average, abs=0.1)


@pytest.fixture
def tatoeba(tmp_path: Path) -> Path:
    for code in TATOEBA.split():
        for side in (code, "eng"):
            lines = "".join(f"{code} {side} {n}\n" for n in range(3))
            (tmp_path / f"tatoeba.{code}-eng.{side}").write_text(lines, encoding="utf-8")
    return tmp_path


def at_random(texts: list[str]) -> np.ndarray:
    return np.array([np.random.default_rng([*text.encode()]).normal(size=3) for text in texts], dtype=np.float32)


def test_tatoeba_by_the_groups_of_languages_that_papers_have(tatoeba: Path) -> None:
    found = printed(tatoeba, at_random)
    assert list(found.averages) == ["xx>en", "en>xx", "average", "14 languages", "36 languages"]
    figures = values(found.figures)
    assert len(figures) == 2 * len(TATOEBA.split())
    for name, size in (("14 languages", 14), ("36 languages", 36)):
        members = [figures[direction] for code in GROUPS[name] for direction in (f"{code}>en", f"en>{code}")]
        assert len(set(GROUPS[name])) == size and len(members) == 2 * size
        assert found.averages[name].value == pytest.approx(np.mean(members))
    assert len(set(values(found.averages).values())) == 5, "no two averages are the same by chance"


def test_a_part_of_a_group_is_not_averaged(tatoeba: Path) -> None:
    (tatoeba / "tatoeba.pol-eng.pol").unlink()
    (tatoeba / "tatoeba.pol-eng.eng").unlink()
    assert list(printed(tatoeba, at_random).averages)[3:] == ["36 languages"]
    assert complete_groups(["de", "fr"]) == {}
