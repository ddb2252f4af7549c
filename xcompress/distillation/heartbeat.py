"""Notice a worker that falls silent: its host loses power or its network, or the process hangs."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from time import monotonic

from torch.distributed import DistError, TCPStore  # type: ignore[attr-defined]

from xcompress.console import fail
from xcompress.distillation import distributed
from xcompress.distillation.failures import GO_ON

BEAT = 5.0
"""Seconds between two signs of life of a worker."""
SILENCE = 300.0
"""Seconds without a sign of life after which a worker counts as lost."""


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
                f"for {SILENCE:.0f} s; see whether its host and network are up, then {GO_ON}",
                by_any_worker=True,
            )
            os._exit(1)


def _key(worker: int) -> str:
    return f"xcompress/heartbeat/{worker}"
