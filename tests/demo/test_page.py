import gzip
import json
import os
import re
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from tests.helpers.odd_texts import ODD
from tests.helpers.student import bundle, change_manifest
from xcompress.bench.workers.browser.tools import find_browser
from xcompress.bundle.encoder import Encoder
from xcompress.cli.demo import POLICY
from xcompress.demo.folder import served_files, write_demo
from xcompress.demo.sentences import packaged_sentences
from xcompress.web.onnxruntime_web import ONNXRUNTIME_WEB, find_package
from xcompress.web.server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.network]


@pytest.fixture(scope="module")
def real_package(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the environment variable name onnxruntime-web, where it does not, among the packages of transformers.js."""
    if find_spec("playwright") is None:
        pytest.skip("playwright is not installed")
    named = os.environ.get(ONNXRUNTIME_WEB)
    package = named or request.getfixturevalue("node_packages") / "node_modules/onnxruntime-web"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ONNXRUNTIME_WEB, str(package))
        try:
            find_browser()
            find_package()
        except LookupError as error:
            pytest.skip(str(error))
        yield


@pytest.fixture(autouse=True, scope="module")
def little_compression() -> Iterator[None]:
    """Compress the 31 MB of onnxruntime-web fast."""
    compress = gzip.compress
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gzip, "compress", lambda content, level, mtime: compress(content, 1, mtime=mtime))
        yield


@pytest.fixture(scope="module")
def site(real_package: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_demo(tmp_path_factory.mktemp("web") / "site", bundle())


@pytest.fixture(scope="module")
def chromium(real_package: None) -> Iterator["Browser"]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Where there is no graphics processor, the browser computes WebGPU in software.
        webgpu = ["--enable-unsafe-webgpu", "--enable-features=Vulkan"]
        flags = [*webgpu, *(["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else [])]
        browser = playwright.chromium.launch(executable_path=find_browser(), args=flags)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def webgpu_site(site: Path, chromium: "Browser") -> Path:
    """The site, where it and the browser offer WebGPU."""
    page = chromium.new_page()
    with Server(served_files(site), policy=POLICY) as server:
        page.goto(server.address + "/")
        found = page.evaluate("import(new URL('graph.js', document.baseURI)).then((script) => script.findAdapter())")
    page.close()
    if not found or not (site / "ort/ort.jspi.min.mjs").is_file():
        pytest.skip("no WebGPU adapter, or an onnxruntime-web without the build for it")
    return site


@pytest.fixture(scope="module")
def ready_page(chromium: "Browser", site: Path) -> Iterator["Page"]:
    """Open the page, which takes a second or two, and record its requests and console messages."""
    page = chromium.new_page(viewport={"width": 390, "height": 844})
    page.addresses, page.errors = [], []
    page.on("request", lambda request: page.addresses.append(request.url))
    page.on("console", lambda message: page.errors.append(message.text))
    with Server(served_files(site), policy=POLICY) as server:
        page.goto(server.address + "/")
        page.wait_for_selector("html[data-ready]")
        page.root = server.address + "/"
        yield page
    page.close()


@pytest.fixture
def page(ready_page: "Page") -> "Page":
    """The page without a query, in all languages."""
    ready_page.fill("#query", "")
    ready_page.evaluate("document.querySelector('#languages input').click()")
    return ready_page


def ask(page: "Page", text: str) -> list[tuple[str, float]]:
    """Type a query; return the sentences and cosines that the page shows."""
    before = page.get_attribute("html", "data-answered")
    page.fill("#query", text)
    page.wait_for_selector(f"html[data-answered]:not([data-answered='']):not([data-answered='{before}'])")
    texts = page.locator(".result .text").all_inner_texts()
    return list(zip(texts, map(float, page.locator(".score > :last-child").all_inner_texts()), strict=True))


def test_the_page_finds_the_same_sentences_as_python(page: "Page") -> None:
    encoder, shown = Encoder(bundle()), packaged_sentences([])
    texts = [sentence.text for sentence in shown.sentences]
    vectors = encoder.encode(texts)
    for query in ("the boat is late", shown.examples[1].text, "half a pair \ud800", texts[7]):
        expected = dict(zip(texts, encoder.similarity(encoder.encode(query), vectors)[0], strict=True))
        found = ask(page, query)
        assert len(found) == 12
        assert found == sorted(found, key=lambda result: -result[1])
        for text, cosine in found:
            assert cosine == pytest.approx(expected[text], abs=0.03)
        assert found[0][1] == pytest.approx(max(expected.values()), abs=0.03)
    assert found[0] == (texts[7], 1.0)
    assert "the tokens of 8 of 8 sentences are the same" in page.inner_text("#facts")
    assert " ms for " in page.inner_text("#timing")
    assert page.errors == []


def test_queries_and_sentences_have_prompts_of_their_own(
    chromium: "Browser", bundle_copy: Path, tmp_path: Path
) -> None:
    change_manifest(bundle_copy, prompts={"query": "rain ", "passage": "the sea: "})
    encoder, text = Encoder(bundle_copy), packaged_sentences([]).sentences[7].text
    (tmp_path / "one.txt").write_text(text, encoding="utf-8")
    expected = encoder.similarity(encoder.encode_query("the boat is late"), encoder.encode_document(text))
    page = chromium.new_page()
    site = write_demo(tmp_path / "site", bundle_copy, tmp_path / "one.txt")
    with Server(served_files(site), policy=POLICY) as server:
        page.goto(server.address + "/")
        page.wait_for_selector("html[data-ready]")
        assert ask(page, "the boat is late") == [(text, pytest.approx(float(expected[0, 0]), abs=0.03))]
        assert "the tokens of 1 of 1 sentence are the same" in page.inner_text("#facts")
    page.close()


def test_token_ids_in_the_browser_equal_those_of_python(page: "Page") -> None:
    encoder, shown = Encoder(bundle()), packaged_sentences([])
    texts = [*(sentence.text for sentence in shown.sentences), *ODD]
    values = {"tokenizerJson": json.loads((bundle() / "tokenizer.json").read_bytes()), "texts": texts}
    values |= {"maxTokens": encoder.manifest["max_tokens"], "prefix": encoder.manifest["prefix"]}
    script = """async ({ tokenizerJson, maxTokens, texts, prefix }) => {
      const { createTokenizer } = await import(new URL("tokenizer/tokenizer.js", document.baseURI));
      return texts.map((text) => createTokenizer(tokenizerJson, maxTokens)(prefix + text));
    }"""
    assert page.evaluate(script, values) == encoder.token_ids(texts)


def test_a_loaded_page_sends_no_requests(page: "Page", site: Path) -> None:
    assert all(address.startswith(page.root) for address in page.addresses)
    asked = {address.removeprefix(page.root) for address in page.addresses}
    here = {name[1:] for name in served_files(site) if "jspi" not in name}
    assert asked == {""} | here - {"", "index.html"}
    count = len(page.addresses)
    for text in ("rain", "boat", "the sea"):
        ask(page, text)
    page.locator(".result").first.click()
    page.wait_for_timeout(200)
    assert len(page.addresses) == count


def test_the_page_cannot_reach_another_server(chromium: "Browser", site: Path) -> None:
    reached: list[str] = []

    class Other(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            reached.append(self.path)
            self.send_response(204)
            self.end_headers()

    page = chromium.new_page()
    with Server(served_files(site), policy=POLICY) as server, ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        Thread(target=other.serve_forever, daemon=True).start()
        page.goto(server.address + "/")
        address = f"http://127.0.0.1:{other.server_address[1]}/"
        fetched = "address => fetch(address, {mode: 'no-cors'}).then(() => 'reached', () => 'refused')"
        assert page.evaluate(fetched, address) == "refused"
        other.shutdown()
    page.close()
    assert reached == []


def test_any_static_server_serves_the_page(chromium: "Browser", site: Path) -> None:
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


def test_keyboard_and_language_filter(page: "Page") -> None:
    found = ask(page, "the boat is late")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.input_value("#query") == found[1][0]
    assert page.evaluate("document.activeElement.id") == "query"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Escape")
    assert page.input_value("#query") == ""
    assert page.inner_text("#results-heading").startswith("A sample of ")
    page.keyboard.press("Tab")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "query"
    page.get_by_label("Turkish", exact=True).check(force=True)
    ask(page, "rain")
    assert set(page.locator(".result .language-name").all_inner_texts()) == {"Turkish"}
    assert page.locator(".result .text[lang=tr]").count() == 12


def test_text_in_one_language_is_sampled_several_times(chromium: "Browser", tmp_path: Path) -> None:
    sentences = [sentence.text for sentence in packaged_sentences(["en"]).sentences[:40]]
    (tmp_path / "own.en.txt").write_text("\n".join(sentences), encoding="utf-8")
    folder = write_demo(tmp_path / "site", bundle(), tmp_path / "own.en.txt")
    page = chromium.new_page()
    with Server(served_files(folder), policy=POLICY) as server:
        page.goto(server.address + "/")
        page.wait_for_selector(".sample")
        assert page.inner_text("#results-heading") == "A sample of 40 sentences"
        assert page.locator(".sample").count() == 8
    page.close()


def test_a_search_that_succeeds_hides_an_earlier_error(page: "Page") -> None:
    page.evaluate("import(new URL('view.js', document.baseURI)).then((view) => view.showError('no memory'))")
    assert page.inner_text("#error") == "Error: no memory"
    ask(page, "rain")
    assert page.locator("#error").is_hidden()


def test_a_query_that_waits_is_searched_when_the_one_before_fails(
    chromium: "Browser", site: Path, tmp_path: Path
) -> None:
    start = "export async function vectorsOf(session, feeds) {"
    script = (site / "graph.js").read_text()
    assert start in script
    failing = f"let calls = 0;\n{start}\n  if ((calls += 1) === 9) throw new Error('no memory');"  # 8 calls are checks
    (tmp_path / "graph.js").write_text(script.replace(start, failing))
    page = chromium.new_page()
    with Server(served_files(site) | {"/graph.js": tmp_path / "graph.js"}, policy=POLICY) as server:
        page.goto(server.address + "/?device=wasm")
        page.wait_for_selector("html[data-ready]")
        page.evaluate("""for (const text of ["rain", "the boat is late"]) {
          document.getElementById("query").value = text;
          document.getElementById("query").dispatchEvent(new Event("input"));
        }""")
        page.wait_for_selector("html[data-answered='2']", timeout=10_000)
        assert page.locator(".result").count() == 12
        assert page.locator("#error").is_hidden()
    page.close()


def test_the_page_fits_a_phone_and_every_control_has_a_label(page: "Page") -> None:
    ask(page, "the boat is late")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for kind in ("button", "radio", "searchbox"):
        assert page.get_by_role(kind).count() > 0
        assert page.get_by_role(kind, name=re.compile(r"^$")).count() == 0
    assert page.get_by_role("search").count() == 1
    assert page.get_by_label("Search query, in any language").count() == 1


def test_a_missing_file_is_reported(chromium: "Browser", site: Path) -> None:
    page = chromium.new_page()
    lacking = {name: file for name, file in served_files(site).items() if not name.endswith(".wasm.gz")}
    with Server(lacking, policy=POLICY) as server:
        page.goto(server.address + "/")
        page.wait_for_selector("#error:not([hidden])")
        assert (
            "ort-wasm-simd-threaded.wasm.gz: the server answered 404; copy the whole folder to the server"
            in page.inner_text("#error")
        )
    page.close()


def facts_on(chromium: "Browser", site: Path, address: str, graph_script: Path | None = None) -> tuple[str, str]:
    """Open the page; return the device that it uses, and what it says below."""
    page = chromium.new_page()
    with Server(served_files(site) | ({"/graph.js": graph_script} if graph_script else {}), policy=POLICY) as server:
        page.goto(f"{server.address}/{address}")
        page.wait_for_selector("html[data-ready]", timeout=120_000)
        device, facts = page.get_attribute("html", "data-device"), page.inner_text("#facts")
    page.close()
    assert device and "Checked at the start: the tokens of 8 of 8 sentences are the same" in facts
    return device, facts


def test_the_page_runs_on_webgpu_where_its_vectors_are_right(chromium: "Browser", webgpu_site: Path) -> None:
    device, facts = facts_on(chromium, webgpu_site, "?device=webgpu")
    assert device == "webgpu"
    assert "Everything runs in this page, on WebGPU (" in facts


def test_wrong_vectors_on_webgpu_bring_the_page_back_to_webassembly(
    chromium: "Browser", webgpu_site: Path, tmp_path: Path
) -> None:
    start = "export async function vectorsOf(session, feeds) {"
    script = (webgpu_site / "graph.js").read_text()
    wrong = f"let calls = 0;\n{start}\n  if ((calls += 1) <= 8) return {{ data: new Float32Array(24).fill(1) }};"
    assert start in script
    (tmp_path / "graph.js").write_text(script.replace(start, wrong))
    device, facts = facts_on(chromium, webgpu_site, "?device=webgpu", tmp_path / "graph.js")
    assert device == "wasm"
    assert "in WebAssembly on one thread. WebGPU is not used: a vector has a cosine of" in facts


def test_the_address_chooses_webassembly(chromium: "Browser", site: Path) -> None:
    device, facts = facts_on(chromium, site, "?device=wasm")
    assert device == "wasm"
    assert "WebGPU is not used: the address of this page says so." in facts
