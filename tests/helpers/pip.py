"""The pip of this environment."""

import re
import subprocess
import sys

import pytest

from tests.helpers import ROOT

OFFLINE = re.compile("Retrying|ConnectionError|ConnectTimeout|Temporary failure|timed out")


def pip(*arguments: str) -> None:
    """Run pip in the repository; skip the test if no package registry is reachable."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode and OFFLINE.search(done.stderr):
        pytest.skip(f"pip reaches no package registry: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
