"""Commands in processes of their own, which a test may kill."""

import gc
import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_ALL_OF = """
import sys
from xcompress.cli.main import main
codes = []
for command in {commands!r}:
    sys.argv = ["xcompress", *command]
    try:
        main()
    except SystemExit as stopped:
        codes.append(stopped.code or 0)
print(codes)
"""
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["xcompress.cli.main", "xcompress.distillation.pipeline", "sentence_transformers"])
"""Each process starts with these modules loaded: loading them takes some ten times as long as a small stage."""


def start(
    arguments: list[str],
    output: Path,
    environment: Mapping[str, str] | None = None,
    prepare: Callable[[], object] | None = None,
) -> ForkServerProcess:
    """Start `xcompress` with these arguments; what it prints goes to a file.

    :param prepare: called in the process before.
    """
    process = _CONTEXT.Process(target=_run, args=(arguments, output, environment or {}, prepare))
    process.start()
    return process


def run(arguments: list[str], output: Path, prepare: Callable[[], object] | None = None) -> None:
    """Run `xcompress` with these arguments to its end, which must be a good one.

    :param prepare: called in the process before.
    """
    process = start(arguments, output, prepare=prepare)
    process.join()
    assert process.exitcode == 0, output.read_text(errors="replace")[-2000:]


def code_of(commands: Sequence[Sequence[str]]) -> str:
    """Return Python code that runs `xcompress` with each of these arguments in turn; it prints the exit codes last."""
    return _ALL_OF.format(commands=[list(command) for command in commands])


def start_workers(
    arguments: list[str],
    outputs: Sequence[Path],
    environment: Mapping[str, str] | None = None,
    prepare: Callable[[], object] | None = None,
) -> list[ForkServerProcess]:
    """Start `xcompress` as several workers of one run, as torchrun does; each prints to a file of its own.

    :param prepare: called in each process before.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(len(outputs))}
    group |= {"LOCAL_WORLD_SIZE": group["WORLD_SIZE"], **(environment or {})}
    return [
        start(arguments, output, group | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, prepare)
        for rank, output in enumerate(outputs)
    ]


def _run(
    arguments: list[str], output: Path, environment: Mapping[str, str], prepare: Callable[[], object] | None
) -> None:
    gc.freeze()  # transformers collects garbage after every training: not among the modules that are loaded
    os.environ.update(environment)
    if prepare:
        prepare()
    from xcompress.cli.main import main

    stream = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    sys.argv = ["xcompress", *arguments]
    main()
