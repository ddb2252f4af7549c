"""Native calls that run: the end of the process and a fork wait for them.

A thread that comes back from a library when the interpreter has ended is ended there, and C++ and Rust abort the
process for that. A process that is forked while OpenVINO computes has its locks, and nobody who releases them. While a
fork or the end of the process waits, other threads begin no call.
"""

import atexit
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_PATIENCE = 10.0
"""Seconds that an exit or a fork waits at most, and that threads are kept from new calls for it."""
_changed = threading.Condition()
_running: set[int] = set()
"""Threads that are in a native call."""
_forking: set[int] = set()
"""Threads that are about to fork."""
_kept_until = 0.0
"""When daemon threads may call again, on the monotonic clock; before the exit, at any time."""


@contextmanager
def native_call() -> Iterator[None]:
    """Run a block that calls a library, which may be inside another such block."""
    thread = threading.get_ident()
    is_outermost = thread not in _running
    try:
        with _changed:
            if is_outermost:  # else a fork may be waiting for this thread
                _changed.wait_for(lambda: _forking <= {thread}, _PATIENCE)
            while (left := _kept_until - time.monotonic()) > 0 and threading.current_thread().daemon:
                _changed.wait(left)
            _running.add(thread)
        yield
    finally:
        if is_outermost:
            with _changed:
                _running.discard(thread)
                _changed.notify_all()


def _wait_for_others() -> None:
    """Wait for the calls of other threads, with the lock held."""
    own = {threading.get_ident()}
    _changed.wait_for(lambda: _running <= own, _PATIENCE)


def _before_exit() -> None:
    """Let calls end, and no daemon thread begin one. Python has waited for all other threads before."""
    global _kept_until
    with _changed:
        _kept_until = time.monotonic() + _PATIENCE
        _wait_for_others()


def _before_fork() -> None:
    _changed.acquire()
    _forking.add(threading.get_ident())
    _wait_for_others()


def _after_fork_in_parent() -> None:
    _forking.discard(threading.get_ident())
    _changed.notify_all()
    _changed.release()


def _after_fork_in_child() -> None:
    """Forget the other threads, which have stayed in the other process."""
    global _changed
    _changed = threading.Condition()
    _running.intersection_update({threading.get_ident()})
    _forking.clear()


atexit.register(_before_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
