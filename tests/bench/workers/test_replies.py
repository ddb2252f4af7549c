import json
from dataclasses import asdict

import pytest

from xcompress.bench.machine import describe
from xcompress.bench.workers.client import WorkerFailed, decode_vectors
from xcompress.bench.workers.replies import find_mistake

START = {"import": 0.1, "model": 0.2, "first_vector": 0.3}
LOAD = {"seconds": START, "multiply_adds": None, "disk": 0, "bare": 10**7, "resident": -5, "peak": 0}


def test_the_replies_of_a_worker_are_right() -> None:
    machine = json.loads(json.dumps(asdict(describe())))
    assert [find_mistake("machine", machine), find_mistake("load", LOAD), find_mistake("threads", {})] == ["", "", ""]


@pytest.mark.parametrize(
    ("do", "reply", "mistake"),
    [
        ("load", {}, "bare: Field required"),
        ("load", LOAD | {"disk": -1}, "disk: Input should be greater than or equal to 0"),
        ("load", LOAD | {"multiply_adds": [1]}, "multiply_adds: "),
        ("load", LOAD | {"seconds": {"import": 0.1}}, "seconds.model: Field required"),
        ("load", LOAD | {"seconds": START | {"others": "x"}}, "seconds.others: Extra inputs are not permitted"),
        ("load", LOAD | {"browser": {}}, "browser: Extra inputs are not permitted"),
        ("time", {"seconds": [0.1, float("nan")]}, "seconds.1: "),
        ("time", {"seconds": [0.0]}, "seconds.0: "),
        ("time", {"seconds": [1e308]}, "seconds.0: "),
        ("time", {"seconds": [5e-324]}, "seconds.0: "),
        ("time", {"seconds": []}, "seconds: "),
        ("peak", {"seconds": "1"}, "seconds: "),
        ("encode", {"vectors": "", "shape": [1, 2, 3]}, "shape: "),
        ("machine", {"x" * 10**6: 1}, ": "),
    ],
)
def test_a_wrong_value_is_named(do: str, reply: dict[str, object], mistake: str) -> None:
    assert mistake in find_mistake(do, reply)
    assert len(find_mistake(do, reply)) < 200


@pytest.mark.parametrize(
    ("vectors", "shape", "says"),
    [
        ("AAAA", [1, 1], "cannot be read"),
        ("é", [1, 1], "cannot be read"),
        ("AAAAAA==", [1, 1], r"another number of vectors \(1\) than of texts \(2\)"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(vectors: str, shape: list[int], says: str) -> None:
    with pytest.raises(WorkerFailed, match=says):
        decode_vectors({"vectors": vectors, "shape": shape}, 2)
