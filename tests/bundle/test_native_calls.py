import os
import subprocess
import time
from pathlib import Path
from threading import Event, Thread

import pytest

from xcompress import Encoder
from xcompress.bundle import native_calls
from xcompress.bundle.native_calls import native_call
from xcompress.bundle.released import released_folder
from xcompress.python_process import python_command
from xcompress.tokenizer_file import read_tokenizer

DAEMON = """
import threading, time
from xcompress.bundle.native_calls import native_call

def work():
    with native_call():
        started.set()
        time.sleep(0.2)
        print("first", flush=True)
    with native_call():
        print("second", flush=True)

started = threading.Event()
threading.Thread(target=work, daemon=True).start()
started.wait()
"""
ENDLESS = """
import sys, threading, time
from xcompress import Encoder

def work():
    while True:
        encoder.encode(["rain and a boat"] * 200, batch_size=20)

encoder = Encoder(sys.argv[1], threads=1)
threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
"""


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(python_command("-c", *arguments), capture_output=True, text=True, check=False, timeout=60)


def test_the_end_of_a_process_waits_for_a_call_and_lets_no_daemon_thread_begin_one() -> None:
    done = run_python(DAEMON)
    assert (done.returncode, done.stdout, done.stderr) == (0, "first\n", "")


def test_a_daemon_thread_that_encodes_ends_with_the_process() -> None:
    for _ in range(3):
        done = run_python(ENDLESS, str(released_folder("tiny")))
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no forks")
def test_a_fork_waits_for_the_calls_of_other_threads_alone() -> None:
    started, ended = Event(), Event()

    def call() -> None:
        with native_call():
            started.set()
            time.sleep(0.3)
            ended.set()

    thread = Thread(target=call)
    thread.start()
    started.wait()
    with native_call(), native_call():
        if not (child := os.fork()):
            os._exit(0 if ended.is_set() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no forks")
def test_threads_that_are_always_in_a_call_let_a_fork_begin() -> None:
    inside, stopped = set[int](), Event()

    def work(number: int) -> None:
        while not stopped.is_set():
            with native_call():
                inside.add(number)
                time.sleep(0.05)
                inside.discard(number)

    threads = [Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
        time.sleep(0.02)
    started = time.monotonic()
    if not (child := os.fork()):
        os._exit(len(inside))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert time.monotonic() - started < 5
    stopped.set()
    for thread in threads:
        thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no forks")
def test_a_call_may_make_another_one_while_a_fork_waits_for_it() -> None:
    started = Event()

    def call() -> None:
        with native_call():
            started.set()
            while not native_calls._forking:
                time.sleep(0.01)
            with native_call():
                pass

    thread = Thread(target=call)
    thread.start()
    started.wait()
    before = time.monotonic()
    if not (child := os.fork()):
        with native_call():
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert time.monotonic() - before < 5
    thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no forks")
def test_a_fork_waits_until_a_tokenizer_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    started, ended = Event(), Event()

    def read(file: Path, content: bytes, remedy: str) -> object:
        started.set()
        time.sleep(0.3)
        tokenizer = read_tokenizer(file, content, remedy)
        ended.set()
        return tokenizer

    monkeypatch.setenv("XCOMPRESS_CACHE", "/dev/null/none")  # no SentencePiece model there: tokenizer.json is read
    monkeypatch.setattr("xcompress.bundle.tokenizer.read_tokenizer", read)
    thread = Thread(target=Encoder, args=(released_folder("tiny"),))
    thread.start()
    started.wait()
    if not (child := os.fork()):
        os._exit(0 if ended.is_set() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    thread.join()
