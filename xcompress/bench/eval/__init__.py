"""Accuracy of sentence vectors: what a subject is asked, and what its answers are worth.

`collect` gathers the tests, `Exam.sentences` lists what has to be encoded, `Exam.mark` turns vectors into figures.
"""

from xcompress.bench.eval.collect import collect
from xcompress.bench.eval.task import Exam

__all__ = ["Exam", "collect"]
