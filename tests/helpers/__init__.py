"""What several tests share: small models, recipes, reports and exports, and where things lie."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data"
"""Real data that a clone does not have; a test that reads it skips without it."""
GRADED = Path(__file__).parent / "graded"
"""Graded pairs in eight languages, which tests train small models and vocabularies on. They are an earlier and smaller
version of those in the package, so that a change of these does not change what the tests train."""
