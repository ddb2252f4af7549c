import pytest

from tests.fuzz.__main__ import JOBS, run

SHARE = 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_a_tenth_of_the_random_input_ends_well(name: str) -> None:
    tally = run(name, SHARE)
    assert not tally.failures, "\n".join(tally.failures)
    assert tally.attempts >= SHARE * JOBS[name][0]
