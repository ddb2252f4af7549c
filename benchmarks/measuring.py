"""What the scripts share: figures taken in fresh processes and in turns, and the ratio of two of them."""

import argparse
import inspect
import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TypeVar

from xcompress.console import tracked
from xcompress.errors import XCompressError
from xcompress.python_process import python_command

Key = TypeVar("Key")
Reply = TypeVar("Reply")
_CALL = """
import json, sys
sys.path.append(sys.argv[1])
function = getattr(__import__(sys.argv[2]), sys.argv[3])
reply = json.dumps(function(*json.loads(sys.argv[4])))
sys.stdout.write(f"\\n{reply}")
"""
"""Import a script as a module, and call one of its functions."""


def in_fresh_process(
    function: Callable[..., Reply],
    *arguments: object,
    environment: Mapping[str, str] | None = None,
) -> Reply:
    """Call a function in a process of its own: what one measurement leaves behind would change the next.

    :param function: of a file in benchmarks/, which that process imports.
    :param arguments: values that JSON holds, as the function's result must be; a path becomes text.
    :param environment: variables to set for the process.
    :raises XCompressError: when the function fails, with the last line that the process printed.
    """
    file = Path(inspect.getfile(function)).resolve()
    call = (str(file.parent), file.stem, function.__name__, json.dumps(arguments, default=str))
    done = subprocess.run(
        python_command("-c", _CALL, *call),
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise XCompressError(f"{file.stem}.{function.__name__}: exit code {done.returncode}, {last}")
    reply: Reply = json.loads(done.stdout.splitlines()[-1])
    return reply


def in_turns(calls: Mapping[Key, Callable[[], Reply]], rounds: int) -> dict[Key, list[Reply]]:
    """Let each call take its turn, round after round, so that what slows the machine slows all; return the replies."""
    replies: dict[Key, list[Reply]] = {key: [] for key in calls}
    for _ in tracked(range(rounds), "rounds"):
        for key, call in calls.items():
            replies[key].append(call())
    return replies


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Return the median over the rounds of the ratio within a round."""
    return median(above / below for above, below in zip(numerators, denominators, strict=True))


def add_rounds(parser: argparse.ArgumentParser, default: int) -> None:
    """Add the option --rounds."""

    def at_least_one(text: str) -> int:
        if not text.isdecimal() or int(text) < 1:
            raise argparse.ArgumentTypeError("at least 1")
        return int(text)

    parser.add_argument("--rounds", type=at_least_one, default=default, help="turns of each measurement")
