import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from tests.bundle.test_integrity import external
from tests.helpers import ROOT
from tests.helpers.files import nested_folders
from tests.helpers.student import SENTENCES, bundle, change_manifest
from xcompress.bundle.encoder import Encoder
from xcompress.cli.demo import POLICY, demo
from xcompress.corpus.graded import builtin
from xcompress.demo.folder import DESCRIPTION, served_files, write_demo
from xcompress.demo.sentences import MAX_SENTENCES, Sentence, packaged_sentences, read_sentences
from xcompress.errors import InputError
from xcompress.metrics import cosines
from xcompress.web.onnxruntime_web import BUILDS, ONNXRUNTIME_WEB

PAGE = ROOT / "xcompress" / "demo" / "page"


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the files of onnxruntime-web, without their content."""
    folder = tmp_path / "onnxruntime-web"
    (folder / "dist").mkdir(parents=True)
    for name in (name for build in BUILDS.values() for name in build.names):
        (folder / "dist" / name).write_text(name)
    (folder / "package.json").write_text('{"version": "1.99.0"}')
    monkeypatch.setenv(ONNXRUNTIME_WEB, str(folder))
    return folder


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return write_demo(tmp_path / "site", bundle())


def decompressed(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


def read_description(folder: Path) -> dict[str, Any]:
    return json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))


def test_the_vectors_are_computed_in_onnxruntime_which_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = shutil.copytree(bundle(), tmp_path / "bundle")
    change_manifest(made, target="openvino", operators="standard")
    monkeypatch.setattr("xcompress.bundle.engines.is_installed", lambda _: True)
    monkeypatch.setattr("xcompress.bundle.engines.OpenVinoSession", lambda *_, **__: pytest.fail("OpenVINO opens it"))
    site = write_demo(tmp_path / "site", made)
    assert decompressed(site / "vectors.int8.gz")


def test_queries_and_sentences_have_the_prompts_of_the_bundle(bundle_copy: Path, tmp_path: Path) -> None:
    change_manifest(bundle_copy, prompts={"query": "rain ", "passage": "the sea: "})
    site, encoder = write_demo(tmp_path / "site", bundle_copy), Encoder(bundle_copy)
    description = read_description(site)
    assert description["model"]["query_prompt"] == "rain "
    assert description["model"]["document_prompt"] == "the sea: "
    texts = [
        sentence["text"] for sentence in json.loads(decompressed(site / description["files"]["sentences"]["path"]))
    ]
    assert decompressed(site / "vectors.int8.gz") == encoder.encode_document(texts, precision="int8").tobytes()
    change_manifest(bundle_copy, prefix="the sea: ")
    texts = [check["text"] for check in description["checks"]]
    assert [check["ids"] for check in description["checks"]] == Encoder(bundle_copy).token_ids(texts)


def test_packaged_sentences_are_spread_evenly_over_languages() -> None:
    text = packaged_sentences([])
    assert 300 < len(text.sentences) < 1000
    assert set(text.languages) == {"en", "ar", "de", "es", "fr", "it", "nl", "tr"}
    counts = [sum(sentence.language == code for sentence in text.sentences) for code in text.languages]
    assert max(counts) - min(counts) <= 2
    known = set(builtin().sentences())
    assert {sentence.text for sentence in text.sentences} <= known
    assert len({example.language for example in text.examples}) == len(text.examples) == 5
    assert not {example.text for example in text.examples} & {sentence.text for sentence in text.sentences}


def test_packaged_sentences_are_in_the_languages_of_the_model() -> None:
    assert set(packaged_sentences(["de", "pt-BR", "en"]).languages) == {"de", "en"}
    assert len(packaged_sentences(["de"]).sentences) == 157
    with pytest.raises(InputError, match=r"xcompress ships no sentences in pt, ja; give your own with --text"):
        packaged_sentences(["pt", "ja"])


def test_sentences_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "some.txt"
    file.write_text("\ufeffde\tDer  Zug kommt.\n\nA boat\twaits.\nde\tDer Zug kommt.\n", encoding="utf-8")
    assert read_sentences(file).sentences == (Sentence("de", "Der Zug kommt."), Sentence("", "A boat waits."))
    packed = tmp_path / "news.nl.txt.gz"
    packed.write_bytes(gzip.compress(b"Het regent.\n"))
    assert read_sentences(packed).examples == read_sentences(packed).sentences == (Sentence("nl", "Het regent."),)


@pytest.mark.parametrize(("name", "language"), [("my.faq.txt", ""), ("news.deu.txt", "deu")])
def test_only_a_known_code_in_the_name_of_a_file_is_its_language(tmp_path: Path, name: str, language: str) -> None:
    (tmp_path / name).write_text("Der Zug kommt.\n", encoding="utf-8")
    assert read_sentences(tmp_path / name).languages == ([language] if language else [])


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b" \n\n", "contains no text"),
        (b"fine\n\xff\n", "2: not UTF-8"),
        ("".join(f"{n}\n" for n in range(MAX_SENTENCES + 1)).encode(), "more than 20,000 sentences"),
    ],
)
def test_unusable_files_of_sentences_are_refused(tmp_path: Path, content: bytes, what: str) -> None:
    (tmp_path / "bad.txt").write_bytes(content)
    with pytest.raises(InputError, match=what):
        read_sentences(tmp_path / "bad.txt")


def test_the_folder_holds_the_bundle_and_its_vectors(site: Path) -> None:
    description = read_description(site)
    files = description["files"]
    graph = bundle() / "onnx" / "model_quantized.onnx"
    assert decompressed(site / files["graph"]["path"]) == graph.read_bytes()
    assert decompressed(site / files["tokenizer"]["path"]) == (bundle() / "tokenizer.json").read_bytes()
    assert files["graph"]["bytes"] == graph.stat().st_size
    assert files["graph"]["packed"] == (site / files["graph"]["path"]).stat().st_size
    runtimes = files["runtimes"]
    assert description["download"] + sum(runtime["download"] for runtime in runtimes.values()) == sum(
        file.stat().st_size for file in site.rglob("*") if file.is_file() and file.name != DESCRIPTION
    )
    assert [runtime["script"]["path"] for runtime in runtimes.values()] == [
        "ort/ort.wasm.min.mjs",
        "ort/ort.jspi.min.mjs",
    ]
    sentences = json.loads(decompressed(site / files["sentences"]["path"]))
    rows = np.frombuffer(decompressed(site / files["vectors"]["path"]), dtype=np.int8).reshape(len(sentences), -1)
    encoder = Encoder(bundle())
    vectors = encoder.encode([sentence["text"] for sentence in sentences])
    assert cosines(rows.astype(np.float32), vectors).min() > 0.999
    assert description["count"] == len(sentences)
    for check in description["checks"]:
        assert sentences[check["row"]]["text"] == check["text"]
        assert check["ids"] == encoder.token_ids([check["text"]])[0]
    assert description["onnxruntime_web"] == "1.99.0"
    assert {file.relative_to(PAGE) for file in PAGE.rglob("*")} <= {file.relative_to(site) for file in site.rglob("*")}


def test_a_package_without_the_build_for_webgpu_is_enough(tmp_path: Path, package: Path) -> None:
    (package / "dist" / BUILDS["webgpu"].script).unlink()
    site = write_demo(tmp_path / "site", bundle())
    assert list(read_description(site)["files"]["runtimes"]) == ["wasm"]
    assert not [name for name in served_files(site) if "jspi" in name]


def test_only_a_demo_is_replaced(tmp_path: Path, site: Path) -> None:
    write_demo(site, bundle())
    (site / "mine.txt").write_text("old")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / DESCRIPTION).write_text('{"a": 1}')
    (tmp_path / "a.jpg").write_text("x")
    with pytest.raises(InputError, match=r"a\.jpg: is a file; name a folder for the page"):
        write_demo(tmp_path / "a.jpg", bundle())
    for name, first in (("site", "mine.txt"), ("other", DESCRIPTION)):
        with pytest.raises(InputError, match=f"{name}: {first} was not written by a demo and would be lost"):
            write_demo(tmp_path / name, bundle())
    assert (site / "mine.txt").read_text() == "old"
    with nested_folders(site / "deep"), pytest.raises(InputError):
        write_demo(site, bundle())
    (tmp_path / "empty").mkdir()
    write_demo(tmp_path / "empty", bundle())
    assert not list(tmp_path.glob(".*")), "nothing is left behind"


def test_writing_twice_gives_the_same_bytes(tmp_path: Path, site: Path) -> None:
    again = write_demo(tmp_path / "again", bundle())
    for name, file in served_files(site).items():
        assert file.read_bytes() == served_files(again)[name].read_bytes()


def test_a_missing_package_is_named(tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(ONNXRUNTIME_WEB, raising=False)
    with pytest.raises(InputError, match="demo: missing onnxruntime-web: npm install onnxruntime-web"):
        write_demo(tmp_path / "site", bundle())
    assert not (tmp_path / "site").exists()
    (package / "dist" / BUILDS["wasm"].binary).unlink()
    monkeypatch.setenv(ONNXRUNTIME_WEB, str(package))
    with pytest.raises(InputError, match="npm install onnxruntime-web@latest"):
        write_demo(tmp_path / "site", bundle())


def test_the_current_folder_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(InputError, match="name a folder inside it"):
        write_demo(Path(), bundle())


def test_the_page_and_the_server_have_the_same_policy() -> None:
    assert f'content="{POLICY}"' in (PAGE / "index.html").read_text(encoding="utf-8")


def test_the_command_writes_the_folder_and_prints_it(
    tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ONNXRUNTIME_WEB, str(package))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.de.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    app = typer.Typer()
    app.command()(demo)
    result = CliRunner().invoke(app, ["site", "--model", str(bundle()), "--text", "own.de.txt", "--no-serve"])
    assert (result.exit_code, result.stdout.strip()) == (0, "site")
    assert read_description(tmp_path / "site")["count"] == len(SENTENCES)
    assert "xcompress demo " in CliRunner().invoke(app, ["--help"]).stdout
    with pytest.raises(InputError, match="--port is 70000"):
        CliRunner().invoke(app, ["--port", "70000"], standalone_mode=False, catch_exceptions=False)


def test_the_command_serves_until_it_is_stopped(tmp_path: Path, package: Path) -> None:
    environment = {**os.environ, ONNXRUNTIME_WEB: str(package)}
    command = [sys.executable, "-m", "xcompress", "demo", str(tmp_path / "site"), "--model", str(bundle())]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may ignore it
    running = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment)
    signal.signal(signal.SIGINT, before)
    try:
        assert running.stderr is not None
        line = next(line for line in running.stderr if "http://" in line)
        address = next(word for word in line.split() if word.startswith("http://"))
        assert address.startswith("http://127.0.0.1:")
        with urlopen(address) as reply:
            assert b"Search by meaning" in reply.read()
            assert reply.headers["Content-Security-Policy"] == POLICY
        port = address.rstrip("/").rpartition(":")[2]
        second = subprocess.run(
            [*command, "--port", port], capture_output=True, text=True, check=False, env=environment
        )
        assert second.returncode == 2
        assert f"port {port} is not available" in second.stderr
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 0
    finally:
        running.kill()
        running.wait()


def test_what_a_killed_demo_left_is_removed(tmp_path: Path, site: Path) -> None:
    killed = tmp_path / ".site.abcd1234.tmp"
    (killed / "old").mkdir(parents=True)
    site.rename(killed / "old" / "site")
    (tmp_path / ".site.wxyz1234.tmp" / "new" / "site").mkdir(parents=True)
    before = sorted(file.name for file in (killed / "old" / "site").iterdir())
    assert write_demo(site, bundle()) == site
    assert sorted(file.name for file in site.iterdir()) == before
    assert not list(tmp_path.glob(".site.*"))


@pytest.mark.parametrize("location", ["model_quantized.onnx.gz/a", "weights #1%.data"])
def test_no_name_of_external_data_is_in_the_way(tmp_path: Path, bundle_copy: Path, location: str) -> None:
    (bundle_copy / "onnx" / location).parent.mkdir(exist_ok=True)
    external(bundle_copy, location)
    site = write_demo(tmp_path / "site", bundle_copy)
    (entry,) = read_description(site)["files"]["external"]
    assert entry["name"] == location
    assert decompressed(site / entry["path"]) == (bundle_copy / "onnx" / location).read_bytes()
    assert re.fullmatch(r"[\w./]+", entry["path"]), "the page fetches it as a URL"
