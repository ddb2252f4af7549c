"""Which graphs onnxruntime-web computes correctly on WebGPU; writes a table into xcompress/bench/README.md.

    python benchmarks/webgpu.py student=runs/minilm_ru3/bundle tiny

Every graph of every bundle is opened in headless Chromium, on its WebGPU adapter and in WebAssembly, and its vectors of
32 sentences are compared with those of native onnxruntime. `name=bundle` sets the name in the table. Nothing is timed:
where the adapter is SwiftShader, the processor computes.
"""

import argparse
from pathlib import Path

from xcompress.bench.workers.browser import BrowserWorker, check_browser, find_adapter
from xcompress.bench.workers.client import WorkerFailed
from xcompress.bundle.manifest import graphs_of, read_manifest
from xcompress.bundle.released import find_bundle
from xcompress.console import markdown_table, run_script
from xcompress.files import write_between_markers
from xcompress.web.onnxruntime_web import version_of

PAGE = Path(__file__).parent.parent / "xcompress" / "bench" / "README.md"
DEVICES = ("webgpu", "wasm")


def main() -> None:
    """Open every graph on both devices and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="+", help="bundles or released models; name=bundle sets the name in the table")
    graphs = []
    for argument in parser.parse_args().bundles:
        name, _, bundle = argument.rpartition("=")
        folder = find_bundle(bundle)
        graphs.append((name or bundle, folder, graphs_of(folder, read_manifest(folder))))
    tools = {device: check_browser(device=device) for device in DEVICES}
    rows = []
    for name, folder, precisions in graphs:
        for precision in precisions:
            found = []
            for device in DEVICES:
                try:
                    with BrowserWorker(folder, precision, slow_down=1, tools=tools[device]) as worker:
                        reply = worker.ask("load", sentence="rain")
                        found.append(f"{reply['browser']['parity']:.5f}")
                except WorkerFailed as error:
                    found.append(f"refused: {error}")
            rows.append([name, precision, *found])
    adapter = find_adapter(tools["webgpu"])
    table = markdown_table(["bundle", "graph", "on WebGPU", "in WebAssembly"], rows)
    software = ", in software" if adapter.software else ""
    where = f"onnxruntime-web {version_of(tools['webgpu'].onnxruntime_web)}, adapter {adapter.name}{software}."
    write_between_markers(PAGE, "webgpu", "benchmarks/webgpu.py", f"{table}\n\n{where}")


if __name__ == "__main__":
    run_script(main)
