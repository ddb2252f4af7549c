"""A ceiling on the memory and the time of a block, so that a bomb fails the test and not the machine."""

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


@contextmanager
def frugal(megabytes: int = 500, seconds: float = 5) -> Iterator[None]:
    """Raise a MemoryError where the block takes more address space than this, and a TimeoutError after some seconds."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"the block takes more than {seconds} s")

    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + megabytes * 1_000_000, limits[1]))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGALRM, before)
