"""The key of the start step, and the vocabulary that it trims."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.recipe import small_recipe, write_labelled, write_monolingual
from tests.helpers.student import CONFIG
from tests.helpers.vocabularies import make
from xcompress.distillation.assistant import _change_vocabulary, start_step
from xcompress.distillation.data.corpus import corpus_step
from xcompress.distillation.data.labelled import labelled_step
from xcompress.distillation.data.monolingual import monolingual_step
from xcompress.distillation.run_folder import Build, Key, Run
from xcompress.distillation.teachers.ensemble import Encoders
from xcompress.modeling.student import Student
from xcompress.recipe import Recipe


class StopError(Exception):
    """Ends a step where it would be built."""


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> list[Key]:
    """The keys of the start steps that are asked for; none is built."""
    seen: list[Key] = []
    step = Run.step

    def record(run: Run, name: str, key: Key, build: Build, together: bool = True) -> object:
        if name != "start":
            return step(run, name, key, build, together)
        seen.append(key)
        raise StopError

    monkeypatch.setattr(Run, "step", record)
    return seen


def start(recipe: Recipe, folder: Path) -> None:
    run, encoders = Run(folder / "run"), Encoders()
    corpus = corpus_step(recipe, run, None)
    monolingual, labelled = monolingual_step(recipe, run, corpus), labelled_step(recipe, run, corpus)
    with pytest.raises(StopError):
        # The corpus step stands for the reference step, of which only the key is read.
        start_step(
            recipe, run, corpus, monolingual, labelled, encoders, corpus.step, lambda: pytest.fail("it was built")
        )


def test_an_edited_word_list_changes_the_key_of_the_start_step(tmp_path: Path, keys: list[Key]) -> None:
    words, _ = write_monolingual(tmp_path / "words")
    recipe = small_recipe(tmp_path, words.replace("keep", "trim"))
    start(recipe, tmp_path)
    start(recipe, tmp_path)
    assert keys[0] == keys[1]
    (tmp_path / "words/de.txt").write_text("und\n")
    start(recipe, tmp_path)
    assert keys[2] != keys[0]


@pytest.mark.parametrize(
    "vocabulary",
    ["{method: keep}", "{method: trim}", "{method: trim, words: 'wheel:wordfreq==3.1.1/wordfreq/{language}.txt'}"],
)
def test_other_keys_of_the_start_step_are_those_of_earlier_versions(
    vocabulary: str, tmp_path: Path, keys: list[Key]
) -> None:
    start(small_recipe(tmp_path, f"vocabulary={vocabulary}"), tmp_path)
    assert not {"word lists", "monolingual", "labelled"} & keys[0].keys()


def test_a_kept_vocabulary_reads_no_word_lists(tmp_path: Path, keys: list[Key]) -> None:
    words, _ = write_monolingual(tmp_path / "words")
    start(small_recipe(tmp_path, words), tmp_path)
    assert "word lists" not in keys[0]


def test_text_without_translations_and_labelled_pairs_change_the_key_of_the_start_step(
    tmp_path: Path, keys: list[Key]
) -> None:
    recipe = small_recipe(tmp_path, *write_monolingual(tmp_path / "words"), *write_labelled(tmp_path / "labelled"))
    start(recipe, tmp_path)
    (tmp_path / "labelled/graded.tsv").write_text("A dog runs.\tA cat runs.\t2\n")
    start(recipe, tmp_path)
    (tmp_path / "words/sentences.txt").write_text("Es regnet.\nEs regnet nicht.\n")
    start(recipe, tmp_path)
    assert keys[0]["labelled"] != keys[1]["labelled"] == keys[2]["labelled"]
    assert keys[0]["monolingual"] == keys[1]["monolingual"] != keys[2]["monolingual"]


def test_trimming_keeps_a_padding_token_that_tokenizer_json_does_not_name(tmp_path: Path) -> None:
    tokenizer = make("unigram")
    padding = tokenizer.get_vocab_size() - 1
    student = Student(replace(CONFIG, vocab_size=padding + 1, pad_token_id=padding))
    recipe = small_recipe(tmp_path, "vocabulary={method: trim}")
    trimmed, trimmed_tokenizer = _change_vocabulary(recipe, student, tokenizer, ["rain"])
    assert trimmed_tokenizer.id_to_token(trimmed.config.pad_token_id) == tokenizer.id_to_token(padding)
