import pytest

from tests.fuzz.__main__ import JOBS, SHARE, run


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, job in JOBS.items() if job.starts_processes])
def test_a_twentieth_of_the_kills_and_requests_ends_well(name: str) -> None:
    tally = run(name, SHARE)
    assert not tally.failures, "\n".join(tally.failures)
    assert tally.attempts >= SHARE * JOBS[name].count
