"""What several tests share: small models, recipes, reports and exports, and where things lie."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data"
"""Real data that a clone does not have; a test that reads it skips without it."""
