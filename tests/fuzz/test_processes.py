import pytest

from tests.fuzz.__main__ import JOBS, SHARE, check_share

KILLS_AND_REQUESTS = [name for name, job in JOBS.items() if job.starts_processes and SHARE * job.count >= 1]


@pytest.mark.slow
@pytest.mark.parametrize("name", KILLS_AND_REQUESTS)
def test_a_fiftieth_of_the_kills_and_requests_ends_well(name: str) -> None:
    check_share(name)
