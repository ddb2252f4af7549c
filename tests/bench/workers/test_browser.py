import base64
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from threading import Thread
from time import sleep
from types import SimpleNamespace
from urllib.request import urlopen

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.helpers.student import SENTENCES, bundle, change_manifest, save_student
from xcompress.bench.devices.browser import emulation_notes
from xcompress.bench.workers.browser import Adapter, BrowserWorker, Tools, check_browser, find_adapter
from xcompress.bench.workers.browser import page as page_module
from xcompress.bench.workers.browser import tools as tools_module
from xcompress.bench.workers.browser import worker as worker_module
from xcompress.bench.workers.browser.worker import LEAST_PARITY, native_cosine
from xcompress.bench.workers.client import WorkerFailed, decode_vectors
from xcompress.bundle.encoder import Encoder
from xcompress.errors import InputError
from xcompress.export.config import ExportConfig
from xcompress.export.exporter import export
from xcompress.files import sha256_of
from xcompress.web.onnxruntime_web import BUILDS, find_package

IDS = [[0, 5, 6, 2]]
BATCH = [[0, *[7] * 98, 2]] * 16
LOAD = {"kind": "onnx", "source": "", "precision": "int8", "sentence": "rain", "input_ids": IDS}
GRAPH = "onnx/model.onnx"


def in_browser(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that starts Chromium, with onnxruntime-web that npm may have to fetch."""
    return pytest.mark.browser(pytest.mark.network(test))


@pytest.fixture(scope="module")
def tools(request: pytest.FixtureRequest) -> Tools:
    """Find a browser, and onnxruntime-web: named by a variable, or among the packages of transformers.js."""
    if find_spec("playwright") is None:
        pytest.skip("playwright is not installed")
    named = os.environ.get("XCOMPRESS_ONNXRUNTIME_WEB")
    package = named or request.getfixturevalue("node_packages") / "node_modules/onnxruntime-web"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XCOMPRESS_ONNXRUNTIME_WEB", str(package))
        try:
            return Tools(tools_module.find_browser(), find_package())
        except LookupError as error:
            pytest.skip(str(error))


@pytest.mark.skipif(os.name == "nt", reason="C:/ is a drive there")
def test_a_program_in_the_current_folder_is_no_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(tools_module.CHROME_PATH, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(tools_module, "_PLACES", [place for place in tools_module._PLACES if place.startswith("C:")])
    assert tools_module._PLACES
    for place in tools_module._PLACES:
        Path(place).parent.mkdir(parents=True)
        Path(place).touch(mode=0o755)
    with pytest.raises(LookupError, match="a Chromium: install chromium"):
        tools_module.find_browser()


@pytest.fixture(scope="module")
def loaded(tools: Tools) -> Iterator[tuple[BrowserWorker, dict]]:
    with BrowserWorker(bundle(), "int8", tools=tools) as worker:
        yield worker, worker.ask("load", **LOAD)


@pytest.fixture
def worker(loaded: tuple[BrowserWorker, dict]) -> BrowserWorker:
    return loaded[0]


def relist(folder: Path, *names: str) -> None:
    """Update the sizes and hashes of files in the manifest."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in names:
        file = folder / name
        manifest["files"][name] = {"bytes": file.stat().st_size, "sha256": sha256_of(file)}
    change_manifest(folder, files=manifest["files"])


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(true: Callable[[], bool]) -> bool:
    for _ in range(100):
        if true():
            return True
        sleep(0.1)
    return False


def encode_singly(worker: BrowserWorker, texts: list[str]) -> dict:
    return worker.ask("encode", texts=texts, batch_size=1)


@in_browser
def test_load_reports_seconds_and_memory(loaded: tuple[BrowserWorker, dict]) -> None:
    worker, reply = loaded
    assert set(reply["seconds"]) == {"import", "model", "first_vector"}
    assert reply["seconds"]["import"] > 0.02, "the runtime's megabytes are compiled"
    assert min(reply["seconds"].values()) > 0
    browser = reply["browser"]
    assert set(browser) == {"version", "slow_down", "runtime", "js_heap", "wasm_memory", "parity"}
    assert 10**7 < browser["runtime"] < 2 * 10**7, "the smallest build of onnxruntime-web"
    assert int(browser["version"].partition(".")[0]) > 90
    assert browser["slow_down"] == 4
    assert browser["wasm_memory"] % 65536 == 0, "WebAssembly has pages of this size"
    assert 2**20 < browser["wasm_memory"] < 2**28
    assert 10**5 < browser["js_heap"] < 10**8
    assert 0 < reply["bare"] < browser["js_heap"], "the bare page has no runtime"
    assert reply["resident"] == pytest.approx(browser["js_heap"] + browser["wasm_memory"] - reply["bare"], rel=0.02)
    assert worker.ask("memory")["peak"] >= reply["peak"] >= reply["resident"]
    assert browser["parity"] >= 0.999


@in_browser
def test_vectors_are_those_outside_the_browser(worker: BrowserWorker) -> None:
    check_vectors(worker, "int8", 0.03)


@pytest.mark.exhaustive
@in_browser
def test_vectors_in_float32_are_those_outside_the_browser(tools: Tools) -> None:
    with BrowserWorker(bundle(), "fp32", slow_down=1, tools=tools) as worker:
        worker.ask("load", **LOAD)
        check_vectors(worker, "fp32", 1e-5)


def check_vectors(worker: BrowserWorker, precision: str, tolerance: float) -> None:
    texts = [*SENTENCES, "", "half a pair \ud800", "the boat " * 200]
    assert native_cosine(encode_singly(worker, texts), bundle(), texts, precision) >= 0.999
    found = decode_vectors(worker.ask("encode", texts=texts), len(texts))
    assert worker.ask("encode", texts=[])["shape"][0] == 0
    expected = Encoder(bundle(), precision=precision, threads=1).encode(texts)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=tolerance)


def test_fewer_vectors_than_texts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy would repeat a single one for each text."""
    worker = BrowserWorker.__new__(BrowserWorker)
    worker._manifest, worker._page = {"dimension": 1}, SimpleNamespace(slow_down=lambda _: None)
    monkeypatch.setattr(worker, "_tokenize", lambda _: ([[3], [4]], 1))
    monkeypatch.setattr(worker, "_call", lambda *_, **__: {"vectors": "AAAAAA==", "shape": [1, 1]})
    with pytest.raises(WorkerFailed, match=r"another number of vectors \(1\) than of texts \(2\)"):
        worker._do_encode(["rain", "snow"])


def test_vectors_are_compared_with_those_of_onnxruntime(bundle_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default, OpenVINO opens a bundle that was exported for it."""
    vectors = Encoder(bundle(), precision="int8", threads=1).encode(SENTENCES, batch_size=1)
    reply = {"vectors": base64.b64encode(vectors.tobytes()).decode(), "shape": list(vectors.shape)}
    change_manifest(bundle_copy, target="openvino", operators="standard")
    monkeypatch.setattr("xcompress.bundle.engines.is_installed", lambda _: True)
    monkeypatch.setattr("xcompress.bundle.engines.OpenVinoSession", lambda *_, **__: pytest.fail("OpenVINO opens it"))
    assert native_cosine(reply, bundle_copy, SENTENCES, "int8") > 0.9999


@in_browser
def test_parity_falls_where_vectors_differ(worker: BrowserWorker) -> None:
    reply = encode_singly(worker, SENTENCES[::-1])
    assert native_cosine(reply, bundle(), SENTENCES, "int8") < 0.99


@pytest.mark.exhaustive
@in_browser
def test_slow_down_makes_calls_slower(worker: BrowserWorker) -> None:
    seconds: dict[float, list[float]] = {1: [], 4: []}
    try:
        for turn in range(8):
            worker.slow_down = (1, 4)[turn % 2]
            reply = worker.ask("time", input_ids=BATCH, calls=10, warm=turn < 2)["seconds"]
            assert len(reply) == 10
            seconds[worker.slow_down] += reply
    finally:
        worker.slow_down = 4
    assert median(seconds[4]) > 1.7 * median(seconds[1])


@in_browser
def test_the_clock_is_finer_than_a_tenth_of_a_millisecond(worker: BrowserWorker) -> None:
    seconds = worker.ask("time", input_ids=IDS, calls=200, warm=True)["seconds"]
    assert any(abs(one * 10**4 - round(one * 10**4)) > 0.01 for one in seconds), "not in steps of 0.1 ms"


@in_browser
def test_throughput_counts_tokens(worker: BrowserWorker) -> None:
    reply = worker.ask("throughput", texts=SENTENCES * 8)
    assert reply["tokens"] == 8 * sum(map(len, Encoder(bundle()).token_ids(SENTENCES)))
    assert reply["seconds"] > 0
    assert reply["tokenizer"] is None


@in_browser
def test_the_browser_keeps_one_thread(worker: BrowserWorker) -> None:
    assert worker.ask("threads", count=8) == {}


@in_browser
def test_unknown_requests_are_refused(worker: BrowserWorker) -> None:
    with pytest.raises(WorkerFailed, match="does not answer 'tokenizer'"):
        worker.ask("tokenizer", file="x")


@in_browser
def test_an_error_in_the_page_is_one_line_and_leaves_it_alive(worker: BrowserWorker) -> None:
    with pytest.raises(WorkerFailed) as caught:
        worker.ask("time", input_ids=[[10**9]], calls=1, warm=False)
    assert "\n" not in str(caught.value)
    assert worker.ask("time", input_ids=IDS, calls=1, warm=False)["seconds"]


@in_browser
def test_no_request_leaves_the_machine(worker: BrowserWorker) -> None:
    served = {"page.html", "page.js", "graph.js", "ort", "bundle"}
    for address in worker._page.requests:
        assert address.startswith(worker._server.address + "/")
        assert address.removeprefix(worker._server.address).split("/")[1] in served
    assert len(worker._page.requests) == 7, "page, its two scripts, three files of the runtime, the graph"


@in_browser
def test_the_page_may_ask_its_own_server_alone(worker: BrowserWorker) -> None:
    asked = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *values: object) -> None:
            pass

    other = ThreadingHTTPServer(("127.0.0.1", 0), Other)
    Thread(target=other.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{other.server_address[1]}/"
    script = "address => fetch(address, {mode: 'no-cors'}).then(() => 'reached', () => 'refused')"
    try:
        page = worker._page._page
        assert worker._thread.submit(page.evaluate, script, address).result() == "refused"
        assert worker._thread.submit(page.evaluate, script, worker._server.address + "/page.js").result() == "reached"
        urlopen(address).close()
    finally:
        other.shutdown()
        other.server_close()
    assert asked == ["/"], "the page's own request did not come"


@in_browser
def test_external_data_is_served(tools: Tools, bundle_copy: Path) -> None:
    model = onnx.load(bundle_copy / GRAPH)
    onnx.save(
        model, bundle_copy / GRAPH, save_as_external_data=True, location="weights of it.data", size_threshold=1024
    )
    relist(bundle_copy, GRAPH, "onnx/weights of it.data")
    with BrowserWorker(bundle_copy, "fp32", slow_down=1, tools=tools) as worker:
        assert worker.ask("load", **LOAD)["browser"]["parity"] >= 0.9999
        assert any("weights%20of%20it.data" in address for address in worker._page.requests)


@in_browser
@pytest.mark.usefixtures("little_text")
def test_a_loop_in_ort_format_runs_in_the_browser(tools: Tools, tmp_path: Path) -> None:
    made = export(save_student(tmp_path / "small"), options=ExportConfig(target="mobile"))
    graph = next(path for path in made.rglob("*.ort"))
    change_manifest(made, graphs={"int8": graph.relative_to(made).as_posix()})
    with BrowserWorker(made, "int8", slow_down=1, tools=tools) as worker:
        assert worker.ask("load", **LOAD)["browser"]["parity"] >= 0.999
        assert worker._page.requests[-1].endswith(".ort")


@in_browser
def test_an_unknown_operator_fails_the_worker(tools: Tools, bundle_copy: Path) -> None:
    given = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["n", "l"])
    made = helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["n", 24])
    node = helper.make_node("NoSuchThing", ["input_ids"], ["sentence_embedding"], domain="com.nobody")
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.nobody", 1)]
    graph = helper.make_graph([node], "broken", [given], [made])
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), bundle_copy / GRAPH)
    relist(bundle_copy, GRAPH)
    with BrowserWorker(bundle_copy, "fp32", slow_down=1, tools=tools) as worker:
        with pytest.raises(WorkerFailed, match="NoSuchThing") as caught:
            worker.ask("load", **LOAD)
        process = worker._page.process
    assert "\n" not in str(caught.value)
    assert wait_for(lambda: not is_running(process)), "the browser is closed after an error, too"


@in_browser
def test_a_changed_graph_fails_the_worker(tools: Tools, bundle_copy: Path) -> None:
    with (bundle_copy / GRAPH).open("ab") as file:
        file.write(b"\x00")
    with (
        BrowserWorker(bundle_copy, "fp32", tools=tools) as worker,
        pytest.raises(WorkerFailed, match=r"model\.onnx: .*bytes"),
    ):
        worker.ask("load", **LOAD)


@in_browser
def test_a_timeout_ends_the_browser(tools: Tools) -> None:
    with BrowserWorker(bundle(), "int8", slow_down=1, tools=tools) as worker:
        worker.ask("load", **LOAD)
        process = worker._page.process
        assert is_running(process)
        worker.timeout = 1.5
        with pytest.raises(WorkerFailed, match=r"no answer within 1\.5 s"):
            worker.ask("time", input_ids=BATCH, calls=10**7, warm=False)
        assert wait_for(lambda: not is_running(process))
        with pytest.raises(WorkerFailed):
            worker.ask("memory")
    worker.close()
    assert not Path(worker._page._folder.name).exists(), "a killed browser leaves files behind"
    with pytest.raises(WorkerFailed, match="closed"):
        worker.ask("memory")
    with pytest.raises(OSError, match="refused"):
        urlopen(worker._server.address)


@in_browser
def test_a_browser_that_does_not_start_is_reported(tools: Tools) -> None:
    other = Tools(Path("/bin/false"), tools.onnxruntime_web)
    with pytest.raises(WorkerFailed, match="/bin/false does not start") as caught:
        BrowserWorker(bundle(), "int8", tools=other)
    assert "\n" not in str(caught.value)


def hide_everything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide every browser and package."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools_module, "_PLACES", ())
    monkeypatch.delenv("CHROME_PATH", raising=False)
    monkeypatch.delenv("XCOMPRESS_ONNXRUNTIME_WEB", raising=False)


def make_package(folder: Path, lacking: str = "") -> Path:
    (folder / "dist").mkdir(parents=True)
    for name in {name for build in BUILDS.values() for name in build.names} - {lacking}:
        (folder / "dist" / name).write_text("")
    (folder / "package.json").write_text('{"version": "1.99.0"}')
    return folder


def make_program(file: Path) -> Path:
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return file


def test_everything_missing_is_listed_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hide_everything(monkeypatch, tmp_path)
    monkeypatch.setattr(tools_module, "is_installed", lambda _: False)
    with pytest.raises(InputError) as caught:
        check_browser()
    for part in (
        "pip install 'xcompress[browser]'",
        "install chromium or Google Chrome",
        "npm install onnxruntime-web",
    ):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_installed_tools_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hide_everything(monkeypatch, tmp_path)
    monkeypatch.setattr(tools_module, "is_installed", lambda _: True)
    program = make_program(tmp_path / "google-chrome")
    package = make_package(tmp_path / "node_modules/onnxruntime-web")
    (tmp_path / "deep/er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep/er")
    assert check_browser() == Tools(program, package)
    other, elsewhere = make_program(tmp_path / "mine"), make_package(tmp_path / "other")
    monkeypatch.setenv("CHROME_PATH", str(other))
    monkeypatch.setenv("XCOMPRESS_ONNXRUNTIME_WEB", str(elsewhere))
    assert check_browser() == Tools(other, elsewhere)
    gpu = check_browser("webgpu")
    assert (gpu.browser, gpu.device) == (other, "webgpu")
    assert set(gpu.runtime).isdisjoint(check_browser().runtime)


def test_named_tools_must_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hide_everything(monkeypatch, tmp_path)
    monkeypatch.setattr(tools_module, "is_installed", lambda _: True)
    monkeypatch.setenv("CHROME_PATH", "no/such")
    old = make_package(tmp_path / "old", lacking="ort.wasm.min.mjs")
    monkeypatch.setenv("XCOMPRESS_ONNXRUNTIME_WEB", str(old))
    with pytest.raises(InputError, match=r"no/such is not a program.*old has no dist/ort\.wasm\.min\.mjs"):
        check_browser()
    monkeypatch.setenv("CHROME_PATH", str(make_program(tmp_path / "chromium")))
    without = make_package(tmp_path / "without", lacking="ort.jspi.min.mjs")
    monkeypatch.setenv("XCOMPRESS_ONNXRUNTIME_WEB", str(without))
    with pytest.raises(InputError, match=r"--device webgpu: .*onnxruntime-web 1\.30 or later \(.*ort\.jspi\.min\.mjs"):
        check_browser("webgpu")


def test_a_precision_that_the_bundle_lacks_is_refused() -> None:
    nothing = Tools(Path("no browser"), Path("no package"))
    with pytest.raises(InputError, match=r"precision is 'int4', but the graphs are .*fp32"):
        BrowserWorker(bundle(), "int4", tools=nothing)


def test_the_emulation_is_described() -> None:
    assert any("4 times" in line for line in emulation_notes(4.0))
    software = emulation_notes(1.0, Adapter("google swiftshader", software=True))
    assert "adapter: google swiftshader, in software: vectors and accuracy count, the times say nothing" in software[0]
    assert emulation_notes(1.0, Adapter("nvidia", software=False))[0] == "adapter: nvidia"


@pytest.fixture(scope="module")
def gpu_tools(tools: Tools) -> Tools:
    gpu = replace(tools, device="webgpu")
    if missing := [name for name, file in gpu.runtime.items() if not file.is_file()]:
        pytest.skip(f"{tools.onnxruntime_web}: has no {missing[0]}")
    return gpu


@in_browser
def test_webgpu_computes_the_native_vectors_and_others_are_refused(
    gpu_tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_adapter(gpu_tools).name
    monkeypatch.setattr(worker_module, "_PARITY_SENTENCES", 4)  # an adapter in software takes its time
    with BrowserWorker(bundle(), "int8", slow_down=1, tools=gpu_tools) as worker:
        reply = worker.ask("load", **LOAD)
        assert reply["browser"]["parity"] >= 0.999
        assert worker.ask("time", input_ids=IDS, calls=2, warm=True)["seconds"]
        assert any(address.endswith("jspi.wasm") for address in worker._page.requests)
        monkeypatch.setitem(LEAST_PARITY, "int8", 1.5)
        call, opened = worker._call, {"runtime": {"seconds": 1}, "open": {"seconds": 1}}  # which takes many seconds
        monkeypatch.setattr(worker, "_call", lambda name, **request: opened.get(name) or call(name, **request))
        says = r"^webgpu: wrong vectors: a cosine of 1\.0000 to those of native onnxruntime, and 1\.5 is the least; use"
        with pytest.raises(WorkerFailed, match=says):
            worker.ask("load", **LOAD)


@in_browser
def test_a_browser_without_an_adapter_is_refused(gpu_tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(page_module._GPU_FLAGS, "webgpu", ("--disable-gpu",))
    with pytest.raises(InputError, match=r"^--device webgpu: .* has no WebGPU adapter, or no JavaScript Promise"):
        find_adapter(gpu_tools)
