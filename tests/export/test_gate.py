import math

import numpy as np
import pytest
from numpy.typing import NDArray

from xcompress.corpus.graded import builtin
from xcompress.errors import GateError
from xcompress.export.accuracy import (
    FP32,
    STATIC,
    TOKEN,
    Build,
    Cost,
    Encode,
    Regression,
    check_gate,
    find_regressions,
    graded_scores,
    matmul_costs,
)

TEXTS = [f"text {number}" for number in range(20)]
NOISE = {"first": 0.3, "second": 0.02, "third": 0.1}
LEFT = {STATIC: 1.0, TOKEN: 0.2, FP32: 0.0}
Vectors = NDArray[np.float32]


def by_letters(texts: list[str]) -> Vectors:
    """Count letters: enough to tell paraphrases from unrelated sentences."""
    counts = np.zeros((len(texts), 512), dtype=np.float32)
    for row, text in enumerate(texts):
        np.add.at(counts[row], [ord(letter) % 512 for letter in text.lower()], 1)
    return counts


def exact(texts: list[str]) -> Vectors:
    return np.stack([np.random.default_rng(len(text) + hash_of(text)).normal(size=8) for text in texts])


def hash_of(text: str) -> int:
    return sum(map(ord, text))


def noisy(counts: list[dict[str, str]] | None = None) -> Build:
    """Build encoders whose every site adds noise in a direction of its own, less at higher levels."""

    def build(levels: dict[str, str]) -> Encode:
        if counts is not None:
            counts.append(dict(levels))
        added = np.zeros(8)
        for direction, (site, noise) in enumerate(NOISE.items()):
            added[direction] = noise * LEFT[levels[site]]
        return lambda texts: exact(texts) + added

    return build  # type: ignore[return-value]


def test_scores_are_those_of_the_models_languages() -> None:
    assert set(graded_scores(by_letters, ["de", "en"])) == {"de-de", "en-en", "en-de"}
    assert set(graded_scores(by_letters, ["pt-BR", "de"])) == {"de-de"}
    assert graded_scores(by_letters, ["ja"]) == {}
    every = graded_scores(by_letters)
    assert set(every) == set(builtin().language_pairs)
    assert 20 < every["en-en"] < 95


def test_what_fell_comes_worst_first_and_no_number_before_all() -> None:
    before = {"de-de": 80.0, "en-en": 81.0, "en-de": 70.0, "fr-fr": 75.0, "it-it": 60.0}
    after = {"de-de": 79.5, "en-en": 80.4, "en-de": 68.0, "fr-fr": math.nan, "it-it": 66.0}
    assert [fall.pair for fall in find_regressions(before, after, 0.5)] == ["fr-fr", "en-de", "en-en"]
    assert find_regressions(before, {**after, "fr-fr": 75}, 2) == []


def test_an_export_that_lost_too_much_is_refused_in_one_line_with_what_costs_most() -> None:
    costs = [Cost("layers.2.output", 0.0123), Cost("head", 0.001)]
    with pytest.raises(GateError) as caught:
        check_gate({"de-de": 80, "en-en": 81}, {"de-de": 78.75, "en-en": 80.9}, 0.5, lambda: costs)
    assert str(caught.value) == (
        "gate: Spearman x 100 on graded pairs fell in de-de by 1.25 (80.00 to 78.75), allowed 0.5; the products that "
        "cost most (mean of 1 - cosine saved in fp32): layers.2.output (0.01230), head (0.00100); use --precision "
        "auto, or a larger --gate"
    )
    assert caught.value.exit_code == 3


def test_many_pairs_are_counted() -> None:
    before = {f"{code}-{code}": 80.0 for code in ("ar", "de", "en", "es", "fr", "it")}
    with pytest.raises(GateError, match=r"and 2 more, allowed 0\.5; use"):
        check_gate(before, dict.fromkeys(before, 70.0), 0.5)


def test_costs_are_measured_only_for_an_export_that_fell(capsys: pytest.CaptureFixture[str]) -> None:
    def measure() -> list[Cost]:
        raise AssertionError

    check_gate({"de-de": 80}, {"de-de": 79.6}, 0.5, measure)
    assert not capsys.readouterr().err
    check_gate({}, {}, 0.5, measure)
    assert "gate was not checked" in capsys.readouterr().err


def test_a_fall_tells_its_points() -> None:
    assert str(Regression("en-de", 70.123, 68.9)) == "en-de by 1.22 (70.12 to 68.90)"


def test_the_noisiest_site_costs_most() -> None:
    costs = matmul_costs(noisy(), list(NOISE), TEXTS, exact(TEXTS))
    assert [cost.matmul for cost in costs] == ["first", "third", "second"]
    assert costs[0].gain > 4 * costs[1].gain > 0


def test_costs_are_those_at_the_levels_given() -> None:
    asked: list[dict[str, str]] = []
    levels = {"first": FP32, "second": STATIC, "third": TOKEN}
    costs = {cost.matmul: cost.gain for cost in matmul_costs(noisy(asked), list(NOISE), TEXTS, exact(TEXTS), levels)}
    assert costs["first"] == 0
    assert asked[0] == levels
    assert {**levels, "second": FP32} in asked
