from base64 import b64encode
from typing import Any

import numpy as np
import pytest

from xcompress.bench.measurement import Measurement
from xcompress.bench.results import Size
from xcompress.bench.subjects import Subject
from xcompress.bench.workers.client import WorkerClient

LOADED = {"seconds": {"import": 0.1, "model": 0.2, "first_vector": 0.3}, "bare": 10, "resident": 50, "peak": 60}
BROWSER = {"version": "1", "slow_down": 4.0, "js_heap": 20, "wasm_memory": 30, "parity": 1.0, "runtime": 9}


class LoadedWorker(WorkerClient):
    def __init__(self, reply: dict[str, Any]) -> None:
        self.reply = reply

    def ask(self, do: str, **request: object) -> dict[str, Any]:
        return self.reply

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("reply", "tokenizer"), [(LOADED, 7), (LOADED | {"browser": BROWSER}, None)])
def test_the_tokenizer_has_a_share_of_the_memory_only_where_it_runs(
    reply: dict[str, Any], tokenizer: int | None
) -> None:
    measurement = Measurement(Subject("small", "onnx", "small"), {}, Size(1, 1, ""), tokenizer_memory=7)
    measurement.load(LoadedWorker(reply), {})
    assert measurement.memory and (measurement.memory.resident, measurement.memory.tokenizer) == (50, tokenizer)


def test_vectors_of_several_lengths_fail_one_subject_alone() -> None:
    class Square(LoadedWorker):
        def ask(self, do: str, **request: object) -> dict[str, Any]:
            assert isinstance(request["texts"], list)
            size = len(request["texts"])
            return {"vectors": b64encode(np.ones((size, size), "<f4").tobytes()).decode(), "shape": [size, size]}

    measurement = Measurement(Subject("code", "python", "python:code:encode"), {}, Size(0, 0, ""), worker=Square({}))
    assert measurement.encode(["rain", "snow", "sun"], 2, lambda: None) is None
    assert measurement.failed == "its vectors have several lengths"
