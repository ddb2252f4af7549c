from pathlib import Path

import pytest

from tests.helpers.recipe import small_recipe, write_monolingual
from xcompress.distillation.data.corpus import corpus_step
from xcompress.distillation.data.monolingual import Monolingual, monolingual_step
from xcompress.distillation.run_folder import open_run
from xcompress.errors import InputError
from xcompress.recipe import Recipe


def step(recipe: Recipe, folder: Path) -> Monolingual:
    with open_run(folder / "run") as run:
        return monolingual_step(recipe, run, corpus_step(recipe, run, None))


def sentences(found: Monolingual, language: str) -> list[str]:
    return [side for pair in found.pairs if pair.language == language for side in (pair.source, pair.target)]


def test_a_recipe_without_such_text_has_no_step(tmp_path: Path) -> None:
    assert step(small_recipe(tmp_path), tmp_path) == Monolingual()


def test_sentences_of_files_and_sequences_of_words_are_mixed_by_language(tmp_path: Path) -> None:
    found = step(small_recipe(tmp_path, *write_monolingual(tmp_path / "text")), tmp_path)
    german = sentences(found, "de")
    of_files = [text for text in german if not text.startswith("de")]
    assert sorted(of_files) == ["Der Zug ist weg.", "Es regnet.", "Ich nicht.", "Wer klopft da?"], "each once"
    assert len(german) == 64 and german[:4] != of_files
    assert all(word.startswith("fr") for text in sentences(found, "fr") for word in text.split())
    assert [len(rows) for rows in found.rows_by_language] == [30, 32, 30]


def test_held_out_sentences_are_left_out(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, *write_monolingual(tmp_path / "text"))
    with open_run(tmp_path / "run") as run:
        corpus = corpus_step(recipe, run, None)
        held_out = next(pair.target for pair in corpus.read_held_out() if pair.language == "de")
        (tmp_path / "text" / "sentences.txt").write_text(f"{held_out.upper()}\nEs regnet.\nIch nicht.\n")
        found = monolingual_step(recipe, run, corpus)
    german = sentences(found, "de")
    assert "Es regnet." in german and held_out.upper() not in german


def test_what_is_left_out_is_counted_and_bad_lines_do_not_refuse_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["Es regnet.", "Es regnet.", "Wer ist da?", "wort " * 65, "Ich nicht.", "x" * 20_000, "NUL\0", "Ja."]
    content = "\n".join(lines).encode() + b"\nT\xfcr\n"
    assert sorted(sentences(step_of(content, tmp_path), "de")) == ["Es regnet.", "Ich nicht.", "Ja.", "Wer ist da?"]
    said = capsys.readouterr().err
    assert "monolingual: de: 4 sentences, 5 left out (1 over max_words, 1 over 20,000 bytes, 1 control " in said
    assert "3 of 9 lines are bad: 1 over 20,000 bytes (such as line 6), 1 control characters (such as line 7)" in said


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"wort " * 65,
            r"monolingual\.text: no sentence is left of the files of de \(1 over max_words\); name more text",
        ),
        ("Türen\n".encode("utf-16"), r"one\.txt:1: not UTF-8 \(it is UTF-16\); convert the file"),
        ("Türen\n".encode("latin-1"), r"one\.txt: .* line is bad: .*; write one sentence per line, in UTF-8"),
        (b"1\tHaus\n2\tMaus\n", r"one\.txt: 2 of 2 lines are bad: 2 several columns .*; write one sentence per line"),
        (b"\n", r"one\.txt: no line could be read, it is empty; write one sentence per line"),
        (b"Allein.\n", r"monolingual: no language has two sentences; name more text, or raise word_sequences"),
    ],
    ids=["too long", "UTF-16", "another encoding", "columns", "empty", "one"],
)
def test_no_sentence_left_is_an_error(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        step_of(content, tmp_path)


def step_of(content: bytes, folder: Path) -> Monolingual:
    """Read a German file of this content."""
    (folder / "one.txt").write_bytes(content)
    text = f"monolingual={{text: [{{source: {folder / 'one.txt'}, language: de}}]}}"
    return step(small_recipe(folder, text), folder)
