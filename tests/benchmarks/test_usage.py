"""Scripts of benchmarks/ print their usage, and one line for what they cannot use."""

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.helpers import ROOT

SCRIPTS = ROOT / "benchmarks"
NO_MODEL = "nowhere/model"
TOPS = ("benchmarks", "recipes", "xcompress")
PAGES = [ROOT / "README.md", *(page for top in TOPS for page in (ROOT / top).rglob("*.md"))]
COMMAND = re.compile(r"(?:python|sh) (benchmarks/[\w/]+\.(?:py|sh))((?:[^`\n&>\\]|\\\n)*)")
BY_HAND = {"demo.md", "phones.md", "reliability.md"}
"""Pages with other commands, such as `make demo`."""


@pytest.mark.parametrize("name", ["arm64.sh", "graph_choices.py", "webgpu.py"])
def test_each_prints_its_usage(name: str) -> None:
    program = "sh" if name.endswith(".sh") else sys.executable
    done = subprocess.run([program, SCRIPTS / name, "--help"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")
    assert name in done.stdout


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[object, str]]:
    """Run a script of benchmarks/ in this process; return its exit code and the last line of its messages."""

    def run_script(name: str, *arguments: str) -> tuple[object, str]:
        script = SCRIPTS / f"{name}.py"
        monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))  # puts back what a script changes
        monkeypatch.setattr(sys, "argv", [str(script), *arguments])
        monkeypatch.syspath_prepend(script.parent)
        with pytest.raises(SystemExit) as stop:
            runpy.run_path(str(script), run_name="__main__")
        return stop.value.code, capsys.readouterr().err.splitlines()[-1]

    return run_script


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("ablation nowhere", "nowhere/parallel: no such folder"),
        ("ablation nowhere --only nosuch", "argument --only: invalid choice: 'nosuch'"),
        ("ablation_report --runs nowhere", "nowhere/starts.json: no such file"),
        ("clients a b c", "a: no such file; name the Python"),
        ("export_memory nowhere.onnx", "nowhere.onnx: no such file"),
        ("export_memory", "the following arguments are required: graphs"),
        ("export_memory nowhere.onnx --only nosuch", "argument --only: invalid choice: 'nosuch'"),
        (f"export_speed {NO_MODEL}", NO_MODEL),
        ("export_speed small --rounds 0", "--rounds: at least 1"),
        (f"four_bits {NO_MODEL}", NO_MODEL),
        ("genres nowhere small", "nowhere/stsb-multi-mt: no such folder"),
        ("graded_set nowhere", "nowhere/stsb-multi-mt: no such folder"),
        ("layer_choice nowhere data", "nowhere/recipe.yaml"),
        ("papers nowhere", "nowhere/parallel: no such folder"),
        ("papers_report --runs nowhere", "nowhere: no scores.json of benchmarks/papers.py"),
        ("peers nowhere", "nowhere/reference"),
        ("readme demo nowhere", "nowhere/bench.json: no such file"),
        ("release/center nowhere --name small --data nowhere", "nowhere"),
        ("release/curve nowhere", "nowhere/manifest.json: no such file"),
        ("release/languages nowhere", "nowhere/recipe.yaml"),
        ("release/read_back nowhere --model nosuch", "nosuch"),
        ("release/release nowhere --name small --data nowhere", "nowhere"),
        ("scale report nowhere.json", "nowhere.json: no such file"),
        ("scale run --folder nowhere", "nowhere: no such folder"),
        ("stored_vectors nowhere", "nowhere/stsb-multi-mt: no such folder"),
        ("teacher_choice nowhere", "nowhere/stsb-multi-mt: no such folder"),
        (f"text_speed {NO_MODEL}", NO_MODEL),
        ("train_speed nowhere", "nowhere/recipe.yaml"),
        ("webgpu nowhere", "nowhere: neither a folder nor a released model"),
    ],
)
@pytest.mark.usefixtures("working_folder")
def test_what_a_script_cannot_use_is_one_line(
    run: Callable[..., tuple[object, str]], command: str, problem: str
) -> None:
    code, line = run(*command.split())
    assert code == 2
    assert problem in line
    assert "error: " in line


def test_pages_name_scripts_and_options_that_exist() -> None:
    shared, wrong, count = (SCRIPTS / "measuring.py").read_text(encoding="utf-8"), [], 0
    for page in PAGES:
        for script, arguments in COMMAND.findall(page.read_text(encoding="utf-8")):
            text, count = (ROOT / script).read_text(encoding="utf-8") + shared, count + 1
            options = re.findall(r"--[a-z-]+", arguments)
            wrong += [f"{page}: {script} {option}" for option in options if f'"{option}"' not in text]
    assert wrong == []
    assert count > 30  # else the pattern no longer finds them


def test_every_page_says_how_it_was_made() -> None:
    without = {page.name for page in SCRIPTS.glob("*.md") if not COMMAND.search(page.read_text(encoding="utf-8"))}
    assert without <= BY_HAND


def test_the_index_names_every_script() -> None:
    index = (SCRIPTS / "README.md").read_text(encoding="utf-8")
    scripts = [file for file in SCRIPTS.glob("**/*.py") if '__name__ == "__main__"' in file.read_text(encoding="utf-8")]
    names = [file.relative_to(SCRIPTS).as_posix() for file in scripts]
    assert [name for name in names if f"| {name}" not in index and f", {name}" not in index] == []
