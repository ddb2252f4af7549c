"""Accuracy of sentence vectors on labelled and unlabelled text.

`collect` gathers the tasks, `EvalSuite.sentences` lists the sentences to encode, `EvalSuite.score` scores their
vectors, and `EvalSuite.summarize` returns the figures.
"""

from xcompress.bench.eval.collect import collect
from xcompress.bench.eval.task import EvalSuite

__all__ = ["EvalSuite", "collect"]
