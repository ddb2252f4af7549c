"""Limits of size, memory, speed and accuracy that a recipe sets for its bundle."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from xcompress.recipe.section import NonNegativeNumber, Positive, PositiveNumber, Section


def _check_batch_shape(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", text):
        raise ValueError("not of the form batch x tokens, such as 1x16")
    return text


BatchShape = Annotated[str, AfterValidator(_check_batch_shape)]


class MemoryBudget(Section):
    """Megabytes (10^6 bytes) of memory above that of the bare interpreter, with one thread."""

    resident: PositiveNumber | None = None
    """Largest resident memory after loading and a few calls of 1 x 16 tokens."""
    peak: PositiveNumber | None = None
    """Largest peak until then."""
    busy_peak: PositiveNumber | None = None
    """Largest peak after all latency shapes with one thread; depends on which shapes are measured."""


class Budgets(Section):
    """Limits for the exported bundle, which `bench --budgets` checks. Limits left out are not checked."""

    subject: str | None = None
    """The row of the report to check, by its name; null checks the smaller graph of each bundle."""
    precision: str | None = None
    """Check the graphs of this precision, such as fp32, in place of the smaller ones."""
    size_mb: PositiveNumber | None = None
    """Largest size of graph and tokenizer on disk, in megabytes (10^6 bytes)."""
    memory_mb: MemoryBudget = MemoryBudget()
    """Largest memory use."""
    start_speedup: PositiveNumber | None = None
    """Smallest speedup over the reference from a fresh process to the first vector."""
    speedup: dict[BatchShape, PositiveNumber] = Field(default_factory=dict)
    """Smallest speedup over the reference in the same run, by shape, `batch x tokens`."""
    threads: Positive = 1
    """Number of threads that `speedup` is measured with."""
    accuracy_drop: dict[str, dict[str, NonNegativeNumber]] = Field(default_factory=dict)
    """Largest loss against the reference in points, by test, then by average, language pair, language or direction."""

    @model_validator(mode="after")
    def _check(self) -> "Budgets":
        if self.subject and self.precision:
            raise ValueError(f"has subject ({self.subject}) and precision ({self.precision}); remove one of them")
        limits = [self.size_mb, *self.memory_mb.model_dump().values(), self.start_speedup, self.speedup]
        if not any([*limits, *self.accuracy_drop.values()]):
            raise ValueError("sets no limit; give size_mb, memory_mb, start_speedup, speedup or accuracy_drop")
        return self


class BudgetsFile(Section):
    """A file with limits alone, for a bundle that no recipe made."""

    budgets: Budgets | None = None
    """As in a recipe."""
