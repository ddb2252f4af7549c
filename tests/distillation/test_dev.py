"""Dev scores of little text."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from xcompress.corpus.graded import GradedPairs, GradedSet
from xcompress.corpus.pairs import Pair
from xcompress.distillation.dev import DevSet, dev_scores


def by_length(texts: Sequence[str]) -> NDArray[np.float32]:
    return np.array([[len(text), 1.0, len(text) % 3] for text in texts], dtype=np.float32)


def test_a_language_with_one_held_out_pair_has_no_rank_correlation() -> None:
    pairs = [Pair("one", "eins", "de", ""), Pair("three", "drei", "de", ""), Pair("one", "un", "fr", "")]
    scores = dev_scores(by_length, DevSet(pairs, by_length, None))
    assert scores.spearman.keys() == {"de"} and np.isfinite(scores.spearman["de"])
    assert scores.retrieval.keys() == {"de", "fr"}
    alone = dev_scores(by_length, DevSet(pairs[2:], by_length, None))
    assert alone.means() == {"retrieval": 100}


@pytest.mark.filterwarnings("ignore:An input array is constant")
def test_a_correlation_that_is_not_defined_counts_as_zero() -> None:
    pairs = [Pair("one", "eins", "de", ""), Pair("three", "drei", "de", "")]
    graded = GradedSet("sts", {"de-de": GradedPairs(("eins", "drei"), ("drei", "fünf"), (1.0, 2.0))})
    equal = dev_scores(lambda texts: np.ones((len(texts), 2), np.float32), DevSet(pairs, by_length, graded))
    assert equal.spearman == {"de": 0} and equal.sts == {"de-de": 0}


def test_a_sentence_that_two_pairs_share_is_found_once() -> None:
    pairs = [Pair("cc", "dd", "de", ""), Pair("a", "b", "de", ""), Pair("eee", "dd", "de", "")]
    assert dev_scores(by_length, DevSet(pairs, None, None)).retrieval == {"de": 100}
