import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import chain
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import psutil
import pytest

from tests.helpers.process import run, start, start_workers
from tests.helpers.recipe import FROM_SCRATCH, stages_of, write_recipe
from xcompress import released_names
from xcompress.distillation import distributed, failures
from xcompress.errors import InputError
from xcompress.files import read_json

LAUNCH = [sys.executable, "-m", "torch.distributed.run"]
TORCHRUN = [*LAUNCH, "--standalone", "--nproc-per-node", "2", "-m", "xcompress"]
BF16 = {"ACCELERATE_MIXED_PRECISION": "bf16"}
COMPARED = ("assistant", "embedding", "imitation")
"""The stages whose losses are compared."""
STEPS = 40
CHANGES = [
    "precision=float32",  # in bfloat16 the order of additions shows, and a small random model magnifies it
    *(f"stages.{name}.steps={STEPS}" for name in COMPARED),
    "stages.contrast.steps=4",
    # losses are logged with four decimals
    "stages.assistant.objectives={teacher: 100, contrast: 1000, correlation: 1}",
    "stages.assistant.correlation_pairs=4",
    "stages.contrast.objectives={teacher: 100, contrast: 1000}",
    "stages.imitation.objectives={assistant: 100}",
    "stages.imitation.learning_rate=1.0e-4",  # at 1e-3, 40 steps magnify the last digit a thousandfold
]


def command_for(recipe: Path, folder: Path) -> list[str]:
    groups = f"correlation={{teacher: {{source: {recipe.parent / 'teacher'}}}}}"
    return ["distill", str(recipe), *CHANGES, groups, "--run-folder", str(folder)]


def losses(folder: Path) -> dict[str, list[float]]:
    """Return the loss log of each stage of a run."""
    manifest = read_json(folder / "manifest.json")
    facts = {name: step["facts"] for name, step in manifest["steps"].items()}
    return {name: [point["loss"] for point in fact["loss"]] for name, fact in facts.items() if "loss" in fact}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"))


@pytest.fixture(scope="module")
def alone(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    finish([start(command_for(recipe, folder / "run"), folder / "0.log", BF16)], folder)
    return folder / "run"


def finish(workers: list[ForkServerProcess], folder: Path) -> None:
    """Wait for workers, which must end well."""
    for rank, worker in enumerate(workers):
        worker.join()
        assert worker.exitcode == 0, (folder / f"{rank}.log").read_text()[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "again", "compared"),
    [
        (2, "1-assistant", ("1-assistant", "2-embedding")),
        pytest.param(4, "3-imitation", ("3-imitation",), marks=pytest.mark.exhaustive),
    ],
)
def test_workers_have_the_loss_of_one_at_the_same_batch(
    workers: int,
    again: str,
    compared: tuple[str, ...],
    recipe: Path,
    alone: Path,
    tmp_path: Path,
) -> None:
    """Both start a stage from the same files; in earlier steps, rounding to float16 would magnify the last digit."""
    folder = Path(shutil.copytree(alone, tmp_path / "run"))
    shutil.rmtree(folder / again)
    logs = [tmp_path / f"{rank}.log" for rank in range(workers)]
    finish(start_workers(command_for(recipe, folder), logs, BF16), tmp_path)
    expected, actual = losses(alone), losses(folder)
    for stage in compared:
        assert len(actual[stage]) >= STEPS / 4
        assert actual[stage] == pytest.approx(expected[stage], rel=1e-3), stage
    assert read_json(folder / "manifest.json")["machine"]["workers"] == workers


def test_one_worker_of_torchrun_prints() -> None:
    done = subprocess.run([*TORCHRUN, "models", "--json"], capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    assert {model["name"] for model in json.loads(done.stdout)} == set(released_names())


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """A command without its run folder, and the run of one process."""
    folder = tmp_path_factory.mktemp("scratch")
    objectives = "{unified: 1, alignment: 2, similarity: 2, moving_teacher: 10}"
    stage = stages_of(dual=f"objectives: {objectives}, steps: {STEPS}, learning_rate: 3.0e-3, moving_decay: 0.9")
    command = ["distill", str(write_recipe(folder / "recipe")), *FROM_SCRATCH, stage, "precision=float32", "--run"]
    run([*command, str(folder / "alone")], folder / "alone.log")
    return command, folder / "alone"


def copy_of_start(alone: Path, folder: Path) -> Path:
    """Copy the student before the stage: a trained vocabulary is not the same in every process."""
    shutil.copytree(alone / "start", folder / "start")
    return folder


@pytest.mark.slow
def test_a_worker_that_is_killed_stops_the_others_with_one_line_and_the_run_goes_on_later(
    scratch: tuple[list[str], Path], tmp_path: Path
) -> None:
    command, alone = scratch
    folder = copy_of_start(alone, tmp_path / "run")
    logs = [tmp_path / f"{rank}.log" for rank in range(2)]
    workers = start_workers([*command, str(folder)], logs)
    while not list(folder.glob("work/1-*/checkpoint-*/complete")):
        assert workers[0].is_alive()
        time.sleep(0.01)
    workers[0].kill()
    workers[1].join(300)
    assert workers[1].exitcode == 1
    last = logs[1].read_text().splitlines()[-1]
    assert last.startswith("error: worker 1 of 2: another worker has ended") and "it goes on at the last" in last
    assert "Traceback" not in logs[1].read_text()

    finish(start_workers([*command, str(folder)], logs), tmp_path)
    manifest = read_json(folder / "manifest.json")
    assert manifest["machine"]["workers"] == 2
    assert manifest["steps"]["1-dual"]["facts"]["seconds_before"] > 0
    assert losses(folder)["1-dual"] == pytest.approx(losses(alone)["1-dual"], rel=1e-3)


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_workers(scratch: tuple[list[str], Path], tmp_path: Path) -> None:
    """A checkpoint holds the pairs of one worker; each of two gets half of them."""
    command, alone = scratch
    folder = copy_of_start(alone, tmp_path / "run")
    worker = start([*command, str(folder)], tmp_path / "one.log")
    while not list(folder.glob("work/1-*/checkpoint-*/complete")):
        assert worker.is_alive()
        time.sleep(0.01)
    worker.kill()
    worker.join()
    finish(start_workers([*command, str(folder)], [tmp_path / f"{rank}.log" for rank in range(2)]), tmp_path)
    assert read_json(folder / "manifest.json")["steps"]["1-dual"]["facts"]["seconds_before"] > 0
    assert losses(folder)["1-dual"] == pytest.approx(losses(alone)["1-dual"], rel=1e-3)


def expect_frequent_beats() -> None:
    failures.BEAT, failures.SILENCE = 0.5, 5.0


@pytest.mark.slow
@pytest.mark.parametrize("silent", [pytest.param(0, marks=pytest.mark.exhaustive), 1])
def test_a_worker_that_falls_silent_stops_the_others_with_one_line_and_the_run_goes_on_later(
    silent: int, scratch: tuple[list[str], Path], tmp_path: Path
) -> None:
    """A stopped process keeps its connections open, as a host does that loses its power; worker 0 has the store."""
    command, alone = scratch
    folder = copy_of_start(alone, tmp_path / "run")
    logs = [tmp_path / f"{rank}.log" for rank in range(2)]
    workers = start_workers([*command, str(folder)], logs, prepare=expect_frequent_beats)
    while not list(folder.glob("work/1-*/checkpoint-*/complete")):
        assert workers[0].is_alive()
        time.sleep(0.01)
    psutil.Process(workers[silent].pid).suspend()
    other = 1 - silent
    workers[other].join(100)
    assert workers[other].exitcode == 1
    assert f"error: worker {other} of 2: no sign of life from worker {silent} for 5 s;" in logs[other].read_text()
    assert "Traceback" not in logs[other].read_text()
    workers[silent].kill()
    workers[silent].join()

    finish(start_workers([*command, str(folder)], logs), tmp_path)
    assert losses(folder)["1-dual"] == pytest.approx(losses(alone)["1-dual"], rel=1e-3)


@pytest.mark.exhaustive
def test_two_hosts_have_the_loss_of_one_process_and_stop_when_one_disappears(
    scratch: tuple[list[str], Path], tmp_path: Path
) -> None:
    """Two launchers with addresses of their own on the loopback interface, as two hosts with a common run folder."""
    command, alone = scratch
    folder = copy_of_start(alone, tmp_path / "run")
    command = [*command[:-1], "--run-folder", str(folder)]  # torchrun would take --run for an option of its own
    first, second = start_hosts(command, tmp_path)
    while not list(folder.glob("work/1-*/checkpoint-*/complete")):
        assert first.poll() is None
        time.sleep(0.01)
    for process in (second, *psutil.Process(second.pid).children(recursive=True)):
        process.kill()
    assert first.wait(300) == 1
    said = (tmp_path / "0.log").read_text()
    assert "error: worker 0 of 2: another worker has ended" in said or "SIGTERM" in said
    assert not (folder / "manifest.json").exists()
    shared = sorted(chain((alone / "corpus").glob("*.*.*"), (alone / "tokens_translations").glob("*.npy")))
    assert len({file.parent for file in shared}) == 2
    for file in shared:  # each host filtered and tokenised a share
        assert (folder / file.parent.name / file.name).read_bytes() == file.read_bytes(), file.name

    finish(start_workers(command, [tmp_path / f"{rank}.log" for rank in range(2)]), tmp_path)
    assert losses(folder)["1-dual"] == pytest.approx(losses(alone)["1-dual"], rel=1e-3)


def start_hosts(command: list[str], folder: Path) -> list[subprocess.Popen[bytes]]:
    """Start torchrun on 127.0.0.2 and 127.0.0.3, with one worker each; the first has the rendezvous."""
    with socket.socket() as free:
        free.bind(("127.0.0.2", 0))
        port = free.getsockname()[1]
    hosts = []
    for number, address in enumerate(("127.0.0.2", "127.0.0.3")):
        options = f"--nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint 127.0.0.2:{port} --rdzv-id test"
        options += f" --rdzv-conf is_host={1 - number} --local-addr {address} -m xcompress"
        log = (folder / f"{number}.log").open("wb")
        environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo"}
        hosts.append(subprocess.Popen([*LAUNCH, *options.split(), *command], stdout=log, stderr=log, env=environment))
    return hosts


def as_host() -> None:
    """Make a worker the only one of its host, with a folder of its own."""
    os.environ |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    os.chdir(f"host-{os.environ['RANK']}")


@pytest.mark.parametrize(
    "change",
    [Path.unlink, lambda text: text.write_text("another\tText\n")],
    ids=["a file is missing", "a file differs"],
)
def test_a_host_with_other_text_stops_the_run_and_says_so(
    change: Callable[[Path], object], recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for host in range(2):
        (tmp_path / f"host-{host}").mkdir()
        shutil.copy(recipe.with_name("en-de.tsv"), tmp_path / f"host-{host}/text.tsv")
    change(tmp_path / "host-1/text.tsv")
    monkeypatch.chdir(tmp_path)
    command = ["distill", str(recipe), "languages=[de]", "corpus.tsv=[{source: text.tsv, language: de}]"]
    logs = [tmp_path / f"{rank}.log" for rank in range(2)]
    for worker in start_workers([*command, "--run-folder", str(tmp_path / "run")], logs, prepare=as_host):
        worker.join()
        assert worker.exitcode == 2
    said = (
        "error: corpus: files not the same for all workers; give every host the same text and models, under the same "
        "paths"
    )
    assert [log.read_text().splitlines()[-1] for log in logs] == [said, said]


@pytest.mark.parametrize(("variable", "name"), distributed.NOT_SUPPORTED.items())
def test_what_cuts_a_model_into_parts_is_refused(
    variable: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "true")
    distributed.workers.cache_clear()
    with pytest.raises(InputError, match=rf"^accelerate: {name} is set up .*; answer no to {name} in"):
        distributed.workers()


def test_a_batch_that_cannot_be_shared_is_refused(recipe: Path, tmp_path: Path) -> None:
    command = ["distill", str(recipe), "stages.contrast.batch_size=7", "--run-folder", str(tmp_path / "run")]
    logs = [tmp_path / f"{rank}.log" for rank in range(2)]
    for worker in start_workers(command, logs):
        worker.join()
        assert worker.exitcode == 2
    assert "stages.contrast.batch_size: 7 cannot be shared equally by 2 workers" in logs[0].read_text()
