"""Measure the time of `import xcompress.bundle.encoder`, and of importing the libraries that it needs.

    python benchmarks/import_time.py [--rounds 11]

Each import runs in a process of its own. The two alternate, after one round that is not counted. Prints medians and
minima in seconds, without the start of the interpreter.
"""

import argparse
import statistics
import subprocess

from xcompress.console import emit, markdown_table
from xcompress.python_process import python_command

IMPORTS = {
    "numpy, tokenizers and onnxruntime": "numpy, tokenizers, onnxruntime",
    "xcompress.bundle.encoder": "xcompress.bundle.encoder",
}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    rounds = parser.parse_args().rounds
    if rounds < 1:
        parser.error("--rounds: at least 1")
    seconds: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for _ in range(rounds + 1):
        for name, modules in IMPORTS.items():
            code = f"import time\nstart = time.perf_counter()\nimport {modules}\nprint(time.perf_counter() - start)"
            result = subprocess.run(python_command("-c", code), capture_output=True, text=True, check=True)
            seconds[name].append(float(result.stdout))
    rows = [[name, f"{statistics.median(times[1:]):.3f}", f"{min(times[1:]):.3f}"] for name, times in seconds.items()]
    emit(markdown_table(["import of", "median, s", "least, s"], rows))


if __name__ == "__main__":
    main()
