"""The program: `xcompress`, or `python -m xcompress`. It is ready for Ctrl-C and closed streams before it imports."""

import os
import signal
import sys

from xcompress.cli import INTERRUPT_CODE, INTERRUPTED


def main() -> None:
    """Run the command line."""
    _open_closed_streams()
    # During imports, KeyboardInterrupt would end in a traceback or in some library's error.
    handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handled:
        signal.signal(signal.SIGINT, _exit)
    from xcompress.cli.main import main as run

    if handled:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _exit_in_order()
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


def _exit_in_order() -> None:
    """Make SIGTERM and SIGHUP an exit, so that half a file is removed and no process is left behind.

    They come from `timeout`, `docker stop`, systemd or a closed terminal. Under nohup SIGHUP stays ignored. A worker of
    torchrun ends at once, as it may be waiting for the others where no Python runs.
    """

    def stop(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # `timeout` sends it twice
        raise SystemExit(128 + number)

    for name in () if "RANK" in os.environ else ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, stop)


def _remove_current_folder() -> None:
    """Remove the current folder, which `python -m` puts first on the search path: a numpy.py there would run."""
    first = sys.path[0]
    if not sys.flags.safe_path and os.path.isdir(first) and os.path.samefile(first, os.curdir):  # noqa: PTH112, PTH121
        del sys.path[0]


if __name__ == "__main__":
    _remove_current_folder()
    main()
