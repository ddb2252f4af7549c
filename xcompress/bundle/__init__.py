"""Exported bundles: open, check, encode."""
