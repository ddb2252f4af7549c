"""Released models are in the source distribution and in the wheel, and open where only the wheel is installed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import ROOT
from tests.helpers.pip import pip
from tests.helpers.release import release
from tests.helpers.student import SENTENCES, bundle
from xcompress.bundle.encoder import Encoder

pytestmark = [pytest.mark.slow, pytest.mark.network]
NAME = "a-test"
"""Beside the models that are in the package already."""
BUILD = "import sys\nfrom hatchling.build import build_sdist\nprint(build_sdist(sys.argv[1]))"
OPEN = f"""
import json
from xcompress import Encoder, released_names
encoder = Encoder.released({NAME!r}, threads=1)
print(json.dumps([released_names(), encoder.encode({SENTENCES!r}).tolist()]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel from the source distribution of a copy of this repository with a small bundle in it."""
    folder = tmp_path_factory.mktemp("released")
    tree = folder / "tree"
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("xcompress", "recipes"):
        shutil.copytree(ROOT / name, tree / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, tree / name)
    shutil.copytree(bundle(), tree / "xcompress" / "models" / NAME)
    pip("install", "--quiet", "--target", str(folder / "tools"), "hatchling")
    python("-c", BUILD, str(folder), path=folder / "tools", cwd=tree)
    (source,) = folder.glob("xcompress-*.tar.gz")
    pip("wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source))
    (made,) = folder.glob("xcompress-*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    target = wheel.parent / "clean"
    pip("install", "--quiet", "--no-deps", "--no-index", "--target", str(target), str(wheel))
    return target


def python(*arguments: str, path: Path, cwd: Path) -> str:
    """Run Python with one folder of modules in front of the environment's own, and not the repository's."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=clean | {"PYTHONPATH": str(path)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_package_stays_below_its_bound(wheel: Path) -> None:
    assert wheel.stat().st_size <= release.PACKAGE_BYTES


def test_every_file_of_the_model_is_there_unchanged(installed: Path) -> None:
    place = installed / "xcompress" / "models" / NAME
    files = {file.relative_to(bundle()): file.read_bytes() for file in bundle().rglob("*") if file.is_file()}
    assert {file.relative_to(place): file.read_bytes() for file in place.rglob("*") if file.is_file()} == files
    assert Path("README.md") in files


def test_the_model_opens_by_its_name(installed: Path, tmp_path: Path) -> None:
    names, vectors = json.loads(python("-c", OPEN, path=installed, cwd=tmp_path))
    assert NAME in names
    np.testing.assert_allclose(vectors, Encoder(bundle(), threads=1).encode(SENTENCES), atol=1e-5)


def test_the_commands_use_the_packaged_model(installed: Path, tmp_path: Path) -> None:
    listed = json.loads(python("-m", "xcompress", "models", "--json", path=installed, cwd=tmp_path))
    (model,) = (model for model in listed if model["name"] == NAME)
    assert Path(model["folder"]).is_relative_to(installed)
    arguments = ("-m", "xcompress", "embed", "rain", "--json", "--model", NAME)
    vector = json.loads(python(*arguments, path=installed, cwd=tmp_path))["vector"]
    np.testing.assert_allclose(vector, Encoder(bundle()).encode("rain"), atol=1e-5)
