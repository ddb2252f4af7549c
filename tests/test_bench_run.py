import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from small_student import bundle, save_student

from xcompress.bench import Report, bench, run
from xcompress.bench.devices import describe
from xcompress.bench.latency import SHAPES, Effort
from xcompress.bench.report import load_warnings
from xcompress.bench.subjects import REFERENCE, find_bundle, subjects_of
from xcompress.corpus.similarity import builtin
from xcompress.errors import InputError, XCompressError

HOLDOUT = "\n".join(f"sentence number {n}\tSatz Nummer {n}" for n in range(30)) + "\n"


def make_run(folder: Path) -> Path:
    """Lay out a finished run; the student is the bundle's."""
    for name in ("reference", "assistant"):
        save_student(folder / name, unit_layers=6, recurrences=1, bottleneck=None)
    shutil.copytree(bundle().with_name("small"), folder / "student")
    shutil.copytree(bundle(), folder / "bundle")
    (folder / "manifest.json").write_text("{}", encoding="utf-8")
    (folder / "corpus").mkdir()
    (folder / "corpus/holdout.de.tsv").write_text(HOLDOUT, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run, "QUICK", Effort(0, 2))
    monkeypatch.chdir(tmp_path)


def stub_bundle(folder: Path, age: int) -> Path:
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}", encoding="utf-8")
    os.utime(folder / "manifest.json", (1e9 - age, 1e9 - age))
    return folder


def test_whole_bench(capsys: pytest.CaptureFixture[str]) -> None:
    make_run(Path("runs/tiny"))
    report = bench(quick=True)
    assert [one.name for one in report.results] == [
        REFERENCE,
        "assistant after stage 1, PyTorch",
        "student, PyTorch",
        "student, ONNX fp32",
        "student, ONNX int8",
    ]
    assert [one.failed for one in report.results] == [None] * 5
    rows = -(-len(builtin().language_pairs["en-en"]) // 3)
    for one in report.results:
        counts = sorted({1, report.machine.threads})
        assert [(f"{x.batch}x{x.tokens}", x.threads) for x in one.latency] == [
            (str(s), n) for n in counts for s in SHAPES
        ]
        assert {test.test: test.rows for test in one.accuracy} == {"built-in": rows, "retrieval": 30}
        assert one.memory and one.memory.busy_peak and one.memory.busy_peak >= one.memory.peak
    by_name = {one.name: one for one in report.results}
    torch_scores, onnx_scores = (by_name[f"student, {kind}"].accuracy[0].figures for kind in ("PyTorch", "ONNX fp32"))
    assert onnx_scores == pytest.approx(torch_scores, abs=1.0), "the same vectors, but for rounding"
    assert by_name[REFERENCE].latency[0].speedup == 1.0
    assert Report.from_json(Path("runs/tiny/bench.json").read_text(encoding="utf-8")) == report
    text = Path("runs/tiny/bench.md").read_text(encoding="utf-8")
    assert "| student, ONNX int8 |" in text
    assert report.machine.cpu in text
    assert "| subject | en-en | other monolingual | en-xx | retrieval |" in text
    report.show()
    shown = capsys.readouterr()
    assert "runs/tiny/bundle (the newest)" in shown.err
    assert "student, ONNX int8" in shown.out


def break_file(file: Path) -> None:
    file.write_bytes(b"x" * file.stat().st_size)


def test_a_failing_subject_gets_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    place = Path("loose")
    shutil.copytree(bundle(), place)
    break_file(place / "onnx/model_quantized.onnx")
    report = bench(place, quick=True)
    fp32, int8 = report.results
    assert fp32.failed is None
    assert fp32.accuracy
    assert int8.failed and "model_quantized.onnx: was changed" in int8.failed
    assert report.reference is None
    assert Path("bench.json").is_file(), "a bundle from elsewhere is reported in the current folder"
    assert "failed: " in report.markdown()
    report.show()
    assert "no reference" in capsys.readouterr().err
    break_file(place / "onnx/model.onnx")
    with pytest.raises(XCompressError, match="every subject failed; the first, student, ONNX fp32"):
        bench(place, quick=True)


def test_newest_bundle_is_found() -> None:
    with pytest.raises(InputError, match="no bundle in any run yet; make one with `xcompress export`"):
        find_bundle(None)
    stub_bundle(Path("runs/old/bundle"), age=9)
    newest = stub_bundle(Path("runs/new/bundle"), age=1)
    stub_bundle(Path("runs/middle/bundle"), age=5)
    assert find_bundle(None).bundle == newest
    assert find_bundle(None).run is None, "without manifest.json it is no run"
    Path("runs/new/manifest.json").write_text("{}", encoding="utf-8")
    assert find_bundle(None).run == Path("runs/new")


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(InputError, match="--device cuda: not yet supported"):
        bench(device="cuda")
    with pytest.raises(InputError, match=r"absent: no manifest\.json"):
        bench(Path("absent"))
    place = find_bundle(stub_bundle(Path("empty"), age=1))
    with pytest.raises(InputError, match=r"none of onnx/model\.onnx"):
        subjects_of(place)
    with pytest.raises(InputError, match=r"empty: no model\.safetensors"):
        subjects_of(place, Path("empty"))


def test_another_reference() -> None:
    shutil.copytree(bundle(), "loose")
    found = subjects_of(find_bundle(Path("loose")), bundle().with_name("small"))
    assert [one.name for one in found] == [REFERENCE, "student, ONNX fp32", "student, ONNX int8"]


def test_reports_are_checked_when_read() -> None:
    with pytest.raises(InputError, match="bench report: date: Field required"):
        Report.from_json(json.dumps({"schema": 1}))
    with pytest.raises(InputError, match="bench report"):
        Report.from_json("not JSON")


def test_a_busy_machine_is_told() -> None:
    machine = replace(describe(), threads=4, load=3.0)
    assert load_warnings(replace(machine, load=0.7)) == []
    assert load_warnings(machine)[0].startswith("machine.load: 3.0 before the bench on 4 threads")
