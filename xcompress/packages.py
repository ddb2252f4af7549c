"""Optional packages: what is installed, and how to install the rest."""

from importlib.util import find_spec

from xcompress.errors import InputError


def is_installed(package: str) -> bool:
    """Tell whether a package can be imported, without importing it; of one inside another, the other is imported."""
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # ValueError: a module without __spec__ is in sys.modules
        return False


def install_command(extra: str) -> str:
    """Return the command that installs an extra of pyproject.toml."""
    return f"pip install 'xcompress[{extra}]'"


def require_package(package: str, extra: str, purpose: str) -> None:
    """Refuse what needs an optional package, before it starts.

    :param package: the name to import.
    :param purpose: what needs it, for the error.
    :raises InputError: when the package is not installed.
    """
    if not is_installed(package):
        raise InputError(f"{purpose} needs {package}; {install_command(extra)}")
