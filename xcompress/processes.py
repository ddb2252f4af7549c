"""Map a function over items in several processes: in the order of the items, and with few of them in memory."""

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar

from xcompress.errors import XCompressError

Item = TypeVar("Item")
Result = TypeVar("Result")
_SAFE_PATH = "PYTHONSAFEPATH"
"""Keeps the current folder from the search path of a Python that starts."""
_AHEAD = 2
"""Items that each process is ahead of the one whose result is yielded."""
_function: Callable[[Any], Any]
"""What a worker process calls."""


def map_in_order(
    make: Callable[[], Callable[[Item], Result]], items: Iterable[Item], processes: int, what: str
) -> Iterator[Result]:
    """Yield the result of each item.

    Processes are spawned, not forked, as this one may have threads. They need not be able to import its main module.

    :param make: makes the function; pickled, like items and results. Each process calls it once.
    :param processes: 1 stays in this process.
    :param what: what the processes do, in the message about one that ended.
    :raises XCompressError: when a process is killed.
    """
    if processes == 1:
        yield from map(make(), items)
        return
    pending: deque[Future[Result]] = deque()
    with _starting_processes():
        pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _start, (make,))
    try:
        for item in items:
            with _starting_processes():
                pending.append(pool.submit(_call, item))
            if len(pending) > _AHEAD * processes:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise XCompressError(
            f"{what}: one of {processes} processes was killed, or ran out of memory; run again, with fewer processes "
            "where memory is short"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _starting_processes() -> Iterator[None]:
    """Change what processes inherit that start in the block.

    Ctrl-C is for this process alone, which ends the others. They do not import its main module: a script without
    `if __name__ == "__main__"` would run again. A file such as json.py in the current folder does not run either.
    """
    main, safe_path = sys.modules["__main__"], os.environ.get(_SAFE_PATH)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ()) if hasattr(signal, "pthread_sigmask") else None
    try:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # raises a Ctrl-C that came just before
        os.environ[_SAFE_PATH] = "1"
        sys.modules["__main__"] = ModuleType("__main__")
        yield
    finally:
        sys.modules["__main__"] = main
        if safe_path is None:
            os.environ.pop(_SAFE_PATH, None)
        else:
            os.environ[_SAFE_PATH] = safe_path
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _start(make: Callable[[], Callable[[Any], Any]]) -> None:
    """Prepare a worker process."""
    global _function
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _function = make()


def _end_with_parent() -> None:
    """End this process when its parent was killed: it would wait for work forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _call(item: Any) -> Any:  # noqa: ANN401
    return _function(item)
