"""Import the maintainers' release tools, which are scripts outside the package."""

import sys

from tests.helpers import ROOT

sys.path.append(str(ROOT / "benchmarks" / "release"))

import card
import center
import provenance
import release
import rescore

__all__ = ["card", "center", "provenance", "release", "rescore"]
