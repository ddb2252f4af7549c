import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.helpers.student import make_tokenizer
from xcompress.corpus.graded import builtin
from xcompress.errors import InputError
from xcompress.metrics import cosines
from xcompress.modeling.student import Student, StudentConfig, encode
from xcompress.vocab.train import (
    compose_embeddings,
    old_ids_of_tokens,
    retrain,
    train_new_tokenizer,
    train_tokenizer,
)

GERMAN = [
    "Der Zug kommt heute nicht.",
    "Im Hafen liegt ein rotes Boot, und das Wasser ist ruhig.",
    "Es regnet seit gestern ohne Pause, deshalb bleiben wir heute im Haus.",
    "Die Kinder spielen im Garten hinter dem alten Haus.",
    "Morgen fahren wir mit dem Zug an das Wasser.",
]
HELD_OUT = ["Ein alter Garten im Regen.", "ZUG UND BOOT!", "Wasser und noch mehr Wasser (heute)."]
TEXTS = [*builtin().within(["de"]).sentences(), *GERMAN]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


@pytest.fixture(scope="module")
def old() -> Tokenizer:
    """Make an old tokenizer that, like that of XLM-R, has most special tokens in front and one at the end."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=1500,
        special_tokens=SPECIAL[:4],
        unk_token="<unk>",
        show_progress=False,
        initial_alphabet=list(map(chr, range(33, 127))),
    )
    tokenizer.train_from_iterator([*builtin().every(4).sentences(), *GERMAN], trainer)
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A <mask>", special_tokens=[("<s>", 0), ("<mask>", tokenizer.token_to_id("<mask>"))]
    )
    return tokenizer


@pytest.fixture(scope="module")
def new(old: Tokenizer) -> Tokenizer:
    return train_tokenizer(old, TEXTS, 400)


def unknown_rate(tokenizer: Tokenizer, texts: Sequence[str]) -> float:
    tokens = [token for text in texts for token in tokenizer.encode(text, add_special_tokens=False).ids]
    return sum(token == tokenizer.token_to_id("<unk>") for token in tokens) / len(tokens)


def test_the_new_vocabulary_is_of_the_text_and_not_larger_than_asked(old: Tokenizer, new: Tokenizer) -> None:
    assert 300 < new.get_vocab_size() <= 400 < old.get_vocab_size()
    assert [new.id_to_token(number) for number in range(5)] == SPECIAL
    old_length, new_length = (
        sum(len(tokenizer.encode(text).ids) for text in GERMAN) for tokenizer in (train_tokenizer(old, TEXTS, 200), new)
    )
    assert new_length < old_length


def test_everything_but_the_tokens_is_as_before(old: Tokenizer, new: Tokenizer) -> None:
    before, after = json.loads(old.to_str()), json.loads(Tokenizer.from_str(new.to_str()).to_str())
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        assert after[part] == before[part]
    assert after["post_processor"]["special_tokens"]["<mask>"]["ids"] == [4]
    encoded = new.encode("Ｄer Zug")
    assert (encoded.tokens[0], encoded.tokens[-1], encoded.ids[-1]) == ("<s>", "<mask>", 4)
    assert new.decode(encoded.ids) == "Der Zug"


def test_held_out_text_has_no_unknown_tokens_where_it_had_none(old: Tokenizer, new: Tokenizer) -> None:
    assert unknown_rate(old, HELD_OUT) == unknown_rate(new, HELD_OUT) == 0
    assert unknown_rate(new, ["字"]) > 0


def test_characters_that_the_old_vocabulary_lacks_stay_unknown(old: Tokenizer) -> None:
    trained = train_tokenizer(old, [*TEXTS, "Wasser 字 Wasser"], 400)
    assert trained.token_to_id("字") is None


@pytest.mark.exhaustive
def test_the_same_text_in_any_order_gives_the_same_tokenizer_in_every_process(old: Tokenizer, tmp_path: Path) -> None:
    texts = builtin().sentences()[::4]
    old.save(str(tmp_path / "old.json"))
    code = (
        "import sys, tokenizers, xcompress.vocab.train as train\n"
        "from xcompress.corpus.graded import builtin\n"
        "old = tokenizers.Tokenizer.from_file(sys.argv[1])\n"
        "train.train_tokenizer(old, builtin().sentences()[::4][::-1], 1000).save(sys.argv[2])"
    )
    files = [str(tmp_path / name) for name in ("old.json", "new.json")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TOKENIZERS_PARALLELISM": "false"}
    subprocess.run([sys.executable, "-c", code, *files], check=True, env=environment)
    assert train_tokenizer(old, texts, 1000).to_str() == Tokenizer.from_file(files[1]).to_str()


def test_rows_are_copied_or_means_of_the_old_segmentation(old: Tokenizer, new: Tokenizer) -> None:
    table = torch.randn(old.get_vocab_size() + 3, 8)
    rows = compose_embeddings(old, new, table)
    assert rows.shape == (new.get_vocab_size(), 8)
    composed = 0
    for number in range(new.get_vocab_size()):
        token = new.id_to_token(number)
        if old.token_to_id(token) is not None:
            torch.testing.assert_close(rows[number], table[old.token_to_id(token)])
            continue
        composed += 1
        text = token.removeprefix("\u2581")
        parts = [token for token in old.encode(text, add_special_tokens=False).tokens]
        if token.startswith("\u2581"):
            expected = table[[old.token_to_id(part) for part in parts]].mean(0)
            torch.testing.assert_close(rows[number], expected)
    assert composed


def test_tokens_inside_a_word_are_segmented_without_a_mark(old: Tokenizer) -> None:
    inside = Tokenizer(models.Unigram([("<unk>", 0.0), ("asserfal", -1.0), ("\u2581asserfal", -1.0)], unk_id=0))
    plain, marked = ([old.id_to_token(row) for row in rows] for rows in old_ids_of_tokens(old, inside)[1:])
    assert "".join(plain) == "asserfal"
    assert "".join(marked) == "\u2581asserfal"


def test_the_numbers_of_copied_and_composed_embeddings_are_printed(
    old: Tokenizer, new: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    compose_embeddings(old, new, torch.zeros(old.get_vocab_size(), 2))
    said = capsys.readouterr().err
    copied = sum(old.token_to_id(token) is not None for token in new.get_vocab())
    assert (
        f"{new.get_vocab_size()} tokens, {copied} embeddings copied, {new.get_vocab_size() - copied} composed" in said
    )


def test_an_encoder_gets_the_new_vocabulary(old: Tokenizer) -> None:
    torch.manual_seed(0)
    config = StudentConfig(old.get_vocab_size(), 32, 4, 64, unit_layers=2, max_tokens=64, prefix="query: ")
    full = Student(replace(config, bottleneck=16)).eval()
    changed, tokenizer = retrain(full, old, TEXTS, 400)
    assert changed.config == replace(full.config, vocab_size=tokenizer.get_vocab_size(), pad_token_id=1)
    assert changed.sizes()["word"] == tokenizer.get_vocab_size() * 16
    before, after = encode(full, old, GERMAN), encode(changed, tokenizer, GERMAN)
    assert cosines(before, after).mean() > 0.7
    assert changed.sizes()["encoder"] == full.sizes()["encoder"]


def test_other_tokenizers_are_refused(old: Tokenizer) -> None:
    with pytest.raises(InputError, match="tokenizer is WordLevel with WhitespaceSplit"):
        train_tokenizer(make_tokenizer(), TEXTS, 400)
    bare = Tokenizer.from_str(old.to_str())
    bare.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(InputError, match="Unigram with Whitespace pre-tokenizer"):
        train_tokenizer(bare, TEXTS, 400)


def test_a_size_below_the_characters_is_refused_and_one_above_is_kept_to(old: Tokenizer) -> None:
    with pytest.raises(InputError, match=r"vocabulary\.size: 50 is less than the \d+ special tokens") as refused:
        train_tokenizer(old, GERMAN, 50)
    needed = int(str(refused.value).split("less than the ")[1].split()[0])
    assert train_tokenizer(old, GERMAN, needed).get_vocab_size() == needed


def test_no_text_is_refused(old: Tokenizer) -> None:
    with pytest.raises(InputError, match="no text to train on"):
        train_tokenizer(old, [], 200)


@pytest.fixture(scope="module")
def fresh() -> Tokenizer:
    return train_new_tokenizer(TEXTS, 400)


def test_a_new_vocabulary_has_special_tokens_first_and_around_a_sentence(fresh: Tokenizer) -> None:
    assert 300 < fresh.get_vocab_size() <= 400
    assert [fresh.id_to_token(number) for number in range(5)] == SPECIAL
    assert {number: token.content for number, token in fresh.get_added_tokens_decoder().items()} == dict(
        enumerate(SPECIAL)
    )
    encoded = fresh.encode("Der Zug")
    assert (encoded.ids[0], encoded.ids[-1]) == (0, 2)
    assert fresh.encode("Der <mask>").ids[-2] == 4
    assert fresh.encode("").ids == [0, 2]


def test_text_is_normalised_and_its_spaces_are_collapsed(fresh: Tokenizer) -> None:
    plain = fresh.encode("Der Zug kommt").ids
    assert fresh.encode("  Ｄer \t Zug\u00a0 kommt\n").ids == plain
    assert fresh.decode(plain) == "Der Zug kommt"
    assert Tokenizer.from_str(fresh.to_str()).encode("Der Zug kommt").ids == plain


def mixed_tokens(tokenizer: Tokenizer) -> list[str]:
    tokens = [token.removeprefix("\u2581") for token in tokenizer.get_vocab() if token not in SPECIAL]
    return [token for token in tokens if len({character.isalpha() for character in token}) > 1]


def test_no_token_joins_letters_with_signs_or_digits(old: Tokenizer) -> None:
    texts = [text.replace(" ", ", ") for text in TEXTS]
    made = train_new_tokenizer(texts, 900)
    assert not mixed_tokens(made) and sum(len(token) > 2 for token in made.get_vocab()) > 100
    assert mixed_tokens(train_tokenizer(old, texts, 900))


def test_held_out_text_in_seen_characters_has_no_unknown_token(fresh: Tokenizer) -> None:
    assert unknown_rate(fresh, [*TEXTS, *HELD_OUT, "{[~]}", "ÄÖÜ"]) == 0
    assert unknown_rate(fresh, ["字"]) > 0


def test_the_rarest_characters_are_left_out() -> None:
    texts = ["Das Wasser ist ruhig und der Hafen leer. " * 200] * 50
    tokens = train_new_tokenizer([*texts, "Wasser 字 Wasser ß"], 150).get_vocab()
    assert "r" in tokens and not {"字", "ß"} & tokens.keys()
    assert {"字", "ß"} <= train_new_tokenizer([*texts[:1], "Wasser 字 Wasser ß"], 150).get_vocab().keys()


def test_a_new_vocabulary_is_that_of_its_texts_in_any_order(fresh: Tokenizer) -> None:
    assert train_new_tokenizer(TEXTS[::-1], 400).to_str() == fresh.to_str()
    assert train_new_tokenizer(GERMAN * 9, 400).to_str() != fresh.to_str()


def test_a_new_vocabulary_needs_text_and_room_for_its_characters() -> None:
    for nothing in ([], ["", " "]):
        with pytest.raises(InputError, match="no text to train on"):
            train_new_tokenizer(nothing, 400)
    with pytest.raises(InputError, match=r"vocabulary\.size: 50 is less than the \d+ special tokens"):
        train_new_tokenizer(GERMAN, 50)


class Generated(Sequence[str]):
    """2,000 texts of 5,000 characters, made when they are read."""

    def __len__(self) -> int:
        return 2000

    def __getitem__(self, number: int) -> str:
        if number >= len(self):
            raise IndexError
        return (f"{GERMAN[number % len(GERMAN)]} " * 200)[:5000]


def test_text_may_be_larger_than_memory(old: Tokenizer) -> None:
    config = StudentConfig(old.get_vocab_size(), 32, 4, 64, unit_layers=2, prefix="query: ")
    tracemalloc.start()
    retrain(Student(config), old, Generated(), 400)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6, "bytes of Python objects; the text has ten million"
