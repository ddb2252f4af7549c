import errno
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.helpers.process import code_of
from tests.helpers.student import save_student
from xcompress.cli import main as cli
from xcompress.errors import InputError

HEAVY = ("torch", "transformers", "sentence_transformers", "onnx", "onnxruntime", "scipy", "numpy", "pydantic")


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from xcompress.cli.main import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


@pytest.mark.parametrize("command", ["distill", "export", "bench"])
def test_every_command_shows_an_example(command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0
    assert f"xcompress {command} " in done.stdout


@pytest.mark.parametrize("words", [["trim"], ["distill"], ["recipe"]], ids=" ".join)
def test_the_paragraphs_of_a_help_text_fill_the_lines(words: list[str]) -> None:
    done = CliRunner().invoke(cli.app, [*words, "--help"], env={"COLUMNS": "80"})
    text = done.output.split("Usage:")[1].split("╭")[0].split("Example:")[0]
    for paragraph in text.split("\n" + " " * 80 + "\n")[1:]:
        lines = [line.strip() for line in paragraph.splitlines() if line.strip()]
        for line, following in pairwise(lines):
            assert len(f"{line} {following.split()[0]}") > 78, paragraph


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom xcompress.cli.main import main\nsys.argv = ['xcompress', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print('heavy:', [name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "heavy: []" in done.stdout


def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    """One process runs all of them."""
    messages = {
        "distill absent.yaml": "absent.yaml: no such recipe",
        "export": "no finished run here; run `xcompress distill recipes/minilm_ru3.yaml` first",
        "export ./absent": "absent: no such folder",
        "bench": "no bundle in any run yet",
        "bench absent": "absent: no such folder",
        "bench --device abacus": "abacus",
    }
    code = code_of([command.split() for command in messages])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == str([2] * len(messages))
    for line, message in zip(done.stderr.splitlines(), messages.values(), strict=True):
        assert line.startswith("error: ") and message in line
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = run("--debug", "distill", str(tmp_path / "absent.yaml"))
    assert done.returncode != 0
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    ("error", "printed"),
    [
        (RuntimeError("the bearing is worn\nsecond line"), "unexpected RuntimeError: the bearing is worn; add --debug"),
        (RuntimeError("can't start new thread"), "error: no more processes or threads can start here; allow more"),
        (OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "error: no more processes or threads can start here;"),
    ],
)
def test_an_unexpected_error_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, printed: str
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("xcompress.recipe.load_recipe", broken)
    monkeypatch.setattr(sys, "argv", ["xcompress", "distill", "recipe.yaml"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 1
    assert printed in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("stop", "code", "printed"),
    [(KeyboardInterrupt(), 130, "error: interrupted"), (SystemExit(143), 143, "")],
    ids=["Ctrl-C", "SIGTERM"],
)
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_signal_while_a_library_in_cpp_is_imported_ends_the_command(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stop: BaseException,
    code: int,
    printed: str,
    is_wrapped: bool,
) -> None:
    def stopped(*_: object, **__: object) -> None:
        try:
            raise ImportError("initialization failed") from stop  # as pybind11 does
        except ImportError as error:
            if is_wrapped:
                raise InputError("the engine cannot open it") from error
            raise

    monkeypatch.setattr("xcompress.recipe.load_recipe", stopped)
    monkeypatch.setattr(sys, "argv", ["xcompress", "recipe", "show", "recipe.yaml"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code, capsys.readouterr().err.strip()) == (code, printed)


def test_ctrl_c_while_the_options_are_parsed_prints_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("xcompress.cli.usage.CommandGroup.make_context", stopped)
    monkeypatch.setattr(sys, "argv", ["xcompress", "models"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code, capsys.readouterr().err.strip()) == (130, "error: interrupted")


@pytest.mark.usefixtures("little_text")
def test_a_disk_that_fills_up_during_export_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    student = save_student(tmp_path / "student")
    monkeypatch.setattr("onnx.save", full)
    monkeypatch.setattr(sys, "argv", ["xcompress", "export", str(student), "--output", str(tmp_path / "bundle")])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert "No space left on device" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["student"]


@pytest.mark.parametrize("name", ["x" * 300, f"./{'x' * 300}", "~nosuchuser/model"])
@pytest.mark.parametrize(
    "command",
    [
        ["export", "{}"],
        ["trim", "{}", "--languages", "de"],
        ["dequantize", "{}"],
        ["embed", "rain", "--model", "{}"],
        ["bench", "{}"],
        ["recipe", "show", "{}"],
        ["recipe", "show", "minilm_ru3", "teacher.source={}", "assistant.source={}", "assistant.shape=null"],
    ],
)
def test_a_name_that_cannot_be_a_path_is_bad_input(command: list[str], name: str, offline: None) -> None:
    error = CliRunner().invoke(cli.app, [part.format(name) for part in command]).exception
    assert isinstance(error, InputError) and "\n" not in str(error)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["embed", "--frobnicate"], "error: No such option: --frobnicate; see `xcompress embed --help`"),
        (
            ["embed", "-5 Grad"],
            "error: No such option: -5; see `xcompress embed --help`, or write -- in front of a text ",
        ),
        (["models", "-5"], "error: No such option: -5; see `xcompress models --help`\n"),
        (["--\x1b[31mred"], "error: No such option: --\\"),
        (["models", "a\u202eb", "\x1b]0;t\x07"], "error: Got unexpected extra argument"),
        (["export", "--target", "\ud800"], "error: Invalid value for '--target': "),
        (["export", "--target", "phone"], "error: Invalid value for '--target': 'phone' is not one of "),
        (["nonsense[/]"], "error: No such command 'nonsense[/]'"),
        (["recipe", "nonsense"], "error: No such command 'nonsense'; see `xcompress recipe --help`"),
        (["search", "a"], "error: Missing argument '"),
        (["export", "--gate"], "error: Option '--gate' requires an argument; see `xcompress export --help`"),
        (["recipe", "copy", "--force=x"], "error: Option '--force' does not take a value; see `xcompress recipe copy"),
    ],
    ids=lambda value: " ".join(value).encode("ascii", "backslashreplace").decode() if isinstance(value, list) else "",
)
def test_an_error_of_usage_is_one_line(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(cli.app, arguments, prog_name="xcompress")
    assert done.exit_code == 2
    assert done.stderr.startswith(message), done.stderr
    assert done.stderr.strip().isprintable()


def test_a_group_without_a_command_shows_its_help() -> None:
    done = CliRunner().invoke(cli.app, ["recipe"])
    assert "Usage:" in done.output
    assert done.exit_code == 2
