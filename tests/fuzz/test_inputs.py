import pytest

from tests.fuzz.__main__ import JOBS, check_share


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, job in JOBS.items() if not job.starts_processes])
def test_a_fiftieth_of_the_random_input_ends_well(name: str) -> None:
    check_share(name)
