"""Another Linux host, reached by ssh: bundles and a small runner are copied there, and nothing stays behind."""

import os
import shlex
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from json import loads
from pathlib import Path
from typing import IO, Any, Self

import xcompress
from xcompress import console
from xcompress.bench.machine import Machine
from xcompress.bench.workers.client import Worker, WorkerFailed
from xcompress.bundle.manifest import MANIFEST, inside, read_manifest
from xcompress.errors import InputError

SSH = "XCOMPRESS_SSH"
"""Names another ssh command, with options, such as `ssh -F config`."""
PYTHON = "XCOMPRESS_REMOTE_PYTHON"
"""Names the host's Python; python3 where not set."""
OPTIONS = ("-T", "-oBatchMode=yes", "-oConnectTimeout=15", "-oServerAliveInterval=30")
"""No terminal, nothing that waits for a password, and a dead host is noticed."""
RUNNER = (
    "__init__.py",
    "errors.py",
    "files.py",
    "bundle/__init__.py",
    "bundle/encoder.py",
    "bundle/external_data.py",
    "bundle/integrity.py",
    "bundle/manifest.py",
    "bundle/released.py",
    "bench/__init__.py",
    "bench/machine.py",
    "bench/memory.py",
    "bench/workers/__init__.py",
    "bench/workers/onnx_model.py",
    "bench/workers/work.py",
    "bench/workers/worker.py",
)
"""The files of this package that a worker needs for a bundle."""
LIBRARIES = ("numpy", "onnxruntime", "tokenizers")
LEAST_PYTHON = (3, 11)
SECONDS = 600.0
"""Longest time of one command, copying included."""
_CHECK = (
    "import json, sys; from importlib.util import find_spec; "
    f"print(json.dumps([sys.version_info[:2], [name for name in {LIBRARIES} if find_spec(name) is None]]))"
)
_SSH_FAILED, _NOT_EXECUTABLE, _NOT_FOUND = 255, 126, 127


class Remote:
    """A host with the runner in a folder of its own; use it as a context, so that the folder is removed.

    Port, user, key and the like come from the user's ssh configuration.

    :param host: any destination that ssh takes: a host, `user@host`, an alias, `ssh://user@host:port`.
    :param python: the host's Python, 3.11 or newer, with numpy, onnxruntime and tokenizers.
    :raises InputError: when the host is none that ssh could take.
    """

    def __init__(self, host: str, python: str | None = None) -> None:
        if not host or host.startswith("-") or not host.isprintable() or " " in host:
            raise InputError(f"--device ssh:{host}: {host!r} is no host; name one, such as ssh:user@example.org")
        self.host = host
        self._python = shlex.quote(python or os.environ.get(PYTHON) or "python3")
        self._ssh = shlex.split(os.environ.get(SSH) or "ssh")
        self._folder = ""
        self._copied: dict[Path, str] = {}

    def __enter__(self) -> Self:
        """Make the folder, copy the runner, and check the host's Python.

        :raises InputError: when the host cannot be reached or lacks something.
        """
        made = self._run('mktemp -d "${TMPDIR:-/tmp}/xcompress.XXXXXXXXXX"').decode(errors="replace")
        self._folder = made.strip().rpartition("\n")[2]  # what a shell greets with comes before
        if not self._folder.startswith("/"):
            raise InputError(f"ssh:{self.host}: mktemp made {self._folder!r}; set up a temporary folder there")
        try:
            home = Path(xcompress.__file__).parent
            self._send({f"xcompress/{name}": home / name for name in RUNNER}, self._folder)
            self._check()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        """Remove the folder."""
        self._remove()

    def copy(self, bundle: Path) -> str:
        """Copy a bundle: the files that its manifest lists and that are here; a second time it is there already.

        :returns: its folder on the host.
        :raises InputError: when it is no bundle or cannot be copied.
        """
        real = bundle.resolve()
        if real not in self._copied:
            names = [MANIFEST, *read_manifest(bundle).get("files", {})]
            files = {name: inside(bundle, name) for name in names}
            target = f"{self._folder}/bundles/{len(self._copied)}"
            self._send({name: file for name, file in files.items() if file.is_file()}, target)
            self._copied[real] = target
        return self._copied[real]

    def command(self) -> list[str]:
        """Return what starts a worker over there, for `Worker`."""
        return self._command(f"{self._there()} -m xcompress.bench.workers.worker")

    def machine(self) -> Machine:
        """Ask a worker there to describe the host, with the request `machine`.

        :raises InputError: when it cannot.
        """
        try:
            with Worker(self.command()) as worker:
                found: dict[str, Any] = worker.ask("machine")
        except WorkerFailed as error:
            raise InputError(f"ssh:{self.host}: cannot be described ({error}); run xcompress there instead") from error
        return Machine(**found | {"flags": tuple(found["flags"])})

    def _there(self) -> str:
        """Return the start of a command that runs the host's Python beside the runner.

        What libraries leave in the temporary folder, as onnxruntime does, is left in ours.
        """
        folder = shlex.quote(self._folder)
        return f"cd {folder} && TMPDIR={folder} exec {self._python}"

    def _check(self) -> None:
        found, missing = loads(self._run(f"{self._there()} -c {shlex.quote(_CHECK)}").splitlines()[-1])
        where, least = f"ssh:{self.host}: {self._python} there", ".".join(map(str, LEAST_PYTHON))
        if tuple(found) < LEAST_PYTHON:
            found = ".".join(map(str, found))
            raise InputError(f"{where} is Python {found}, not {least} or newer; name another one with {PYTHON}")
        if missing:
            names = " ".join(missing)
            raise InputError(f"{where} lacks {names}; run there: {self._python} -m pip install {names}")

    def _send(self, files: Mapping[str, Path], folder: str) -> None:
        place = shlex.quote(folder)
        self._run(f"mkdir -p {place} && tar -xof - -C {place}", files)

    def _remove(self) -> None:
        if not self._folder:
            return
        try:
            self._run(f"rm -rf {shlex.quote(self._folder)}")
            self._folder = ""
        except InputError as error:
            console.warn(f"{error}; {self._folder} was left there")

    def _command(self, script: str) -> list[str]:
        """Return the command that runs a line of sh there, whatever shell the user has."""
        return [*self._ssh, *OPTIONS, self.host, f"exec sh -c {shlex.quote(script)}"]

    def _run(self, script: str, files: Mapping[str, Path] | None = None) -> bytes:
        """Run a line of sh there, with a tar of the files as its input, and return what it printed.

        :raises InputError: when ssh or the line fails.
        """
        command = self._command(script)
        with tempfile.TemporaryFile() as packed:
            _pack(files or {}, packed)
            packed.seek(0)
            try:
                done = subprocess.run(command, stdin=packed, capture_output=True, timeout=SECONDS, check=False)
            except FileNotFoundError as error:
                raise InputError(f"ssh:{self.host}: no {command[0]} here; install OpenSSH's client") from error
            except subprocess.TimeoutExpired as error:
                raise InputError(f"ssh:{self.host}: no end within {SECONDS:g} s ({script}); try again") from error
        if done.returncode:
            raise InputError(self._failure(done.returncode, done.stderr.decode(errors="replace")))
        return done.stdout

    def _failure(self, code: int, said: str) -> str:
        """Say in a line why a command failed."""
        last = (said.strip().splitlines() or [f"exit code {code}"])[-1].strip()
        if code == _SSH_FAILED:
            return f"ssh:{self.host}: cannot be reached ({last}); see that `ssh {self.host}` works without a password"
        if code in (_NOT_FOUND, _NOT_EXECUTABLE) and self._folder:
            return f"ssh:{self.host}: {last}; install Python 3.11 or newer there, or name it with {PYTHON}"
        return f"ssh:{self.host}: failed there ({last}); correct that and run again"


def _pack(files: Mapping[str, Path], stream: IO[bytes]) -> None:
    """Write a tar of files under new names, with neither owners nor times."""
    with tarfile.open(fileobj=stream, mode="w") as packed:
        for name, file in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = file.stat().st_size
            with file.open("rb") as content:
                packed.addfile(entry, content)
