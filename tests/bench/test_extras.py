"""Run `xcompress bench` as a user has it who installed no extra, or the extra `bench` alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.student import bundle
from xcompress.bench.machine import STAT

TRAIN = ("torch", "transformers", "sentence_transformers", "accelerate", "polib", "msgpack", "safetensors.torch")
BENCH = ("onnx", "scipy", "sklearn", "matplotlib", "psutil")
BLOCK = """
import os, sys
sys.modules.update(dict.fromkeys(os.environ["BLOCKED"].split()))
"""


def run_without(blocked: tuple[str, ...], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a quick bench of the small bundle; neither it nor its workers can import the blocked packages."""
    (folder / "sitecustomize.py").write_text(BLOCK, encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", str(Path.cwd()))]))
    command = [sys.executable, "-m", "xcompress", "bench", str(bundle()), "--quick", "--grid", "1x8", "--threads", "1"]
    environment = os.environ | {"PYTHONPATH": path, "BLOCKED": " ".join(blocked)}
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, cwd=folder, env=environment, check=False
    )


def test_the_extra_bench_is_enough(tmp_path: Path) -> None:
    done = run_without(TRAIN, tmp_path, "--json", "--html", "page.html")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [result["failed"] for result in report["results"]] == [None, None]
    assert report["peaks"]
    assert not any("pip install" in note for note in report["notes"])
    assert (tmp_path / "page.html").is_file()


def test_without_extras_the_report_says_what_was_left_out(tmp_path: Path) -> None:
    done = run_without((*TRAIN, *BENCH), tmp_path, "--json")
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


@pytest.mark.parametrize("reference", ["student", "missing"])
def test_a_model_in_pytorch_needs_the_extra_export(tmp_path: Path, reference: str) -> None:
    folder = bundle().with_name("small") if reference == "student" else tmp_path / "missing"
    done = run_without(TRAIN, tmp_path, "--reference", str(folder))
    assert done.returncode == 2
    error = done.stderr.splitlines()[-1]
    assert error.startswith("error: bench: ")
    assert "pip install 'xcompress[export]'" in error
