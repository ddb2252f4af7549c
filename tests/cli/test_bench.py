import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.helpers import ROOT
from tests.helpers.bench import measure_little
from tests.helpers.report import leave_out_dark_pictures
from tests.helpers.student import bundle, copy_int8_graph
from xcompress.cli.main import app
from xcompress.errors import GateError, InputError

FAST = ("--quick", "--grid", "1x8", "--threads", "1")


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    measure_little(monkeypatch)
    monkeypatch.chdir(tmp_path)
    copy_int8_graph(Path("loose"))


@pytest.fixture
def both_graphs() -> None:
    """The bundle with its float32 graph."""
    shutil.copytree(bundle(), "loose", dirs_exist_ok=True)


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments])


def test_a_page_that_cannot_be_written_is_refused_before_the_measurements() -> None:
    failed = bench("loose", *FAST, "--html", "loose/manifest.json/page.html").exception
    assert isinstance(failed, InputError)
    assert str(failed).startswith("loose/manifest.json/page.html: cannot be written (Not a directory)")
    assert not Path("bench.json").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("both_graphs")
def test_json_a_page_and_a_comparison_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out_dark_pictures(monkeypatch)
    done = bench("loose", *FAST, "--json", "--html", "page.html")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert [one["name"] for one in report["results"]] == ["small, ONNX fp32", "small, ONNX int8"]
    assert "small, ONNX int8" in Path("page.html").read_text(encoding="utf-8")
    assert [file.suffix for file in Path("page").iterdir()].count(".png") >= 3
    shutil.copy("bench.json", "old.json")
    done = bench("loose", *FAST, "--compare", "old.json", "--markdown")
    assert done.exit_code == 0, done.output
    assert "| small, ONNX int8 |" in done.stdout
    assert "## Compared with the report of" in done.stdout
    done = bench("loose", *FAST, "--compare", "old.json", "--json")
    assert done.exit_code == 0, done.output
    assert "changed beyond noise" in json.loads(done.stdout)["comparison"]["verdict"]


@pytest.mark.slow
def test_models_over_the_memory_ceiling_are_a_result() -> None:
    done = bench("loose", *FAST, "--device", "mobile", "--memory", "1")
    assert done.exit_code == 0, done.output
    failed = [one["failed"] for one in json.loads(Path("bench-mobile.json").read_text(encoding="utf-8"))["results"]]
    assert failed and all(text.startswith("needs ") for text in failed)


def test_languages_that_no_set_has_are_noted() -> None:
    done = bench("loose", *FAST, "--languages", "DE,pt")
    assert done.exit_code == 0, done.output
    report = json.loads(Path("bench.json").read_text(encoding="utf-8"))
    assert "no test set has pt" in report["notes"]
    assert "de-de" in report["results"][0]["accuracy"][0]["figures"]


def test_languages_that_no_set_has_are_noted_once_where_there_is_data() -> None:
    Path("sets").mkdir()
    Path("sets/stsb-de-dev.csv").write_text("eins,zwei,1\ndrei,vier,2\nfünf,sechs,3\n", encoding="utf-8")
    done = bench("loose", *FAST, "--languages", "de,pt", "--data", "sets")
    assert done.exit_code == 0, done.output
    notes = json.loads(Path("bench.json").read_text(encoding="utf-8"))["notes"]
    assert [note for note in notes if "pt" in note.split()] == ["no test set in sets has pt"]


@pytest.mark.slow
def test_translations_by_margin() -> None:
    for side, lines in (("deu", "eins\nzwei\n"), ("eng", "one\ntwo\n")):
        Path("sets").mkdir(exist_ok=True)
        Path(f"sets/tatoeba.deu-eng.{side}").write_text(lines, encoding="utf-8")
    done = bench("loose", *FAST, "--data", "sets", "--languages", "de", "--margin", "--json")
    assert done.exit_code == 0, done.output
    metrics = {one["test"]: one["metric"] for one in json.loads(done.stdout)["results"][0]["accuracy"]}
    assert metrics["sets"] == "nearest neighbour by margin, %"


@pytest.mark.slow
def test_a_broken_budget_is_exit_code_3() -> None:
    recipe = ROOT / "recipes/minilm_ru3.yaml"
    text = recipe.read_text(encoding="utf-8").partition("\nbudgets:")[0]
    Path("tight.yaml").write_text(f"{text}\nbudgets:\n  size_mb: 0.001\n", encoding="utf-8")
    done = bench("loose", *FAST, "--budgets", "tight.yaml")
    assert isinstance(done.exception, GateError)
    assert done.exception.exit_code == 3
    assert "size_mb" in str(done.exception)
    Path("wide.yaml").write_text(f"{text}\nbudgets:\n  size_mb: 1000\n", encoding="utf-8")
    assert bench("loose", *FAST, "--budgets", "wide.yaml").exit_code == 0


@pytest.mark.usefixtures("both_graphs")
def test_other_rows_are_printed_before_a_failure_is_reported() -> None:
    file = Path("loose/onnx/model_quantized.onnx")
    file.write_bytes(b"x" * file.stat().st_size)
    done = bench("loose", *FAST, "--markdown")
    assert "| small, ONNX fp32 |" in done.stdout
    assert isinstance(done.exception, InputError)
    assert done.exception.exit_code == 2
    assert "model_quantized.onnx: was changed" in str(done.exception)


def test_a_model_over_the_memory_ceiling_is_reported_as_failed() -> None:
    pytorch = str(bundle().with_name("small"))
    done = bench("loose", *FAST, "--device", "mobile", "--memory", "90", "--reference", pytorch, "--markdown")
    assert done.exit_code == 0, done.output
    assert "small, PyTorch: failed: needs" in done.stdout
    assert "MB, ceiling 90 MB" in done.stdout
    assert Path("bench-mobile.json").is_file()
    assert not Path("bench.json").exists(), "the report of another device is left alone"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--device", "watch"), "--device watch: no such device"),
        (("--memory", "100"), "--memory 100: only with --device mobile, not cpu"),
        (("--slow-down", "2"), "--slow-down 2: only with --device wasm, not cpu"),
        (("--device", "webgpu", "--slow-down", "2"), "--slow-down 2: only with --device wasm, not webgpu"),
        (("--device", "mobile", "--memory", "0"), "--memory is 0; give a whole number from 1"),
        (("--margin",), "margin: there are no translations to find"),
        (("--grid", "16"), "--grid: '16' is not a shape"),
        (("--grid", ""), "--grid: '' is not a shape"),
        (("--threads", "two"), "--threads: 'two' is not a list of thread counts"),
        (("--data", "absent"), "absent"),
        (("--compare", "absent.json"), "absent.json"),
        (("--budgets", "absent.yaml"), "absent.yaml"),
        (("--budgets", ""), "cannot be read"),
        (("--device", "ssh:"), "ssh"),
        (("--json", "--markdown"), "--json and --markdown: choose one of them"),
        (("--html", "page"), "--html: page does not end in .html; write a name such as report.html"),
        (("--html", "page.pdf"), "--html: page.pdf does not end in .html"),
        (("--languages", "German,zz"), "--languages: no test set has german, zz"),
        (("--mteb", "STS17"), "--quick: --mteb only scores; leave it out"),
    ],
)
def test_bad_options_are_one_line(arguments: tuple[str, ...], says: str) -> None:
    done = bench("loose", *FAST, *arguments)
    assert isinstance(done.exception, InputError), done.output
    assert says in str(done.exception)
    assert "\n" not in str(done.exception)
    assert not Path("bench.json").exists()


@pytest.mark.parametrize("names", ["", ","])
def test_mteb_without_a_task_is_refused(names: str) -> None:
    pytest.importorskip("mteb", reason="mteb is not installed")
    done = bench("loose", "--mteb", names)
    assert isinstance(done.exception, InputError), done.output
    assert str(done.exception) == "mteb: no task is named; give one, such as STS17"
    assert not Path("bench.json").exists()


def test_mteb_scores_the_newest_bundle_as_a_bench_measures_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mteb", reason="mteb is not installed")
    shutil.copytree("loose", "runs/mine/bundle")
    monkeypatch.setattr("xcompress.interop.mteb.open_model", lambda name: name)
    monkeypatch.setattr("xcompress.interop.mteb.evaluate", lambda models, *_: [str(model) for model in models])
    done = bench("--mteb", "STS17", "--json")
    assert json.loads(done.stdout) == ["runs/mine/bundle"]
