import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from xcompress.errors import XCompressError
from xcompress.processes import map_in_order

evaluate = partial(map_in_order, partial(partial, eval), what="work")
"""Map Python expressions to their values."""
SCRIPT = """
import signal
from functools import partial
from itertools import repeat
from xcompress.processes import map_in_order

signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may ignore it
print("started", flush=True)
try:
    work = repeat("__import__('time').sleep(0.05) or __import__('os').getpid()")
    for result in map_in_order(partial(partial, eval), work, 2, "work"):
        print(result, flush=True)
except KeyboardInterrupt:
    print("interrupted")
"""


def start_script(folder: Path) -> tuple["subprocess.Popen[str]", list[int]]:
    """Start a script without `if __name__ == "__main__"`; return it, and its worker processes."""
    (folder / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(folder / "script.py")]
    process = subprocess.Popen(command, stdout=-1, stderr=-1, text=True, start_new_session=True)
    assert process.stdout
    assert process.stdout.readline() == "started\n"
    workers = {int(process.stdout.readline()) for _ in range(6)}
    assert process.pid not in workers
    return process, list(workers)


def test_results_come_in_order_and_few_items_are_taken_ahead() -> None:
    taken = []

    def expressions() -> Iterator[str]:
        for number in range(20):
            taken.append(number)
            yield f"__import__('time').sleep({0.3 * (number == 0)}) or {number}"

    results = evaluate(expressions(), processes=2)
    assert next(results) == 0 and len(taken) == 5
    assert list(results) == list(range(1, 20))
    assert not multiprocessing.active_children()


def test_one_process_is_this_one() -> None:
    assert list(evaluate(["__import__('os').getpid()"] * 2, processes=1)) == [os.getpid()] * 2


def test_a_killed_process_is_one_line() -> None:
    work = ["1", "__import__('os').kill(__import__('os').getpid(), 9)", *["2"] * 20]
    message = r"^work: one of 2 processes was killed, or ran out of memory; run again, with fewer processes where .*"
    with pytest.raises(XCompressError, match=message):
        list(evaluate(work, processes=2))
    assert not multiprocessing.active_children()


def test_an_error_of_the_function_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        list(evaluate(["1 / 0"] * 20, processes=2))


def test_a_script_without_a_guard_runs_once_and_ends_quietly_with_ctrl_c(tmp_path: Path) -> None:
    process, workers = start_script(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert output.splitlines()[-1] == "interrupted" and "started" not in output and not errors
    assert not any(map(psutil.pid_exists, workers))


def test_processes_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    process, workers = start_script(tmp_path)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 60
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)
