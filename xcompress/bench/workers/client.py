"""The parent's side of a worker: start it, ask it, notice its death, stop it."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from threading import Timer
from typing import Any, Protocol, Self

import xcompress
from xcompress.errors import XCompressError

TIMEOUT = 300.0
"""Seconds a single request may take before the worker is given up."""


class WorkerFailed(XCompressError):
    """A worker died, gave no answer or answered with an error."""


class WorkerClient(Protocol):
    """What holds one subject, wherever it runs: a process here or on another host, or a browser.

    Use it as a context, so that nothing is left running.
    """

    def ask(self, do: str, **request: object) -> dict[str, Any]:
        """Send one request and wait for its reply.

        :raises WorkerFailed: when there is none, or it is an error.
        """

    def close(self) -> None:
        """Stop it; closing twice does nothing."""

    def __enter__(self) -> Self:
        """Return the worker itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop it."""
        self.close()


class Worker(WorkerClient):
    """A process that holds one subject.

    :param command: what to start, by default a worker on this machine.
    :param patience: seconds that a request may take.
    :param environment: variables to set for it.
    """

    def __init__(
        self,
        command: list[str] | None = None,
        patience: float = TIMEOUT,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._patience = patience
        self._timed_out = False
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._process = subprocess.Popen(
            command or [sys.executable, "-m", "xcompress.bench.workers.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            encoding="utf-8",
            env={**_environment(), **(environment or {})},
        )

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def ask(self, do: str, **request: object) -> dict[str, Any]:
        """Send one request and wait for its reply.

        :raises WorkerFailed: when the worker died, took too long or reports an error.
        """
        assert self._process.stdin and self._process.stdout
        timer = Timer(self._patience, self._give_up)
        timer.start()
        try:
            self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        finally:
            timer.cancel()
        reply: dict[str, Any] = json.loads(line) if line.endswith("\n") else {"error": self._death()}
        if "error" in reply:
            raise WorkerFailed(reply["error"])
        return reply

    def close(self) -> None:
        """Stop the process."""
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def _give_up(self) -> None:
        self._timed_out = True
        self._process.kill()

    def _death(self) -> str:
        code = self._process.wait()
        if self._timed_out:
            return f"no answer within {self._patience:g} s"
        if code == -9:
            return "killed by the system (signal 9), most likely out of memory"
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        ended = f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"{ended}: {lines[-1][:200]}" if lines else ended


def _environment() -> dict[str, str]:
    """Let the worker find this very package, wherever the parent found it."""
    home = str(Path(xcompress.__file__).parent.parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")]))}
