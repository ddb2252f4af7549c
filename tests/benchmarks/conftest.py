"""Scripts of benchmarks/ find each other, as where one of them is run."""

import pytest

from tests.helpers import ROOT


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
