"""`budgets`: what `xcompress bench --budgets RECIPE` holds a bundle to. Nothing here changes what is trained."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from xcompress.recipe.part import Part

SHAPE = re.compile(r"[1-9]\d*x[1-9]\d*")


def _shape(text: str) -> str:
    if not SHAPE.fullmatch(text):
        raise ValueError("not of the form batch x tokens, such as 1x16")
    return text


Shape = Annotated[str, AfterValidator(_shape)]
Above = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Points = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class MemoryBudget(Part):
    """Megabytes (10^6 bytes) of memory over the bare interpreter, one thread."""

    resident: Above | None = None
    """At most this much after loading and a few calls of 1 x 16 tokens."""
    peak: Above | None = None
    """The highest until then, at most."""
    busy_peak: Above | None = None
    """The highest after all latency shapes with one thread, at most; depends on the grid."""


class Budgets(Part):
    """Limits that a bundle must keep; those left out are not held."""

    subject: str | None = None
    """The one held, as the report's tables name it; the smaller graph of each bundle when not given."""
    precision: str | None = None
    """Hold the graphs of this precision, such as fp32, in place of the smaller one of each bundle."""
    size_mb: Above | None = None
    """Weights and tokenizer on disk, at most, in megabytes (10^6 bytes)."""
    memory_mb: MemoryBudget = MemoryBudget()
    start_speedup: Above | None = None
    """From a fresh process to the first vector: at least this many times as fast as the reference."""
    speedup: dict[Shape, Above] = Field(default_factory=dict)
    """Latency by shape, `batch x tokens`: at least this many times as fast as the reference in the same run."""
    threads: Annotated[int, Field(gt=0)] = 1
    """Number of threads with which `speedup` is meant."""
    accuracy_drop: dict[str, dict[str, Points]] = Field(default_factory=dict)
    """By test, then by average, language pair, language or direction: points less than the reference, at most."""

    @model_validator(mode="after")
    def _names_one_way(self) -> "Budgets":
        if self.subject and self.precision:
            raise ValueError(f"has subject ({self.subject}) and precision ({self.precision}); take one of them out")
        return self

    @model_validator(mode="after")
    def _limits_something(self) -> "Budgets":
        limits = [self.size_mb, *self.memory_mb.model_dump().values(), self.start_speedup, self.speedup]
        if not any([*limits, *self.accuracy_drop.values()]):
            raise ValueError("sets no limit; give size_mb, memory_mb, start_speedup, speedup or accuracy_drop")
        return self
