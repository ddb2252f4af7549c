"""The LARS optimizer, and the exponential moving average of a student."""
