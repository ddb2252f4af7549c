import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import ROOT
from tests.helpers.student import SENTENCES, bundle
from xcompress.bench.devices import arm64
from xcompress.bench.devices.arm64 import VARIABLE, agreement, check_arm64, find_arm64
from xcompress.errors import InputError

EMULATOR = """#!/bin/sh
# Take the options of qemu: -cpu and -L have a value each, then comes the command.
[ "$1" = -cpu ] && [ "$3" = -L ] && [ -d "$4/site" ] || exit 9
shift 4
exec "$@"
"""


def make_root(folder: Path) -> Path:
    """Make a folder as the script does, with this Python in it."""
    for name in ("usr/bin", "site/numpy", "site/onnxruntime", "site/tokenizers", "proc"):
        (folder / name).mkdir(parents=True)
    (folder / "proc/cpuinfo").write_text("processor\t: 0\n")
    python = folder / "usr/bin/python3.11"
    # Not a link: Python would look for its libraries beside it. The empty folders in site would hide the libraries.
    python.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return folder


@pytest.fixture
def emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put an emulator on the search path that runs its command unchanged."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(arm64.platform, "machine", lambda: "x86_64")
    file = tmp_path / "bin/qemu-aarch64-static"
    file.parent.mkdir()
    file.write_text(EMULATOR)
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{file.parent}:/usr/bin:/bin")
    return file


def test_the_vectors_of_both_sides_are_compared(
    emulator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(make_root(tmp_path / "a root")))
    told = check_arm64(find_arm64(), bundle(), "int8", SENTENCES)
    figures = re.fullmatch(r"5 sentences on .*: least cosine (\S+), largest difference of a number (\S+)", told)
    assert figures
    assert float(figures[1]) == pytest.approx(1.0, abs=1e-6)
    assert float(figures[2]) < 1e-5


def test_the_folder_comes_from_the_environment(emulator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_root(tmp_path / "sysroot")
    for other in ("python3.9", "python3.11-config"):  # of an earlier run of the script, and no Python
        (root / "usr/bin" / other).touch()
    monkeypatch.setenv(VARIABLE, str(root))
    found = find_arm64()
    assert found.qemu == str(emulator)
    assert found.python.name == "python3.11"
    # the libraries for arm64 hide those of this machine
    paths = next(word for word in found.command() if word.startswith("PYTHONPATH="))
    assert paths == f"PYTHONPATH={tmp_path}/sysroot/site"


def why_not() -> str:
    with pytest.raises(InputError) as caught:
        find_arm64()
    return str(caught.value)


def test_what_is_missing_is_named_with_its_installation(
    emulator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "run `sh benchmarks/arm64.sh DIR` once and set XCOMPRESS_ARM64=DIR" in why_not()
    root = make_root(tmp_path / "sysroot")
    monkeypatch.setenv(VARIABLE, str(root))
    (root / "proc/cpuinfo").unlink()
    assert f"{root}: lacks proc/cpuinfo; run `sh benchmarks/arm64.sh {root}`" in why_not()
    monkeypatch.setenv(VARIABLE, str(make_root(tmp_path / "without LiteRT")))
    with pytest.raises(InputError, match=r"lacks site/ai_edge_litert; run `sh benchmarks/arm64.sh"):
        check_arm64(find_arm64(), bundle(), "int8", SENTENCES, "litert")
    emulator.unlink()
    monkeypatch.setenv("PATH", str(emulator.parent))
    assert "install qemu's user emulation" in why_not()
    monkeypatch.setattr(arm64.platform, "machine", lambda: "aarch64")
    assert "this machine is an arm64 itself" in why_not()


def test_the_worst_sentence_counts() -> None:
    here = np.eye(3, dtype=np.float32)
    there = here.copy()
    there[1] = [0.6, 0.8, 0.0]
    assert agreement(here, there).endswith("least cosine 0.800000, largest difference of a number 6.0e-01")


def test_on_an_emulated_arm64_vectors_are_the_same() -> None:
    try:
        emulated = find_arm64()
    except InputError as error:
        pytest.skip(str(error))
    assert re.search(r"least cosine (0\.9999|1\.0)", check_arm64(emulated, bundle(), "int8", SENTENCES[:2]))


def test_the_script_prints_its_usage() -> None:
    script = ROOT / "benchmarks/arm64.sh"
    if not script.is_file():
        pytest.skip("the script is in the repository alone")
    done = subprocess.run(["sh", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "usage: sh benchmarks/arm64.sh DIR\n")
