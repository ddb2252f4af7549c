from dataclasses import replace

import numpy as np
import pytest

from tests.helpers.export import TEXT, opened, ranges_of
from tests.helpers.student import SENTENCES, make_student, make_tokenizer
from xcompress.corpus.graded import builtin
from xcompress.errors import GateError
from xcompress.export import accuracy
from xcompress.export.accuracy import Candidate, SearchResult, graded_scores
from xcompress.export.graph import build, options_for
from xcompress.export.matmul import Level, Range, matmuls
from xcompress.export.prepare import Prepared
from xcompress.export.verify import Bounds, make_reference
from xcompress.metrics import cosines
from xcompress.modeling.student import encode, token_ids

LANGUAGES = ["en", "de"]
STRICT, LAX = Bounds(), Bounds(mean_cosine=0, worst_cosine=0, similarity_correlation=0, invariance_cosine=0)


@pytest.fixture(autouse=True)
def little_text_and_enough_pairs_to_search_by(little_text: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a third of these, the search may end at other levels."""
    monkeypatch.setattr("xcompress.export.accuracy.builtin", lambda: builtin().every(20))


@pytest.fixture
def trial() -> Candidate:
    return Candidate(Prepared(make_student(), make_tokenizer()), options_for("int8", "loop", True, ranges_of()))


def expected(texts: list[str]) -> np.ndarray:
    return encode(make_student(), make_tokenizer(), texts)


def spoiled(name: str) -> Candidate:
    """Make a trial with a product whose inputs' range was measured far too narrow."""
    ranges = ranges_of()
    narrow = Range(ranges[name].low / 1e4, ranges[name].high / 1e4)
    form = options_for("int8", "loop", True, ranges | {name: narrow})
    return Candidate(Prepared(make_student(), make_tokenizer()), form)


def searched(trial: Candidate, points: float, bounds: Bounds = STRICT) -> SearchResult:
    reference = make_reference(make_student(), make_tokenizer(), TEXT)
    return trial.search(graded_scores(expected, LANGUAGES), points, LANGUAGES, reference, bounds, "be bold")


def all_at(trial: Candidate, level: Level) -> Candidate:
    return trial.with_levels(dict.fromkeys(trial.levels(), level))


def test_levels_are_those_of_every_product(trial: Candidate) -> None:
    levels = trial.levels()
    assert list(levels) == list(matmuls(make_student()))
    assert {level for name, level in levels.items() if name.endswith(".output")} == {"token"}
    assert {level for name, level in levels.items() if not name.endswith(".output")} == {"static"}


def test_a_trial_at_other_levels_is_another_graph(trial: Candidate) -> None:
    raised = trial.with_levels({"unit.0.output": "fp32", "head": "token"})
    assert raised.levels() == trial.levels() | {"unit.0.output": "fp32", "head": "token"}
    assert trial.levels()["head"] == "static"
    assert build(make_student(), raised.options) != build(make_student(), trial.options)


def test_every_level_of_every_product_can_be_opened_and_float32_is_nearest(trial: Candidate) -> None:
    apart = [
        float((1 - cosines(all_at(trial, level).open()(SENTENCES), expected(SENTENCES))).mean())
        for level in ("static", "token", "fp32")
    ]
    assert max(apart[:2]) < 0.001
    assert min(apart[:2]) > 2 * apart[2] > 0  # what is left is the table's


@pytest.mark.parametrize("level", ["static", "token", "fp32"])
@pytest.mark.parametrize("name", [name for name in matmuls(make_student()) if not name.startswith("unit.1")])
def test_one_product_at_another_level_than_the_rest(trial: Candidate, name: str, level: Level) -> None:
    found = trial.with_levels({name: level}).open()(SENTENCES)
    assert cosines(found, expected(SENTENCES)).min() > 0.98


def test_texts_are_encoded_in_their_order_as_the_graph_does(trial: Candidate) -> None:
    found = trial.open()([SENTENCES[3], SENTENCES[1]])
    session = opened(build(make_student(), trial.options))
    for text, vector in zip((SENTENCES[3], SENTENCES[1]), found, strict=True):
        ids = np.array(token_ids(make_tokenizer(), [text], make_student().config))
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        np.testing.assert_allclose(session.run(["sentence_embedding"], feeds)[0][0], vector, atol=1e-5)


def test_costs_are_listed_for_every_product_highest_first(trial: Candidate) -> None:
    costs = trial.costs()
    assert sorted(cost.matmul for cost in costs) == sorted(matmuls(make_student()))
    gains = [cost.gain for cost in costs]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 0
    raised = all_at(trial, "fp32").costs()
    assert max(abs(cost.gain) for cost in raised) == 0


def test_nothing_is_raised_where_the_gate_holds(trial: Candidate, capsys: pytest.CaptureFixture[str]) -> None:
    trade = searched(trial, 100)
    assert trade.raised == {}
    assert trade.levels == trial.levels()
    assert "the gate holds with every product in int8" in capsys.readouterr().err


def test_the_product_that_spoils_the_scores_is_raised_until_the_gate_holds() -> None:
    trial, before = spoiled("unit.1.attention_output"), graded_scores(expected, LANGUAGES)
    trade = searched(trial, 3, bounds=LAX)
    assert trade.raised == {"unit.1.attention_output": "token"}
    after = graded_scores(trial.with_levels(trade.levels).open(), LANGUAGES)
    assert all(after[pair] >= before[pair] - 3 for pair in before)
    assert any(graded_scores(trial.open(), LANGUAGES)[pair] < before[pair] - 3 for pair in before)


@pytest.mark.parametrize(
    "bounds",
    [
        replace(LAX, mean_cosine=0.995),
        replace(LAX, worst_cosine=0.98),
        replace(LAX, similarity_correlation=0.97),
    ],
    ids=["mean", "worst", "correlation"],
)
def test_the_product_that_spoils_the_vectors_is_raised_though_no_score_fell(bounds: Bounds) -> None:
    trial = spoiled("unit.1.attention_output")
    assert searched(trial, 100, bounds=LAX).raised == {}
    assert searched(trial, 100, bounds=bounds).raised == {"unit.1.attention_output": "token"}


def test_a_gate_that_even_float32_does_not_pass_is_refused(trial: Candidate) -> None:
    with pytest.raises(GateError, match="even with every product in float32"):
        searched(trial, -1)


@pytest.mark.parametrize("figure", ["mean_cosine", "worst_cosine", "similarity_correlation", "invariance_cosine"])
def test_the_search_refuses_what_verification_would(figure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search raises all products at once: one by one, it would build graphs by the square of their number."""
    monkeypatch.setattr(accuracy, "MAX_STEPS", 1)
    student, tokenizer, ranges = make_student(unit_layers=1), make_tokenizer(), ranges_of(unit_layers=1)
    trial = Candidate(Prepared(student, tokenizer), options_for("int8", "loop", True, ranges))
    before = graded_scores(lambda texts: encode(student, tokenizer, texts), LANGUAGES)
    reference, bounds = make_reference(student, tokenizer, TEXT), replace(LAX, **{figure: 1.1})
    with pytest.raises(GateError, match=r"in float32, .* is \d\.\d{5}, bound 1\.1.*; be bold$"):
        trial.search(before, 100, LANGUAGES, reference, bounds, "be bold")
