"""Name the extra of pyproject.toml to install when a command lacks an optional package."""

import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires

from xcompress.packages import install_command, is_installed
from xcompress.runtimes import RUNTIMES

COMMAND_EXTRAS = {"distill": "train", "trim": "train", "export": "export", "dequantize": "export", "bench": "bench"}
"""The extra that a command needs; other commands work with the base install."""
_EXTRAS = ("train", "export", "bench", "browser", "optimum", *RUNTIMES, "tensorboard", "mteb")
"""Extras for users, in the order in which they are suggested."""
_DISTRIBUTIONS = {"sklearn": "scikit-learn"}
"""Import names that differ from the name of the distribution."""


def missing_extra(arguments: Sequence[str], error: ModuleNotFoundError) -> str | None:
    """Return a line that names the missing package and the extra to install.

    :param arguments: the command that failed, without the program name, such as `["distill", "recipe.yaml"]`.
    :returns: None when the missing module belongs to no extra of xcompress, or its package is installed after all: then
        the error is a bug and must not be hidden.
    """
    package = (error.name or "").partition(".")[0]
    extras = _extras_of(_DISTRIBUTIONS.get(package, package))
    if not extras or is_installed(package):
        return None
    command = next((argument for argument in arguments if not argument.startswith("-")), "xcompress")
    preferred = COMMAND_EXTRAS.get(command)
    extra = preferred if preferred in extras else extras[0]
    return f"{command}: needs {package}, which is not installed; run {install_command(extra)}"


def _extras_of(distribution: str) -> list[str]:
    """Return the extras that install a distribution, according to the metadata of the installed xcompress."""
    try:
        requirements = requires("xcompress") or []
    except PackageNotFoundError:  # run from a source tree that was never installed
        return []
    found = set()
    for requirement in requirements:
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
        if name and extra and re.sub(r"[-_.]+", "_", name[0]).lower() == re.sub(r"[-_.]+", "_", distribution).lower():
            found.add(extra[1])
    return [extra for extra in _EXTRAS if extra in found]
