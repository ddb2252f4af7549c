import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.helpers.student import SENTENCES, save_student
from xcompress.bundle.encoder import Encoder
from xcompress.cli import main as cli
from xcompress.export.config import Bottleneck, ExportConfig, Format, Precision, Recurrence, Shortening, Target
from xcompress.export.source import SourceOptions

HEAVY = ("torch", "transformers", "onnx", "onnxruntime", "tokenizers", "numpy", "scipy")
BLOCKED = f"""
import sys
class Refused:
    def find_spec(self, name, *_):
        if name.split(".")[0] in {HEAVY}:
            raise ImportError(name + " is not to be imported")
sys.meta_path.insert(0, Refused())
from xcompress.cli.main import main
sys.argv = ["xcompress", "export", "--help"]
main()
"""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """Replace the export; return the list in which its calls are recorded."""
    recorded: list[dict[str, Any]] = []

    def record(source: object, output: object, **more: Any) -> Path:  # noqa: ANN401
        recorded.append({"source": source, "output": output, **more})
        (tmp_path / "manifest.json").write_text('{"of": "the bundle"}\n')
        return tmp_path

    monkeypatch.setattr("xcompress.export.exporter.export", record)
    monkeypatch.setattr("xcompress.export.hf.export_hf", record)
    return recorded


def run(*arguments: str, columns: int = 100) -> Result:
    return CliRunner().invoke(cli.app, ["export", *arguments], env={"COLUMNS": str(columns)})


def main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command as from a shell; return its exit code."""
    monkeypatch.setattr(sys, "argv", ["xcompress", "export", *arguments])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return int(stopped.value.code or 0)


def options_of(calls: list[dict[str, Any]]) -> ExportConfig:
    options = calls[-1]["options"]
    assert isinstance(options, ExportConfig)
    return options


@pytest.mark.parametrize(
    ("arguments", "precision"),
    [
        ([], "int8"),
        (["--onnx", "--quantize"], "int8"),
        (["--no-quantize"], "fp32"),
        (["--precision", "fp32"], "fp32"),
        (["--no-quantize", "--precision", "fp32"], "fp32"),
        (["--quantize", "--precision", "int4"], "int4"),
        (["--precision", "fp16"], "fp16"),
        (["--precision", "auto"], "auto"),
    ],
)
def test_options_choose_the_precision(calls: list[dict[str, Any]], arguments: list[str], precision: str) -> None:
    assert run("student", *arguments).exit_code == 0
    assert options_of(calls) == ExportConfig(precision=precision)


def test_every_option_reaches_the_export(calls: list[dict[str, Any]], tmp_path: Path) -> None:
    arguments = (
        "student --target mobile --recurrence unroll --recurrences 2 --bottleneck keep --languages de,,en, "
        "--vocabulary 500 --dim 16 --shorten slice --center --external-data --no-ort --gate 0.5 --text a.txt "
        "--text b.tsv --pooling cls --prefix query: --output there --force"
    )
    assert run(*arguments.split(), "--tokenizer", str(tmp_path)).exit_code == 0
    call = calls[-1]
    assert call["options"] == ExportConfig(
        target="mobile",
        recurrence="unroll",
        recurrences=2,
        bottleneck="keep",
        languages=("de", "en"),
        vocabulary=500,
        dimension=16,
        shorten="slice",
        center=True,
        external_data=True,
        ort=False,
        gate=0.5,
        text=(Path("a.txt"), Path("b.tsv")),
    )
    assert call["source_options"] == SourceOptions(tokenizer=tmp_path, prefix="query:", pooling="cls")
    assert (call["source"], call["output"], call["force"]) == ("student", Path("there"), True)


def test_without_a_source_the_export_chooses_the_newest_run(calls: list[dict[str, Any]]) -> None:
    assert run().exit_code == 0
    assert (calls[-1]["source"], calls[-1]["output"], calls[-1]["source_options"]) == (None, None, SourceOptions())


def test_the_folder_or_the_manifest_is_printed(calls: list[dict[str, Any]], tmp_path: Path) -> None:
    assert run("student", "-o", "mine").stdout == f"{tmp_path}\n"
    assert calls[-1]["output"] == Path("mine")
    assert json.loads(run("student", "--json").stdout) == {"of": "the bundle"}


def test_format_hf_and_the_options_for_foreign_encoders_reach_the_export(calls: list[dict[str, Any]]) -> None:
    arguments = ("--format", "hf", "--recurrences", "2", "--no-quantize", "--precision", "fp32", "--pooling", "cls")
    assert run("student", *arguments).exit_code == 0
    assert calls[-1] == {
        "source": "student",
        "output": None,
        "recurrences": 2,
        "source_options": SourceOptions(pooling="cls"),
        "force": False,
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--no-quantize --precision int8", "precision: int8 and --no-quantize contradict each other; leave one out"),
        ("--no-quantize --precision auto", "precision: auto and --no-quantize contradict each other; leave one out"),
        ("--quantize --no-quantize", "quantize: --quantize and --no-quantize contradict each other; leave one out"),
        ("--no-ort --ort", "ort: --ort and --no-ort contradict each other; leave one out"),
        ("--quantize --precision fp32", "precision: fp32 and --quantize contradict each other; leave one out"),
        ("--quantize --precision fp16", "precision: fp16 and --quantize contradict each other; leave one out"),
        ("--format hf --no-ort", "format: hf writes the whole student in float32; leave out --no-ort"),
        ("--format hf --quantize", "format: hf writes the whole student in float32; leave out --quantize"),
        ("--format hf --onnx --precision int8", "leave out --onnx, --precision"),
        ("--format hf --languages de --dim 8 --gate 0", "leave out --languages, --dim, --gate"),
        ("--format hf --target wasm --text a.txt --ort --json", "leave out --json, --target, --ort, --text"),
        ("--format hf --external-data --bottleneck fold", "leave out --bottleneck, --external-data"),
        ("--format hf --vocabulary 9 --recurrence loop --text a.txt", "leave out --recurrence, --vocabulary, --text"),
        ("--vocabulary 100", "vocabulary: needs text to count tokens in; add --languages de,en or --text FILE"),
        ("--vocabulary 0 --languages de", "--vocabulary is 0; give a whole number from 1"),
        ("--gate much", "--gate is much; give a number from 0 to 200"),
        ("--vocabulary few", "--vocabulary is few; give a whole number from 1"),
        ("--dim 0", "--dim is 0; give a whole number from 2"),
        ("--gate -1", "--gate is -1; give a number from 0 to 200"),
        ("--recurrences 7", "recurrences: 7 requested, but the student has 3; choose 1 to 3"),
        ("--pooling cls", "is a student, whose config.json has these settings; leave out pooling"),
    ],
)
def test_contradicting_options_are_one_line_and_exit_code_2(
    arguments: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    student = save_student(tmp_path / "student")
    assert main(monkeypatch, str(student), *arguments.split()) == 2
    shown = capsys.readouterr().err.strip()
    assert said in shown
    assert len(shown.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["student"]


@pytest.mark.parametrize(
    "arguments",
    [
        "--precision int2",
        "--target gpu",
        "--recurrence spiral",
        "--bottleneck cut",
        "--shorten random",
        "--format tflite",
        "--colour red",
    ],
)
def test_unknown_values_are_refused_with_exit_code_2(arguments: str, calls: list[dict[str, Any]]) -> None:
    done = run("student", *arguments.split())
    assert done.exit_code == 2
    assert arguments.split()[0] in done.stderr
    assert not calls


@pytest.mark.usefixtures("little_text")
def test_a_refused_export_is_exit_code_3_and_leaves_the_old_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    student, bundle = save_student(tmp_path / "student"), tmp_path / "student-bundle"
    assert main(monkeypatch, str(student)) == 0
    before = (bundle / "manifest.json").read_bytes()
    capsys.readouterr()
    assert main(monkeypatch, str(student), "--dim", "2", "--gate", "0.01") == 3
    shown = capsys.readouterr()
    assert not shown.out
    assert "gate: Spearman x 100 on graded pairs fell in" in " ".join(shown.err.split())
    assert "Traceback" not in shown.err
    assert (bundle / "manifest.json").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["student", "student-bundle"]
    assert Encoder(bundle).encode(SENTENCES).shape == (len(SENTENCES), 24)


def test_a_missing_text_file_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    student = save_student(tmp_path / "student")
    assert main(monkeypatch, str(student), "--text", str(tmp_path / "mine.txt")) == 2
    assert "mine.txt" in capsys.readouterr().err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["student"]


def test_help_needs_nothing_heavy_and_little_time() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert after.ru_utime - before.ru_utime < 2  # seconds of computing; it takes about 0.3 where nothing else runs


def test_help_shows_every_choice_and_examples() -> None:
    shown = " ".join(run("--help").stdout.split())
    for kind in (Precision, Target, Recurrence, Bottleneck, Shortening, Format):
        for word in kind.__args__:
            assert word in shown
    assert shown.count("Example: xcompress export") == 4


def test_help_leaves_most_of_a_narrow_terminal_to_the_explanations() -> None:
    widths = [
        len(line) - line.index("<str>") for line in run("--help", columns=80).stdout.splitlines() if "<str>" in line
    ]
    assert len(widths) > 10
    assert min(widths[1:]) > 45  # the first is the argument's
