"""Helpers of export tests: batches, graphs run in memory, node counts, and a handful of sentences."""

import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from tests.helpers.student import SENTENCES, make_student, make_tokenizer
from xcompress.corpus.graded import builtin
from xcompress.export.calibrate import calibrate
from xcompress.export.graph import INPUTS
from xcompress.export.matmul import Range
from xcompress.export.text import interleave
from xcompress.modeling.student import Student

TEXT = {"en": [*SENTENCES[:2], "rain"], "de": [SENTENCES[2], "der Zug"], "fr": [SENTENCES[4]]}
CALIBRATED = [*SENTENCES, *(sentence for sentences in TEXT.values() for sentence in sentences)]
LITTLE = 100_000
"""Bytes for one file: the small student takes more in float32, and in fp16 in onnxruntime's own format."""
ALL = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
BASIC = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC


def use_little_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrate, verify and grade exports on a handful of sentences, and verify them on small batches.

    The languages are those of `TEXT`: all 36 pairs of languages would take a quarter of the time of an export.
    """
    monkeypatch.setattr("xcompress.export.verify.SHAPES", ((1, 1), (1, 7), (8, 33)))
    monkeypatch.setattr("xcompress.export.verify.MIXED_ROWS", 4)
    monkeypatch.setattr("xcompress.export.exporter.verification_text", lambda *_: TEXT)
    monkeypatch.setattr("xcompress.export.exporter.calibration_text", lambda *_: CALIBRATED)
    monkeypatch.setattr("xcompress.export.accuracy.real_sentences", lambda: interleave(TEXT))
    monkeypatch.setattr("xcompress.export.accuracy.builtin", lambda: builtin().within(TEXT).every(60))


def always_use_little_text() -> None:
    """Do so to the end of this process."""
    use_little_text(pytest.MonkeyPatch())


def batch(rows: int, tokens: int, vocabulary: int = 400) -> dict[str, np.ndarray]:
    """Make random rows, the first one full and the last one of a single token, padding behind it."""
    generator = np.random.default_rng(rows * tokens)
    input_ids = generator.integers(3, vocabulary, (rows, tokens))
    lengths = np.linspace(tokens, 1, rows).astype(int) if rows > 1 else np.array([tokens])
    attention_mask = (np.arange(tokens) < lengths[:, None]).astype(np.int64)
    return dict(zip(INPUTS, (np.where(attention_mask, input_ids, 1), attention_mask), strict=True))


def torch_vectors(student: Student, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    with torch.inference_mode():
        return [found.numpy() for found in student(*map(torch.from_numpy, feeds.values()))]


def opened(model: onnx.ModelProto, level: onnxruntime.GraphOptimizationLevel = ALL) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.graph_optimization_level = level
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def ran(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    return opened(model).run(None, dict(feeds))


def kinds(graph: onnx.GraphProto) -> Counter[str]:
    """Count nodes by kind, those in the bodies of loops once."""
    found: Counter[str] = Counter()
    for node in graph.node:
        found[node.op_type] += 1
        for attribute in node.attribute:
            found += kinds(attribute.g) if attribute.HasField("g") else Counter()
    return found


def kinds_as_run(model: onnx.ModelProto, level: onnxruntime.GraphOptimizationLevel = ALL) -> Counter[str]:
    """Count the nodes that onnxruntime made of a graph."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = level
    with TemporaryDirectory() as folder:
        file = Path(folder) / "optimised.onnx"
        options.optimized_model_filepath = str(file)
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return kinds(onnx.load(file).graph)


def ranges_of(**changes: object) -> dict[str, Range]:
    """Measure what goes into the products of a small student, with these changes."""
    return _ranges(tuple(changes.items()))


@cache
def _ranges(changes: tuple[tuple[str, object], ...]) -> dict[str, Range]:
    return calibrate(make_student(**dict(changes)), make_tokenizer(), CALIBRATED)


def manifest_of(bundle: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((bundle / "manifest.json").read_text())
    return found
