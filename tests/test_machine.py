"""The processors that a process may use: its affinity mask, and the quota of the control groups of Linux."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.helpers.student import bundle
from xcompress import machine
from xcompress.bundle.encoder import Encoder
from xcompress.machine import available_cores, available_threads
from xcompress.python_process import python_command

VERSION_1 = "4:memory:/docker/1f\n3:cpu,cpuacct:/docker/1f\n0::/docker/1f\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of eight processors, two to each core, without control groups."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    for name in ("CGROUPS", "OWN_CGROUPS", "PROCESSORS"):
        monkeypatch.setattr(machine, name, tmp_path / name.lower())
    for number in range(8):
        core = number % 4
        write(tmp_path, {f"processors/cpu{number}/topology/thread_siblings_list": f"{core},{core + 4}\n"})
    return tmp_path


def write(place: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text, encoding="ascii")


@pytest.mark.parametrize(
    ("own", "files", "threads"),
    [
        ("0::/\n", {}, 8),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 8),
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "1000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "9900000 100000\n"}, 8),
        ("0::/a.slice/b.service\n", {"a.slice/b.service/cpu.max": "300000 100000\n"}, 3),
        ("0::/a.slice/b.service\n", {"a.slice/b.service/cpu.max": "max 100000\n", "a.slice/cpu.max": "5 1\n"}, 5),
        ("0::/a.slice/b.service\n", {"a.slice/b.service/cpu.max": "2 1\n", "a.slice/cpu.max": "5 1\n"}, 2),
        ("0::/../../b.service\n", {"cpu.max": "3 1\n"}, 3),
        (VERSION_1, {"cpu,cpuacct/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, 8),
        (VERSION_1, {"cpu,cpuacct/cpu.cfs_quota_us": "300000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, 3),
        (
            VERSION_1,
            {"cpu,cpuacct/docker/1f/cpu.cfs_quota_us": "25\n", "cpu,cpuacct/docker/1f/cpu.cfs_period_us": "10\n"},
            3,
        ),
    ],
)
def test_the_quota_of_a_container_limits_the_threads(
    place: Path, own: str, files: dict[str, str], threads: int
) -> None:
    write(place, {"own_cgroups": own, **{f"cgroups/{name}": text for name, text in files.items()}})
    assert available_threads() == threads
    assert available_cores() == min(threads, 4), "two processors share a core"


def test_cores_are_those_of_the_processors_that_may_be_used(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 5})
    assert (available_threads(), available_cores()) == (3, 2)
    monkeypatch.setattr(machine, "PROCESSORS", place / "none")
    assert available_cores() == 3, "each is a core where the system does not say"
    monkeypatch.delattr(os, "sched_getaffinity")
    assert (available_threads(), available_cores()) == (8, 8)


@pytest.mark.parametrize(("quota", "threads"), [("max", 0), ("6", 4), ("2", 2)])
def test_an_encoder_leaves_the_choice_to_the_engine_only_on_a_whole_machine(
    place: Path, quota: str, threads: int
) -> None:
    write(place, {"own_cgroups": "0::/\n", "cgroups/cpu.max": f"{quota} 1\n"})

    def threads_of(**options: int) -> int:
        return Encoder(bundle(), **options).session.get_session_options().intra_op_num_threads

    assert (threads_of(), threads_of(threads=3)) == (threads, 3)


OUTSIDE = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[2])})
from xcompress import Encoder
encoder = Encoder(sys.argv[1])
print({number for thread in os.listdir("/proc/self/task") for number in os.sched_getaffinity(int(thread))})
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="not Linux")
def test_no_thread_of_an_encoder_leaves_the_processors_of_its_process() -> None:
    """Without a number of threads, onnxruntime binds one to each core of the machine, also to those left out."""
    for number in sorted(os.sched_getaffinity(0))[:2]:
        command = python_command("-c", OUTSIDE, str(bundle()), str(number))
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == f"{{{number}}}"
