"""The program as a process: its standard streams and Ctrl-C."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.student import SENTENCES, change_manifest
from xcompress.bundle.manifest import list_files
from xcompress.bundle.released import released_folder
from xcompress.cli.main import main

PROGRAM = [sys.executable, "-m", "xcompress"]
LINE = "error: interrupted"
NO_RETURN = f"{LINE}; a library did not return from a call\n"
ODD = 'Zürich “liegt” in 瑞士 😀 "\\'


@pytest.fixture
def lines(working_folder: Path) -> Path:
    file = working_folder / "lines.txt"
    file.write_text("\n".join([ODD, *SENTENCES]), encoding="utf-8")
    return file


def shell(command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a line of sh in which $X is the program."""
    environment = os.environ | variables | {"X": " ".join(PROGRAM), "B": "tiny"}
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("$X search lines.txt rain --model $B >&-", 0, ""),
        ("$X search absent.txt rain 2>&-", 2, ""),
        ("$X embed --model $B <&-", 2, "error: standard input: contains no text; give one text per line\n"),
        ("$X search lines.txt rain --model $B --json <&- >&- 2>&-", 0, ""),
    ],
)
def test_standard_streams_may_be_closed(lines: Path, command: str, code: int, said: str) -> None:
    done = shell(command)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", said)
    assert [file.name for file in lines.parent.iterdir()] == ["lines.txt"]


def test_a_reader_that_has_enough_gives_no_message() -> None:
    done = shell("(sleep 0.2; $X models) | true")  # the pause lets the reader end before anything is printed
    assert done.stderr == ""


@pytest.mark.parametrize("command", ["demo --no-serve", "export $B", "distill minilm_ru3 --dry-run", "bench $B"])
def test_a_current_folder_that_was_removed_is_said(working_folder: Path, command: str) -> None:
    done = shell(f"mkdir gone && cd gone && rmdir ../gone && $X {command}")
    assert (done.returncode, done.stderr) == (2, "error: the current folder was removed; change to another one\n")


@pytest.mark.parametrize("command", ["embed rain --model $B", "export --help"])
def test_without_a_current_folder_the_rest_works(working_folder: Path, command: str) -> None:
    done = shell(f"mkdir gone && cd gone && rmdir ../gone && $X {command}")
    assert (done.returncode, done.stderr) == (0, "")


def test_another_file_that_is_missing_is_not_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_a_name(**_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")  # as a socket raises it

    monkeypatch.setattr("xcompress.cli.main.app", without_a_name)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    assert "unexpected FileNotFoundError" in capsys.readouterr().err


def test_a_dry_run_without_local_models_imports_no_library_that_trains_or_opens_them(working_folder: Path) -> None:
    code = """import sys
from xcompress.cli.main import app
app(["distill", "release_correlation", "--dry-run"], standalone_mode=False)
import xcompress.distillation.pipeline
sys.exit(" ".join(name for name in ("transformers", "sentence_transformers", "sklearn") if name in sys.modules) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("options", ["--help", "bench --help", "--version"])
def test_a_reader_that_has_enough_of_help_is_no_failure(options: str) -> None:
    done = shell(f"{{ (sleep 0.2; $X {options}); echo $? >&2; }} | true")
    assert done.stderr == "0\n"


def test_a_reader_that_has_enough_is_no_failure(working_folder: Path) -> None:
    (working_folder / "many.txt").write_text("rain\n" * 300)
    done = shell("{ $X embed --input many.txt --model $B --json; echo $? >&2; } | head -n 1")
    assert (done.stderr, json.loads(done.stdout)["text"]) == ("0\n", "rain")


def test_an_error_that_nobody_reads_keeps_its_exit_code() -> None:
    done = shell("{ $X recipe validate absent absent 2>&1 >/dev/null; echo $? >&3; } 3>&2 | true")
    assert done.stderr == "2\n"


def test_an_input_without_end_is_left_when_the_reader_has_enough() -> None:
    done = shell("yes rain | { timeout 100 $X embed --model $B --json; echo $? >&2; } | head -n 1")
    assert (done.stderr, json.loads(done.stdout)["text"]) == ("0\n", "rain")


@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [
        ("models", ""),
        ("models", "1"),
        ("--version", ""),
        ("embed rain --model $B", ""),
        ("embed rain --model $B --json", "1"),
    ],
)
def test_output_on_a_full_disk_is_one_line(command: str, unbuffered: str) -> None:
    done = shell(f"PYTHONUNBUFFERED={unbuffered} $X {command} > /dev/full")
    assert done.returncode == 1
    assert done.stderr == (
        "error: the output cannot be written ([Errno 28] No space left on device); free space or choose another place\n"
    )


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
def test_characters_that_a_terminal_lacks_are_escaped(
    lines: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    def printed(*options: str) -> str:
        stream = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(stream, encoding=encoding))
        command = ["xcompress", "search", "lines.txt", ODD, "-k", "1", "--model", "tiny", *options]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as stopped:
            main()
        assert not stopped.value.code
        return stream.getvalue().decode(encoding)

    assert json.loads(printed("--json"))[0]["text"] == ODD
    table = printed()
    assert ("\\ud83d\\ude00" in table) == (encoding != "utf-8")
    assert ("Zürich" in table) == (encoding != "ascii")


def test_every_command_can_show_its_help_on_any_terminal() -> None:
    done = shell("$X bench --help", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert (done.returncode, done.stderr) == (0, "")


def interruptible(
    *arguments: str, hangup: signal.Handlers = signal.SIG_DFL, code: str = "", **variables: str
) -> subprocess.Popen[str]:
    """Start the program; a process in the background may ignore Ctrl-C.

    :param hangup: what it does with SIGHUP at first.
    :param code: runs in place of the program.
    """
    before = [
        (signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler)),
        (signal.SIGHUP, signal.signal(signal.SIGHUP, hangup)),
    ]
    environment = os.environ | variables
    process = subprocess.Popen(
        [*([sys.executable, "-c", code] if code else PROGRAM), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    for number, handler in before:
        signal.signal(number, handler)
    return process


@pytest.mark.parametrize(
    ("output", "advice"), [([], ""), (["-o", "v.npy"], "; run the same command again to continue")]
)
def test_ctrl_c_in_a_command_prints_one_line(working_folder: Path, output: list[str], advice: str) -> None:
    os.mkfifo("texts")
    process = interruptible("embed", "--input", "texts", "--model", "tiny", *output)
    with Path("texts").open("w"):  # waits until the command opens it, too
        process.send_signal(signal.SIGINT)
        printed, errors = process.communicate(timeout=30)
    assert (process.returncode, printed, errors.strip()) == (130, "", LINE + advice)


def test_ctrl_c_during_an_import_prints_one_line(working_folder: Path) -> None:
    (working_folder / "typer.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(60)\n")
    path = os.pathsep.join([str(working_folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = interruptible("models", PYTHONPATH=path)
    assert process.stdout
    assert process.stdout.readline() == "here\n"
    process.send_signal(signal.SIGINT)
    assert (process.communicate(timeout=30)[1].strip(), process.returncode) == (LINE, 130)


@pytest.mark.parametrize(
    ("numbers", "hangup", "code"),
    [
        ([signal.SIGTERM], signal.SIG_DFL, 143),
        ([signal.SIGHUP], signal.SIG_DFL, 129),
        ([signal.SIGHUP, signal.SIGTERM], signal.SIG_IGN, 143),
    ],
    ids=["SIGTERM", "SIGHUP", "SIGHUP under nohup"],
)
def test_a_command_that_is_told_to_end_leaves_only_what_it_goes_on_with(
    working_folder: Path, numbers: list[signal.Signals], hangup: signal.Handlers, code: int
) -> None:
    (working_folder / "lines.txt").write_text("".join(f"rain {number}\n" for number in range(100_000)))
    process = interruptible("embed", "-i", "lines.txt", "-o", "v.npy", "--model", "tiny", hangup=hangup)
    while not (working_folder / "v.npy.partial").exists():
        assert process.poll() is None
    for number in numbers:
        process.send_signal(number)
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == code
    assert sorted(path.name for path in working_folder.iterdir()) == ["lines.txt", "v.npy.partial"]


IN_A_TOKENIZER = """
from xcompress import __main__
from xcompress.bundle import tokenizer
encode_batch = tokenizer.encode_batch
def encode(tokenizer, texts, name):
    if "aaa" in texts[0]:
        print("here", flush=True)
    return encode_batch(tokenizer, texts, name)
tokenizer.encode_batch = encode
__main__.main(patience=0.5)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_call_of_a_library_that_does_not_return_is_ended(
    working_folder: Path, number: signal.Signals, code: int
) -> None:
    shutil.copytree(released_folder("tiny"), "hostile")
    file = Path("hostile/tokenizer.json")
    description = json.loads(file.read_text(encoding="utf-8"))
    split = {"type": "Split", "pattern": {"Regex": "a*a*a*[^a-z!]"}, "behavior": "Isolated", "invert": False}
    description["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, description["pre_tokenizer"]]}
    file.write_text(json.dumps(description))
    listed = list_files(Path("hostile"))
    del listed["manifest.json"]
    change_manifest(Path("hostile"), files=listed)
    Path("lines.txt").write_text("a" * 2000)
    process = interruptible("embed", "-i", "lines.txt", "-o", "v.npy", "--model", "hostile", code=IN_A_TOKENIZER)
    assert process.stdout
    try:
        assert process.stdout.readline() == "here\n"
        time.sleep(0.2)  # for what is between that and the call
        process.send_signal(number)
        assert process.communicate(timeout=30) == ("", NO_RETURN)
    finally:
        process.kill()
    assert process.returncode == code
    assert not [file for file in working_folder.iterdir() if file.suffix == ".tmp"]


HELD = """
from threading import Lock
lock = Lock()
lock.acquire()
try:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
finally:
    lock.acquire()
"""
SIGNAL_TO_A_FORK = """
if (child := os.fork()) == 0:
    time.sleep(60)
time.sleep(0.2)  # Python forgets a signal that comes during the fork
os.kill(child, signal.SIGTERM)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 143
time.sleep(0.5)
"""
HANDLER_OF_A_LIBRARY = """
signal.signal(signal.SIGINT, lambda *_: None)
os.kill(os.getpid(), signal.SIGINT)
time.sleep(0.5)
"""


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [(HELD, 143, NO_RETURN), (SIGNAL_TO_A_FORK, 0, ""), (HANDLER_OF_A_LIBRARY, 0, "")],
    ids=["a clean-up that does not end", "a signal to a fork", "a handler of a library"],
)
def test_only_what_does_not_end_after_its_signal_is_ended(command: str, code: int, said: str) -> None:
    start = "import os, signal, sys, time\nfrom xcompress import __main__\nfrom xcompress.cli import main\n"
    run = f"main.main = lambda: exec({command!r}, globals())\n__main__.main(patience=0.1, clean_up=0.1)\n"
    process = interruptible(code=start + run)
    assert process.communicate(timeout=30) == ("", said)
    assert process.returncode == code


def test_the_end_of_a_file_inside_a_command_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise EOFError("no data left in file")

    monkeypatch.setattr("xcompress.recipe.load_recipe", broken)
    monkeypatch.setattr(sys, "argv", ["xcompress", "distill", "recipe.yaml"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    assert "no data left in file" in " ".join(capsys.readouterr().err.split())
