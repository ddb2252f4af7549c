"""The parent's side of a worker: start it, send requests, notice its death, stop it."""

import base64
import json
import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from threading import Thread, Timer
from typing import IO, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from xcompress.bench.workers.replies import find_mistake
from xcompress.errors import XCompressError, on_one_line
from xcompress.python_process import module_command

TIMEOUT = 300.0
"""Seconds that a single request may take before the worker is killed."""
_SECONDS_TO_END = 5.0
"""Seconds that a worker may take to end once it has closed its output."""
_LONGEST_REPLY = 1 << 26
"""Bytes of the longest reply that is read: vectors of a few hundred texts take some megabytes."""
_MOST_VALUES = 100_000
"""Values in a reply; in Python, each takes up to 200 bytes for 3 that were sent."""
_LINES_OF_GREETING = 100
_LOG_BYTES = 1 << 14


class WorkerFailed(XCompressError):
    """A worker died, did not answer or answered with an error."""


class WorkerClient(Protocol):
    """A connection to the worker of one subject: a process here or on another host, or a browser.

    The requests are the methods `do_...` of `workers.worker.RequestHandler`; `workers.replies` checks the replies of a
    process. Use it as a context, so that nothing is left running.
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
        self, command: list[str] | None = None, timeout: float = TIMEOUT, environment: Mapping[str, str] | None = None
    ) -> None:
        self._timeout = timeout
        self._timed_out = self._has_replied = False
        self._process = subprocess.Popen(
            command or module_command("xcompress.bench.workers.worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
        )
        assert self._process.stderr
        self._log = _LogTail(self._process.stderr)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def ask(self, do: str, **request: object) -> dict[str, Any]:
        """Send one request and wait for its reply.

        :raises WorkerFailed: when the worker died, took too long, or sends an error or something else than a reply.
        """
        assert self._process.stdin
        timer = Timer(self._timeout, self._kill_late)
        timer.start()
        try:
            self._process.stdin.write(json.dumps({"do": do, **request}).encode() + b"\n")
            self._process.stdin.flush()
            reply = self._read_reply()
        except (OSError, ValueError):  # ValueError: its input was closed when it was late
            reply = None
        finally:
            timer.cancel()
        if reply is None:
            raise WorkerFailed(self._explain_death())
        if "error" in reply:
            raise WorkerFailed(on_one_line(reply["error"], 1000))
        if mistake := find_mistake(do, reply):
            raise WorkerFailed(f"its reply to {do!r} is wrong ({mistake})")
        return reply

    def close(self) -> None:
        """Stop the process."""
        assert self._process.stdin and self._process.stdout
        self._process.kill()
        with suppress(OSError):  # what was not sent is lost with the process
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def _read_reply(self) -> dict[str, Any] | None:
        """Return the next reply, or None at the end of the output.

        A host's login shell may print a greeting: lines before the first reply are passed over.
        """
        assert self._process.stdout
        for _ in range(1 if self._has_replied else 1 + _LINES_OF_GREETING):
            line = self._process.stdout.readline(_LONGEST_REPLY)
            if not line:
                return None
            try:
                is_reply = line.endswith(b"\n") and line.count(b",") < _MOST_VALUES
                reply = json.loads(line) if is_reply else None
            except (ValueError, RecursionError):
                reply = None
            if isinstance(reply, dict):
                self._has_replied = True
                return reply
            if len(line) == _LONGEST_REPLY:
                break
        start = line[:60].decode(errors="replace")
        raise WorkerFailed(f"sent {start!r} instead of a reply; check what its Python and its shell print")

    def _kill_late(self) -> None:
        assert self._process.stdin
        self._timed_out = True
        self._process.kill()
        # what a script around ssh started outlives it, and holds the pipes until its input ends
        with suppress(OSError):
            self._process.stdin.close()

    def _explain_death(self) -> str:
        try:
            code = self._process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return "closed its output"
        if self._timed_out:
            return f"no answer within {self._timeout:g} s"
        if code == -9:
            return "killed by the system (signal 9), most likely out of memory"
        last = self._log.last_line()
        ended = f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"{ended}: {last}" if last else ended


class _LogTail:
    """The end of a process's standard error, read by a thread: another host could write without end.

    :param stream: a pipe; it is closed at its end.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._end = stream, b""
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._stream:
            while block := os.read(self._stream.fileno(), 1 << 16):
                self._end = (self._end + block)[-_LOG_BYTES:]

    def last_line(self) -> str:
        """Return the start of the last line that is not empty; call it when the process has ended."""
        self._thread.join(_SECONDS_TO_END)  # a child of the process may still hold the pipe
        lines = self._end.decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else ""


def decode_vectors(reply: Mapping[str, Any], count: int) -> NDArray[np.float32]:
    """Return the vectors (n, D) in a reply to `encode`.

    :param count: the number of texts that were sent.
    :raises WorkerFailed: when the reply does not hold such vectors.
    """
    rows, dimension = reply["shape"]
    try:
        vectors = np.frombuffer(base64.b64decode(reply["vectors"]), dtype="<f4").reshape(rows, dimension)
    except ValueError as error:
        raise WorkerFailed(f"its vectors cannot be read ({error})") from error
    if len(vectors) != count:
        raise WorkerFailed(f"sent another number of vectors ({len(vectors)}) than of texts ({count})")
    return vectors
