from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from xcompress.distillation.data.masking import Hidden, Words, choose, cover, distributions
from xcompress.recipe import WordTask

START, PAD, END, UNKNOWN, MASK = range(5)
WORDS = Words(MASK, frozenset(range(5)), seed=1)
# A sentence of three words and its translation of two.
THE, CAT, SLEEPS, KATZE, DORT = range(10, 15)
SHARES = dict[int, float]


def sentence(*words: int) -> NDArray[np.int32]:
    return np.array([START, *words, END], dtype=np.int32)


SOURCE, TARGET = sentence(THE, CAT, SLEEPS), sentence(KATZE, DORT)
CAT_HIDDEN = Hidden(side=0, position=2, word=CAT)
DORT_HIDDEN = Hidden(side=1, position=2, word=DORT)


def labels(
    task: WordTask, source: NDArray[np.int32], target: NDArray[np.int32], hidden: Hidden | None
) -> tuple[SHARES, SHARES]:
    """Return what is predicted from either side of one pair."""
    ids, shares = distributions(task, [source], [target], [hidden], WORDS)
    assert (ids.dtype, shares.dtype, ids.shape, len(ids)) == (np.int64, np.float32, shares.shape, 2)
    left, right = (as_shares(*row) for row in zip(ids, shares, strict=True))
    return left, right


def as_shares(ids: NDArray[np.int64], shares: NDArray[np.float32]) -> SHARES:
    assert ids[shares == 0].sum() == 0
    words = ids[shares > 0].tolist()
    assert len(set(words)) == len(words)
    return dict(zip(words, shares[shares > 0].tolist(), strict=True))


def random_pairs(count: int) -> tuple[list[NDArray[np.int32]], list[NDArray[np.int32]]]:
    generator = np.random.default_rng(3)
    both = [sentence(*generator.integers(3, 30, generator.integers(0, 9)).tolist()) for _ in range(2 * count)]
    return both[:count], both[count:]


THIRDS = {THE: 1 / 3, CAT: 1 / 3, SLEEPS: 1 / 3}
HALVES = {KATZE: 0.5, DORT: 0.5}


@pytest.mark.parametrize("hidden", [CAT_HIDDEN, DORT_HIDDEN, None])
def test_reconstruction_spreads_over_the_words_of_the_other_sentence(hidden: Hidden | None) -> None:
    assert labels("reconstruction", SOURCE, TARGET, hidden) == (HALVES, pytest.approx(THIRDS))


def test_unified_puts_half_on_the_word_hidden_in_the_source() -> None:
    from_source, from_target = labels("unified", SOURCE, TARGET, CAT_HIDDEN)
    assert from_source == {CAT: 0.5, KATZE: 0.25, DORT: 0.25}
    assert from_target == pytest.approx(THIRDS)  # the hidden word among them


def test_unified_puts_half_on_the_word_hidden_in_the_target() -> None:
    from_source, from_target = labels("unified", SOURCE, TARGET, DORT_HIDDEN)
    assert from_source == HALVES
    assert from_target == pytest.approx({DORT: 0.5, THE: 1 / 6, CAT: 1 / 6, SLEEPS: 1 / 6})


@pytest.mark.parametrize(("hidden", "word"), [(CAT_HIDDEN, CAT), (DORT_HIDDEN, DORT)])
def test_a_masked_word_is_the_label_of_both_sides(hidden: Hidden, word: int) -> None:
    assert labels("masked_word", SOURCE, TARGET, hidden) == ({word: 1}, {word: 1})


def test_a_word_that_stands_twice_counts_once() -> None:
    twice = sentence(THE, CAT, THE)
    assert labels("reconstruction", twice, TARGET, None) == (HALVES, {THE: 0.5, CAT: 0.5})
    from_source, from_target = labels("unified", twice, TARGET, Hidden(0, 3, THE))
    assert from_source == {THE: 0.5, KATZE: 0.25, DORT: 0.25}
    assert from_target == {THE: 0.5, CAT: 0.5}


def test_shares_of_a_word_that_both_sentences_have_add_up() -> None:
    from_source, from_target = labels("unified", sentence(THE, CAT), sentence(CAT, DORT), Hidden(0, 2, CAT))
    assert from_source == {CAT: 0.75, DORT: 0.25}
    assert from_target == {THE: 0.5, CAT: 0.5}


def test_where_the_other_sentence_has_no_words_all_is_on_the_hidden_one() -> None:
    assert labels("unified", SOURCE, sentence(UNKNOWN), CAT_HIDDEN) == ({CAT: 1}, pytest.approx(THIRDS))
    assert labels("reconstruction", SOURCE, sentence(), None) == ({}, pytest.approx(THIRDS))


@pytest.mark.parametrize("task", ["masked_word", "reconstruction", "unified"])
def test_a_pair_without_words_has_nothing_to_predict(task: WordTask) -> None:
    assert choose([sentence()], [sentence(UNKNOWN)], [0], WORDS) == [None]
    assert labels(task, sentence(), sentence(UNKNOWN), None) == ({}, {})


@pytest.mark.parametrize("task", ["masked_word", "reconstruction", "unified"])
def test_a_batch_is_labelled_as_each_of_its_pairs_alone(task: WordTask) -> None:
    sources, targets = random_pairs(40)
    chosen = choose(sources, targets, range(40), WORDS)
    ids, shares = distributions(task, sources, targets, chosen, WORDS)
    rows = [as_shares(*row) for row in zip(ids, shares, strict=True)]
    for pair, hidden in enumerate(chosen):
        assert (rows[pair], rows[40 + pair]) == labels(task, sources[pair], targets[pair], hidden)
    assert all(sum(row.values()) == pytest.approx(1) for row in rows if row)
    assert sum(map(bool, rows)) > 60


def test_the_choice_follows_from_the_number_of_the_pair_alone() -> None:
    sources, targets = random_pairs(300)
    chosen = choose(sources, targets, range(300), WORDS)
    order = np.random.default_rng(1).permutation(300)[:50].tolist()
    some = choose([sources[row] for row in order], [targets[row] for row in order], order, WORDS)
    assert some == [chosen[row] for row in order]
    assert differing(chosen, choose(sources, targets, range(300), Words(MASK, WORDS.special, seed=2))) > 200
    assert differing(chosen, choose(sources, targets, range(300, 600), WORDS)) > 200


def differing(left: Sequence[Hidden | None], right: Sequence[Hidden | None]) -> int:
    return sum(a != b for a, b in zip(left, right, strict=True))


def test_the_choice_for_a_seed_stays_as_it_is() -> None:
    """Training that an older version began goes on with the same masks."""
    chosen = choose([SOURCE] * 6, [TARGET] * 6, [0, 1, 2, 3, 10**6, 10**12], WORDS)
    assert [(hidden.side, hidden.position) for hidden in chosen if hidden] == [
        (1, 2),
        (0, 2),
        (0, 3),
        (1, 1),
        (1, 1),
        (0, 2),
    ]


def test_both_sides_and_all_of_their_words_are_chosen_equally_often() -> None:
    chosen = choose([SOURCE] * 12_000, [TARGET] * 12_000, range(12_000), WORDS)
    counts = Counter(hidden.word for hidden in chosen if hidden)
    assert counts.keys() == {THE, CAT, SLEEPS, KATZE, DORT}
    assert all(counts[word] == pytest.approx(2000, rel=0.1) for word in (THE, CAT, SLEEPS))
    assert all(counts[word] == pytest.approx(3000, rel=0.1) for word in (KATZE, DORT))


def test_a_chosen_word_is_one_and_stands_where_it_is_said_to() -> None:
    sources, targets = random_pairs(200)
    for pair, hidden in enumerate(choose(sources, targets, range(200), WORDS)):
        if hidden is None:
            assert not (set(sources[pair]) | set(targets[pair])) - WORDS.special
        else:
            assert (sources, targets)[hidden.side][pair][hidden.position] == hidden.word
            assert hidden.word not in WORDS.special


def test_the_side_that_has_words_is_chosen() -> None:
    chosen = choose([SOURCE, sentence()] * 50, [sentence(), TARGET] * 50, range(100), WORDS)
    assert [hidden.side for hidden in chosen if hidden] == [0, 1] * 50


def test_the_mask_covers_the_chosen_word_alone() -> None:
    sources, targets = cover(
        [SOURCE, SOURCE, sentence()], [TARGET, TARGET, sentence()], [CAT_HIDDEN, DORT_HIDDEN, None], WORDS
    )
    assert [ids.tolist() for ids in sources] == [[START, THE, MASK, SLEEPS, END], SOURCE.tolist(), [START, END]]
    assert [ids.tolist() for ids in targets] == [TARGET.tolist(), [START, KATZE, MASK, END], [START, END]]
    assert sources[0].dtype == np.int32
    assert MASK not in SOURCE and MASK not in TARGET
