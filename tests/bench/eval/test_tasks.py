"""The four kinds of tasks, on vectors small enough to score by hand."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from xcompress.bench.eval import EvalSuite
from xcompress.bench.eval.classification import Classification, Probe
from xcompress.bench.eval.retrieval import Retrieval, hits
from xcompress.bench.eval.similarity import Agreement, Similarity
from xcompress.bench.eval.task import EvalTask
from xcompress.bench.results import Accuracy
from xcompress.corpus.graded import GradedPairs, GradedSet, builtin, score
from xcompress.errors import InputError
from xcompress.metrics import Encode

WORDS = {"a": (1, 0, 0), "b": (0, 1, 0), "c": (0, 0, 1), "A": (1, 0, 0), "B": (0, 1, 0), "C": (0, 0.9, 0.3)}
ABC = (("a", "A"), ("b", "B"), ("c", "C"))


def encoder(vectors: Mapping[str, Sequence[float]]) -> Encode:
    return lambda texts: np.array([vectors[text] for text in texts], dtype=np.float32)


def random_encoder(width: int, seed: int) -> Encode:
    """Give every text its own random vector, independent of the other texts."""

    def vector(text: str) -> np.ndarray:
        return np.random.default_rng([seed, *text.encode()]).normal(size=width)

    return lambda texts: np.array([vector(text) for text in texts], dtype=np.float32)


def evaluate(task: EvalTask, encode: Encode, reference: Encode | None = None) -> Accuracy:
    """Score a model, and compare it with a reference."""
    found = task.summarize(task.score(encode), task.score(reference) if reference else None)
    assert found
    return found


def test_retrieval_by_hand() -> None:
    """German finds A, B and, for C, b; English finds A, B and C."""
    found = evaluate(Retrieval("tatoeba", {"de": ABC, "fr": ABC[:2]}), encoder(WORDS))
    values = {name: figure.value for name, figure in found.figures.items()}
    assert values == pytest.approx({"de>en": 200 / 3, "en>de": 100, "fr>en": 100, "en>fr": 100})
    averages = {name: figure.value for name, figure in found.averages.items()}
    assert averages == pytest.approx({"xx>en": 250 / 3, "en>xx": 100, "average": 1100 / 12})
    assert (found.rows, found.kind, found.metric) == (3, "retrieval", "nearest neighbour, %")
    assert found.figures["de>en"].low < 200 / 3 < found.figures["de>en"].high
    assert found.figures["en>de"].low < found.figures["en>de"].high == 100


def test_distractors_of_the_targets_language_are_in_the_way() -> None:
    """The German distractor is nearer to c than C is; the English one is not nearer to A than a is."""
    vectors = {**WORDS, "D": (0, 0.1, 1), "e": (-1, 0, 0)}
    test = Retrieval("tatoeba", {"de": ABC}).with_distractors(
        {"de": ["D"], "en": ["e", "a"], "fr": ["never asked for"]}, 1000
    )
    found = evaluate(test, encoder(vectors))
    assert found.test == "tatoeba + 1,000 distractors"
    assert found.figures["en>de"].value == pytest.approx(200 / 3)
    assert found.figures["de>en"].value == pytest.approx(200 / 3)
    assert "never asked for" not in set(test.sentences())


def test_a_sentence_that_is_there_twice_is_found_all_the_same() -> None:
    vectors = {"a": (1, 0), "a2": (1, 0.1), "A": (1, 0), "b": (0, 1), "B": (0, 1)}
    assert hits(encoder(vectors), ["a", "a2", "b"], ["A", "A", "B"], ["A", "B"]).tolist() == [True, True, True]


def test_the_metric_names_retrieval_by_margin() -> None:
    found = evaluate(Retrieval("tatoeba", {"de": ABC}, margin=True), encoder(WORDS))
    assert found.metric == "nearest neighbour by margin, %"


def test_similarity_equals_the_score_of_the_graded_pairs() -> None:
    graded = builtin().within(["en", "de", "ar"])
    encode = random_encoder(8, seed=0)
    found = evaluate(Similarity(graded), encode)
    assert {pair: figure.value for pair, figure in found.figures.items()} == pytest.approx(score(encode, graded))
    assert set(found.averages) == {"en-en", "monolingual", "other monolingual", "en-xx", "xx-yy"}
    assert found.averages["other monolingual"].value == pytest.approx(
        (found.figures["de-de"].value + found.figures["ar-ar"].value) / 2
    )
    assert found.figures["en-en"].low < found.figures["en-en"].value < found.figures["en-en"].high
    width = {name: one.high - one.low for name, one in (found.averages | found.figures).items()}
    assert width["monolingual"] < width["en-en"], "a mean over languages is surer than one of them"


def test_averages_are_drawn_jointly() -> None:
    """When languages err on the same rows, the interval of their mean is no narrower."""
    rows = GradedPairs(tuple("abcdef"), tuple("ABCDEF"), (0, 1, 2, 3, 4, 5))
    encode = random_encoder(3, seed=1)
    found = evaluate(Similarity(GradedSet("twins", {"en-en": rows, "de-de": rows})), encode)
    assert found.averages["monolingual"] == found.figures["en-en"]


def test_equal_vectors_have_a_drop_of_exactly_zero() -> None:
    tests = (
        Similarity(builtin().within(["en", "de"]).every(9)),
        Retrieval("tatoeba", {"de": ABC}),
        Classification("topics", {"en": TRAIN}, {"en": TRAIN, "de": GERMAN}),
    )
    suite = EvalSuite(tests)
    sentences = suite.sentences()
    vectors = random_encoder(5, seed=2)(sentences)
    marked = suite.summarize(*(suite.score(sentences, each) for each in (vectors, vectors.copy())))
    assert len(marked) == 3
    for accuracy in marked:
        for figure in (*accuracy.figures.values(), *accuracy.averages.values()):
            assert figure.drop == 0
            assert figure.drop_low is not None and figure.drop_low < 0
            arm = -figure.drop_low
            assert figure.drop_high == (pytest.approx(arm) if accuracy.kind == "similarity" else arm)


def test_a_drop_is_the_score_of_the_reference_minus_that_of_the_model() -> None:
    base = {**WORDS, "C": (0, 0, 1), "c": (0, 0, 1)}
    found = evaluate(Retrieval("tatoeba", {"de": ABC}), encoder(WORDS), encoder(base))
    assert found.figures["de>en"].drop == pytest.approx(100 / 3)
    assert found.averages["average"].drop == pytest.approx(100 / 6)


TRAIN = tuple((label, f"{label} {n}") for label in ("sports", "travel") for n in range(10))
GERMAN = tuple((label, f"{label} auf deutsch {n}") for label in ("sports", "travel") for n in range(4))


def topics(texts: Sequence[str]) -> np.ndarray:
    """Separate the topics, except for two German sentences on the wrong side."""
    wrong = {"sports auf deutsch 0", "travel auf deutsch 3"}
    return np.array(
        [[1 if text.startswith("sports") != (text in wrong) else -1, len(text) % 3] for text in texts], dtype=np.float32
    )


def test_a_probe_whose_folds_would_have_one_label_is_not_cross_validated() -> None:
    """Every score was NaN, and the least C was taken."""
    vectors = np.array([[number % 4, 9 * (number == 20)] for number in range(21)], dtype=np.float32)
    assert Probe(vectors, ["sports"] * 20 + ["travel"])._model.named_steps["regression"].C == 0.01
    assert hasattr(Probe(vectors, ["sports"] * 19 + ["travel"] * 2)._model, "best_params_")


def test_a_probe_learns_from_components_of_any_size() -> None:
    vectors = np.random.default_rng(1).normal(size=(200, 5)).astype(np.float32)
    labels = np.where(vectors[:, 0] > 0, "sports", "travel")
    vectors[:, 0] /= 1e4
    assert (Probe(vectors[:100], labels[:100].tolist()).predict(vectors[100:]) == labels[100:]).mean() > 0.8


def test_classification_by_hand() -> None:
    test = Classification("topics", {"en": TRAIN}, {"de": GERMAN, "en": TRAIN, "fr": GERMAN[:4]})
    found = evaluate(test, topics)
    values = {name: figure.value for name, figure in found.figures.items()}
    assert values == pytest.approx({"de": 75, "en": 100, "fr": 75})
    assert {name: figure.value for name, figure in found.averages.items()} == pytest.approx(
        {"other languages": 75, "all": 250 / 3}
    )
    assert found.metric == "accuracy of a linear probe trained on en, %"


LEARN = tuple((label, f"{label} auf deutsch {n}") for label in ("sports", "travel") for n in range(4, 14))


def test_classification_in_both_directions_by_hand() -> None:
    """French has no training rows, and so is only tested."""
    test = Classification("topics", {"de": LEARN, "en": TRAIN}, {"de": GERMAN, "en": TRAIN, "fr": GERMAN[:4]})
    found = evaluate(test, topics)
    values = {name: figure.value for name, figure in found.figures.items()}
    assert values == pytest.approx({"en>de": 75, "en>en": 100, "en>fr": 75, "de>de": 75, "de>en": 100})
    assert {name: figure.value for name, figure in found.averages.items()} == pytest.approx(
        {"xx>en": 100, "en>xx": 75, "average": 250 / 3}
    )
    assert found.metric == "accuracy of a linear probe, language learnt > language tested, %"
    assert {text for _, text in (*LEARN, *GERMAN, *TRAIN)} == set(test.sentences())


def test_each_direction_has_its_own_probe() -> None:
    """When one language has the labels swapped, nothing transfers."""

    def contrary(texts: Sequence[str]) -> np.ndarray:
        return np.array([[1 if ("sports" in text) != ("auf" in text) else -1] for text in texts], dtype=np.float32)

    found = evaluate(Classification("topics", {"en": TRAIN, "de": LEARN}, {"en": TRAIN, "de": GERMAN}), contrary)
    values = {name: figure.value for name, figure in found.figures.items()}
    assert values == {"en>en": 100, "en>de": 0, "de>en": 0, "de>de": 100}


def test_other_languages_are_learnt_from_where_english_is_tested() -> None:
    both = {"de": LEARN, "en": TRAIN}
    assert Classification("topics", both, {"en": TRAIN}).train_languages == ["en", "de"]
    assert set(evaluate(Classification("topics", both, {"en": TRAIN}), topics).averages) == {"xx>en", "average"}
    assert Classification("topics", both, {"de": GERMAN}).train_languages == ["en"]
    assert Classification("topics", both, {"de": GERMAN, "en": TRAIN}).first_language_only().train_languages == ["en"]


def test_the_seed_of_the_folds_reaches_every_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = []

    class Recorder(Probe):
        def __init__(self, vectors: np.ndarray, labels: Sequence[str], seed: int) -> None:
            seeds.append(seed)
            super().__init__(vectors, labels, seed)

    monkeypatch.setattr("xcompress.bench.eval.classification.Probe", Recorder)
    evaluate(Classification("topics", {"en": TRAIN, "de": LEARN}, {"en": TRAIN}, seed=7), topics)
    assert seeds == [7, 7]


def test_the_first_language_is_learnt_from_where_there_is_no_english() -> None:
    test = Classification("topics", {"de": TRAIN, "fr": GERMAN}, {"de": GERMAN})
    assert test.train_languages == ["de"]
    assert set(evaluate(test, topics).averages) == {"all"}
    assert test.within(frozenset({"en", "fr"})).rows == 0


def test_labels_that_cannot_be_learnt_are_named() -> None:
    with pytest.raises(InputError, match=r"topics: de has label 'Sport', which en\.train\.tsv does not have"):
        Classification("topics", {"en": TRAIN}, {"de": (("Sport", "Tor"),)}).check_labels()
    with pytest.raises(InputError, match=r"topics: en has label 'travel', which de\.train\.tsv does not have"):
        Classification("topics", {"en": TRAIN, "de": (*LEARN[:9], ("other", "x"))}, {"en": TRAIN}).check_labels()
    with pytest.raises(InputError, match=r"en\.train\.tsv has 1 label"):
        Classification("topics", {"en": TRAIN[:3]}, {"de": GERMAN}).check_labels()


def test_a_rare_label_stops_no_probe() -> None:
    rows = (*TRAIN, ("politics", "vote"))
    found = evaluate(Classification("topics", {"en": rows}, {"en": TRAIN}), topics)
    assert found.figures["en"].value == pytest.approx(100)
    few = evaluate(Classification("topics", {"en": TRAIN[8:12]}, {"en": TRAIN}), topics)
    assert few.figures["en"].value == pytest.approx(100)


def test_agreement_by_hand() -> None:
    """The subject's cosines rank the pairs 4 3 1 2, the reference's 4 2 1 3: rho = 0.8."""

    def angles(*given: float) -> Encode:
        vectors = {f"b{n}": (np.cos(angle), np.sin(angle)) for n, angle in enumerate(given)} | {"a": (1.0, 0.0)}
        return encoder(vectors)

    test = Agreement("mono", {"de": tuple(("a", f"b{n}") for n in range(4))})
    subject, reference = angles(0.1, 0.2, 0.9, 0.5), angles(0.0, 0.6, 1.2, 0.3)
    found = evaluate(test, subject, reference)
    assert found.figures["de"].value == found.averages["all"].value == pytest.approx(80)
    assert (found.kind, found.figures["de"].drop) == ("agreement", None)
    assert test.summarize(test.score(subject), None) is None, "no reference to agree with"


def test_agreement_on_graded_sentences() -> None:
    test = Agreement.from_graded("built-in", builtin().within(["en", "de"]))
    encode = random_encoder(6, seed=3)
    found = evaluate(test, encode, encode)
    assert set(found.figures) == {"en-en", "de-de", "en-de"}
    assert {"monolingual", "en-xx", "all"} <= set(found.averages)
    assert all(figure.value == pytest.approx(100) for figure in found.figures.values())


def test_every_sentence_is_encoded_once_and_scored() -> None:
    rows = GradedPairs(("aa", "aa", "aa"), ("aa", "b", "cccc"), (5.0, 3.0, 0.0))
    suite = EvalSuite(
        (Similarity(GradedSet("tiny", {"en-en": rows})), Retrieval("r", {"de": (("aa", "b"), ("cccc", "ddd"))}))
    )
    sentences = suite.sentences()
    assert sentences == ["b", "aa", "ddd", "cccc"], "shortest first"
    vectors = np.array([[0.9, 0.1], [1, 0], [0, 1], [0.1, 0.9]], dtype=np.float32)
    graded, retrieval = suite.summarize(suite.score(sentences, vectors))
    assert graded.averages["en-en"].value == pytest.approx(100)
    assert retrieval.averages["average"].value == pytest.approx(100)


def test_vectors_that_cannot_be_scored() -> None:
    suite = EvalSuite((Retrieval("r", {"de": ABC}),))
    sentences = suite.sentences()
    vectors = np.ones((6, 2), dtype=np.float32)
    with pytest.raises(InputError, match=r"shape \(5, 2\), not \(6, D\)"):
        suite.score(sentences, vectors[:5])
    vectors[1, 1] = np.nan
    with pytest.raises(InputError, match="1 of 6 hold NaN or infinity"):
        suite.score(sentences, vectors)


def test_a_model_that_says_the_same_of_everything_scores_nothing() -> None:
    same = np.ones((len(builtin().sentences()), 4), dtype=np.float32)
    for vectors in (same, 0 * same):
        suite = EvalSuite((Similarity(builtin()),))
        (found,) = suite.summarize(suite.score(builtin().sentences(), vectors))
        assert abs(found.averages["monolingual"].value) < 1e-9
