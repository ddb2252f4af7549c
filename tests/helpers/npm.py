"""Packages of npm that tests use."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers import ROOT
from xcompress.files import whole_folder
from xcompress.paths import cache_folder

PACKAGE = ROOT / "tests" / "interop" / "clients" / "package.json"


def transformers_js() -> Path:
    """Return the folder in the cache whose node_modules has transformers.js; install it there at the first call."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node or npm is not installed")
    text = PACKAGE.read_text()
    version = json.loads(text)["dependencies"]["@huggingface/transformers"]
    place = cache_folder() / "clients" / f"transformers.js-{version}"
    if not place.is_dir():
        with whole_folder(place) as folder:
            (folder / "package.json").write_text(text)
            _install(folder)
    return place


def _install(folder: Path) -> None:
    """Install the dependencies of package.json, without their scripts, which only download GPU libraries."""
    quick = ["--fetch-retries=1", "--fetch-timeout=60000"]
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", *quick]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400, check=False)
    if done.returncode and re.search("ENOTFOUND|ECONNREFUSED|ECONNRESET|ETIMEDOUT|EAI_AGAIN", done.stderr):
        pytest.skip(f"npm could not install transformers.js: {done.stderr.strip()[:300]}")
    assert done.returncode == 0, done.stderr
