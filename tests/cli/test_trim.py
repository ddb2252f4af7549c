import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from tests.helpers import ROOT
from tests.helpers.student import SENTENCES, save_student
from tests.helpers.vocabularies import make
from xcompress.cli.trim import trim
from xcompress.errors import InputError

app = typer.Typer()
app.command()(trim)


@pytest.fixture(autouse=True)
def student(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.helpers.student.make_tokenizer", lambda: make("unigram"))
    save_student(working_folder / "student", vocab_size=make("unigram").get_vocab_size())
    Path("text.txt").write_text("\n".join(SENTENCES * 8), encoding="utf-8")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_a_table_shows_rows_size_and_held_out_text() -> None:
    shown = run("student", "--text", "text.txt", "-o", "small").stdout
    assert "rows of the token embeddings" in shown
    assert "MB of the weights" in shown
    assert "text.txt, held out" in shown
    assert "tokens per word" in shown
    assert Path("small/model.safetensors").is_file()


def test_json_and_a_size() -> None:
    arguments = ("student", "--text", "text.txt", "--text", "text.txt", "--output", "small", "--json")
    whole = json.loads(run(*arguments).stdout)
    small = json.loads(run(*arguments, "--vocabulary", "20").stdout)
    assert whole["vocabulary"]["counted"] == ["text.txt", "text.txt"]
    assert whole["rows_before"] == 900 > whole["rows_after"] > small["rows_after"]
    assert small["vocabulary"]["held_out"][0]["unknown_after"] == 0


def test_prefixes_are_kept() -> None:
    arguments = ("student", "--text", "text.txt", "--output", "small", "--json")
    kept = [
        json.loads(run(*arguments, *prefixes).stdout)["rows_after"]
        for prefixes in ((), ("--prefix", "hebben: "), ("--prefix", "hebben: ", "--prefix", "school: "))
    ]
    assert kept == sorted(set(kept))


def test_without_languages_and_text_it_says_what_to_add() -> None:
    failure = run("student").exception
    assert isinstance(failure, InputError)
    assert str(failure).startswith("trim: neither languages nor text is given")


def test_help_has_examples_and_needs_nothing_heavy() -> None:
    assert "xcompress trim path/to/model --languages de" in run("--help").stdout
    loaded = "import sys, xcompress.cli.trim; print([name for name in ('torch', 'tokenizers') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
