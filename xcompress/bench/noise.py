"""How far two measurements of the same thing may differ.

Within a run, the median of n rounds is known to about 1.57 x interquartile range / sqrt(n). These are the notches of
box plots (McGill, Tukey and Larsen, 1978): medians whose notches do not overlap differ at about the 5 % level. n counts
rounds, not calls, since whatever slows the machine slows all calls of a round alike.

Between runs, figures differ by more. Measured: two benches of the demo, hours apart on one idle machine with two
threads. The PyTorch models were the same in both. Their ratios to the reference differed by up to 7 % with one thread
and 30 % with two, their absolute times by up to 31 %. The memory of ten fresh processes with one graph differed by at
most 0.5 %. With the constants below, none of those models counts as changed. Noise is relative, and is compared with
|log(after / before)|.
"""

from math import hypot, log, sqrt

from xcompress.bench.results import NOISY, Interval, Latency, Start, Throughput

NOTCH = 1.57
RATIO_ONE_THREAD = 0.05
"""How far the ratios to the reference of two runs may differ with one thread, in addition to the notches."""
RATIO_THREADS = 0.15
"""The same with several threads."""
ABSOLUTE = 0.30
"""How far the absolute times of two runs on similar machines may differ."""
MEMORY = 0.05
MEMORY_BYTES = 1_000_000
"""Memory has changed if it differs by more than this and by more than the share MEMORY."""


def latency_noise(latency: Latency, reference: Latency | None = None) -> float:
    """Return the noise of a median within a run or, with the reference's calls, of its ratio to the reference."""
    return NOTCH * hypot(latency.spread, reference.spread if reference else 0) / sqrt(latency.rounds)


def start_noise(start: Start, reference: Start | None = None) -> float:
    """Return the noise of a start within a run: half of its spread, which is the range from the least to the most.

    The spread of a single process, as in a quick bench, is not known: `NOISY` takes its place.
    """
    spreads = (each.spread if each.processes > 1 else NOISY for each in (start, reference) if each)
    return sum(spreads) / 2


def throughput_noise(throughput: Throughput, reference: Throughput | None = None) -> float:
    """Return the noise of a throughput within a run: the whole spread, since there are few rounds."""
    return hypot(throughput.spread, reference.spread if reference else 0)


def between_runs(threads: int, *, ratio: bool) -> float:
    """Return how far two runs may differ, in addition to the noise within each."""
    if not ratio:
        return ABSOLUTE
    return RATIO_ONE_THREAD if threads == 1 else RATIO_THREADS


def differ(after: float, before: float, noise: float) -> bool:
    """Tell whether two positive figures differ by more than their noise; 0 differs from everything except 0."""
    if after <= 0 or before <= 0:
        return after != before
    return abs(log(after) - log(before)) > noise  # the ratio of two numbers may be too small for one


def memory_differs(after: int, before: int) -> bool:
    """Tell whether two numbers of bytes differ by more than those of equal processes."""
    return abs(after - before) > max(MEMORY_BYTES, MEMORY * before)


def intervals_differ(after: Interval, before: Interval) -> bool:
    """Tell whether the 95 % interval of a difference, computed from the two intervals, excludes zero.

    The arms of the two intervals that face each other are added as independent errors:
    difference > sqrt((upper value - its low)^2 + (lower value's high - lower value)^2) (Zou and Donner, 2008). Both
    values come from the same rows, so their errors partly cancel, by an amount that the reports do not hold. The rule
    is therefore cautious: a change that it calls noise may be real.
    """
    below, above = sorted((after, before))
    return above[0] - below[0] > hypot(above[0] - above[1], below[2] - below[0])
