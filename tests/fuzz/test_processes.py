import pytest

from tests.fuzz.__main__ import JOBS, check_share


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, job in JOBS.items() if job.starts_processes])
def test_a_twentieth_of_the_kills_and_requests_ends_well(name: str) -> None:
    check_share(name)
