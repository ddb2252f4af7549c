import pytest

from tests.fuzz.__main__ import JOBS, SHARE, run


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, job in JOBS.items() if not job.starts_processes])
def test_a_twentieth_of_the_random_input_ends_well(name: str) -> None:
    tally = run(name, SHARE)
    assert not tally.failures, "\n".join(tally.failures)
    assert tally.attempts >= SHARE * JOBS[name].count
