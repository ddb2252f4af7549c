"""Python files of the current folder do not run in the processes that xcompress starts."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from operator import methodcaller
from pathlib import Path

import pytest

from tests.helpers import ROOT
from tests.helpers.student import SENTENCES
from xcompress.bench import memory
from xcompress.bench.workers.client import Worker
from xcompress.bundle.released import find_bundle
from xcompress.processes import map_in_order
from xcompress.sources import Wheel, wheels

MODULES = {"subprocess", "multiprocessing", "concurrent.futures.ProcessPoolExecutor", "pty"}
FUNCTIONS = ("os.exec", "os.spawn", "os.posix_spawn", "os.system", "os.popen", "os.fork")
"""What starts processes."""
ALLOWED = {
    "xcompress/bench/devices/ssh.py": "ssh",
    "xcompress/bench/memory.py": "python_command",
    "xcompress/bench/workers/client.py": "module_command",
    "xcompress/sources/wheels.py": "python_command",
    "benchmarks/peers.py": "optimum-cli",
    "benchmarks/demo.py": "xcompress",
    "benchmarks/clients.py": "pytest",
    "benchmarks/measuring.py": "python_command",
    "xcompress/processes.py": "PYTHONSAFEPATH",
    "xcompress/distillation/hardware.py": "get_start_method",  # asks how torch starts those that load batches
}
"""The files that start processes, and what each of them starts."""
NAMES = ("numpy", "pip", "tokenizers", "onnxruntime", "json", "base64", "rich", "typer", "yaml", "click")
INTRUDER = "open({ran!r}, 'a').write(__name__ + ' ')\nraise SystemExit('a file of the current folder ran')\n"


@pytest.fixture
def ran(working_folder: Path) -> Iterator[Path]:
    """Put files with the names of libraries into the current folder; fail if one of them has run."""
    file = working_folder / "ran"
    for name in NAMES:
        (working_folder / f"{name}.py").write_text(INTRUDER.format(ran=str(file)))
    yield file
    assert not file.exists(), file.read_text()


def test_a_worker_does_not_import_from_the_current_folder(ran: Path) -> None:
    (ran.parent / "own.py").write_text(
        "import numpy as np\ndef encode(texts):\n    import beside\n    return np.full((len(texts), 2), beside.VALUE)\n"
    )
    (ran.parent / "beside.py").write_text("VALUE = 0.5\n")
    with Worker() as worker:
        worker.ask(
            "load", kind="onnx", source=str(find_bundle("tiny")), precision="auto", sentence="rain", input_ids=None
        )
        # The user's own code may live in the current folder, and import what lies beside it when it is called.
        worker.ask("load", kind="python", source="python:own:encode", precision="", sentence="rain", input_ids=None)
        assert worker.ask("encode", texts=SENTENCES)["shape"] == [len(SENTENCES), 2]


def test_a_worker_does_not_import_from_the_checkout(ran: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (ran.parent / "xcompress").symlink_to(ROOT / "xcompress")
    code = "from xcompress.bench.workers.client import Worker\nwith Worker() as worker:\n    worker.ask('memory')\n"
    here = str(ran.parent)
    start = f"import sys\nsys.path.insert(0, {here!r})\nimport xcompress\nsys.path.remove({here!r})\n"
    done = subprocess.run([sys.executable, "-P", "-c", start + code], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_the_probe_of_memory_does_not_import_from_the_current_folder(ran: Path) -> None:
    memory.reserved()


def test_a_process_that_filters_text_does_not_import_from_the_current_folder(ran: Path) -> None:
    for name in ("signal", "struct", "pickle"):
        (ran.parent / f"{name}.py").write_text(INTRUDER.format(ran=str(ran)))
    make = partial(methodcaller, "bit_length")
    assert list(map_in_order(make, [1, 2, 3], 2, "filter")) == [1, 2, 2]
    assert "PYTHONSAFEPATH" not in os.environ


def test_pip_is_not_taken_from_the_current_folder(ran: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (ran.parent / "downloads").mkdir()
    assert "No matching distribution" in wheels._run_pip(Wheel("shop", "1.0", ""), ran.parent / "downloads", [])


def test_the_program_does_not_import_from_the_current_folder(ran: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "xcompress", "models"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_child_finds_what_pythonpath_names(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (working_folder / "elsewhere").mkdir()
    (working_folder / "elsewhere/mine.py").write_text("def encode(texts):\n    return [[1.0]] * len(texts)\n")
    paths = [str(working_folder / "elsewhere"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    with Worker() as worker:
        worker.ask("load", kind="python", source="python:mine:encode", precision="", sentence="rain", input_ids=None)


def imports(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_every_python_process_is_started_through_one_function() -> None:
    starts, names_python = {}, set()
    for file in [*ROOT.glob("xcompress/**/*.py"), *ROOT.glob("benchmarks/**/*.py")]:
        name, text = file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")
        tree = ast.parse(text)
        calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        if imports(tree) & MODULES or any(call.startswith(FUNCTIONS) for call in calls):
            starts[name] = text
        if "sys.executable" in text.replace("Path(sys.executable)", ""):
            names_python.add(name)
    assert names_python == {"xcompress/python_process.py"}
    assert set(starts) == set(ALLOWED), "use xcompress.python_process in a file that starts a process"
    assert {name for name, what in ALLOWED.items() if what not in starts[name]} == set()
