import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

from tests.helpers.student import make_tokenizer
from tests.vocab.watched import WatchedTokenizer
from xcompress.corpus.graded import builtin
from xcompress.errors import InputError
from xcompress.metrics import cosines
from xcompress.modeling.student import Student, StudentConfig, encode
from xcompress.tokenizer_file import SCORE_STEPS, tokenizer_to_json
from xcompress.vocab.student import count_tokens, seen_tokens, trim_student, trim_tokenizer

GERMAN = ["Der Zug kommt heute nicht.", "Im Hafen liegt ein rotes Boot.", "Es regnet seit gestern ohne Pause."]


@pytest.fixture(scope="module")
def unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(vocab_size=900, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator([*builtin().every(4).sentences(), *GERMAN], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


def tokens(tokenizer: Tokenizer, text: str) -> list[str]:
    return list(tokenizer.encode(text).tokens)


def test_counts_are_of_tokens_in_the_text(unigram: Tokenizer) -> None:
    counts = count_tokens(unigram, GERMAN[:1] * 2, 1000)
    assert counts.shape == (1000,)
    expected = unigram.encode(GERMAN[0], add_special_tokens=False).ids
    assert counts.sum() == 2 * len(expected)
    assert all(counts[token] >= 2 for token in expected)


def test_texts_are_counted_a_few_at_a_time(unigram: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [*GERMAN * 20, " ".join(GERMAN * 9)]
    whole = count_tokens(unigram, texts, 1000)
    for limit, value in (("CHUNK", 7), ("CHUNK_CHARACTERS", 100)):
        monkeypatch.setattr(f"xcompress.vocab.student.{limit}", value)
        watched = WatchedTokenizer(unigram)
        assert np.array_equal(count_tokens(watched, texts, 1000), whole)  # type: ignore[arg-type]
    *several, alone = watched.characters
    assert max(several) <= 100 < alone == len(texts[-1])


def test_trimmed_tokenizer_segments_kept_text_as_before_and_stands_alone(unigram: Tokenizer) -> None:
    kept = seen_tokens(unigram, GERMAN)
    trimmed = Tokenizer.from_str(trim_tokenizer(unigram, kept).to_str())
    assert trimmed.get_vocab_size() == len(kept) < unigram.get_vocab_size()
    for text in [*GERMAN, "Es liegt ein rotes Boot.", " ".join(reversed(GERMAN))]:
        assert set(unigram.encode(text).ids) <= set(kept)
        assert tokens(trimmed, text) == tokens(unigram, text)
    assert [trimmed.token_to_id(token) for token in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("letters", ["", "abcdef"])
def test_without_the_lowest_score_known_characters_are_segmented_as_before(letters: str) -> None:
    words = [("<unk>", 0.0), ("abc", -20.0), ("def", -20.0), ("bcdef", -1.0), ("x", -100.0)]
    tokenizer = Tokenizer(models.Unigram([*words, *((letter, -50.0) for letter in letters)], unk_id=0))
    kept = seen_tokens(tokenizer, ["abcdef", "bcdef"])
    assert tokenizer.token_to_id("x") not in kept
    assert tokens(tokenizer, "abcdef") == ["abc", "def"]
    # "a" is unknown where it has no token, which costs 110 before and 30 after
    assert tokens(trim_tokenizer(tokenizer, kept), "abcdef") == (["abc", "def"] if letters else ["a", "bcdef"])


def test_seen_characters_can_still_be_segmented(unigram: Tokenizer) -> None:
    trimmed = trim_tokenizer(unigram, seen_tokens(unigram, GERMAN))
    assert "<unk>" not in tokens(trimmed, "gnitset")


def test_the_most_frequent_tokens_are_kept_and_every_character(unigram: Tokenizer) -> None:
    texts = [GERMAN[0]] * 30 + GERMAN[1:]
    frequent = len(set(unigram.encode(GERMAN[0], add_special_tokens=False).ids))
    seen, few = seen_tokens(unigram, texts), seen_tokens(unigram, texts, frequent)
    assert seen_tokens(unigram, texts, 10_000) == seen
    assert set(few) < set(seen)
    trimmed = trim_tokenizer(unigram, few)
    assert tokens(trimmed, GERMAN[0]) == tokens(unigram, GERMAN[0])
    assert len(tokens(trimmed, GERMAN[1])) > len(tokens(unigram, GERMAN[1]))
    assert "<unk>" not in tokens(trimmed, GERMAN[1])


def test_vectors_of_kept_text_are_unchanged(unigram: Tokenizer) -> None:
    torch.manual_seed(0)
    config = StudentConfig(
        unigram.get_vocab_size(), 32, 4, 64, unit_layers=2, max_position_embeddings=64, max_tokens=64
    )
    full = Student(config).eval()
    trimmed, tokenizer = trim_student(full, unigram, seen_tokens(unigram, GERMAN))
    assert trimmed.config.vocab_size == tokenizer.get_vocab_size()
    assert trimmed.sizes()["word"] == trimmed.config.vocab_size * 32
    assert cosines(encode(full, unigram, GERMAN), encode(trimmed, tokenizer, GERMAN)).min() > 0.9999


def test_scores_of_a_trimmed_student_add_up_exactly_in_float32(unigram: Tokenizer) -> None:
    config = StudentConfig(unigram.get_vocab_size(), 32, 4, 64, unit_layers=1, max_position_embeddings=64)
    _, tokenizer = trim_student(Student(config), unigram, seen_tokens(unigram, GERMAN))
    scores = [score for _, score in tokenizer_to_json(tokenizer)["model"]["vocab"]]
    assert all((score * SCORE_STEPS).is_integer() for score in scores)
    before = dict(tokenizer_to_json(unigram)["model"]["vocab"])
    after = dict(tokenizer_to_json(tokenizer)["model"]["vocab"])
    assert max(abs(before[token] - score) for token, score in after.items()) <= 0.5 / SCORE_STEPS


def test_other_tokenizers_are_refused() -> None:
    with pytest.raises(InputError, match="tokenizer is WordLevel"):
        trim_tokenizer(make_tokenizer(), [0, 1, 2, 3])
