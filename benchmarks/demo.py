"""Run the demo: distil, export and bench `recipes/minilm_ru3.yaml`, and print how long each command took.

    python benchmarks/demo.py

Writes runs/minilm_ru3. Finished steps are reused: a second run trains nothing and prints the existing report. The first
takes 20 to 25 minutes on two cores. `make demo` runs this script.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

RUN = Path("runs/minilm_ru3")
REPORT = RUN / "bench.md"
MANIFEST = RUN / "bundle" / "manifest.json"
COMMANDS = (["distill", "recipes/minilm_ru3.yaml"], ["export", "--onnx", "--quantize"], ["bench", "--device", "cpu"])


def main() -> None:
    """Run the three commands, the last one only if the bundle is newer than its report."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    seconds = {}
    for command in COMMANDS:
        if command[0] == "bench" and REPORT.exists() and REPORT.stat().st_mtime >= MANIFEST.stat().st_mtime:
            sys.stdout.write(f"\n{REPORT} is newer than the bundle:\n\n{REPORT.read_text()}\n")
            continue
        sys.stdout.write(f"\n$ xcompress {' '.join(command)}\n")
        sys.stdout.flush()
        start = time.monotonic()
        result = subprocess.run([str(Path(sys.executable).with_name("xcompress")), *command], check=False)
        if result.returncode:
            sys.exit(result.returncode)
        seconds[command[0]] = time.monotonic() - start
    seconds["together"] = sum(seconds.values())
    for name, duration in seconds.items():
        minutes, rest = divmod(round(duration), 60)
        sys.stdout.write(f"{name:8s} {minutes:3d} min {rest:2d} s\n")


if __name__ == "__main__":
    main()
