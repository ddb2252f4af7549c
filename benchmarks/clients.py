"""Which client was tested with which version: runs the tests of the clients and writes a table into a page.

    make clients     # in .venv (the versions of constraints.txt), .venv-next (the newest ones) and .venv-intel
    python benchmarks/clients.py .venv/bin/python .venv-next/bin/python .venv-intel/bin/python

Runs the tests below with each Python, reads from pytest's report which of them passed, and asks each Python which
versions it has. The table goes between two markers in xcompress/export/README.md.
"""

import argparse
import json
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal
from xml.etree import ElementTree

from xcompress.console import markdown_table, run_script
from xcompress.errors import InputError
from xcompress.files import read_json, write_between_markers

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "xcompress" / "export" / "README.md"
PACKAGE_JSON = ROOT / "tests" / "interop" / "clients" / "package.json"
Outcome = Literal["passed", "skipped", "failed"]


@dataclass(frozen=True)
class Client:
    """One row of the table."""

    name: str
    what: str
    """What its tests check."""
    packages: tuple[str, ...]
    """The packages whose versions count, as pip names them."""
    test: str
    """File and function of the tests, or a file alone."""


BUNDLE = "opens fp32, int8 and int4"
CLIENTS = (
    Client("`Encoder`", BUNDLE, ("onnxruntime", "tokenizers"), "tests/interop/test_clients.py::test_our_encoder"),
    Client(
        "sentence-transformers, ONNX backend",
        BUNDLE,
        ("sentence-transformers", "transformers", "optimum-onnx"),
        "tests/interop/test_clients.py::test_sentence_transformers",
    ),
    Client(
        "sentence-transformers, OpenVINO backend",
        "opens `--target openvino`",
        ("sentence-transformers", "optimum-intel"),
        "tests/export/test_openvino.py::test_sentence_transformers_and_optimum_intel",
    ),
    Client("Optimum", BUNDLE, ("optimum-onnx", "transformers"), "tests/interop/test_clients.py::test_optimum"),
    Client("fastembed", BUNDLE, ("fastembed",), "tests/interop/test_clients.py::test_fastembed"),
    Client(
        "transformers.js", BUNDLE, ("@huggingface/transformers",), "tests/interop/test_clients.py::test_transformers_js"
    ),
    Client(
        "OpenVINO",
        "opens `--target openvino`",
        ("openvino",),
        "tests/export/test_openvino.py::test_auto_takes_openvino_and_gives_the_same_vectors",
    ),
    Client("mteb", "scores a bundle", ("mteb",), "tests/interop/test_mteb.py"),
    Client(
        "sentence-transformers",
        "opens, trains and saves a student",
        ("sentence-transformers", "transformers"),
        "tests/interop/test_sentence_transformers.py",
    ),
    Client(
        "sentence-transformers, without xcompress",
        "opens `--format hf`",
        ("sentence-transformers", "transformers"),
        "tests/export/test_hf.py::test_sentence_transformers_alone_gives_the_students_vectors",
    ),
    Client(
        "Optimum's command line",
        "exports a student",
        ("optimum-onnx", "transformers"),
        "tests/interop/test_clients.py::test_optimum_exports_a_student",
    ),
    Client(
        "`xcompress distill`",
        "trains with transformers' Trainer",
        ("transformers", "accelerate", "torch"),
        "tests/distillation/test_pipeline.py::test_a_run_leaves_reference_assistant_and_student",
    ),
)


def main() -> None:
    """Run the tests with each Python and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pinned", type=Path, help="Python of an environment with the versions of constraints.txt")
    parser.add_argument("newest", type=Path, help="Python of an environment as `make test-next` makes it")
    parser.add_argument(
        "intel", type=Path, help="Python of an environment with optimum-intel, as `make clients` makes it"
    )
    options = parser.parse_args()
    pythons = (options.pinned, options.newest, options.intel)
    if missing := [python for python in pythons if not python.is_file()]:
        raise InputError(f"{missing[0]}: no such file; name the Python of an environment, such as .venv/bin/python")
    columns = [(run_tests(python), installed_versions(python)) for python in pythons]
    rows = [
        [client.name, client.what, *(cell(client, outcomes, versions) for outcomes, versions in columns)]
        for client in CLIENTS
    ]
    head = ["client", "what is tested", "versions of constraints.txt", "newest versions", "with optimum-intel"]
    write_between_markers(PAGE, "clients", "benchmarks/clients.py", markdown_table(head, rows))


def run_tests(python: Path) -> dict[str, set[Outcome]]:
    """Run the clients' tests with a Python; return the outcomes by file and by file::function.

    :raises InputError: when pytest does not run.
    """
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [str(python), "-m", "pytest", "-q", f"--junitxml={report}", *(client.test for client in CLIENTS)]
        subprocess.run(command, cwd=ROOT, check=False)
        if not report.is_file():
            raise InputError(f"{python}: pytest wrote no report; install the package with its extra `test`")
        return read_outcomes(report.read_text(encoding="utf-8"))


def read_outcomes(report: str) -> dict[str, set[Outcome]]:
    """Read pytest's JUnit report; a function's outcomes are those of all its parameters."""
    outcomes: dict[str, set[Outcome]] = defaultdict(set)
    for case in ElementTree.fromstring(report).iter("testcase"):
        outcome: Outcome = "passed"
        if case.find("skipped") is not None:
            outcome = "skipped"
        elif case.find("failure") is not None or case.find("error") is not None:
            outcome = "failed"
        # A file that skips itself has no class name.
        module = case.get("classname") or case.get("name") or ""
        file = f"{module.replace('.', '/')}.py"
        for key in (file, f"{file}::{case.get('name', '').partition('[')[0]}"):
            outcomes[key].add(outcome)
    return dict(outcomes)


def installed_versions(python: Path) -> dict[str, str]:
    """Return the versions of the clients' packages; those that are not installed are left out."""
    names = sorted({name for client in CLIENTS for name in client.packages})
    script = (
        "import json, sys; from xcompress.machine import installed_versions; "
        "print(json.dumps(installed_versions(sys.argv[1:])))"
    )
    command = [str(python), "-P", "-c", script, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    versions: dict[str, str] = json.loads(done.stdout) | read_json(PACKAGE_JSON)["dependencies"]
    return versions


def cell(client: Client, outcomes: dict[str, set[Outcome]], versions: dict[str, str]) -> str:
    """Return the versions that the client's tests passed with, or why there are none.

    :raises InputError: when the tests did not run: they may have been renamed.
    """
    found = outcomes.get(client.test)
    if not found:
        raise InputError(f"{client.test}: did not run; correct its name in benchmarks/clients.py")
    missing = [name for name in client.packages if name not in versions]
    names = ", ".join(f"{name} {versions[name]}" for name in client.packages if name in versions)
    if missing:
        return f"not run: no {missing[0]}"
    if "failed" in found:
        return f"**fails**: {names}"
    return names if "passed" in found else f"not run: {names}"


if __name__ == "__main__":
    run_script(main)
