"""The wheel in an environment with its base dependencies only; released models are in it and in the source archive."""

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
BUILD = """
import os, shutil, sys
from pathlib import Path
from hatchling.build import build_sdist, build_wheel
source = Path(sys.argv[1], build_sdist(sys.argv[1]))
shutil.unpack_archive(source, sys.argv[1])
os.chdir(source.with_name(source.name.removesuffix(".tar.gz")))
build_wheel(sys.argv[1])
"""
ABSENT = ("torch", "transformers", "onnx", "scipy", "sentence_transformers")
SNIPPET = f"""
import importlib.util, json, sys
installed = [name for name in {ABSENT} if importlib.util.find_spec(name)]
from xcompress import Encoder, released_names
vectors = Encoder(sys.argv[1], precision="fp32", threads=1).encode({SENTENCES!r})
released = Encoder.released({NAME!r}, threads=1).encode({SENTENCES!r})
print(json.dumps({{
    "installed": installed,
    "vectors": vectors.tolist(),
    "xcompress": sys.modules["xcompress"].__file__,
    "names": released_names(),
    "released": released.tolist(),
}}))
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
    environment = clean_environment() | {"PYTHONPATH": str(folder / "tools")}
    subprocess.run([sys.executable, "-P", "-c", BUILD, str(folder)], check=True, cwd=tree, env=environment)
    (made,) = folder.glob("xcompress-*.whl")
    return made


@pytest.fixture(scope="module")
def environment(wheel: Path) -> Path:
    """Install the wheel and its base dependencies into an empty environment; return its bin folder."""
    folder = wheel.with_name("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    bin_folder = next(path for path in (folder / "bin", folder / "Scripts") if path.is_dir())
    install = ("--python", str(bin_folder / "python"), "install", "--quiet", "--no-compile")
    pip(*install, "--constraint", str(ROOT / "constraints.txt"), str(wheel))
    return bin_folder


def clean_environment() -> dict[str, str]:
    """Return the environment variables without those that lead back to the repository."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def run(environment: Path, *command: str) -> str:
    """Run a command outside the repository."""
    name, *arguments = command
    done = subprocess.run(
        [str(environment / name), *arguments],
        capture_output=True,
        text=True,
        cwd=environment,
        env=clean_environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_encoder_works_without_torch(environment: Path) -> None:
    reply = json.loads(run(environment, "python", "-c", SNIPPET, str(bundle())))
    assert reply["installed"] == []
    assert Path(reply["xcompress"]).is_relative_to(environment.parent)
    expected = Encoder(bundle(), precision="fp32", threads=1).encode(SENTENCES)
    np.testing.assert_allclose(reply["vectors"], expected, atol=1e-5)
    assert NAME in reply["names"]
    np.testing.assert_allclose(reply["released"], Encoder(bundle(), threads=1).encode(SENTENCES), atol=1e-5)


def test_the_commands_work_without_torch(environment: Path, tmp_path: Path) -> None:
    assert "embed" in run(environment, "xcompress", "--help")
    (tmp_path / "lines.txt").write_text("\n".join(SENTENCES))
    lines, model = str(tmp_path / "lines.txt"), ["--model", str(bundle())]
    nearest = json.loads(run(environment, "xcompress", "search", lines, "rain", "--json", *model))
    assert nearest[0]["text"] == "rain"


def test_the_commands_use_the_packaged_model(environment: Path) -> None:
    listed = json.loads(run(environment, "xcompress", "models", "--json"))
    (model,) = (model for model in listed if model["name"] == NAME)
    assert Path(model["folder"]).is_relative_to(environment.parent)
    for name in (NAME, str(bundle())):
        vector = json.loads(run(environment, "xcompress", "embed", "rain", "--json", "--model", name))["vector"]
        np.testing.assert_allclose(vector, Encoder(bundle()).encode("rain"), atol=1e-5)


def test_every_file_of_a_released_model_is_there_unchanged(environment: Path) -> None:
    (place,) = environment.parent.rglob(f"xcompress/models/{NAME}")
    files = {file.relative_to(bundle()): file.read_bytes() for file in bundle().rglob("*") if file.is_file()}
    assert {file.relative_to(place): file.read_bytes() for file in place.rglob("*") if file.is_file()} == files
    assert Path("README.md") in files


def test_the_package_stays_below_its_bound(wheel: Path) -> None:
    assert wheel.stat().st_size <= release.PACKAGE_BYTES
