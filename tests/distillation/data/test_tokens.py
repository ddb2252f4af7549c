import json
import shutil
from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.student import CONFIG, make_tokenizer
from xcompress.corpus.columns import Rows
from xcompress.corpus.pairs import Pair
from xcompress.distillation.data import tokens
from xcompress.distillation.data.tokens import TokenFile, tokenise, tokens_step, write_tokens
from xcompress.distillation.run_folder import Run, Step
from xcompress.modeling.student import StudentConfig, token_ids

PAIRS = [
    Pair("the boat is late", "rain", "de", ""),
    Pair("rain", "der Zug kommt heute nicht", "de", ""),
    Pair("the train", "le train", "fr", ""),
    Pair("a red boat", "", "fr", ""),
]
EARLY, LATE = np.array([2, 0, 0]), np.array([1, 2])


def make_step(run: Run, *stages: Rows, text: str = "text", config: StudentConfig = CONFIG) -> tuple[Path, Rows]:
    return tokens_step(run, "tokens", text, PAIRS, stages, make_tokenizer(), config)


@pytest.mark.parametrize(("vocabulary", "bytes_each"), [(400, 2), (65_536, 2), (65_537, 4)])
def test_tokens_on_disk_are_those_of_the_tokenizer_in_the_smallest_type(
    vocabulary: int, bytes_each: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "CHUNK", 2)
    write_tokens(tmp_path, PAIRS, np.array([3, 0, 1]), make_tokenizer(), replace(CONFIG, vocab_size=vocabulary))
    for side, texts in (
        ("sources", ["a red boat", "the boat is late", "rain"]),
        ("targets", ["", "rain", "der Zug kommt heute nicht"]),
    ):
        file, expected = TokenFile(tmp_path, side), token_ids(make_tokenizer(), texts, CONFIG)
        assert isinstance(file.ids, np.memmap) and isinstance(file.offsets, np.memmap)
        assert file.ids.itemsize == bytes_each
        assert [file[row].tolist() for row in range(len(file.offsets) - 1)] == expected
        ids, lengths = file.take(np.array([2, 0, 2]))
        assert ids.tolist() == expected[2] + expected[0] + expected[2]
        assert lengths.tolist() == [len(expected[row]) for row in (2, 0, 2)]


def test_several_hosts_have_the_tokens_of_one_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "CHUNK", 1)
    texts = [pair.target for pair in PAIRS]
    whole = [ids.tolist() for ids, _ in tokenise(texts, make_tokenizer(), CONFIG)]
    assert whole == token_ids(make_tokenizer(), texts, CONFIG)
    shares = [tokenise(texts, make_tokenizer(), CONFIG, host, 3) for host in range(3)]
    turns = zip_longest(*shares)
    assert [share[0].tolist() for turn in turns for share in turn if share] == whole


def test_the_largest_id_survives_the_smallest_type(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    words = json.loads(tokenizer.to_str())
    words["model"]["vocab"]["rain"] = 65_535
    write_tokens(
        tmp_path,
        PAIRS,
        np.array([1]),
        type(tokenizer).from_str(json.dumps(words)),
        replace(CONFIG, vocab_size=65_536, prefix=""),
    )
    assert TokenFile(tmp_path, "sources")[0].tolist() == [0, 65_535, 2]


def test_pairs_of_all_stages_are_tokenised_once_and_again_only_when_they_change(tmp_path: Path) -> None:
    first = Run(tmp_path)
    folder, rows = make_step(first, EARLY, LATE)
    assert rows.tolist() == [0, 1, 2, 3], "most pairs are read, so all are tokenised"
    assert make_step(first, LATE, EARLY)[0] == folder == tmp_path / "tokens"
    assert _names(first.steps) == [("tokens", False)], "known within a run"

    again = Run(tmp_path)
    make_step(again, EARLY)
    make_step(again, EARLY, config=replace(CONFIG, max_tokens=5))
    make_step(again, EARLY, config=replace(CONFIG, max_tokens=5), text="other text")
    assert _names(again.steps) == [("tokens", False)] * 3, "half of the pairs; shorter; other text"


def test_of_a_large_corpus_the_pairs_that_stages_read_are_tokenised(tmp_path: Path) -> None:
    rows = EARLY
    folder, tokenised = make_step(Run(tmp_path), rows)
    assert tokenised.tolist() == [0, 2]
    places = np.searchsorted(tokenised, rows)
    ids, _ = TokenFile(folder, "sources").take(places)
    texts = [PAIRS[row].source for row in rows]
    assert ids.tolist() == [*chain.from_iterable(token_ids(make_tokenizer(), texts, CONFIG))]


@pytest.mark.parametrize("name", ["sources.npy", "targets.offsets.npy"])
def test_damaged_tokens_are_made_again(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, _ = make_step(Run(tmp_path), EARLY, LATE)
    whole = shutil.copytree(folder, tmp_path / "copy")
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-1])
    make_step(Run(tmp_path), EARLY, LATE)
    assert f"tokens: {name} is shorter than written" in capsys.readouterr().err
    assert (folder / name).read_bytes() == (whole / name).read_bytes()


def test_an_interruption_leaves_no_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tokens, "token_ids", interrupt)
    with pytest.raises(KeyboardInterrupt):
        make_step(Run(tmp_path), EARLY)
    assert not list(tmp_path.iterdir())


def _names(steps: list[Step]) -> list[tuple[str, bool]]:
    return [(step.name, step.reused) for step in steps]
