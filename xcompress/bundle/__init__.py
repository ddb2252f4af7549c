"""Exported bundles: describe, find, verify and open them."""
