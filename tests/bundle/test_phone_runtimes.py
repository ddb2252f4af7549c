"""Sessions of phones' runtimes with stubs in place of the runtimes, which are not installed everywhere."""

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from xcompress.bundle import phone_runtimes
from xcompress.bundle.phone_runtimes import ExecuTorchSession, LiteRtSession, Text
from xcompress.errors import InputError

FEEDS = {"input_ids": np.array([[5, 6], [7, 8]]), "attention_mask": np.ones((2, 2), np.int64)}


class Stub:
    """Gives each text the number that its file held when it was opened."""

    dimension = 3

    def __init__(self, file: Path, threads: int) -> None:
        self.number = float(file.read_text())

    def encode(self, text: Text) -> np.ndarray:
        return np.full((1, self.dimension), self.number, np.float32)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiteRtSession:
    """A session of two threads, of which none has opened the file yet."""
    monkeypatch.setattr(phone_runtimes, "_OpenTflite", Stub)
    (tmp_path / "model.tflite").write_text("1")
    return LiteRtSession(tmp_path / "model.tflite", 2)


def in_a_fork(session: LiteRtSession) -> int:
    """Encode in a process that is forked; return 0 if the vectors are right, 2 after an InputError."""
    if process := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    try:
        signal.alarm(10)
        os._exit(int(session.run([], FEEDS)[0].tolist() != [[1.0] * 3] * 2))
    except InputError:
        os._exit(2)
    finally:
        os._exit(3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no forks")
def test_a_session_encodes_in_a_forked_process(session: LiteRtSession, tmp_path: Path) -> None:
    session.run([], FEEDS)
    assert in_a_fork(session) == 0
    (tmp_path / "model.tflite").write_text("22")
    assert in_a_fork(session) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no forks")
def test_threads_of_a_forked_process_that_encode_at_once(
    session: LiteRtSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the file is open again, none may hand its texts to threads that have stayed in the other process."""

    class Slow(Stub):
        def __init__(self, file: Path, threads: int) -> None:
            time.sleep(0.2)
            super().__init__(file, threads)

    monkeypatch.setattr(phone_runtimes, "_OpenTflite", Slow)
    session.run([], FEEDS)  # both threads start, as each takes a while to open the file

    def run(_: int) -> bool:
        return session.run([], FEEDS)[0].tolist() == [[1.0] * 3] * 2

    if not (process := os.fork()):
        try:
            signal.alarm(10)
            os._exit(int(not all(ThreadPoolExecutor(2).map(run, range(2)))))
        finally:
            os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0


def test_a_file_that_was_changed_since_is_not_opened_again(session: LiteRtSession, tmp_path: Path) -> None:
    (tmp_path / "model.tflite").write_text("22")
    assert session.run([], FEEDS)[0].tolist() == [[1.0] * 3] * 2


def test_the_threads_of_executorch_stay_while_a_file_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its calls would go on with threads that are gone."""
    numbers: list[int] = []
    method = SimpleNamespace(execute=lambda row: [torch.zeros(1, 3)])
    program = SimpleNamespace(load_method=lambda name: method)
    stubs: dict[str, dict[str, object]] = {
        "executorch": {},
        "executorch.extension": {},
        "executorch.extension.pybindings": {"portable_lib": SimpleNamespace(_unsafe_reset_threadpool=numbers.append)},
        "executorch.runtime": {"Runtime": SimpleNamespace(get=lambda: SimpleNamespace(load_program=lambda _: program))},
    }
    for name, content in stubs.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**content))
    opened = [ExecuTorchSession(Path("model.pte"), threads) for threads in (2, 1)]
    assert numbers == [2]
    opened.clear()
    ExecuTorchSession(Path("model.pte"), 1)
    assert numbers == [2, 1]
