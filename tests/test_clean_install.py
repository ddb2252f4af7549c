"""The wheel in an environment with its base dependencies only."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import ROOT
from tests.helpers.pip import pip
from tests.helpers.student import SENTENCES, bundle
from xcompress.bundle.encoder import Encoder

pytestmark = [pytest.mark.slow, pytest.mark.network]
ABSENT = ("torch", "transformers", "onnx", "scipy", "sentence_transformers")
SNIPPET = f"""
import importlib.util, json, sys
installed = [name for name in {ABSENT} if importlib.util.find_spec(name)]
from xcompress import Encoder
vectors = Encoder(sys.argv[1], precision="fp32", threads=1).encode({SENTENCES!r})
file = sys.modules["xcompress"].__file__
print(json.dumps({{"installed": installed, "vectors": vectors.tolist(), "xcompress": file}}))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel and its base dependencies into an empty environment; return its bin folder."""
    folder = tmp_path_factory.mktemp("clean")
    pip("wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    (wheel,) = folder.glob("xcompress-*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    bin_folder = next(path for path in (folder / "venv/bin", folder / "venv/Scripts") if path.is_dir())
    python = str(bin_folder / "python")
    pip("--python", python, "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), str(wheel))
    return bin_folder


def run(environment: Path, *command: str) -> str:
    """Run a command outside the repository, without the environment variables that lead back to it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    name, *arguments = command
    done = subprocess.run(
        [str(environment / name), *arguments], capture_output=True, text=True, cwd=environment, env=clean, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_encoder_works_without_torch(environment: Path) -> None:
    reply = json.loads(run(environment, "python", "-c", SNIPPET, str(bundle())))
    assert reply["installed"] == []
    assert Path(reply["xcompress"]).is_relative_to(environment.parent)
    expected = Encoder(bundle(), precision="fp32", threads=1).encode(SENTENCES)
    np.testing.assert_allclose(reply["vectors"], expected, atol=1e-5)


def test_the_commands_work_without_torch(environment: Path, tmp_path: Path) -> None:
    assert "embed" in run(environment, "xcompress", "--help")
    model = ["--model", str(bundle())]
    vector = json.loads(run(environment, "xcompress", "embed", "rain", "--json", *model))["vector"]
    np.testing.assert_allclose(vector, Encoder(bundle()).encode("rain"), atol=1e-5)
    (tmp_path / "lines.txt").write_text("\n".join(SENTENCES))
    nearest = json.loads(run(environment, "xcompress", "search", str(tmp_path / "lines.txt"), "rain", "--json", *model))
    assert nearest[0]["text"] == "rain"
