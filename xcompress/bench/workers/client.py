"""The parent's side of a worker: start it, send requests, notice its death, stop it."""

import base64
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from threading import Timer
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

import xcompress
from xcompress.errors import XCompressError

TIMEOUT = 300.0
"""Seconds that a single request may take before the worker is killed."""
_MAX_LOG_LINE = 200


class WorkerFailed(XCompressError):
    """A worker died, did not answer or answered with an error."""


class WorkerClient(Protocol):
    """A connection to the worker of one subject: a process here or on another host, or a browser.

    Use it as a context, so that nothing is left running.
    """

    def ask(self, do: str, **request: object) -> dict[str, Any]:
        """Send one request and wait for its reply.

        :raises WorkerFailed: when there is no reply, or it is an error.
        """

    def close(self) -> None:
        """Stop the worker; closing twice does nothing."""

    def __enter__(self) -> Self:
        """Return the worker itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop the worker."""
        self.close()


class Worker(WorkerClient):
    """A worker process.

    :param command: how to start it; None starts a worker on this machine.
    :param timeout: seconds that a request may take.
    :param environment: variables to set for it.
    """

    def __init__(
        self,
        command: list[str] | None = None,
        timeout: float = TIMEOUT,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._timeout = timeout
        self._timed_out = False
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        # The worker must import this very package, wherever the parent found it.
        home = str(Path(xcompress.__file__).parent.parent)
        python_path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")]))
        self._process = subprocess.Popen(
            command or [sys.executable, "-m", "xcompress.bench.workers.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": python_path, **(environment or {})},
        )

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def ask(self, do: str, **request: object) -> dict[str, Any]:
        """Send one request and wait for its reply.

        :raises WorkerFailed: when the worker died, took too long or reports an error.
        """
        assert self._process.stdin and self._process.stdout
        timer = Timer(self._timeout, self._kill_late)
        timer.start()
        try:
            self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        finally:
            timer.cancel()
        reply: dict[str, Any] = json.loads(line) if line.endswith("\n") else {"error": self._explain_death()}
        if "error" in reply:
            raise WorkerFailed(reply["error"])
        return reply

    def close(self) -> None:
        """Stop the process."""
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def _kill_late(self) -> None:
        self._timed_out = True
        self._process.kill()

    def _explain_death(self) -> str:
        code = self._process.wait()
        if self._timed_out:
            return f"no answer within {self._timeout:g} s"
        if code == -9:
            return "killed by the system (signal 9), most likely out of memory"
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        ended = f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"{ended}: {lines[-1][:_MAX_LOG_LINE]}" if lines else ended


def decode_vectors(reply: Mapping[str, Any]) -> NDArray[np.float32]:
    """Return the vectors (n, D) in a reply to `encode`."""
    return np.frombuffer(base64.b64decode(reply["vectors"]), dtype="<f4").reshape(reply["shape"])
