import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import numpy as np
import pytest
import typer
from small_student import SENTENCES, bundle
from small_vocabularies import MAKERS, described
from test_clients import node_packages  # noqa: F401 - a fixture
from tokenizers import Tokenizer, normalizers
from typer.testing import CliRunner

from xcompress.bench.browser.tools import _find_browser
from xcompress.corpus.similarity import builtin
from xcompress.demo import write_demo
from xcompress.demo.folder import DESCRIPTION, int8_rows, served_files
from xcompress.demo.known import KNOWN, check_tokenizer
from xcompress.demo.text import MOST, Sentence, own_text, packaged_text
from xcompress.demo_cli import POLICY, demo
from xcompress.errors import InputError
from xcompress.metrics import cosines
from xcompress.released import released_folder, released_names
from xcompress.runtime import Encoder
from xcompress.web.onnxruntime_web import ONNXRUNTIME_WEB, RUNTIME, find_package
from xcompress.web.server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGE = Path(__file__).parents[1] / "xcompress" / "demo" / "page"
IDS_IN_NODE = """
import { readFileSync } from "node:fs";
const { tokenizer } = await import(process.argv[1]);
const { described, most, texts } = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(texts.map(tokenizer(described, most))));
"""
ODD = [
    "",
    " ",
    "  two  spaces \t and a tab\n",
    "caf\u00e9 cafe\u0301 \ufb01ne \u00bd \uff41\uff42\uff43 \u2167",
    "\u0391\u03a3 \u039f\u0394\u039f\u03a3 \u0130stanbul Stra\u00dfe",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f",
    "<s> a <mask> b</s> [CLS] x [MASK]y",
    "\u0645\u064e\u0631\u0652\u062d\u064e\u0628\u064b\u0627",
    "\u65e5\u672c\u8a9e\u3002\ud55c\uad6d\uc5b4 \u0939\u093f\u0928\u094d\u0926\u0940",
    "don't I'll 12.5% $5+3=8 `~|",
    "a\u200bb\u00adc \u00a0 nbsp\u3000wide",
    "x" * 300,
    "the boat " * 200,
    "\u2581\u2581 \u2581a",
]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Make the files that onnxruntime-web has, without what is in them."""
    folder = tmp_path / "onnxruntime-web"
    (folder / "dist").mkdir(parents=True)
    for name in RUNTIME:
        (folder / "dist" / name).write_text(name)
    (folder / "package.json").write_text('{"version": "1.99.0"}')
    return folder


@pytest.fixture
def written(tmp_path: Path, package: Path) -> Path:
    return write_demo(tmp_path / "site", bundle(), package=package)


def unpacked(file: Path) -> bytes:
    return gzip.decompress(file.read_bytes())


def description(folder: Path) -> dict[str, Any]:
    return json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))


def test_sentences_share_languages_evenly() -> None:
    text = packaged_text([])
    assert 300 < len(text.sentences) < 1000
    assert set(text.languages) == {"en", "ar", "de", "es", "fr", "it", "nl", "tr"}
    counts = [sum(one.language == code for one in text.sentences) for code in text.languages]
    assert max(counts) - min(counts) <= 2
    known = set(builtin().sentences())
    assert {one.text for one in text.sentences} <= known
    assert len({one.language for one in text.examples}) == len(text.examples) == 5
    assert not {one.text for one in text.examples} & {one.text for one in text.sentences}


def test_sentences_of_the_model_alone() -> None:
    assert set(packaged_text(["de", "pt-BR", "en"]).languages) == {"de", "en"}
    assert len(packaged_text(["de"]).sentences) == 162
    with pytest.raises(InputError, match=r"no sentences in pt, ja come with xcompress; give some with --text"):
        packaged_text(["pt", "ja"])


def test_own_sentences(tmp_path: Path) -> None:
    file = tmp_path / "some.txt"
    file.write_text("\ufeffde\tDer  Zug kommt.\n\nA boat\twaits.\nde\tDer Zug kommt.\n", encoding="utf-8")
    assert own_text(file).sentences == (Sentence("de", "Der Zug kommt."), Sentence("", "A boat waits."))
    packed = tmp_path / "news.nl.txt.gz"
    packed.write_bytes(gzip.compress(b"Het regent.\n"))
    assert own_text(packed).examples == own_text(packed).sentences == (Sentence("nl", "Het regent."),)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b" \n\n", "holds no text"),
        (b"fine\n\xff\n", "2: not UTF-8"),
        ("".join(f"{n}\n" for n in range(MOST + 1)).encode(), "more than 20,000 sentences"),
    ],
)
def test_own_sentences_that_cannot_be_used(tmp_path: Path, content: bytes, what: str) -> None:
    (tmp_path / "bad.txt").write_bytes(content)
    with pytest.raises(InputError, match=what):
        own_text(tmp_path / "bad.txt")


def test_the_folder_holds_the_bundle_and_its_vectors(written: Path) -> None:
    told = description(written)
    files = told["files"]
    graph = bundle() / "onnx" / "model_quantized.onnx"
    assert unpacked(written / files["graph"]["path"]) == graph.read_bytes()
    assert unpacked(written / files["tokenizer"]["path"]) == (bundle() / "tokenizer.json").read_bytes()
    assert files["graph"]["bytes"] == graph.stat().st_size
    assert files["graph"]["packed"] == (written / files["graph"]["path"]).stat().st_size
    assert told["download"] == sum(
        file.stat().st_size for file in written.rglob("*") if file.is_file() and file.name != DESCRIPTION
    )
    sentences = json.loads(unpacked(written / files["sentences"]["path"]))
    rows = np.frombuffer(unpacked(written / files["vectors"]["path"]), dtype=np.int8).reshape(len(sentences), -1)
    encoder = Encoder(bundle())
    vectors = encoder.encode([sentence["text"] for sentence in sentences])
    assert cosines(rows.astype(np.float32), vectors).min() > 0.999
    assert told["count"] == len(sentences)
    assert told["checks"][0]["ids"] == encoder.token_ids([sentences[0]["text"]])[0]
    assert told["onnxruntime_web"] == "1.99.0"
    assert {file.relative_to(PAGE) for file in PAGE.rglob("*")} <= {
        file.relative_to(written) for file in written.rglob("*")
    }


def test_rows_of_zeros_stay_zero() -> None:
    rows = int8_rows(np.array([[0, 0], [0.5, -0.25]], dtype=np.float32))
    assert rows.tolist() == [[0, 0], [127, -64]]


def test_a_demo_is_replaced_and_nothing_else_is(tmp_path: Path, written: Path, package: Path) -> None:
    write_demo(written, bundle(), package=package)
    (written / "mine.txt").write_text("old")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / DESCRIPTION).write_text('{"a": 1}')
    (tmp_path / "a.jpg").write_text("x")
    for name, first in (("site", "mine.txt"), ("other", DESCRIPTION), ("a.jpg", "a.jpg")):
        with pytest.raises(InputError, match=f"{name}: {first} is not from a demo, and would be lost"):
            write_demo(tmp_path / name, bundle(), package=package)
    assert (written / "mine.txt").read_text() == "old"
    (tmp_path / "empty").mkdir()
    write_demo(tmp_path / "empty", bundle(), package=package)
    assert not list(tmp_path.glob(".*")), "nothing is left behind"


def test_the_same_folder_twice(tmp_path: Path, written: Path, package: Path) -> None:
    again = write_demo(tmp_path / "again", bundle(), package=package)
    for name, file in served_files(written).items():
        assert file.read_bytes() == served_files(again)[name].read_bytes()


def test_what_is_missing_is_named(tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(ONNXRUNTIME_WEB, raising=False)
    with pytest.raises(InputError, match="needed: onnxruntime-web: npm install onnxruntime-web"):
        write_demo(tmp_path / "site", bundle())
    assert not (tmp_path / "site").exists()
    (package / "dist" / RUNTIME[2]).unlink()
    with pytest.raises(InputError, match="npm install onnxruntime-web@latest"):
        write_demo(tmp_path / "site", bundle(), package=package)


def test_a_folder_that_is_the_current_one(tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(InputError, match="name one inside it"):
        write_demo(Path(), bundle(), package=package)


def test_a_tokenizer_that_the_page_cannot_do() -> None:
    tokenizer = Tokenizer.from_str(described("unigram"))
    check_tokenizer(Path("tokenizer.json"), json.loads(tokenizer.to_str()))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Nmt()])
    with pytest.raises(InputError, match=r"tokenizer\.json: its normalizer is Nmt, which the demo's page cannot do"):
        check_tokenizer(Path("tokenizer.json"), json.loads(tokenizer.to_str()))


def test_the_page_knows_what_it_is_said_to_know() -> None:
    files = {"normalizer": "normalizers.js", "pre_tokenizer": "splitters.js", "model": "models.js"}
    for part, kinds in KNOWN.items():
        script = (PAGE / "tokenizer" / files.get(part, "tokenizer.js")).read_text(encoding="utf-8")
        for kind in kinds:
            assert kind in script


def test_the_page_has_one_policy() -> None:
    assert f'content="{POLICY}"' in (PAGE / "index.html").read_text(encoding="utf-8")


def ids_in_node(tokenizer: Tokenizer, most: int, texts: list[str]) -> list[list[int]]:
    """Let the page's script tokenise."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    given = json.dumps({"described": json.loads(tokenizer.to_str()), "most": most, "texts": texts})
    command = [node, "--input-type=module", "-e", IDS_IN_NODE, (PAGE / "tokenizer" / "tokenizer.js").as_uri()]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", MAKERS)
def test_token_ids_are_those_of_python(kind: str) -> None:
    tokenizer = Tokenizer.from_str(described(kind))
    tokenizer.no_padding()
    tokenizer.enable_truncation(48)
    texts = [*builtin().sentences(), *ODD]
    assert ids_in_node(tokenizer, 48, texts) == [encoding.ids for encoding in tokenizer.encode_batch(texts)]


@pytest.mark.parametrize("name", released_names() or [None])
def test_token_ids_of_released_models(name: str | None) -> None:
    if name is None:
        pytest.skip("no released model in this checkout")
    encoder, file = Encoder.released(name), released_folder(name) / "tokenizer.json"
    check_tokenizer(file, json.loads(file.read_bytes()))
    texts = [*(sentence.text for sentence in packaged_text([]).sentences), *ODD]
    given = [encoder.manifest["prefix"] + text for text in texts]
    most = encoder.manifest["max_tokens"]
    assert ids_in_node(Tokenizer.from_file(str(file)), most, given) == encoder.token_ids(texts)


def test_token_ids_of_other_normalizers() -> None:
    tokenizer = Tokenizer.from_str(described("unigram"))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Strip(),
            normalizers.NFD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace("(", "-"),
            normalizers.Precompiled(small_charsmap()),
        ]
    )
    texts = [*ODD, "  (Dé) caf\u00e9 \u3042 Kaffee  ", "aa b"]
    assert tokenizer.encode("z").ids == tokenizer.encode("a").ids, "the map is used"
    assert ids_in_node(tokenizer, 5000, texts) == [encoding.ids for encoding in tokenizer.encode_batch(texts)]


def small_charsmap() -> bytes:
    """Make a table of SentencePiece in which `a` stands for z, and two letters for あ."""
    units, free = [0] * 1536, count(512, 256)
    units[0] = 256 << 10
    for letter, value in {"z": 0, "\u3042": 2}.items():
        place, node = 256, 0
        for byte in letter.encode():
            node, place = place ^ byte, next(free)
            units[node] = ((node ^ place) << 10) | byte
        units[node] |= 1 << 8
        units[place] = value | 1 << 31
    trie = np.array(units, dtype="<u4").tobytes()
    return len(trie).to_bytes(4, "little") + trie + b"a\0oo\0"


def test_the_command_writes_and_says_where(tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ONNXRUNTIME_WEB, str(package))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.de.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    app = typer.Typer()
    app.command()(demo)
    done = CliRunner().invoke(app, ["site", "--model", str(bundle()), "--text", "own.de.txt", "--no-serve"])
    assert (done.exit_code, done.stdout.strip()) == (0, "site")
    assert description(tmp_path / "site")["count"] == len(SENTENCES)
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
        address = next(line for line in running.stderr if "http://" in line).split()[0]
        assert address.startswith("http://127.0.0.1:")
        with urlopen(address) as reply:
            assert b"Search by meaning" in reply.read()
            assert reply.headers["Content-Security-Policy"] == POLICY
        port = address.rstrip("/").rpartition(":")[2]
        other = subprocess.run([*command, "--port", port], capture_output=True, text=True, check=False, env=environment)
        assert other.returncode == 2
        assert f"port {port} cannot be had" in other.stderr
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 0
    finally:
        running.kill()
        running.wait()


@pytest.fixture(scope="module")
def real_package(request: pytest.FixtureRequest) -> Path:
    """Find onnxruntime-web where it is named, or among transformers.js's own packages."""
    if find_spec("playwright") is None:
        pytest.skip("playwright is not installed")
    named = os.environ.get(ONNXRUNTIME_WEB)
    try:
        _find_browser(None)
        return find_package(named or request.getfixturevalue("node_packages") / "node_modules/onnxruntime-web")
    except LookupError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def site(real_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_demo(tmp_path_factory.mktemp("web") / "site", bundle(), package=real_package)


@pytest.fixture(scope="module")
def chromium(real_package: Path) -> Iterator["Browser"]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--disable-gpu", *(["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else [])]
        browser = playwright.chromium.launch(executable_path=_find_browser(None), args=flags)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: "Browser", site: Path) -> Iterator["Page"]:
    """Open the page, and note what it asks for."""
    page = chromium.new_page(viewport={"width": 390, "height": 844})
    page.asked, page.errors = [], []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("console", lambda message: page.errors.append(message.text))
    with Server(served_files(site), policy=POLICY) as server:
        page.goto(server.address + "/")
        page.wait_for_selector("html[data-ready]")
        page.home = server.address + "/"
        yield page
    page.close()


def ask(page: "Page", text: str) -> list[tuple[str, float]]:
    """Type a query; return the sentences and cosines that are shown."""
    before = page.get_attribute("html", "data-answered")
    page.fill("#query", text)
    page.wait_for_selector(f"html[data-answered]:not([data-answered='']):not([data-answered='{before}'])")
    texts = page.locator(".result .text").all_inner_texts()
    return list(zip(texts, map(float, page.locator(".score > :last-child").all_inner_texts()), strict=True))


def test_the_page_finds_what_python_finds(page: "Page") -> None:
    encoder, shown = Encoder(bundle()), packaged_text([])
    texts = [sentence.text for sentence in shown.sentences]
    vectors = encoder.encode(texts)
    for query in ("the boat is late", shown.examples[1].text, "half a pair \ud800", texts[7]):
        expected = dict(zip(texts, encoder.similarity(encoder.encode(query), vectors)[0], strict=True))
        found = ask(page, query)
        assert len(found) == 12
        assert found == sorted(found, key=lambda one: -one[1])
        for text, cosine in found:
            assert cosine == pytest.approx(expected[text], abs=0.03)
        assert found[0][1] == pytest.approx(max(expected.values()), abs=0.03)
    assert found[0] == (texts[7], 1.0)
    assert "8 of 8 sentences have the same tokens" in page.inner_text("#facts")
    assert " ms for " in page.inner_text("#took")
    assert page.errors == []


def test_token_ids_in_the_browser_are_those_of_python(page: "Page") -> None:
    encoder, shown = Encoder(bundle()), packaged_text([])
    texts = [*(sentence.text for sentence in shown.sentences), *ODD]
    given = {"described": json.loads((bundle() / "tokenizer.json").read_bytes()), "texts": texts}
    given["most"], prefix = encoder.manifest["max_tokens"], encoder.manifest["prefix"]
    script = """async ({ described, most, texts, prefix }) => {
      const { tokenizer } = await import(new URL("tokenizer/tokenizer.js", document.baseURI));
      return texts.map((text) => tokenizer(described, most)(prefix + text));
    }"""
    assert page.evaluate(script, {**given, "prefix": prefix}) == encoder.token_ids(texts)


def test_nothing_is_asked_for_once_the_page_is_loaded(page: "Page", site: Path) -> None:
    assert all(address.startswith(page.home) for address in page.asked)
    asked = {address.removeprefix(page.home) for address in page.asked}
    assert asked == {""} | {name[1:] for name in served_files(site)} - {"", "index.html"}
    count = len(page.asked)
    for text in ("rain", "boat", "the sea"):
        ask(page, text)
    page.locator(".result").first.click()
    page.wait_for_timeout(200)
    assert len(page.asked) == count


def test_the_page_may_not_reach_another_server(page: "Page") -> None:
    reached: list[str] = []

    class Other(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            reached.append(self.path)
            self.send_response(204)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        Thread(target=other.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{other.server_address[1]}/"
        fetched = "address => fetch(address, {mode: 'no-cors'}).then(() => 'reached', () => 'refused')"
        assert page.evaluate(fetched, address) == "refused"
        other.shutdown()
    assert reached == []


def test_any_static_server_will_do(chromium: "Browser", site: Path) -> None:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *values: object) -> None:
            pass

    handler = partial(Quiet, directory=str(site.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        page = chromium.new_page()
        page.goto(f"http://127.0.0.1:{server.server_address[1]}/{site.name}/")
        page.type("#query", "rain")
        page.wait_for_selector("html[data-answered]:not([data-answered=''])")
        assert page.locator(".result").count() == 12
        reach = "() => fetch('http://127.0.0.1:9/').then(() => 'reached', () => 'refused')"
        assert page.evaluate(reach) == "refused"
        page.close()
        server.shutdown()


def test_keys_and_the_choice_of_a_language(page: "Page") -> None:
    found = ask(page, "the boat is late")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.input_value("#query") == found[1][0]
    assert page.evaluate("document.activeElement.id") == "query"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Escape")
    assert page.input_value("#query") == ""
    assert page.inner_text("#found-head").startswith("Some of ")
    page.keyboard.press("Tab")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "query"
    page.get_by_label("Turkish", exact=True).check(force=True)
    ask(page, "rain")
    assert set(page.locator(".result .named").all_inner_texts()) == {"Turkish"}
    assert page.locator(".result .text[lang=tr]").count() == 12


def test_the_page_fits_a_phone_and_has_its_labels(page: "Page") -> None:
    ask(page, "the boat is late")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for kind in ("button", "radio", "searchbox"):
        assert page.get_by_role(kind).count() > 0
        assert page.get_by_role(kind, name=re.compile(r"^$")).count() == 0
    assert page.get_by_role("search").count() == 1
    assert page.get_by_label("What to look for, in any language").count() == 1


def test_a_file_that_is_missing_is_told(chromium: "Browser", site: Path) -> None:
    page = chromium.new_page()
    lacking = {name: file for name, file in served_files(site).items() if not name.endswith(".wasm.gz")}
    with Server(lacking, policy=POLICY) as server:
        page.goto(server.address + "/")
        page.wait_for_selector("#trouble:not([hidden])")
        assert "ort-wasm-simd-threaded.wasm.gz: the server says 404; copy the whole folder" in page.inner_text(
            "#trouble"
        )
    page.close()
