"""Exported bundles: describe, find, verify and open them."""

MOST_THREADS = 1024
"""Of one process, and processes of one command: far above what machines have."""
