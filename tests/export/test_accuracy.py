import math
import re
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers.student import SENTENCES, make_student, make_tokenizer
from xcompress.corpus.graded import builtin
from xcompress.errors import GateError
from xcompress.export.accuracy import (
    FP32,
    LEVELS,
    MAX_STEPS,
    Cost,
    Encode,
    Levels,
    Loss,
    Regression,
    Search,
    SearchResult,
    Step,
    Vectors,
    check_gate,
    explain_regressions,
    find_regressions,
    graded_scores,
    matmul_costs,
    mean_loss,
)
from xcompress.modeling.student import encode

STATIC, TOKEN, _ = LEVELS
TEXTS = [f"text {number}" for number in range(20)]
NOISE = {"first": 0.3, "second": 0.02, "third": 0.1}
LEFT = {STATIC: 1.0, TOKEN: 0.2, FP32: 0.0}


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


def noisy(asked: list[dict[str, str]] | None = None) -> Loss:
    """Measure the loss of encoders whose every site adds noise in a direction of its own, less at higher levels."""

    def measure(levels: Mapping[str, str]) -> float:
        if asked is not None:
            asked.append(dict(levels))
        added = np.zeros(8)
        for direction, (site, noise) in enumerate(NOISE.items()):
            added[direction] = noise * LEFT[levels[site]]
        return mean_loss(exact(TEXTS) + added, exact(TEXTS))

    return measure


def test_scores_are_those_of_the_models_languages() -> None:
    assert set(graded_scores(by_letters, ["de", "en"])) == {"de-de", "en-en", "en-de"}
    assert set(graded_scores(by_letters, ["pt-BR", "de"])) == {"de-de"}
    assert graded_scores(by_letters, ["ja"]) == {}
    every = graded_scores(by_letters)
    assert set(every) == set(builtin().language_pairs)
    assert 20 < every["en-en"] < 95


def test_drops_are_sorted_worst_first_with_missing_scores_in_front() -> None:
    before = {"de-de": 80.0, "en-en": 81.0, "en-de": 70.0, "fr-fr": 75.0, "it-it": 60.0}
    after = {"de-de": 79.5, "en-en": 80.4, "en-de": 68.0, "fr-fr": math.nan, "it-it": 66.0}
    assert [fall.name for fall in find_regressions(before, after, 0.5)] == ["fr-fr", "en-de", "en-en"]
    assert find_regressions(before, {**after, "fr-fr": 75}, 2) == []


def test_an_export_that_lost_too_much_is_refused_in_one_line_with_what_costs_most() -> None:
    costs = [Cost("layers.2.output", 0.0123), Cost("head", 0.001)]
    before, after = {"de-de": 80, "en-en": 81}, {"de-de": 78.75, "en-en": 80.9}
    with pytest.raises(GateError) as caught:
        check_gate(before, after, 0.5, lambda: costs, "use --precision auto, or a larger --gate")
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


def test_costs_are_measured_only_for_an_export_that_fell() -> None:
    def measure() -> list[Cost]:
        raise AssertionError

    check_gate({"de-de": 80}, {"de-de": 79.6}, 0.5, measure)
    check_gate({}, {}, 0.5, measure)


def test_a_fall_tells_its_points() -> None:
    assert str(Regression("en-de", 70.123, 68.9)) == "en-de by 1.22 (70.12 to 68.90)"
    assert Regression("en-de", 70.123, 68.9).summary == "en-de lost 1.22 points"


def test_a_figure_beyond_its_bound_is_no_language_pair() -> None:
    figure = Regression("mean cosine to PyTorch in de", 0.995, 0.99496, is_figure=True)
    said = "mean cosine to PyTorch in de is 0.99496, bound 0.995"
    assert (str(figure), figure.summary, explain_regressions([figure])) == (said, said, said)
    result = SearchResult(STATICS, STATICS, (Step("first", TOKEN, figure, 0),), figure)
    assert result.to_lines()[:2] == [
        f"precision: with every product in int8, {said}",
        f"  first to token: {said}, +0.00 MB",
    ]
    assert result.to_dict()["steps"][0]["worst_fall"] == pytest.approx(0.004)


def test_the_noisiest_site_costs_most() -> None:
    costs = matmul_costs(noisy(), dict.fromkeys(NOISE, STATIC))
    assert [cost.matmul for cost in costs] == ["first", "third", "second"]
    assert costs[0].gain > 4 * costs[1].gain > 0


def test_costs_are_those_at_the_levels_given() -> None:
    asked: list[dict[str, str]] = []
    levels = {"first": FP32, "second": STATIC, "third": TOKEN}
    costs = {cost.matmul: cost.gain for cost in matmul_costs(noisy(asked), levels)}
    assert costs["first"] == 0
    assert asked[0] == levels
    assert {**levels, "second": FP32} in asked


EXACT = np.random.default_rng(0).normal(size=(20, 64)).astype(np.float32)
BYTES = {"first": 1000, "second": 200, "third": 3000}
STATICS = dict.fromkeys(BYTES, STATIC)
Noise = Mapping[str, tuple[float, float, float]]


def loss_of(noise: Noise, asked: list[dict[str, str]] | None = None) -> Loss:
    """Measure the loss of encoders whose every site adds noise in a direction of its own: (static, token, fp32)."""

    def measure(levels: Mapping[str, str]) -> float:
        if asked is not None:
            asked.append(dict(levels))
        added = np.zeros(64)
        for direction, (site, amounts) in enumerate(noise.items()):
            added[direction] = amounts[LEVELS.index(levels[site])]
        return mean_loss((EXACT + added).astype(np.float32), EXACT)

    return measure


def gate(measure_loss: Loss, most: float) -> Callable[[Levels], list[Regression]]:
    """Let the loss times 1000 be the points that fell."""

    def passes(levels: Levels) -> list[Regression]:
        points = 1000 * measure_loss(levels)
        return [Regression("de-de", 80, 80 - points)] if points > most else []

    return passes


def found(noise: Noise, most: float, start: Mapping[str, str] = STATICS) -> SearchResult:
    return Search(start, gate(loss_of(noise), most), loss_of(noise), BYTES, "be bold").run()


def test_nothing_is_raised_where_the_gate_holds() -> None:
    trade = found({"first": (1, 0, 0), "second": (0, 0, 0), "third": (0, 0, 0)}, 1000)
    assert (trade.steps, trade.levels, trade.bytes_added) == ((), STATICS, 0)
    assert trade.to_lines() == ["precision: the gate holds with every product in int8"]


def test_the_site_that_costs_most_is_raised_and_no_further_than_needed() -> None:
    trade = found({"first": (0.3, 0.2, 0), "second": (3, 0.1, 0), "third": (0.2, 0.1, 0)}, 5)
    assert trade.raised == {"second": TOKEN}
    assert [(step.matmul, step.level, step.worst, step.bytes_added) for step in trade.steps] == [
        ("second", TOKEN, None, 0)
    ]
    assert trade.before and trade.before.points > 40


def test_a_site_that_token_does_not_help_goes_to_float32() -> None:
    trade = found({"first": (0.3, 0.2, 0), "second": (3, 3, 0), "third": (0.2, 0.1, 0)}, 5)
    assert trade.raised == {"second": FP32}
    assert [step.level for step in trade.steps] == [TOKEN, FP32]
    assert trade.bytes_added == 600
    assert trade.to_dict()["raised"] == {"second": "fp32"}


def test_raises_that_turn_out_unneeded_are_taken_back() -> None:
    # the dearest site goes first, but the two others, raised after it, would have been enough
    noise = {"first": (1.2, 1.1, 0), "second": (1.19, 0, 0), "third": (1.18, 0, 0)}
    most = 1000 * loss_of(noise)(STATICS | {"second": TOKEN, "third": TOKEN}) + 0.01
    raised = found(noise, most)
    assert raised.raised == {"second": TOKEN, "third": TOKEN}
    assert raised.steps[-1].matmul == "first"
    assert raised.steps[-1].level == STATIC
    assert raised.bytes_added == 0


def test_float32_that_was_too_much_goes_back_to_token() -> None:
    noise = {"first": (4, 3, 0), "second": (1, 0, 0), "third": (0, 0, 0)}

    def passes(levels: Levels) -> list[Regression]:
        """Ask for two sites above static, whatever the vectors' loss."""
        return [Regression("de-de", 80, 78)] if STATIC in (levels["first"], levels["second"]) else []

    trade = Search(STATICS, passes, loss_of(noise), BYTES, "").run()
    assert trade.raised == {"first": TOKEN, "second": TOKEN}
    assert [(step.matmul, step.level, step.bytes_added) for step in trade.steps] == [
        ("first", TOKEN, 0),
        ("first", FP32, 3000),
        ("second", TOKEN, 0),
        ("first", TOKEN, -3000),
    ]


def test_no_site_ends_below_its_start() -> None:
    start = STATICS | {"first": TOKEN}
    trade = found({"first": (0, 0, 0), "second": (3, 0, 0), "third": (0, 0, 0)}, 5, start)
    assert trade.levels == start | {"second": TOKEN}
    assert trade.raised == {"second": TOKEN}


def test_a_gate_that_float32_does_not_pass_is_refused() -> None:
    noise = {"first": (3, 2, 2), "second": (0, 0, 0), "third": (0, 0, 0)}
    with pytest.raises(
        GateError, match=r"gate: even with every product in float32, .* de-de by .*; be bold, or use a larger --gate$"
    ):
        found(noise, 5)


def test_many_sites_are_raised_several_at_a_time() -> None:
    noise = {f"site {number}": (1.0, 1.0, 0.0) for number in range(50)}
    asked: list[dict[str, str]] = []
    passes = gate(loss_of(noise, asked), 0.001)
    trade = Search(dict.fromkeys(noise, STATIC), passes, loss_of(noise), dict.fromkeys(noise, 1), "").run()
    assert set(trade.levels.values()) == {FP32}
    assert len(asked) <= 1 + MAX_STEPS + 2 * len(noise)
    assert sum(step.bytes_added for step in trade.steps) == trade.bytes_added == 150


def test_costs_are_measured_again_only_where_they_can_decide() -> None:
    asked: list[dict[str, str]] = []
    noise = {f"site {number}": (2.0 / (1 + number), 0.0, 0.0) for number in range(12)}
    start = dict.fromkeys(noise, STATIC)
    Search(start, gate(loss_of(noise, asked), 12), loss_of(noise, asked), dict.fromkeys(noise, 1), "").run()
    assert len(asked) < 40  # measuring all sites at each of the steps would take more


def test_the_trade_is_printed_in_lines() -> None:
    lines = found({"first": (0.3, 0.2, 0), "second": (3, 3, 0), "third": (0.2, 0.1, 0)}, 5).to_lines()
    assert re.fullmatch(r"precision: with every product in int8, de-de lost \d+\.\d\d points", lines[0])
    assert [line.split(":")[0].strip() for line in lines[1:3]] == ["second to token", "second to fp32"]
    assert lines[2].endswith("gate holds, +0.00 MB")
    assert lines[3] == "  in higher precision: second fp32; +0.00 MB"


def test_a_student_with_one_bad_product_gets_that_one_raised() -> None:
    student, tokenizer = make_student(), make_tokenizer()
    modules = {"unit.0.output": student.unit[0].output, "unit.1.attention": student.unit[1].attention}
    weights = {name: module.weight.detach().clone() for name, module in modules.items()}
    steps = {"unit.0.output": 1.0, "unit.1.attention": 0.0005}

    def build(levels: Mapping[str, str]) -> Encode:
        """Round weights to coarse steps, as a stub of a quantiser."""

        def encoder(texts: list[str]) -> NDArray[np.float32]:
            for name, module in modules.items():
                step = {STATIC: steps[name], TOKEN: steps[name] / 50, FP32: 1e-9}[levels[name]]
                module.weight.data = (weights[name] / step).round() * step
            return encode(student, tokenizer, texts)

        return encoder

    fp32 = dict.fromkeys(modules, FP32)
    before = graded_scores(build(fp32), ["en"])
    reference: Vectors = build(fp32)(SENTENCES)

    def passes(levels: Levels) -> list[Regression]:
        return find_regressions(before, graded_scores(build(levels), ["en"]), 0.5)

    def measure_loss(levels: Levels) -> float:
        return mean_loss(build(levels)(SENTENCES), reference)

    start = dict.fromkeys(modules, STATIC)
    trade = Search(start, passes, measure_loss, dict.fromkeys(modules, 2048), "").run()
    assert list(trade.raised) == ["unit.0.output"]
    assert passes(start)
    assert not passes(trade.levels)
