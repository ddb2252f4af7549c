from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from xcompress.distillation.data.batches import WordLabels
from xcompress.distillation.data.masking import MaskedWord, MaskingConfig, choose_words, label_distributions, mask_words
from xcompress.recipe import WordTask

START, PAD, END, UNKNOWN, MASK = range(5)
CONFIG = MaskingConfig(MASK, frozenset(range(5)), seed=1)
# A sentence of three words and its translation of two.
THE, CAT, SLEEPS, KATZE, DORT = range(10, 15)
SHARES = dict[int, float]


def sentence(*words: int) -> NDArray[np.int32]:
    return np.array([START, *words, END], dtype=np.int32)


SOURCE, TARGET = sentence(THE, CAT, SLEEPS), sentence(KATZE, DORT)
CAT_MASKED = MaskedWord(side=0, position=2, word=CAT)
DORT_MASKED = MaskedWord(side=1, position=2, word=DORT)


def labels(
    task: WordTask, source: NDArray[np.int32], target: NDArray[np.int32], masked: MaskedWord | None
) -> tuple[SHARES, SHARES]:
    """Return the label distributions of both sides of one pair."""
    ids, shares = label_distributions(task, [source], [target], [masked], CONFIG)
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


@pytest.mark.parametrize("masked", [CAT_MASKED, DORT_MASKED, None])
def test_reconstruction_spreads_over_the_words_of_the_other_sentence(masked: MaskedWord | None) -> None:
    assert labels("reconstruction", SOURCE, TARGET, masked) == (HALVES, pytest.approx(THIRDS))


def test_unified_puts_half_on_the_word_masked_in_the_source() -> None:
    from_source, from_target = labels("unified", SOURCE, TARGET, CAT_MASKED)
    assert from_source == {CAT: 0.5, KATZE: 0.25, DORT: 0.25}
    assert from_target == pytest.approx(THIRDS)  # the masked word among them


def test_unified_puts_half_on_the_word_masked_in_the_target() -> None:
    from_source, from_target = labels("unified", SOURCE, TARGET, DORT_MASKED)
    assert from_source == HALVES
    assert from_target == pytest.approx({DORT: 0.5, THE: 1 / 6, CAT: 1 / 6, SLEEPS: 1 / 6})


@pytest.mark.parametrize(("masked", "word"), [(CAT_MASKED, CAT), (DORT_MASKED, DORT)])
def test_a_masked_word_is_the_label_of_both_sides(masked: MaskedWord, word: int) -> None:
    assert labels("masked_word", SOURCE, TARGET, masked) == ({word: 1}, {word: 1})


def test_a_repeated_word_counts_once() -> None:
    twice = sentence(THE, CAT, THE)
    assert labels("reconstruction", twice, TARGET, None) == (HALVES, {THE: 0.5, CAT: 0.5})
    from_source, from_target = labels("unified", twice, TARGET, MaskedWord(0, 3, THE))
    assert from_source == {THE: 0.5, KATZE: 0.25, DORT: 0.25}
    assert from_target == {THE: 0.5, CAT: 0.5}


def test_shares_of_a_word_that_both_sentences_have_add_up() -> None:
    from_source, from_target = labels("unified", sentence(THE, CAT), sentence(CAT, DORT), MaskedWord(0, 2, CAT))
    assert from_source == {CAT: 0.75, DORT: 0.25}
    assert from_target == {THE: 0.5, CAT: 0.5}


def test_without_words_in_the_translation_the_masked_word_has_all_weight() -> None:
    assert labels("unified", SOURCE, sentence(UNKNOWN), CAT_MASKED) == ({CAT: 1}, pytest.approx(THIRDS))
    assert labels("reconstruction", SOURCE, sentence(), None) == ({}, pytest.approx(THIRDS))


@pytest.mark.parametrize("task", ["masked_word", "reconstruction", "unified"])
def test_a_pair_without_words_has_nothing_to_predict(task: WordTask) -> None:
    assert choose_words([sentence()], [sentence(UNKNOWN)], [0], CONFIG) == [None]
    assert labels(task, sentence(), sentence(UNKNOWN), None) == ({}, {})


@pytest.mark.parametrize("task", ["masked_word", "reconstruction", "unified"])
def test_a_batch_is_labelled_as_each_of_its_pairs_alone(task: WordTask) -> None:
    sources, targets = random_pairs(40)
    chosen = choose_words(sources, targets, range(40), CONFIG)
    ids, shares = label_distributions(task, sources, targets, chosen, CONFIG)
    rows = [as_shares(*row) for row in zip(ids, shares, strict=True)]
    for pair, masked in enumerate(chosen):
        assert (rows[pair], rows[40 + pair]) == labels(task, sources[pair], targets[pair], masked)
    assert all(sum(row.values()) == pytest.approx(1) for row in rows if row)
    assert sum(map(bool, rows)) > 60


def test_the_choice_follows_from_the_number_of_the_pair_alone() -> None:
    sources, targets = random_pairs(300)
    chosen = choose_words(sources, targets, range(300), CONFIG)
    order = np.random.default_rng(1).permutation(300)[:50].tolist()
    some = choose_words([sources[row] for row in order], [targets[row] for row in order], order, CONFIG)
    assert some == [chosen[row] for row in order]
    assert (
        differing(chosen, choose_words(sources, targets, range(300), MaskingConfig(MASK, CONFIG.special, seed=2))) > 200
    )
    assert differing(chosen, choose_words(sources, targets, range(300, 600), CONFIG)) > 200


def differing(left: Sequence[MaskedWord | None], right: Sequence[MaskedWord | None]) -> int:
    return sum(a != b for a, b in zip(left, right, strict=True))


def test_the_choice_for_a_seed_never_changes() -> None:
    """Training that an older version started resumes with the same masks."""
    chosen = choose_words([SOURCE] * 6, [TARGET] * 6, [0, 1, 2, 3, 10**6, 10**12], CONFIG)
    assert [(masked.side, masked.position) for masked in chosen if masked] == [
        (1, 2),
        (0, 2),
        (0, 3),
        (1, 1),
        (1, 1),
        (0, 2),
    ]


def test_both_sides_and_all_of_their_words_are_chosen_equally_often() -> None:
    chosen = choose_words([SOURCE] * 12_000, [TARGET] * 12_000, range(12_000), CONFIG)
    counts = Counter(masked.word for masked in chosen if masked)
    assert counts.keys() == {THE, CAT, SLEEPS, KATZE, DORT}
    assert all(counts[word] == pytest.approx(2000, rel=0.1) for word in (THE, CAT, SLEEPS))
    assert all(counts[word] == pytest.approx(3000, rel=0.1) for word in (KATZE, DORT))


def test_a_chosen_word_is_not_special_and_is_at_its_position() -> None:
    sources, targets = random_pairs(200)
    for pair, masked in enumerate(choose_words(sources, targets, range(200), CONFIG)):
        if masked is None:
            assert not (set(sources[pair]) | set(targets[pair])) - CONFIG.special
        else:
            assert (sources, targets)[masked.side][pair][masked.position] == masked.word
            assert masked.word not in CONFIG.special


def test_the_side_that_has_words_is_chosen() -> None:
    chosen = choose_words([SOURCE, sentence()] * 50, [sentence(), TARGET] * 50, range(100), CONFIG)
    assert [masked.side for masked in chosen if masked] == [0, 1] * 50


def test_the_mask_covers_the_chosen_word_alone() -> None:
    sources, targets = mask_words(
        [SOURCE, SOURCE, sentence()], [TARGET, TARGET, sentence()], [CAT_MASKED, DORT_MASKED, None], CONFIG
    )
    assert [ids.tolist() for ids in sources] == [[START, THE, MASK, SLEEPS, END], SOURCE.tolist(), [START, END]]
    assert [ids.tolist() for ids in targets] == [TARGET.tolist(), [START, KATZE, MASK, END], [START, END]]
    assert sources[0].dtype == np.int32
    assert MASK not in SOURCE and MASK not in TARGET


@pytest.mark.parametrize(("tasks", "masks"), [(("reconstruction",), 0), (("reconstruction", "unified"), 1)])
def test_no_word_is_masked_for_reconstruction_alone(tasks: tuple[WordTask, ...], masks: int) -> None:
    read, labels = WordLabels(CONFIG, tasks)([SOURCE], [TARGET], [0])
    assert np.concatenate(read).tolist().count(MASK) == masks
    assert set(labels) == {f"{task}_{kind}" for task in tasks for kind in ("ids", "weights")}
