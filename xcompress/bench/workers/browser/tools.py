"""Find what a bench in a browser needs and xcompress does not install: playwright, a Chromium, onnxruntime-web."""

import os
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from xcompress.errors import InputError
from xcompress.packages import install_command, is_installed
from xcompress.web.onnxruntime_web import BUILDS, Build, find_package, runtime_files

CHROME_PATH = "CHROME_PATH"

_NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
    "microsoft-edge-stable",
    "msedge",
)
_PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "C:/Program Files/Google/Chrome/Application/chrome.exe",
    "C:/Program Files (x86)/Microsoft/Edge/Application/msedge.exe",
)
"""Where installers put a browser that is not on the search path."""


@dataclass(frozen=True)
class Tools:
    """The browser and the runtime on this machine."""

    browser: Path
    """The executable."""
    onnxruntime_web: Path
    """Folder of the npm package."""
    device: str = "wasm"
    """wasm or webgpu."""

    @property
    def build(self) -> Build:
        """The build of onnxruntime-web for the device."""
        return BUILDS[self.device]

    @property
    def runtime(self) -> dict[str, Path]:
        """The files of onnxruntime-web that the page loads, by name."""
        return runtime_files(self.onnxruntime_web, self.device)


def check_browser(device: str = "wasm") -> Tools:
    """Find all that is needed; install and download nothing.

    The browser is the Chromium, Chrome or Edge that the variable CHROME_PATH names, else one of the usual names;
    onnxruntime-web is in the folder that XCOMPRESS_ONNXRUNTIME_WEB names, else in node_modules of the current folder or
    above.

    :param device: wasm or webgpu.
    :raises InputError: with all that is missing, and how to install it, in one line.
    """
    missing = [] if is_installed("playwright") else [f"the Python package playwright: {install_command('browser')}"]
    found = []
    for find in (find_browser, partial(find_package, device)):
        try:
            found.append(find())
        except LookupError as error:
            missing.append(str(error.args[0]))
    if missing:
        raise InputError(f"--device {device}: not everything is installed; needed: {'; '.join(missing)}")
    browser, package = found
    return Tools(browser, package, device)


def find_browser() -> Path:
    """Return the path of a browser, as `check_browser` describes.

    :raises LookupError: when there is none, with how to install it.
    """
    if named := os.environ.get(CHROME_PATH):
        program = shutil.which(named)
        if program is None:
            raise LookupError(f"a browser ({named} is not a program): give the path of a Chromium in {CHROME_PATH}")
        return Path(program)
    # Elsewhere than on Windows, C:/... is a path in the current folder, and what lies there must not run.
    for name in (*_NAMES, *(place for place in _PLACES if Path(place).is_absolute())):
        if program := shutil.which(name):
            return Path(program)
    raise LookupError(
        f"a Chromium: install chromium or Google Chrome with the system's packages, or give its path in {CHROME_PATH}"
    )
