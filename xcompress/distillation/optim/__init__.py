"""LARS, and the exponential moving average of weights."""
