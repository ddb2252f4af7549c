"""Commands of Python child processes, which never import modules of the current folder."""

import sys
from pathlib import Path

_RUN_MODULE = """
import sys
home, module = sys.argv.pop(1), sys.argv.pop(1)
sys.path.insert(0, home)
import xcompress
sys.path.remove(home)
import runpy
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
"""Run a module of the package in one folder; nothing else is imported from that folder."""


def python_command(*arguments: str) -> list[str]:
    """Return a command that runs this Python with arguments, such as `-m pip`.

    With -P the current folder is not on the search path, so that a file such as numpy.py beside the user's data does
    not run. PYTHONPATH, editable installs and the user's site-packages work as in this process.
    """
    return [sys.executable, "-P", *arguments]


def module_command(module: str) -> list[str]:
    """Return a command that runs a module of this very package, wherever this process found the package.

    :param module: the full name, such as `xcompress.bench.workers.worker`.
    """
    return python_command(*module_arguments(module))


def module_arguments(module: str) -> list[str]:
    """Return the arguments with which any Python runs a module of this package; add -P before them."""
    return ["-c", _RUN_MODULE, str(Path(__file__).parent.parent), module]
