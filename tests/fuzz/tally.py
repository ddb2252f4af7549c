"""Count how attempts end, and keep those that end badly."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from xcompress.errors import XCompressError
from xcompress.printable import UNPRINTABLE

SEED = 20261123
LONGEST_MESSAGE = 2000
MOST_FAILURES = 20
WORKED, REFUSED, FAILED = "worked", "refused in one line", "failed"


@dataclass
class Tally:
    """What was attempted under one heading, how often, and with what end."""

    title: str
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    """The first attempts that ended badly, each with its cause."""

    @property
    def attempts(self) -> int:
        """Number of attempts."""
        return self.counts.total()

    def attempt(self, case: object, job: Callable[[], object], count: int = 1) -> None:
        """Run a job; it must work, or raise one of our errors with a text of one printable line.

        :param case: what is attempted, for the report of a failure.
        :param job: raises AssertionError where its result is wrong. A string that it returns is counted as its end.
        :param count: how many attempts the job is.
        """
        try:
            end = job()
        except XCompressError as error:
            if problem := problem_of(str(error)):
                self.fail(case, f"{problem}: {str(error)[:200]!r}")
            else:
                self.counts[REFUSED] += count
        except Exception as error:
            self.fail(case, f"{type(error).__name__}: {str(error)[:300]}")
        else:
            self.counts[end if isinstance(end, str) else WORKED] += count

    def fail(self, case: object, cause: str) -> None:
        """Count a bad end, and keep its cause."""
        self.counts[FAILED] += 1
        if len(self.failures) < MOST_FAILURES:
            self.failures.append(f"{self.title}: {cause}; with {str(case)[:300]!r}")


def problem_of(message: str) -> str:
    """Say what keeps an error's text from being one line that a terminal can show; empty if nothing does."""
    if not message.strip():
        return "an empty message"
    if len(message) > LONGEST_MESSAGE:
        return f"a message of {len(message)} characters"
    strange = {hex(ord(character)) for character in message if UNPRINTABLE.match(character) or character in "\t\n"}
    return f"a message with {', '.join(sorted(strange))}" if strange else ""


def generate(strategy: SearchStrategy[object], count: int, use: Callable[[object], None]) -> None:
    """Draw `count` examples from a strategy, the same ones at every call, and use each."""

    @seed(SEED)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(example: object) -> None:
        use(example)

    run()
