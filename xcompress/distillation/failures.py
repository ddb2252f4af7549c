"""Failures of the machine during a run, each as one line that says how to go on.

A disk is full; a worker is lost; a worker falls silent, as its host loses power or its network, or the process hangs.
"""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from time import monotonic

from torch.distributed import DistError, TCPStore  # type: ignore[attr-defined]

from xcompress.console import fail
from xcompress.distillation import distributed
from xcompress.errors import XCompressError, on_one_line
from xcompress.files import is_disk_full

_NETWORK_TEXTS = re.compile(r"gloo|NCCL|TCPStore|Connection (closed|reset|refused)", re.IGNORECASE)
"""What torch.distributed says where another process has ended, and its error has no class of its own."""
_GO_ON = "run the same command again: it goes on at the last checkpoint"
BEAT = 5.0
"""Seconds between two signs of life of a worker."""
SILENCE = 300.0
"""Seconds without a sign of life after which a worker counts as lost."""


@contextmanager
def explain_failures(folder: Path) -> Iterator[None]:
    """Turn what a full disk or a lost worker raises inside the block into an error of one line.

    :param folder: the run folder.
    :raises XCompressError: in place of such an error; all others pass.
    """
    try:
        yield
    except XCompressError:
        raise
    except Exception as error:
        if any(map(is_disk_full, _causes(error))):
            file = getattr(error, "filename", None)
            raise XCompressError(
                f"{file or folder}: cannot be written, as the disk or quota is full ({on_one_line(error, 150)}); free "
                f"space, then {_GO_ON}"
            ) from error
        if distributed.world_size() > 1 and any(map(_is_of_network, _causes(error))):
            raise XCompressError(
                f"worker {distributed.rank()} of {distributed.world_size()}: another worker has ended or cannot be "
                f"reached ({on_one_line(error, 150)}); see its own message, then {_GO_ON}"
            ) from error
        raise


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it was raised from or after."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_of_network(error: BaseException) -> bool:
    if isinstance(error, DistError):
        return True
    return isinstance(error, RuntimeError | ConnectionError) and bool(_NETWORK_TEXTS.search(str(error)))


@contextmanager
def watch_workers() -> Iterator[None]:
    """End this process with one line when another worker falls silent inside the block.

    The system does not say that a host has lost power: a connection to it stays open, and torch waits for
    `distributed.TIMEOUT`. So each worker counts up in the store of the process group, over a connection of its own,
    and looks at the numbers of the others.
    """
    if distributed.world_size() == 1 or "MASTER_ADDR" not in os.environ:  # MPI does without a store
        yield
        return
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(address, port, is_master=False, timeout=timedelta(seconds=SILENCE))
    store.set(_key(distributed.rank()), "0")
    distributed.barrier()  # now there is a number of each worker
    start, done = monotonic(), threading.Event()
    heard = {worker: start for worker in range(distributed.world_size()) if worker != distributed.rank()}
    # The two have a thread each, as a call to a store whose host is gone may never return.
    beat = threading.Thread(target=_beat, args=(store, heard, done), daemon=True)
    watch = threading.Thread(target=_end_when_silent, args=(heard, done), daemon=True)
    beat.start()
    watch.start()
    try:
        yield
    finally:
        done.set()
        beat.join(BEAT)
        watch.join()


def _beat(store: TCPStore, heard: dict[int, float], done: threading.Event) -> None:
    """Count up in the store, and note when the numbers of the others last changed."""
    numbers = dict.fromkeys(heard, b"")
    count = 0
    with suppress(DistError):  # the store is gone: nobody is heard any more
        while not done.wait(BEAT):
            count += 1
            store.set(_key(distributed.rank()), str(count))
            for worker, number in zip(heard, store.multi_get([_key(worker) for worker in heard]), strict=True):
                if number != numbers[worker]:
                    numbers[worker], heard[worker] = number, monotonic()


def _end_when_silent(heard: dict[int, float], done: threading.Event) -> None:
    """End the process when a worker was not heard for too long.

    The main thread may wait inside torch, where no exception reaches it. Files are written whole, so that this leaves
    what a kill leaves.
    """
    while not done.wait(BEAT):
        silent = [worker for worker, last in heard.items() if monotonic() - last > SILENCE]
        if silent:
            fail(
                f"worker {distributed.rank()} of {distributed.world_size()}: no sign of life from worker {silent[0]} "
                f"for {SILENCE:.0f} s; see whether its host and network are up, then {_GO_ON}",
                by_any_worker=True,
            )
            os._exit(1)


def _key(worker: int) -> str:
    return f"xcompress/heartbeat/{worker}"
