"""A small report with every kind of figure."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from xcompress.bench.machine import Machine
from xcompress.bench.results import (
    SCHEMA,
    Accuracy,
    Browser,
    DeviceInfo,
    Figure,
    Latency,
    Memory,
    Report,
    Result,
    Size,
    Start,
    Throughput,
)

MB = 1_000_000
REFERENCE = "unmodified assistant, PyTorch"
FP32, INT8, STATIC, BROKEN = "minilm_ru3, fp32", "minilm_ru3, int8", "wordllama, static", "all-mpnet, Optimum int8"
REASON = "needs 612 MB to load, and a process may have 512 MB"
SCORES = {
    "stsb-multi-mt": {
        REFERENCE: {"en-en": 82.1, "de-de": 81.1, "tr-tr": 78.7, "en-de": 77.2, "en-fr": 74.3, "en-tr": 74.4},
        FP32: {"en-en": 76.0, "de-de": 73.9, "tr-tr": 70.4, "en-de": 71.7, "en-fr": 72.0, "en-tr": 67.2},
        INT8: {"en-en": 75.8, "de-de": 73.7, "tr-tr": 70.6, "en-de": 71.2, "en-fr": 71.6, "en-tr": 66.9},
        STATIC: {"en-en": 74.2, "de-de": 52.3, "tr-tr": 41.5, "en-de": 31.8, "en-fr": 36.9, "en-tr": 22.1},
    },
    "tatoeba": {
        REFERENCE: {"de>en": 97.0, "en>de": 96.1, "fr>en": 94.2, "en>fr": 93.6},
        FP32: {"de>en": 91.2, "en>de": 90.0, "fr>en": 87.7, "en>fr": 88.4},
        INT8: {"de>en": 90.9, "en>de": 90.1, "fr>en": 87.3, "en>fr": 87.9},
        STATIC: {"de>en": 22.4, "en>de": 19.9, "fr>en": 31.0, "en>fr": 28.6},
    },
    "topics": {
        REFERENCE: {"de": 88.1, "fr": 86.4},
        FP32: {"de": 84.0, "fr": 83.3},
        INT8: {"de": 84.1, "fr": 83.0},
    },
}
KINDS = {
    "stsb-multi-mt": ("similarity", "Spearman × 100", 2.1),
    "tatoeba": ("retrieval", "nearest neighbour, %", 1.6),
    "topics": ("classification", "correct, %", 1.9),
}


def small_report() -> Report:
    """Make a report of five subjects: a reference, two bundles, a static model without tokens, and one that failed."""
    return Report(
        schema=SCHEMA,
        date="2026-11-20T13:36:38+00:00",
        xcompress="0.1.0",
        device=DeviceInfo(
            "mobile", 512 * MB, ("no arm64 processor here: speed is that of this machine with one thread",)
        ),
        machine=_machine(),
        quick=False,
        seconds={"load": 10.9, "latency": 33.8, "accuracy": 90.6},
        peaks={
            "int8, 1 thread": 4.4e11,
            "fp32, 1 thread": 1.1e11,
            "int8, 2 threads": 8.6e11,
            "fp32, 2 threads": 2.1e11,
        },
        reference=REFERENCE,
        results=(_reference(), _fp32(), _int8(), _static(), _broken()),
        notes=("unmodified assistant, PyTorch: its tokenizer.json comes from another package",),
        warnings=("minilm_ru3, int8: calls spread by 21 % at 1 × 128 with 2 threads; close other programs, run again",),
    )


def browser_report() -> Report:
    """Make the same report, measured in a browser."""
    report = small_report()
    browser = Browser("Chromium 141.0", 4.0, 12 * MB, 91 * MB, 0.99993)
    results = tuple(replace(one, browser=browser) if one.kind == "onnx" else one for one in report.results)
    return replace(report, device=DeviceInfo("wasm"), results=results)


def without(report: Report, *parts: str) -> Report:
    """Remove parts of every result, such as `latency` or `memory`."""
    empty: Mapping[str, object] = {part: () if part in ("latency", "accuracy") else None for part in parts}
    return replace(report, results=tuple(replace(one, **empty) for one in report.results))  # type: ignore[arg-type]


def _machine() -> Machine:
    return Machine(
        cpu="EPYC, 2 cores",
        flags=("avx2", "avx512_vnni", "fma"),
        threads=2,
        memory=25_000 * MB,
        load=0.02,
        system="Linux-6.18-x86_64-with-glibc2.36",
        python="3.11.7",
        libraries={"numpy": "2.4.6", "onnxruntime": "1.31.1", "tokenizers": "0.22.2", "torch": "2.13.0+cpu"},
    )


def _reference() -> Result:
    return Result(
        name=REFERENCE,
        kind="pytorch",
        precision="fp32",
        path="runs/reference/model.safetensors",
        size=Size(470 * MB, 17 * MB, "28d4"),
        start=Start(5, 0.98, 1.63, 0.027, 0.04),
        memory=Memory(12 * MB, 1007 * MB, 297 * MB, 1167 * MB, 1167 * MB),
        latency=_latency((20.9, 81.2, 539.1), (22.5, 45.1, 343.5), (1.0,) * 6),
        throughput=Throughput(2, 800, 16_100, 61.0, 0.03, 0.01, 1.0),
        accuracy=_accuracy(REFERENCE),
    )


def _fp32() -> Result:
    return Result(
        name=FP32,
        kind="onnx",
        precision="fp32",
        path="runs/bundle",
        size=Size(151 * MB, 4 * MB, "5e0c"),
        start=Start(5, 0.08, 0.31, 0.009, 0.05),
        memory=Memory(12 * MB, 214 * MB, 47 * MB, 231 * MB, 268 * MB),
        latency=_latency((5.3, 38.4, 455.0), (4.1, 21.9, 241.0), (3.9, 2.1, 1.2, 5.4, 2.1, 1.4)),
        throughput=Throughput(2, 800, 16_100, 118.0, 0.05, 0.02, 1.9),
        accuracy=_accuracy(FP32),
    )


def _int8() -> Result:
    return Result(
        name=INT8,
        kind="onnx",
        precision="int8",
        path="runs/bundle",
        size=Size(38 * MB, 4 * MB, "90ab"),
        start=Start(5, 0.08, 0.14, 0.006, 0.21),
        memory=Memory(12 * MB, 79 * MB, 47 * MB, 84 * MB, 118 * MB),
        latency=_latency((2.0, 12.5, 121.0), (1.9, 8.3, 70.1), (10.3, 6.5, 4.5, 11.8, 5.4, 4.9)),
        throughput=Throughput(2, 800, 16_100, 402.0, 0.04, 0.07, 6.6),
        accuracy=_accuracy(INT8),
    )


def _static() -> Result:
    return Result(
        name=STATIC,
        kind="python",
        precision="fp32",
        path="python:wordllama:WordLlama",
        size=Size(16 * MB, 2 * MB, ""),
        start=Start(5, 0.21, 0.35, 0.001, 0.03),
        memory=Memory(12 * MB, 96 * MB, None, 101 * MB, None),
        throughput=Throughput(2, 800, None, 9_120.0, 0.06, None, 149.5),
        accuracy=_accuracy(STATIC),
    )


def _broken() -> Result:
    return Result(BROKEN, "onnx", "int8", "runs/mpnet", Size(110 * MB, 1 * MB, "77fe"), failed=REASON)


def _latency(one: tuple[float, ...], two: tuple[float, ...], speedups: tuple[float, ...]) -> tuple[Latency, ...]:
    shapes = [(batch, tokens, threads) for threads in (1, 2) for batch, tokens in ((1, 16), (1, 128), (32, 32))]
    timed = zip(shapes, (*one, *two), speedups, strict=True)
    return tuple(_timed(*shape, p50 / 1e3, speedup) for shape, p50, speedup in timed)


def _timed(batch: int, tokens: int, threads: int, p50: float, speedup: float) -> Latency:
    wide = 1.9 if (tokens, threads) == (128, 2) else 1.0
    points = [p50 * (1 + step * wide) for step in (-0.04, -0.03, 0.0, 0.06, 0.12, 0.2, 0.24)]
    work = batch * tokens * 21_260_000
    return Latency(batch, tokens, threads, 7, 70, *points, speedup, work, work / p50 / 4.4e11 / threads)


def _accuracy(name: str) -> tuple[Accuracy, ...]:
    return tuple(_test(test, name) for test, scores in SCORES.items() if name in scores)


def _test(test: str, name: str) -> Accuracy:
    kind, metric, half = KINDS[test]
    base = None if name == REFERENCE else SCORES[test][REFERENCE]
    scores = SCORES[test][name]
    figures = {pair: _figure(value, half, base[pair] if base else None) for pair, value in scores.items()}
    average = {"average": _figure(_mean(scores), half / 2, _mean(base) if base else None)}
    return Accuracy(test, kind, metric, 1500, figures, average)  # type: ignore[arg-type]


def _mean(scores: Mapping[str, float]) -> float:
    return sum(scores.values()) / len(scores)


def _figure(value: float, half: float, base: float | None) -> Figure:
    low, high = value - half, value + half * 0.9
    if base is None:
        return Figure(value, low, high)
    return Figure(value, low, high, base - value, base - value - half / 2, base - value + half / 2)


def leave_out_dark_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw each picture of a page once, and not again for dark screens."""
    from xcompress.bench.report.pictures import svg  # where matplotlib may be missing

    monkeypatch.setattr("xcompress.bench.report.html.svg", lambda *picture: "<svg/>" if picture[2] else svg(*picture))
