"""Accuracy of sentence vectors: what a subject is asked, and what its answers are worth.

`collect` gathers the tests, `EvalSuite.sentences` lists what has to be encoded, `EvalSuite.evaluate` turns vectors into
figures.
"""

from xcompress.bench.eval.collect import collect
from xcompress.bench.eval.task import EvalSuite

__all__ = ["EvalSuite", "collect"]
