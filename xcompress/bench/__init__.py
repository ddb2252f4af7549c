"""Measure the cost and the accuracy of bundles, side by side with a reference."""
