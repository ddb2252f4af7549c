"""The program: `xcompress`, or `python -m xcompress`. It is ready for Ctrl-C and closed streams before it imports."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Set
from types import FrameType

from xcompress.cli import INTERRUPT_CODE, INTERRUPTED


def main(patience: float = 5.0, clean_up: float = 30.0) -> None:
    """Run the command line.

    :param patience: seconds that a call of a library may go on after Ctrl-C, SIGTERM or SIGHUP.
    :param clean_up: seconds that the program may then take to end.
    """
    _open_closed_streams()
    # During imports, KeyboardInterrupt would end in a traceback or in some library's error.
    handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handled:
        signal.signal(signal.SIGINT, _exit)
    from xcompress.cli.main import main as run

    _end_on_signals(handled, patience, clean_up)
    run()


def _open_closed_streams() -> None:
    """Open the null device in place of closed standard streams.

    Otherwise a file that is opened later takes the place of one, and what a library prints is written into it.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - stays open


def _exit(*_: object) -> None:
    os.write(2, f"error: {INTERRUPTED}\n".encode())
    os._exit(INTERRUPT_CODE)


def _end_on_signals(ctrl_c: bool, patience: float, clean_up: float) -> None:
    """Make each signal an exception, so that half a file is removed and no process is left behind.

    They come from Ctrl-C, `timeout`, `docker stop`, systemd or a closed terminal. Under nohup SIGHUP stays ignored. A
    worker of torchrun ends at once at SIGTERM and SIGHUP, as it may be waiting for the others where no Python runs.

    :param ctrl_c: whether SIGINT is handled; a process in the background may ignore it.
    """
    raised = set[int]()

    def stop(number: int, frame: FrameType | None) -> None:
        raised.add(number)
        if number == signal.SIGINT:
            signal.default_int_handler(number, frame)
        signal.signal(number, signal.SIG_IGN)  # `timeout` sends it twice
        raise SystemExit(128 + number)

    if ctrl_c:
        signal.signal(signal.SIGINT, stop)
    for name in () if "RANK" in os.environ else ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, stop)

    # Python calls `stop` between two steps of its own; a library may never come back to them.
    received, wakeup = os.pipe()
    thread = threading.Thread(target=_end_late, args=(received, stop, raised, patience, clean_up), daemon=True)
    try:
        thread.start()
    except RuntimeError:  # a limit on threads is reached
        return
    if os.name == "posix":
        os.set_blocking(wakeup, False)
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))  # its signals are not those of this one
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)


def _end_late(received: int, stop: Callable[..., None], raised: Set[int], patience: float, clean_up: float) -> None:
    """End the process when it has not ended by itself after a signal.

    :param received: descriptor of a pipe in which the system's handler writes the number of each signal.
    :param stop: Python's handler.
    :param raised: signals for which it has raised an exception.
    """
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the main thread may block them for a while
    number = os.read(received, 1)[0]
    while number not in raised and signal.getsignal(number) is not stop:  # a handler that a library has set
        number = os.read(received, 1)[0]
    time.sleep(patience)
    if raised:
        time.sleep(clean_up)
    from xcompress.files import remove_scratch

    try:
        remove_scratch()
        show_cursor = "\x1b[?25h\n" if os.isatty(2) else ""  # a progress bar hides it
        os.write(2, f"{show_cursor}error: {INTERRUPTED}; a library did not return from a call\n".encode())
    finally:
        os._exit(128 + number)


def _remove_current_folder() -> None:
    """Remove the current folder, which `python -m` puts first on the search path: a numpy.py there would run."""
    first = sys.path[0]
    if not sys.flags.safe_path and os.path.isdir(first) and os.path.samefile(first, os.curdir):  # noqa: PTH112, PTH121
        del sys.path[0]


if __name__ == "__main__":
    _remove_current_folder()
    main()
