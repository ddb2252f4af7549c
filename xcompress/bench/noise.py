"""How far two measurements of the same thing may lie apart.

Within a run, the median of n rounds is known to about 1.57 x interquartile range / sqrt(n): the notches of box plots
(McGill, Tukey and Larsen, 1978), made so that medians whose notches do not meet differ at about the 5 % level. Rounds
are counted, not calls, since whatever slows the machine slows all calls of a round alike.

Between runs, more than that changes. In two benches of the demo, hours apart on one idle machine with two threads, the
PyTorch models, which were the same, differed in the ratio to the reference by up to 7 % with one thread and 30 % with
two, and in absolute times by up to 31 %; the memory of ten fresh processes with one graph lay within 0.5 %. With the
constants here none of those models counts as changed. Noise is relative, and compared with |log(after / before)|.
"""

from math import hypot, log, sqrt

from xcompress.bench.results import NOISY, Figure, Latency, Start, Throughput

NOTCH = 1.57
RATIO_ONE_THREAD = 0.05
"""What two runs may differ by in the ratio to the reference, beside the notches."""
RATIO_THREADS = 0.15
ABSOLUTE = 0.30
"""What two runs on machines that look alike may differ by in absolute times."""
MEMORY = 0.05
MEMORY_BYTES = 1_000_000
"""A change of memory is both more than this and more than MEMORY."""

Interval = tuple[float, float, float]
"""A value, and the lower and upper end of its 95 % interval."""


def latency_noise(own: Latency, reference: Latency | None = None) -> float:
    """Return the noise within a run of a median or, with the reference's calls, of its ratio to the reference."""
    return NOTCH * hypot(own.spread, reference.spread if reference else 0) / sqrt(own.rounds)


def start_noise(own: Start, reference: Start | None = None) -> float:
    """Return the noise within a run of a start: half of its spread, which reaches from the least to the most."""
    return (own.spread + (reference.spread if reference else 0)) / 2


def throughput_noise(own: Throughput, reference: Throughput | None = None) -> float:
    """Return the noise within a run of a throughput: the whole spread, since few rounds make it."""
    return hypot(own.spread, reference.spread if reference else 0)


def between_runs(threads: int, *, ratio: bool) -> float:
    """Return what two runs may differ by beside the noise within each."""
    if not ratio:
        return ABSOLUTE
    return RATIO_ONE_THREAD if threads == 1 else RATIO_THREADS


def tolerance(noise: float) -> float:
    """Return how far a figure may miss its budget: by its noise, yet not by more the noisier the machine was."""
    return min(noise, NOISY)


def differ(after: float, before: float, noise: float) -> bool:
    """Whether two positive figures are further apart than their noise; 0 differs from all but 0."""
    if after <= 0 or before <= 0:
        return after != before
    return abs(log(after / before)) > noise


def memory_differs(after: int, before: int) -> bool:
    """Whether two numbers of bytes are further apart than those of equal processes."""
    return abs(after - before) > max(MEMORY_BYTES, MEMORY * before)


def intervals_differ(after: Interval, before: Interval) -> bool:
    """Whether the 95 % interval of a difference, worked out from the two intervals, leaves out zero.

    From the value below, one arm of each interval reaches towards the other; the arms add up as independent errors do:
    difference > sqrt((upper value - its low)^2 + (lower value's high - lower value)^2) (Zou and Donner, 2008). Both
    values come from the same rows, so that their errors in truth cancel in part, by how much the reports do not tell:
    the rule is careful, and a change that it calls noise may be one.
    """
    below, above = sorted((after, before))
    return above[0] - below[0] > hypot(above[0] - above[1], below[2] - below[0])


def drop_of(figure: Figure) -> Interval | None:
    """Return what a figure has lost against the reference, with its interval."""
    if figure.drop is None or figure.drop_low is None or figure.drop_high is None:
        return None
    return figure.drop, figure.drop_low, figure.drop_high
