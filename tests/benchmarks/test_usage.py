"""Scripts and modules of benchmarks/ print their usage, whatever is installed."""

import subprocess
import sys

import pytest

from tests.helpers import ROOT


@pytest.mark.parametrize("name", ["arm64.sh", "engine_calls.py", "peer_models.py", "webgpu.py"])
def test_each_prints_its_usage(name: str) -> None:
    program = "sh" if name.endswith(".sh") else sys.executable
    done = subprocess.run(
        [program, ROOT / "benchmarks" / name, "--help"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")
    assert name in done.stdout
