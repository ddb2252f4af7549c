"""Run the demo as a newcomer would type it, with the time of each command, and end with the report.

What is finished is reused: a second run trains nothing and shows the report that is there.
"""

import subprocess
import sys
import time
from pathlib import Path

RUN = Path("runs/minilm_ru3")
REPORT = RUN / "bench.md"
MANIFEST = RUN / "bundle" / "manifest.json"
COMMANDS = (
    ["distill", "recipes/minilm_ru3.yaml"],
    ["export", "--onnx", "--quantize"],
    ["bench", "--device", "cpu"],
)


def main() -> None:
    """Run the three commands; the last only where the bundle is newer than its report."""
    times = []
    for command in COMMANDS:
        if command[0] == "bench" and _is_current(REPORT):
            sys.stdout.write(f"\n{REPORT} is newer than the bundle, shown again:\n\n{REPORT.read_text()}\n")
            continue
        times.append((command[0], _seconds(command)))
    times.append(("together", sum(seconds for _, seconds in times)))
    for name, seconds in times:
        minutes, rest = divmod(round(seconds), 60)
        sys.stdout.write(f"{name:8s} {minutes:3d} min {rest:2d} s\n")


def _is_current(report: Path) -> bool:
    return report.exists() and report.stat().st_mtime >= MANIFEST.stat().st_mtime


def _seconds(command: list[str]) -> float:
    sys.stdout.write(f"\n$ xcompress {' '.join(command)}\n")
    sys.stdout.flush()
    started = time.monotonic()
    done = subprocess.run([str(Path(sys.executable).with_name("xcompress")), *command], check=False)
    if done.returncode:
        sys.exit(done.returncode)
    return time.monotonic() - started


if __name__ == "__main__":
    main()
