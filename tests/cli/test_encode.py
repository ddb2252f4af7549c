import gzip
import json
import lzma
import os
import shutil
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

from tests.helpers import ROOT
from tests.helpers.student import SENTENCES, bundle, change_manifest
from xcompress.bundle import released
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.released import find_bundle
from xcompress.cli.encode import embed, search
from xcompress.errors import InputError
from xcompress.printable import UNPRINTABLE, printable

app = typer.Typer()
app.command()(embed)
app.command()(search)


@pytest.fixture(autouse=True)
def no_released_model(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the released models, of which one would be the default."""
    monkeypatch.setattr(released, "MODELS", working_folder / "none")


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return Encoder(bundle(), precision="fp32").encode(SENTENCES)


def run(*arguments: str, text: bytes | str = "") -> Result:
    return CliRunner().invoke(app, [*arguments, "--model", str(bundle()), "--precision", "fp32"], input=text)


def error(*arguments: str, text: bytes | str = "") -> str:
    failed = run(*arguments, text=text).exception
    assert isinstance(failed, InputError), failed
    assert len(str(failed).splitlines()) == 1
    return str(failed)


@pytest.mark.parametrize("command", ["embed", "search"])
def test_every_command_shows_an_example(command: str) -> None:
    assert f"xcompress {command} " in CliRunner().invoke(app, [command, "--help"]).stdout


def test_importing_the_commands_imports_nothing_heavy() -> None:
    heavy = ("torch", "transformers", "onnx", "onnxruntime", "numpy", "tokenizers", "pydantic")
    code = f"import sys\nimport xcompress.cli.encode\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_texts_of_the_command_line_as_a_table(expected: np.ndarray) -> None:
    printed = run("embed", SENTENCES[0], "a [red] \x1b[31m boat").stdout
    assert SENTENCES[0] in printed
    assert "a [red] \\u001b[31m boat" in printed
    assert f"{expected[0, 3]:.4f}" in printed
    assert f"{expected[0, 4]:.4f}" not in printed


def test_lines_of_json(expected: np.ndarray) -> None:
    lines = [json.loads(line) for line in run("embed", *SENTENCES, "--json").stdout.splitlines()]
    assert [line["text"] for line in lines] == SENTENCES
    np.testing.assert_allclose([line["vector"] for line in lines], expected, atol=1e-5)


@pytest.mark.parametrize("source", ["lines.txt", "-"])
def test_vectors_are_printed_before_all_input_is_read(
    source: str, working_folder: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xcompress.cli.encode._LINES_PER_STEP", 2)
    content = "\n".join(SENTENCES).encode() + b"\n\xff\n"
    Path("lines.txt").write_bytes(content)
    text = content if source == "-" else b""
    done = run("embed", "--input", source, text=text)
    assert ":6: not UTF-8" in str(done.exception)
    assert done.stdout == "".join(run("embed", *SENTENCES[start : start + 2]).stdout for start in (0, 2))
    done = run("embed", "--input", source, "--json", text=text)
    assert ":6: not UTF-8" in str(done.exception)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["text"] for line in found] == SENTENCES[:4]
    np.testing.assert_allclose([line["vector"] for line in found], expected[:4], atol=1e-5)


@pytest.mark.parametrize("name", ["texts.txt", "texts.txt.gz", "texts.txt.xz"])
def test_a_file_becomes_vectors(working_folder: Path, expected: np.ndarray, name: str) -> None:
    content = ("\ufeff" + "\r\n".join([*SENTENCES, "", SENTENCES[0]])).encode()
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(Path(name).suffix, bytes)
    (working_folder / name).write_bytes(pack(content))
    done = run("embed", "--input", name, "--output", "out/vectors.npy")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "out/vectors.npy: 7 vectors of 24 dimensions\n")
    vectors = np.load("out/vectors.npy", allow_pickle=False)
    assert (vectors.shape, vectors.dtype) == ((7, 24), np.float32)
    np.testing.assert_allclose(vectors[[0, 1, 2, 3, 4, 6]], expected[[0, 1, 2, 3, 4, 0]], atol=1e-5)
    assert sorted(file.name for file in (working_folder / "out").iterdir()) == ["vectors.npy", "vectors.npy.json"]


def test_texts_and_lines_may_come_through_pipes(working_folder: Path, expected: np.ndarray) -> None:
    os.mkfifo("pipe")
    writers = ThreadPoolExecutor()
    writers.submit(Path("pipe").write_text, "\n".join(SENTENCES))
    lines = run("embed", "--input", "pipe", "--json").stdout.splitlines()
    np.testing.assert_allclose([json.loads(line)["vector"] for line in lines], expected, atol=1e-5)
    writers.submit(Path("pipe").write_text, "\n".join(SENTENCES))
    assert json.loads(run("search", "pipe", SENTENCES[4], "--json").stdout)[0]["text"] == SENTENCES[4]


@pytest.mark.parametrize("arguments", [["--input", "-"], []])
def test_standard_input_becomes_vectors(expected: np.ndarray, arguments: list[str]) -> None:
    done = run("embed", *arguments, "--json", text="\n".join(SENTENCES) + "\n")
    np.testing.assert_allclose([json.loads(line)["vector"] for line in done.stdout.splitlines()], expected, atol=1e-5)


@pytest.mark.parametrize("text", ["lines.txt", "-"])
def test_a_file_among_the_texts_is_mentioned(working_folder: Path, text: str) -> None:
    Path("lines.txt").write_text("rain\n")
    done = run("embed", "x" * 5000, text, "a\0b", "--json", text="rain\n")
    assert [json.loads(line)["text"] for line in done.stdout.splitlines()][1] == text
    assert f"warning: embed: '{text}' is encoded as a text; to encode its lines, give --input {text}" in done.stderr
    assert run("embed", "rain", "--json").stderr == ""


def test_many_lines_keep_their_order(
    working_folder: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xcompress.bundle.stored_vectors.BLOCK", 2)
    run("embed", *SENTENCES, "--output", "v.npy")
    np.testing.assert_allclose(np.load("v.npy"), expected, atol=1e-5)


def test_search_shows_the_nearest_lines_first(working_folder: Path) -> None:
    (working_folder / "lines.txt").write_text("\n".join([*SENTENCES[:2], "", "   ", *SENTENCES[2:]]))
    done = run("search", "lines.txt", SENTENCES[4], "-k", "2", "--json")
    found = json.loads(done.stdout)
    assert [entry["rank"] for entry in found] == [1, 2]
    assert (found[0]["line"], found[0]["text"]) == (7, SENTENCES[4])
    assert found[0]["cosine"] == pytest.approx(1, abs=1e-5)
    assert found[1]["cosine"] < found[0]["cosine"]
    printed = run("search", "lines.txt", SENTENCES[4], "-k", "1").stdout
    assert f"1. {SENTENCES[4]}" in printed
    assert SENTENCES[0] not in printed


@pytest.mark.parametrize("blank", ["\n", " \t \n"])
def test_blank_lines_are_counted_and_not_kept(working_folder: Path, blank: str) -> None:
    """A blank line that is kept takes a string, a number and their places: 100 bytes or more."""
    (working_folder / "lines.txt.gz").write_bytes(gzip.compress(f"rain\n{blank * 100_000}boat\n".encode()))
    (working_folder / "one.txt").write_text("rain")
    run("search", "one.txt", "rain", "--json")  # loads the libraries
    tracemalloc.start()
    done = run("search", "lines.txt.gz", "boat", "--json")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert {entry["text"]: entry["line"] for entry in json.loads(done.stdout)} == {"rain": 1, "boat": 100_002}
    assert most < 2_500_000


def test_search_in_vectors_that_embed_wrote(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (working_folder / "lines.txt").write_text("\n".join([*SENTENCES[:2], "", *SENTENCES[2:]]))
    run("embed", "--input", "lines.txt", "--output", "v.npy")
    expected = json.loads(run("search", "lines.txt", SENTENCES[4], "--json").stdout)
    monkeypatch.setattr("xcompress.bundle.stored_vectors._encode", lambda *_: pytest.fail("encoded again"))
    found = json.loads(run("search", "lines.txt", SENTENCES[4], "--vectors", "v.npy", "--json").stdout)
    assert [(one["line"], one["text"]) for one in found] == [(one["line"], one["text"]) for one in expected]
    assert [one["cosine"] for one in found] == pytest.approx([one["cosine"] for one in expected], abs=1e-6)
    assert "there is no" not in run("search", "lines.txt", "rain", "--vectors", "v.npy", "--json").stderr
    shutil.copyfile("v.npy", "alone.npy")
    warned = run("search", "lines.txt", "rain", "--vectors", "alone.npy", "--json").stderr
    assert warned.startswith("warning: alone.npy: there is no alone.npy.json to tell whether these are vectors of")
    np.save("nan.npy", np.full((6, 24), np.nan, np.float32))
    assert "nan.npy: row 0 holds NaN or infinity" in error("search", "lines.txt", "rain", "--vectors", "nan.npy")
    (working_folder / "lines.txt").write_text("\n".join([*SENTENCES, "another"]))
    refusal = error("search", "lines.txt", "rain", "--vectors", "v.npy")
    assert refusal == "v.npy: made of other texts; write it again with embed --output"


@pytest.mark.parametrize(("numbers", "dtype", "width"), [("int8", np.int8, 24), ("ubinary", np.uint8, 3)])
def test_vectors_in_fewer_bytes(working_folder: Path, numbers: str, dtype: type, width: int) -> None:
    (working_folder / "lines.txt").write_text("\n".join(SENTENCES))
    run("embed", "--input", "lines.txt", "--output", "v.npy", "--numbers", numbers)
    vectors = np.load("v.npy")
    assert (vectors.dtype, vectors.shape) == (dtype, (5, width))
    found = json.loads(run("search", "lines.txt", SENTENCES[4], "--vectors", "v.npy", "--json").stdout)
    assert found[0]["text"] == SENTENCES[4]


@pytest.mark.parametrize(
    ("numbers", "title"),
    [
        ("int8", "First of 24 dimensions; --json or --output gives all"),
        ("ubinary", "First of 3 bytes, 8 dimensions each; --json or --output gives all"),
    ],
)
def test_whole_numbers_are_shown_as_such(numbers: str, title: str) -> None:
    vector = Encoder(bundle(), precision="fp32").encode("rain", precision=numbers)  # type: ignore[arg-type]
    printed = run("embed", "rain", "--numbers", numbers).stdout
    printed = " ".join(printed.replace("│", " ").split())
    assert title in printed and "." not in printed
    assert " ".join(map(str, vector[:3])) in printed
    line = run("embed", "rain", "--numbers", numbers, "--json").stdout
    assert line == json.dumps({"text": "rain", "vector": vector.tolist()}) + "\n"


def test_a_long_line_is_read_as_far_as_the_encoder_reads(working_folder: Path) -> None:
    same = "rain " * 5000
    content = f"{same}boat\n{same}train\n{chr(0x1F6A2) * 100_000}\n{'a' * 100_001}\nrain\n{'b' * 500_000}\n"
    (working_folder / "lines.txt").write_text(content)
    for source, name in (("lines.txt", "lines.txt"), ("-", "standard input")):
        done = run("embed", "--input", source, "--long", "mean", "--json", text=content if source == "-" else "")
        vectors = [json.loads(line)["vector"] for line in done.stdout.splitlines()]
        assert len(vectors) == 6 and vectors[0] != vectors[1]
        assert done.stderr.count("warning:") == 1
        assert f"{name}:4 (and 1 more): longer than 100,000 characters; the rest is not read" in done.stderr
    searched = run("search", "lines.txt", "rain")
    assert "lines.txt:4 (and 1 more): longer than 100,000 characters" in searched.stderr


@pytest.mark.parametrize("query", ["[/]", "[red]a[/red]", "\x1b]0;title\x07rain", "\u202erain", ":sea: $x$"])
def test_any_query_is_searched_for_and_shown(working_folder: Path, query: str) -> None:
    (working_folder / "[bold] lines.txt").write_text("\n".join(SENTENCES))
    done = run("search", "[bold] lines.txt", query, "-k", "1")
    assert done.exception is None
    assert UNPRINTABLE.search(done.stdout) is None
    assert f"[bold] lines.txt: nearest to {printable(query)}" in " ".join(done.stdout.split())


def test_a_text_of_the_command_line_is_utf_8_in_any_locale(working_folder: Path) -> None:
    command = [sys.executable, "-m", "xcompress", "embed", "--json", "--model", str(bundle()), "Zürich".encode()]
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | locale, cwd=ROOT, check=True)
    assert json.loads(done.stdout)["text"] == "Zürich"


@pytest.mark.parametrize("command", [["embed"], ["search", "lines.txt"]])
def test_a_text_of_the_command_line_that_is_not_utf_8_is_refused(working_folder: Path, command: list[str]) -> None:
    (working_folder / "lines.txt").write_text("\n".join(SENTENCES))
    latin = os.fsdecode("Zürich".encode("latin-1"))
    assert error(*command, latin) == rf"{command[0]}: 'Z\udcfcrich' is not UTF-8; write the text in UTF-8"


@pytest.fixture
def prompted(working_folder: Path) -> Encoder:
    """A bundle with two prompts, in the folder `e5`, beside the sentences as lines.txt."""
    shutil.copytree(bundle(), "e5")
    change_manifest(Path("e5"), prompts={"query": "rain ", "passage": "the sea "}, prefix="")
    Path("lines.txt").write_text("\n".join(SENTENCES))
    return Encoder("e5", precision="fp32")


def run_prompted(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--model", "e5", "--precision", "fp32"])


def test_embed_puts_a_prompt_in_front_of_each_text(prompted: Encoder) -> None:
    expected = prompted.encode("boat", prompt_name="passage")
    for option in (["--prompt-name", "passage"], ["--prompt", "the sea "]):
        line = json.loads(run_prompted("embed", "boat", "--json", *option).stdout)
        np.testing.assert_allclose(line["vector"], expected, atol=1e-6)
        assert line["text"] == "boat"
    refused = run_prompted("embed", "boat", "--prompt-name", "document").exception
    assert str(refused) == "there is no prompt 'document'; the bundle has 'query', 'passage'; choose one"


@pytest.mark.parametrize(
    ("stored", "of_query", "of_lines", "is_said"),
    [
        (None, "rain ", "the sea ", False),
        (["--prompt-name", "passage"], "rain ", "the sea ", False),
        (["--prompt", "boat "], "rain ", "boat ", False),
        ([], "", "", True),
    ],
)
def test_search_encodes_the_query_as_one_and_lines_as_documents(
    stored: list[str] | None, of_query: str, of_lines: str, is_said: bool, prompted: Encoder
) -> None:
    if stored is not None:
        assert run_prompted("embed", "--input", "lines.txt", "--output", "v.npy", *stored).exit_code == 0
    options = [] if stored is None else ["--vectors", "v.npy"]
    done = run_prompted("search", "lines.txt", "boat", "--json", *options)
    lines = prompted.encode(SENTENCES, prompt=of_lines)
    cosines = prompted.similarity(prompted.encode("boat", prompt=of_query), lines)[0]
    found = {line["line"]: line["cosine"] for line in json.loads(done.stdout)}
    np.testing.assert_allclose([found[number] for number in sorted(found)], cosines, atol=1e-5)
    note = "v.npy: embed was run without --prompt-name passage, so the query has no such prompt either"
    assert (note in " ".join(done.stderr.split())) == is_said


def test_search_in_a_column(working_folder: Path) -> None:
    (working_folder / "pairs.tsv").write_text("".join(f"{number}\t{text}\n" for number, text in enumerate(SENTENCES)))
    found = json.loads(run("search", "pairs.tsv", "rain", "--column", "2", "--json").stdout)
    assert found[0]["text"] == "rain"
    assert len(found) == len(SENTENCES)
    assert error("search", "pairs.tsv", "rain", "--column", "3") == (
        "pairs.tsv:1: 2 columns, split at tabs, but --column is 3; correct one of them"
    )
    (working_folder / "pairs.csv").write_text("1,rain\n")
    assert error("search", "pairs.csv", "rain", "--column", "2").startswith("pairs.csv:1: 1 column, split at tabs, but")


def test_search_reads_standard_input(working_folder: Path) -> None:
    text = "\n".join(SENTENCES)
    (working_folder / "lines.txt").write_text(text)
    done = run("search", "-", "rain", text=text)
    assert done.stdout.startswith("standard input: nearest to rain")
    expected = run("search", "lines.txt", "rain", "--json").stdout
    assert run("search", "-", "rain", "--json", text=text).stdout == expected
    assert run("embed", "--output", "v.npy", text=text).exit_code == 0
    assert json.loads(run("search", "-", "rain", "--vectors", "v.npy", "--json", text=text).stdout)[0]["text"] == "rain"
    assert error("search", "-", "rain").startswith("standard input: contains no text")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["embed"], "standard input: contains no text"),
        (["embed", "a", "--input", "b.txt"], "give one of them"),
        (["embed", "--input", "absent.txt"], "absent.txt: cannot be read"),
        (["embed", "--input", "binary.txt"], "binary.txt:2: not UTF-8"),
        (["embed", "--input", "long.txt"], "long.txt:1: not UTF-8"),
        (["embed", "--input", "cut.gz"], "cut.gz: cannot be read (cut off after line "),
        (["embed", "a", "--output", "vectors.bin"], "give a name that ends in .npy"),
        (["embed", "a", "--threads", "0"], "threads is 0"),
        (["embed", "a", "--numbers", "int4"], "--numbers is 'int4'; choose float32, int8 or ubinary"),
        (["embed", "a", "--long", "average"], "--long is 'average'; choose cut or mean"),
        (["search", "absent.txt", "a"], "absent.txt: cannot be read"),
        (["search", "rain", "blank.txt"], "'rain' is no file, but blank.txt is one; give the file, then the query"),
        (["search", "blank.txt", "a"], "blank.txt: contains no text"),
        (["search", "blank.txt", " "], "search: the query is empty"),
        (["search", "binary.txt", "a", "-k", "0"], "-k is 0"),
        (["search", "binary.txt", "a", "--column", "0"], "--column is 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line(working_folder: Path, arguments: list[str], what: str) -> None:
    (working_folder / "binary.txt").write_bytes(b"fine\n\xff\xfe\n")
    (working_folder / "blank.txt").write_text("\n \n")
    (working_folder / "long.txt").write_bytes(b"Z\xfcrich " * 100_000)
    (working_folder / "cut.gz").write_bytes(gzip.compress(b"a line\n" * 100)[:20])
    assert what in error(*arguments)


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("file/x.npy", "cannot be written (Not a directory)"),
        (f"{'x' * 252}.npy", "cannot be written (File name too long)"),
        ("~nosuchuser/x.npy", "~ is not replaced by a home folder here; write the whole path"),
        ("folder.npy", "is a folder; give the name of a file"),
    ],
    ids=lambda value: value[:10],
)
def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    output: str, why: str, working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("file").touch()
    Path("folder.npy").mkdir()
    monkeypatch.setattr("xcompress.bundle.stored_vectors._encode", lambda *_: pytest.fail("encoded"))
    assert error("embed", "a", "--output", output).startswith(f"{output}: {why}")
    assert sorted(entry.name for entry in working_folder.iterdir()) == ["file", "folder.npy"]


def test_a_full_disk_is_one_line(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(stream: object, vectors: np.ndarray) -> None:
        raise OSError(f"{vectors.size} requested and 0 written")

    monkeypatch.setattr(np, "save", save)
    assert error("embed", "a", "--output", "x.npy") == (
        "x.npy: cannot be written (No space left on device); free space or choose another folder, then run again"
    )
    assert list(working_folder.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file system with names of any bytes")
def test_a_bundle_in_a_path_that_is_not_utf_8_is_one_line(working_folder: Path) -> None:
    folder = shutil.copytree(bundle(), os.fsdecode(b"bad\xff"))
    failed = CliRunner().invoke(app, ["embed", "a", "--model", folder]).exception
    assert str(failed) == r"bad\xff: this path is not UTF-8, so no model opens there; rename the folder"


def test_vectors_are_written_to_a_path_that_is_not_utf_8(working_folder: Path) -> None:
    output = os.fsdecode(b"bad\xff.npy")
    assert run("embed", "a", "--output", output).stderr.endswith(": 1 vector of 24 dimensions\n")
    assert np.load(output).shape == (1, 24)


def test_a_precision_that_is_not_there() -> None:
    failed = CliRunner().invoke(app, ["embed", "a", "--model", str(bundle()), "--precision", "int2"]).exception
    assert "precision is 'int2'" in str(failed)


def test_the_newest_bundle_is_taken(working_folder: Path) -> None:
    with pytest.raises(InputError, match="no bundle here; name one with --model"):
        find_bundle(None)
    for age, name in ((100, "runs/a/bundle"), (50, "runs/b/bundle-r2"), (200, "runs/c/bundle")):
        shutil.copytree(bundle(), working_folder / name)
        os.utime(working_folder / name / "manifest.json", (10**9 - age, 10**9 - age))
    assert find_bundle(None) == Path("runs/b/bundle-r2")
    assert CliRunner().invoke(app, ["embed", "rain"]).exit_code == 0
