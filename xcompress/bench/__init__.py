"""Measure the cost and the accuracy of bundles, side by side with a reference."""

MOST_DISTRACTORS = 200_000
"""Sentences per language that translations are searched among, in addition to the other translations."""
MAX_SLOW_DOWN = 100
"""Largest factor by which `wasm` slows the processor down."""
