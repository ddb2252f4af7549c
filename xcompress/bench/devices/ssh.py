"""Another Linux host, reached by ssh. Bundles and a small runner are copied there and removed afterwards."""

import os
import re
import shlex
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import IO, Any, Self

from pydantic import TypeAdapter, ValidationError

import xcompress
from xcompress import console
from xcompress.bench.devices.device import Device
from xcompress.bench.machine import Machine
from xcompress.bench.results import DeviceInfo
from xcompress.bench.subjects import Subject
from xcompress.bench.workers.client import Worker, WorkerClient, WorkerFailed
from xcompress.bundle.manifest import MANIFEST, inside, read_manifest
from xcompress.errors import InputError

SSH = "XCOMPRESS_SSH"
"""Environment variable with another ssh command and its options, such as `ssh -F config`."""
PYTHON = "XCOMPRESS_REMOTE_PYTHON"
"""Environment variable with the host's Python; python3 by default."""
OPTIONS = ("-T", "-oBatchMode=yes", "-oConnectTimeout=15", "-oServerAliveInterval=30")
"""No terminal, no password prompt, and a dead host is noticed."""
RUNNER = (".", "bundle", "bench", "bench/workers")
"""The folders of this package with the modules that a worker imports to run a bundle; all their modules are copied."""
LIBRARIES = ("numpy", "onnxruntime", "tokenizers")
LEAST_PYTHON = (3, 11)
TIMEOUT = 600.0
"""Seconds that one command may take, copying included."""
MAX_PRINTED = 1 << 20
"""Bytes that one command may print."""
_MAKE_FOLDER = 'printf "\\n"; mktemp -d "${TMPDIR:-/tmp}/xcompress.XXXXXXXXXX"'
_FOLDER = re.compile(r"/(?:[^\n]*/)?xcompress\.[A-Za-z0-9]{10}")
"""What mktemp prints. Nothing else is ever removed."""
_CHECK = (
    "import json, sys; from importlib.util import find_spec; "
    f"print(); print(json.dumps([sys.version_info[:2], [name for name in {LIBRARIES} if find_spec(name) is None]]))"
)
_CHECKED = TypeAdapter(tuple[tuple[int, int], list[str]])
"""What `_CHECK` prints: the version, and the libraries that are missing."""
_SHOWN = 80
"""Characters of a host's output in an error."""
_SSH_FAILED, _NOT_EXECUTABLE, _NOT_FOUND = 255, 126, 127


class SshDevice(Device):
    """Another host. Only bundles run there, compared with each other.

    :param device: ssh:HOST.
    :param stack: removes the files on the host.
    :raises InputError: when the host cannot be reached or lacks something.
    """

    is_remote = True

    def __init__(self, device: str, stack: ExitStack) -> None:
        self.host = stack.enter_context(SshHost(device.removeprefix("ssh:")))
        self.machine = self.host.machine()
        self.max_threads = self.machine.threads
        self.info = DeviceInfo(device)

    def prepare(self, subjects: Sequence[Subject], reference: str | None) -> tuple[list[Subject], str | None]:
        """Copy the bundles. If the reference is not a bundle, the first float32 graph takes its place."""
        bundles = [subject for subject in subjects if subject.kind == "onnx"]
        if not bundles:
            raise InputError(f"--device {self.info.name}: only bundles run there; name one")
        if reference not in [subject.name for subject in bundles]:
            reference = next((subject.name for subject in bundles if subject.precision == "fp32"), None)
        copied = [
            subject if subject.broken else replace(subject, source=self.host.copy(Path(subject.source)))
            for subject in bundles
        ]
        return copied, reference

    def start_worker(self, subject: Subject) -> WorkerClient:
        """Start a worker on the host."""
        return Worker(self.host.worker_command())

    def start_peak_worker(self) -> WorkerClient | None:
        """Start a worker on the host."""
        return Worker(self.host.worker_command())


class SshHost:
    """A host with the runner in a temporary folder; use it as a context, so that the folder is removed.

    Port, user, key and the like come from the user's ssh configuration.

    :param host: any destination that ssh takes: a host, `user@host`, an alias, `ssh://user@host:port`.
    :raises InputError: when ssh could not take the host's name.
    """

    def __init__(self, host: str) -> None:
        if not host or host.startswith("-") or not host.isprintable() or " " in host:
            raise InputError(f"--device ssh:{host}: {host!r} is not a host; name one, such as ssh:user@example.org")
        self.host = host
        self._python = shlex.quote(os.environ.get(PYTHON) or "python3")
        try:
            self._ssh = shlex.split(os.environ.get(SSH) or "ssh")
        except ValueError as error:
            raise InputError(f"{SSH}: {os.environ[SSH]!r} is no command ({error}); correct it") from error
        self._folder = ""
        self._copied: dict[Path, str] = {}

    def __enter__(self) -> Self:
        """Make the folder, copy the runner, and check the host's Python.

        :raises InputError: when the host cannot be reached or lacks something.
        """
        printed = _last_line(self._run(_MAKE_FOLDER))
        # Everything below writes to this folder, and at the end it is removed.
        if not (_FOLDER.fullmatch(printed) and printed.isprintable()):
            raise InputError(
                f"ssh:{self.host}: mktemp there printed {printed[:_SHOWN]!a}, which is not the new folder "
                "xcompress.XXXXXXXXXX; correct its TMPDIR"
            )
        self._folder = printed
        try:
            package = Path(xcompress.__file__).parent
            modules = [module for folder in RUNNER for module in (package / folder).glob("*.py")]
            self._send({module.relative_to(package.parent).as_posix(): module for module in modules}, self._folder)
            self._check_python()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        """Remove the folder; if that fails, only warn."""
        try:
            self._run(f"rm -rf -- {shlex.quote(self._folder)}")
        except InputError as error:
            console.warn(f"{error}; {self._folder} was left there")

    def copy(self, bundle: Path) -> str:
        """Copy the files that a bundle's manifest lists and that exist, unless they are on the host already.

        :returns: the bundle's folder on the host.
        :raises InputError: when it is not a bundle or cannot be copied.
        """
        real = bundle.resolve()
        if real not in self._copied:
            names = [MANIFEST, *read_manifest(bundle).get("files", {})]
            files = {name: inside(bundle, name) for name in names}
            target = f"{self._folder}/bundles/{len(self._copied)}"
            self._send({name: file for name, file in files.items() if file.is_file()}, target)
            self._copied[real] = target
        return self._copied[real]

    def worker_command(self) -> list[str]:
        """Return the command that starts a worker on the host."""
        return self._command(f"printf '\\n'; {self._start_python()} -m xcompress.bench.workers.worker")

    def machine(self) -> Machine:
        """Let a worker describe the host.

        :raises InputError: when it cannot.
        """
        try:
            with Worker(self.worker_command()) as worker:
                reply: dict[str, Any] = worker.ask("machine")
        except WorkerFailed as error:
            raise InputError(f"ssh:{self.host}: cannot be described ({error}); run xcompress there instead") from error
        return Machine(**reply | {"flags": tuple(reply["flags"])})

    def _check_python(self) -> None:
        """Refuse a Python that is too old or lacks a library."""
        where = f"ssh:{self.host}: {self._python} there"
        printed = _last_line(self._run(f"{self._start_python()} -c {shlex.quote(_CHECK)}"))
        try:
            version, lacking = _CHECKED.validate_json(os.fsencode(printed))
        except ValidationError as error:
            raise InputError(
                f"{where} printed {printed[:_SHOWN]!a}, so it is not a Python; name another one with {PYTHON}"
            ) from error
        if version < LEAST_PYTHON:
            old, least = (".".join(map(str, numbers)) for numbers in (version, LEAST_PYTHON))
            raise InputError(f"{where} is Python {old}, not {least} or newer; name another one with {PYTHON}")
        if names := " ".join(name for name in LIBRARIES if name in lacking):
            raise InputError(f"{where} lacks {names}; run there: {self._python} -m pip install {names}")

    def _start_python(self) -> str:
        """Return the start of a shell command that runs the host's Python with the runner.

        Libraries such as onnxruntime leave files in the temporary folder; with TMPDIR they leave them in ours, where
        the cache is, too. The runner is on PYTHONPATH, and PYTHONSAFEPATH keeps the current folder from the search
        path; unlike -P, a Python that is too old ignores it.
        """
        folder = shlex.quote(self._folder)
        variables = f"TMPDIR={folder} XCOMPRESS_CACHE={folder}/cache PYTHONSAFEPATH=1"
        variables += f" PYTHONPATH={folder}${{PYTHONPATH:+:$PYTHONPATH}}"
        return f"cd {folder} && {variables} exec {self._python}"

    def _send(self, files: Mapping[str, Path], folder: str) -> None:
        """Copy files, by their new names, into a folder on the host."""
        target = shlex.quote(folder)
        self._run(f"mkdir -p {target} && tar -xof - -C {target}", files)

    def _command(self, script: str) -> list[str]:
        """Return the command that runs a line of sh on the host, whatever the user's login shell is."""
        return [*self._ssh, *OPTIONS, self.host, f"exec sh -c {shlex.quote(script)}"]

    def _run(self, script: str, files: Mapping[str, Path] | None = None) -> bytes:
        """Run a line of sh on the host and return what it printed.

        :param files: sent as a tar archive on standard input, without owners and times.
        :raises InputError: when ssh or the line fails.
        """
        with tempfile.TemporaryFile() as stream:
            with tarfile.open(fileobj=stream, mode="w") as archive:
                for name, path in (files or {}).items():
                    entry = tarfile.TarInfo(name)
                    entry.size = path.stat().st_size
                    with path.open("rb") as content:
                        archive.addfile(entry, content)
            stream.seek(0)
            code, printed, errors = self._execute(self._command(script), stream)
        if code:
            raise InputError(self._explain_failure(code, errors))
        return printed

    def _execute(self, command: list[str], stream: IO[bytes]) -> tuple[int, bytes, bytes]:
        """Run a command; return its exit code, output and standard error.

        :param stream: its standard input.
        :raises InputError: when it cannot be started, takes too long or prints too much.
        """
        # Files, not pipes: a process that ssh started may hold a pipe after ssh was killed.
        with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(command, stdin=stream, stdout=printed, stderr=errors)
            except OSError as error:
                why = "not found" if isinstance(error, FileNotFoundError) else f"cannot be run ({error.strerror})"
                raise InputError(f"ssh:{self.host}: {command[0]} {why}; install the OpenSSH client") from error
            outputs, deadline = (printed, errors), monotonic() + TIMEOUT
            with process:
                while process.returncode is None and monotonic() < deadline and not _too_long(outputs):
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(0.1)
                is_late = process.returncode is None and not _too_long(outputs)
                process.kill()
            if _too_long(outputs):
                raise InputError(f"ssh:{self.host}: printed more than {MAX_PRINTED:,} bytes; check its shell's startup")
            if is_late:
                raise InputError(f"ssh:{self.host}: timed out after {TIMEOUT:g} s; try again")
            printed.seek(0)
            errors.seek(0)
            return process.returncode, printed.read(), errors.read()

    def _explain_failure(self, code: int, errors: bytes) -> str:
        """Say in one line why a command failed."""
        last = _last_line(errors) or f"exit code {code}"
        last = "".join(letter if letter.isprintable() else " " for letter in last[: 4 * _SHOWN])
        if code == _SSH_FAILED:
            return f"ssh:{self.host}: cannot be reached ({last}); check that `ssh {self.host}` works without a password"
        if code in (_NOT_FOUND, _NOT_EXECUTABLE) and self._folder:
            return f"ssh:{self.host}: {last}; install Python 3.11 or newer there, or name it with {PYTHON}"
        return f"ssh:{self.host}: a command failed there ({last}); correct that and run again"


def _too_long(outputs: Iterable[IO[bytes]]) -> bool:
    return any(os.fstat(output.fileno()).st_size > MAX_PRINTED for output in outputs)


def _last_line(printed: bytes) -> str:
    """Return the last line that is not empty; a shell's greeting comes before it. Bytes that are not UTF-8 stay."""
    lines = printed.decode(errors="surrogateescape").strip().splitlines()
    return lines[-1].strip() if lines else ""
