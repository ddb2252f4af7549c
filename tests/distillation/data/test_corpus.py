"""What the corpus step prints."""

import shutil
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.helpers.recipe import small_recipe
from xcompress.distillation.assistant import reference_step
from xcompress.distillation.data.corpus import _counts_text, corpus_step
from xcompress.distillation.run_folder import open_run
from xcompress.distillation.teachers.ensemble import find_encoders
from xcompress.errors import InputError
from xcompress.recipe import Recipe


def printed(recipe: Recipe, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    with open_run(folder / "run") as run:
        corpus_step(recipe, run, None)
    return capsys.readouterr().err.splitlines()


def test_the_pairs_of_each_language_are_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = small_recipe(tmp_path, "corpus.min_words=6")
    lines = printed(recipe, tmp_path, capsys)
    assert [line[:12] for line in lines[-2:]] == ["corpus: de: ", "corpus: fr: "]
    assert "pairs to train on, " in lines[-1] and " too short" in lines[-1]
    assert printed(recipe, tmp_path, capsys) == ["corpus: finished earlier, reused"]


def test_the_most_frequent_reasons_are_named() -> None:
    report = {
        "train": {"de": {"a": 20, "b": 3}},
        "holdout": {"de": 7},
        "dropped": {"de": {"too long": 2, "too short": 3000, "duplicate": 5, "looks like code": 1, "one": 1}},
    }
    assert _counts_text(report, "de") == (
        "de: 23 pairs to train on, 7 held out, 3,009 left out (3,000 too short, 5 duplicate, 2 too long, 2 others)"
    )
    assert _counts_text(report | {"dropped": {}}, "de") == "de: 23 pairs to train on, 7 held out, 0 left out"


def test_text_whose_pairs_are_all_in_an_earlier_file_is_refused_with_its_key(tmp_path: Path) -> None:
    files = [f"{{source: {tmp_path}/en-{name}.tsv, language: de, name: {name}}}" for name in ("de", "again")]
    recipe = small_recipe(tmp_path, "languages=[de]", f"corpus.tsv=[{', '.join(files)}]")
    shutil.copy(tmp_path / "en-de.tsv", tmp_path / "en-again.tsv")
    with open_run(tmp_path / "run") as run:
        corpus = corpus_step(recipe, run, None)
    with pytest.raises(
        InputError, match=r"^correlation\.text: no training pair comes from again; .* list its files before"
    ):
        corpus.rows_by_language(("again",), "correlation.text")


def test_tokens_are_counted_without_the_padding_of_the_tokenizer(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, "corpus.max_tokens=30")
    file = tmp_path / "assistant/tokenizer.json"
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.enable_padding(length=60)
    tokenizer.save(str(file))
    with open_run(tmp_path / "run") as run:
        corpus = corpus_step(recipe, run, reference_step(recipe, run, find_encoders(recipe)))
    assert len(corpus.train) > 200


def test_files_of_other_languages_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(small_recipe(tmp_path, "languages=[de]"), tmp_path, capsys)
    warnings = [line for line in lines if line.startswith("warning")]
    assert warnings == [
        "warning: corpus.tsv: en-fr.tsv: left out, as fr is not in languages; add it there if it is meant"
    ]
    assert not any("warning" in line for line in printed(small_recipe(tmp_path), tmp_path / "both", capsys))
