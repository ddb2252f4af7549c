import os
import subprocess
import time
from threading import Event, Thread

import pytest

from xcompress.bundle.native_calls import native_call
from xcompress.bundle.released import released_folder
from xcompress.python_process import python_command

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
