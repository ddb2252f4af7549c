"""The table of clients is read from pytest's report and the versions of each environment."""

import ast
import sys
from pathlib import Path

import pytest

from benchmarks import clients
from benchmarks.clients import CLIENTS, Client, cell, installed_versions, read_outcomes, run_tests
from tests.helpers import ROOT
from xcompress.errors import InputError

REPORT = """<testsuites><testsuite>
<testcase classname="tests.interop.test_clients" name="test_optimum[plain-int8]"><skipped message="no"/></testcase>
<testcase classname="tests.interop.test_clients" name="test_fastembed[plain-int8]"/>
<testcase classname="tests.interop.test_clients" name="test_fastembed[plain-int4]"><failure/></testcase>
<testcase classname="tests.interop.test_clients" name="test_our_encoder[plain-int8]"/>
<testcase classname="" name="tests.interop.test_mteb"><skipped message="mteb is not installed"/></testcase>
</testsuite></testsuites>"""
TESTS = "tests/interop/test_clients.py::"


def client(test: str, *packages: str) -> Client:
    return Client("a client", "opens a bundle", packages, test)


@pytest.mark.parametrize("test", [client.test for client in CLIENTS])
def test_every_named_test_exists(test: str) -> None:
    file, _, function = test.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert not function or function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_outcomes_are_those_of_all_parameters() -> None:
    outcomes = read_outcomes(REPORT)
    assert outcomes[f"{TESTS}test_optimum"] == {"skipped"}
    assert outcomes[f"{TESTS}test_fastembed"] == {"passed", "failed"}
    assert outcomes["tests/interop/test_clients.py"] == {"passed", "failed", "skipped"}
    assert outcomes["tests/interop/test_mteb.py"] == {"skipped"}


def test_cells_say_versions_failures_and_what_is_missing() -> None:
    outcomes, versions = read_outcomes(REPORT), {"onnxruntime": "1.31.1", "fastembed": "0.9.1"}
    assert cell(client(f"{TESTS}test_our_encoder", "onnxruntime"), outcomes, versions) == "onnxruntime 1.31.1"
    assert cell(client(f"{TESTS}test_fastembed", "fastembed"), outcomes, versions) == "**fails**: fastembed 0.9.1"
    assert cell(client(f"{TESTS}test_optimum", "optimum-onnx"), outcomes, versions) == "not run: no optimum-onnx"
    assert cell(client(f"{TESTS}test_optimum", "fastembed"), outcomes, versions) == "not run: fastembed 0.9.1"
    with pytest.raises(InputError, match=r"test_gone: did not run; correct its name in benchmarks/clients\.py"):
        cell(client(f"{TESTS}test_gone", "fastembed"), outcomes, versions)


def test_versions_are_those_of_the_other_python() -> None:
    versions = installed_versions(Path(sys.executable))
    assert {"onnxruntime", "tokenizers", "@huggingface/transformers"} <= set(versions)


def test_a_python_without_pytest_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(InputError, match=r"python: pytest wrote no report; install the package with its extra `test`"):
        run_tests(program)


def test_the_page_has_the_markers() -> None:
    page = clients.PAGE.read_text(encoding="utf-8")
    begin, end = "<!-- clients: begin, written by benchmarks/clients.py -->", "<!-- clients: end -->"
    assert page.count(begin) == page.count(end) == 1
