"""Killed commands, and requests to the server of the demo page."""

import contextlib
import io
import shutil
import socket
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from random import Random
from urllib.request import urlopen

import numpy as np

from tests.fuzz.inputs import damage
from tests.fuzz.tally import SEED, Tally
from tests.helpers.export import always_use_little_text
from tests.helpers.process import run, start
from xcompress.bundle.encoder import Encoder
from xcompress.files import sha256_of
from xcompress.web.server import Server

REQUEST = b"GET /page.html HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: */*\r\n\r\n"
LINES = 3000


def kill_embed(folder: Path, bundle: Path, count: int) -> Tally:
    """Kill `embed`: its file is whole or absent, and the next run leaves nothing else."""
    (folder / "lines.txt").write_text("".join(f"line {number} of the long list\n" for number in range(LINES)))
    command = [
        "embed",
        "--input",
        str(folder / "lines.txt"),
        "--model",
        str(bundle),
        "--output",
        str(folder / "out/lines.npy"),
    ]
    (folder / "out").mkdir()

    def check() -> None:
        if (folder / "out/lines.npy").exists():
            assert np.load(folder / "out/lines.npy").shape[0] == LINES
            (folder / "out/lines.npy").unlink()

    return _kill(Tally("embed killed"), command, folder, count, "lines.npy", check, beside=("lines.npy.json",))


def kill_export(folder: Path, student: Path, count: int) -> Tally:
    """Kill `export`, which replaces a bundle: it opens or is absent, and the next run leaves nothing else.

    On all text an export would measure for most of its time, and few kills would meet it writing.
    """
    (folder / "out").mkdir()

    def check() -> None:
        if (folder / "out/bundle").exists():
            assert Encoder(folder / "out/bundle").encode("text").any()

    command = ["export", str(student), "--force", "--output", str(folder / "out/bundle")]
    return _kill(Tally("export killed"), command, folder, count, "bundle", check, prepare=always_use_little_text)


def kill_distill(folder: Path, recipe: Path, count: int) -> Tally:
    """Kill `distill` at any moment, again and again: at last its student has the bytes of a run left alone."""
    (folder / "out").mkdir()
    whole = folder / "whole/run/student/model.safetensors"

    def check() -> None:
        weights, manifest = (folder / "out/run" / name for name in ("student/model.safetensors", "manifest.json"))
        assert not weights.exists() or sha256_of(weights) == sha256_of(whole), "other weights"
        if manifest.exists():
            shutil.rmtree(folder / "out/run")  # the next one starts anew

    command = ["distill", str(recipe), "--run-folder", str(folder / "out/run")]
    return _kill(Tally("distill killed"), command, folder, count, "run", check)


def _kill(
    tally: Tally,
    command: list[str],
    folder: Path,
    count: int,
    result: str,
    check: Callable[[], None],
    beside: tuple[str, ...] = (),
    prepare: Callable[[], object] | None = None,
) -> Tally:
    """Kill a command at random moments of the time that it takes; at last let it end.

    :param result: what it makes; `whole` in the folder has that of a run left alone.
    :param beside: what it makes beside that.
    :param prepare: called in each process before.
    """
    random = Random(SEED)
    (folder / "whole").mkdir()
    run(["--version"], folder / "whole.log")  # the first process waits until the libraries are loaded
    started = time.monotonic()
    run([*command[:-1], str(folder / "whole" / result)], folder / "whole.log", prepare)
    longest = time.monotonic() - started
    while tally.attempts < count:
        process = start(command, folder / "killed.log", prepare=prepare)
        process.join(random.uniform(0, longest))
        process.kill()
        process.join()
        if process.exitcode == 0:  # it had ended
            check()
        else:
            tally.attempt(tally.attempts, check)
    run(command, folder / "last.log", prepare)
    left = sorted(path.name for path in (folder / "out").iterdir())
    check()
    if left != [result, *beside]:
        tally.fail("the run after all kills", f"left {left}")
    return tally


def send_requests(folder: Path, count: int) -> Tally:
    """Send damaged requests; the server prints nothing, answers or closes, and still serves its page."""
    tally, random, said = Tally("requests sent"), Random(SEED), io.StringIO()
    page = folder / "page.html"
    page.write_text("<title>page</title>")
    with redirect_stderr(said), Server({"/page.html": page}) as server:
        port = server.server_address[1]
        for number in range(count):
            request = damage(REQUEST % port, random)

            def send(request: bytes = request) -> str:
                with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                    connection.sendall(request)
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_WR)
                    with contextlib.suppress(ConnectionError):
                        answer = connection.recv(1 << 16)
                        assert (
                            not answer or answer.startswith(b"HTTP/1") or b"<!DOCTYPE" in answer or b"<title>" in answer
                        )
                        return "answered" if answer else "closed"
                return "closed"

            tally.attempt(number, send)
        assert b"page" in urlopen(f"{server.address}/page.html", timeout=10).read()
    if said.getvalue():
        tally.fail("all requests", f"the server printed {said.getvalue()[-300:]}")
    return tally
