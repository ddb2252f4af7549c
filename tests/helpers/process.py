"""Commands in processes of their own, which a test may kill."""

import multiprocessing
import os
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["xcompress.cli.main", "xcompress.distillation.pipeline", "sentence_transformers"])
"""Each process starts with these modules loaded: loading them takes some ten times as long as a small stage."""


def start(arguments: list[str], output: Path) -> ForkServerProcess:
    """Start `xcompress` with these arguments; what it prints goes to a file."""
    process = _CONTEXT.Process(target=_run, args=(arguments, output))
    process.start()
    return process


def run(arguments: list[str], output: Path) -> None:
    """Run `xcompress` with these arguments to its end, which must be a good one."""
    process = start(arguments, output)
    process.join()
    assert process.exitcode == 0, output.read_text(errors="replace")[-2000:]


def _run(arguments: list[str], output: Path) -> None:
    from xcompress.cli.main import main

    stream = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    sys.argv = ["xcompress", *arguments]
    main()
