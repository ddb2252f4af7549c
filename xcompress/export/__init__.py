"""Turn a student or an encoder into a self-contained, verified ONNX bundle."""

MASKED_SCORE = -1e4
"""Added to the attention score of a padded token; exp(-1e4) is 0 in float32, and the value still fits float16."""
LEAST_NORM = 1e-12
"""Vectors shorter than this are not scaled to unit length."""
