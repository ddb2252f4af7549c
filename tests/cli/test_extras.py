"""A base install: what works without the optional packages, and what the other commands say."""

import ast
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.helpers import ROOT
from tests.helpers.process import code_of
from tests.helpers.student import SENTENCES, bundle, change_manifest, copy_int8_graph, save_student
from xcompress.bench.machine import STAT
from xcompress.cli.extras import _DISTRIBUTIONS, _EXTRAS, COMMAND_EXTRAS, missing_extra
from xcompress.cli.main import app

Run = Callable[..., subprocess.CompletedProcess[str]]
BASE_IMPORTS = {"yaml": "PyYAML", "huggingface_hub": "tokenizers"}
"""Packages of the base install that are imported under another name, or come with another one."""
BLOCK = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""

SHORT = ("bench", "--quick", "--grid", "1x8", "--threads", "1")
LITTLE = """
import pytest
from tests.helpers.bench import measure_little
from xcompress.cli.main import main
measure_little(pytest.MonkeyPatch())
main()
"""
"""Runs a command as `python -m xcompress` does; a bench takes few measurements."""


@cache
def distributions(extra: str | None) -> set[str]:
    """Read the distributions of an extra, or of the base install, from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = project["dependencies"] if extra is None else project["optional-dependencies"][extra]
    return {line.partition(">")[0].partition("[")[0] for line in lines}


def import_names(extra: str) -> set[str]:
    names = {distribution: package for package, distribution in _DISTRIBUTIONS.items()}
    return {names.get(name, name.replace("-", "_")) for name in distributions(extra)}


OPTIONAL = sorted(set().union(*map(import_names, _EXTRAS)) | {"onnxscript"})


@pytest.fixture
def run(working_folder: Path) -> Run:
    """Run a command, or code, in a process that lacks some packages; without names, all optional ones."""

    def run(*arguments: str, code: str = "", without: list[str] = OPTIONAL) -> subprocess.CompletedProcess[str]:
        (working_folder / "blocked").mkdir(exist_ok=True)
        (working_folder / "blocked" / "sitecustomize.py").write_text(BLOCK.format(packages=without))
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(working_folder / "blocked"), str(ROOT)])}
        command = [sys.executable, *(["-c", code] if code else ["-m", "xcompress"]), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    return run


def test_a_command_names_the_extra_that_it_needs(run: Run) -> None:
    """One process runs all of them."""
    needs = {
        "distill minilm_ru3": ("torch", "train"),
        "distill minilm_ru3 --dry-run": ("torch", "train"),
        "export student": ("onnx", "export"),
        "trim student --languages de": ("torch", "train"),
        "dequantize tiny": ("onnx", "export"),
        "export student --format hf": ("torch", "export"),
    }
    save_student(Path("student"))
    commands = [command.split() for command in needs]
    done = run(code=code_of(commands))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, str([2] * len(needs)))
    assert done.stderr.splitlines() == [
        f"error: {name}: needs {package}, which is not installed; run pip install 'xcompress[{extra}]'"
        for (name, *_), (package, extra) in zip(commands, needs.values(), strict=True)
    ]


@pytest.mark.parametrize("package", ["transformers", "sentence_transformers"])
def test_a_run_that_imports_a_package_late_asks_for_it_at_once(run: Run, package: str) -> None:
    done = run("distill", "minilm_ru3", without=[package])
    assert (done.returncode, Path("runs").exists()) == (2, False)
    assert done.stderr == f"error: distill needs {package}; pip install 'xcompress[train]'\n"


def test_other_commands_work_with_the_base_install(run: Run) -> None:
    Path("lines.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    for arguments in (
        ("embed", "rain", "--model", str(bundle())),
        ("search", "lines.txt", "rain", "--model", str(bundle())),
        ("--version",),
    ):
        done = run(*arguments)
        assert (done.returncode, done.stderr) == (0, ""), arguments


def test_help_models_and_recipes_work_with_the_base_install(run: Run) -> None:
    """One process runs all of them."""
    commands = (
        ("models",),
        ("recipe", "list"),
        ("recipe", "show", "minilm_ru3"),
        ("recipe", "validate", "minilm_ru3"),
        ("recipe", "copy", "minilm_ru3", "mine.yaml"),
        ("--help",),
        *((command, "--help") for command in (*COMMAND_EXTRAS, "embed", "search", "models", "demo", "recipe")),
    )
    done = run(code=code_of(commands))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == str([0] * len(commands))


def test_bench_of_a_bundle_works_with_the_base_install(run: Run, bundle_copy: Path) -> None:
    """The report says what was left out."""
    change_manifest(bundle_copy, languages=["en", "de"])
    done = run(*SHORT, str(bundle_copy), "--json", code=LITTLE)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    for result in report["results"]:
        assert result["failed"] is None
        assert result["start"] and result["memory"] and result["latency"] and result["throughput"]
        assert result["accuracy"]
    assert report["peaks"] == {}
    left_out = [note for note in report["notes"] if "pip install 'xcompress[bench]'" in note]
    unmeasured = {note.partition(" was not measured: needs ")[2].partition(";")[0] for note in left_out}
    assert unmeasured == ({"onnx"} if STAT.exists() else {"onnx", "psutil"})


@pytest.mark.parametrize(
    ("options", "extra"),
    [
        (("--html", "page.html"), "bench"),
        (("--reference", "student"), "export"),
        (("--reference", "./absent"), "export"),
        (("--device", "wasm"), "browser"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_bench_names_the_extra_of_an_option(run: Run, options: tuple[str, ...], extra: str) -> None:
    save_student(Path("student"))
    done = run(*SHORT, str(copy_int8_graph(Path("loose"))), *options, code=LITTLE)
    assert done.returncode == 2
    error = done.stderr.splitlines()[-1]
    assert error.startswith("error: ")
    assert f"pip install 'xcompress[{extra}]'" in error


def test_the_demo_asks_for_no_extra(run: Run) -> None:
    done = run("demo", "site", "--no-serve", "--model", str(bundle()))
    assert "onnxruntime-web" in done.stderr or done.returncode == 0
    assert "pip install" not in done.stderr


def test_its_own_extra_is_enough_for_export_and_bench(run: Run) -> None:
    def others(extra: str) -> list[str]:
        return sorted(set(OPTIONAL) - import_names(extra))

    student = save_student(Path("student"))
    # without languages, an export is verified and a bench scored in all eight that the package has text in
    (student / "README.md").write_text("---\nlanguage: [en]\n---\n")
    made = Path("made").resolve()
    done = run("export", "student", "--onnx", "--quantize", "--output", str(made), without=others("export"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(made)
    assert (made / "onnx/model_quantized.onnx").is_file()
    done = run(*SHORT, "made", "--json", "--html", "page.html", code=LITTLE, without=others("bench"))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [result["failed"] for result in report["results"]] == [None, None]
    assert report["peaks"]
    assert not any("pip install" in note for note in report["notes"])
    assert Path("page.html").is_file()


def test_every_command_is_covered() -> None:
    base = {"embed", "search", "models", "demo"}
    assert {command.callback.__name__ for command in app.registered_commands if command.callback} == {
        *COMMAND_EXTRAS,
        *base,
    }


@pytest.mark.parametrize("extra", _EXTRAS)
def test_every_package_of_an_extra_is_known(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in sorted(import_names(extra)):
        monkeypatch.setitem(sys.modules, package, None)
        told = {
            command: missing_extra(["--debug", command, "x"], absent(f"{package}.deep")) or ""
            for command in COMMAND_EXTRAS
        }
        for command, line in told.items():
            assert line.startswith(f"{command}: needs {package}, which is not installed; run pip install 'xcompress[")
            suggested = line.partition("[")[2].partition("]")[0]
            assert package in import_names(suggested)
            if package in import_names(COMMAND_EXTRAS[command]):
                assert suggested == COMMAND_EXTRAS[command]


def absent(name: str | None) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize("name", ["torch.nonsense", "numpy", "xcompress.nonsense", "no_such_package", "", None])
def test_other_missing_modules_are_faults(name: str | None) -> None:
    pytest.importorskip("torch")
    assert missing_extra(["distill"], absent(name)) is None


def test_a_package_of_the_base_install_is_not_called_optional(run: Run) -> None:
    done = run("recipe", "list", without=["yaml"])
    assert done.returncode == 1
    assert "unexpected ModuleNotFoundError: No module named 'yaml'" in done.stderr
    assert "Traceback" in run("--debug", "distill", "minilm_ru3").stderr


def test_every_import_belongs_to_the_base_install_or_to_an_extra() -> None:
    known = {name.lower() for name in distributions(None)} | set(OPTIONAL) | {"xcompress"}
    for file in sorted((ROOT / "xcompress").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            for module in modules:
                package = module.partition(".")[0]
                package = BASE_IMPORTS.get(package, package)
                assert package.lower() in known or package in sys.stdlib_module_names, (file, module)
