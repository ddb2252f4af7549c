import base64
import getpass
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import xcompress
from tests.helpers.bench import measure_little
from tests.helpers.student import SENTENCES, bundle
from xcompress.bench import machine
from xcompress.bench.devices.ssh import PYTHON, RUNNER, SSH, SshHost
from xcompress.bench.latency import Shape
from xcompress.bench.machine import describe
from xcompress.bench.peak import peak_graph
from xcompress.bench.run import BenchConfig, bench
from xcompress.bench.workers.client import Worker
from xcompress.bundle.encoder import Encoder
from xcompress.errors import InputError

SSHD = "/usr/sbin/sshd"
SEPARATION = Path("/run/sshd")
"""The empty folder that sshd needs when root starts it."""
ALIAS = "a-phone"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_keys(folder: Path) -> None:
    for name in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    shutil.copy(folder / "user_key.pub", folder / "authorized_keys")


def write_configs(folder: Path, port: int) -> None:
    (folder / "home of others").mkdir()
    (folder / "tools").mkdir()
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nPidFile none\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n"
        f'SetEnv "TMPDIR={folder}/home of others" "PATH={folder}/tools:/usr/bin:/bin"\n'
    )
    key = " ".join((folder / "host_key.pub").read_text().split()[:2])
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {key}\n")
    (folder / "ssh_config").write_text(
        f"Host {ALIAS} stranger\n  HostName 127.0.0.1\n  Port {port}\nHost nobody\n  HostName 127.0.0.1\n  Port 1\n"
        f"Host stranger\n  UserKnownHostsFile {folder}/none\n"
        f"Host *\n  User {getpass.getuser()}\n  IdentityFile {folder}/user_key\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {folder}/known_hosts\n  GlobalKnownHostsFile {folder}/none\n  LogLevel ERROR\n"
        "  StrictHostKeyChecking yes\n"
    )


def answers(port: int) -> bool:
    for _ in range(100):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        time.sleep(0.05)
    return False


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start an sshd on loopback and return the folder of its files."""
    if not Path(SSHD).exists() or not shutil.which("ssh") or not shutil.which("ssh-keygen"):
        pytest.skip("needs OpenSSH's client and server")
    folder = tmp_path_factory.mktemp("sshd")
    make_keys(folder)
    port = free_port()
    write_configs(folder, port)
    made = os.geteuid() == 0 and not SEPARATION.exists()
    if made:
        SEPARATION.mkdir(mode=0o755)
    process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=subprocess.PIPE)
    try:
        if not answers(port):
            process.kill()
            pytest.skip(f"sshd does not start here: {process.communicate()[1].decode()[-200:]}")
        yield folder
    finally:
        process.terminate()
        process.communicate()
        if made:
            SEPARATION.rmdir()


@pytest.fixture
def left(server: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point ssh to the server, with this Python; return the server's folder for temporary files."""
    monkeypatch.setattr(machine, "LOAD_SECONDS", 0.05)  # of this machine
    monkeypatch.setenv(SSH, f"ssh -F {shlex.quote(str(server / 'ssh_config'))}")
    monkeypatch.setenv(PYTHON, sys.executable)
    return server / "home of others"


@pytest.fixture
def tools(server: Path) -> Iterator[Path]:
    """Return the folder that comes first on the server's search path; empty it after the test."""
    yield server / "tools"
    for file in (server / "tools").iterdir():
        file.unlink()


@pytest.fixture
def near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace ssh by a script that runs the command here, which is faster; return the folder for temporary files.

    Tests of vectors, measurements and broken connections go through ssh.
    """
    monkeypatch.setattr(machine, "LOAD_SECONDS", 0.05)
    for name in ("tools", "home of others"):
        (tmp_path / name).mkdir()
    setting = f"export TMPDIR='{tmp_path}/home of others' PATH={tmp_path}/tools:/usr/bin:/bin"
    ssh = script(tmp_path / "ssh", f'{setting}\nfor last; do :; done\nexec sh -c "$last"')
    monkeypatch.setenv(SSH, shlex.quote(ssh))
    monkeypatch.setenv(PYTHON, sys.executable)
    return tmp_path / "home of others"


def script(file: Path, lines: str) -> str:
    file.write_text(f"#!/bin/sh\n{lines}\n")
    file.chmod(0o755)
    return str(file)


def fake_python(folder: Path, answer: str) -> str:
    return script(folder / "python there", f"echo '{answer}'")


def test_a_bundle_is_encoded_there_and_nothing_stays(left: Path) -> None:
    with SshHost(ALIAS) as host:
        source = host.copy(bundle())
        assert host.copy(bundle()) == source, "a bundle is copied once"
        with Worker(host.worker_command()) as worker:
            worker.ask("load", kind="onnx", source=source, precision="int8", sentence="rain", input_ids=None)
            reply = worker.ask("encode", texts=SENTENCES)
        assert len(list(left.iterdir())) == 1
    vectors = np.frombuffer(base64.b64decode(reply["vectors"]), "<f4").reshape(reply["shape"])
    np.testing.assert_allclose(vectors, Encoder(bundle(), precision="int8").encode(SENTENCES), atol=1e-5)
    assert not list(left.iterdir())


def test_the_host_is_described(left: Path) -> None:
    with SshHost(ALIAS) as host:
        found = host.machine()
    here = describe()
    assert (found.cpu, found.flags, found.threads, found.memory) == (here.cpu, here.flags, here.threads, here.memory)


def test_only_what_the_manifest_lists_is_copied(near: Path, tmp_path: Path) -> None:
    folder = tmp_path / "it's a bundle"
    shutil.copytree(bundle(), folder)
    (folder / "diary.txt").write_text("not yours")
    (folder / "onnx/model.onnx").unlink()
    with SshHost(ALIAS) as host:
        copied = Path(host.copy(folder))
        names = {file.relative_to(copied).as_posix() for file in copied.rglob("*") if file.is_file()}
    assert {"manifest.json", "tokenizer.json", "onnx/model_quantized.onnx"} <= names
    assert not {"diary.txt", "onnx/model.onnx"} & names


def test_the_folder_is_removed_after_an_error(near: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"), SshHost(ALIAS) as host:
        host.copy(tmp_path / "nothing")
    assert not list(near.iterdir())


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            '[[3, 12], ["numpy", "onnxruntime"]]',
            "lacks numpy onnxruntime; run there: .* -m pip install numpy onnxruntime",
        ),
        ("[[3, 9], []]", r"is Python 3\.9, not 3\.11 or newer; name another one with XCOMPRESS_REMOTE_PYTHON"),
    ],
)
def test_a_host_without_a_requirement_is_refused(
    near: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, said: str
) -> None:
    monkeypatch.setenv(PYTHON, fake_python(tmp_path, answer))
    with pytest.raises(InputError, match=said), SshHost(ALIAS):
        pass
    assert not list(near.iterdir())


def test_a_host_without_python_is_refused(near: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PYTHON, "no-python")
    with pytest.raises(InputError, match=f"^ssh:{ALIAS}: .*not found; install Python"), SshHost(ALIAS):
        pass
    assert not list(near.iterdir())


def refuse(victim: Path) -> None:
    """Open the host, which names the victim or something else as its new folder; see that nothing is removed."""
    victim.mkdir()
    (victim / "passwd").write_text("root")
    with pytest.raises(InputError, match=f"^ssh:{ALIAS}: (mktemp there|printed)") as caught, SshHost(ALIAS):
        pass
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500
    assert [file.name for file in victim.iterdir()] == ["passwd"]


def test_a_folder_of_another_name_than_the_requested_one_is_not_removed(
    left: Path, tools: Path, tmp_path: Path
) -> None:
    script(tools / "mktemp", f"echo '{tmp_path}/etc'")
    refuse(tmp_path / "etc")


@pytest.mark.parametrize(
    "printed",
    [
        "echo '{victim}/xcompress.'",
        "echo '{victim}/../xcompress.abc/..'",
        "echo '{victim}/xcompress.abcdefghij/'",
        "echo xcompress.abcdefghij",
        "echo",
        "true",
        r"printf '{victim}/\377\200/xcompress.abcdefghij'",
        r"printf '{victim}/\033[2J/xcompress.abcdefghij'",
        "head -c 3000000 /dev/zero",
    ],
)
def test_only_a_folder_of_the_requested_name_is_removed(near: Path, tmp_path: Path, printed: str) -> None:
    script(tmp_path / "tools/mktemp", printed.format(victim=tmp_path / "etc"))
    refuse(tmp_path / "etc")


def test_a_greeting_of_the_hosts_shell_is_passed_over(
    near: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    greeting = r"printf 'Welcome!\n42\n{\377 Have a nice day: '"
    ssh = script(tmp_path / "with a greeting", f'{greeting}; exec {os.environ[SSH]} "$@"')
    monkeypatch.setenv(SSH, shlex.quote(ssh))
    with SshHost(ALIAS) as host:
        assert host.machine().cpu == describe().cpu
    assert not list(near.iterdir())


@pytest.mark.parametrize(
    "answer", ["", "[", "[" * 50_000, "null", '[[3, "x"], []]', "[[3, 12], [5]]", "[[3, 12]]", "{}", "\x1b[2J\udcff"]
)
def test_a_python_that_answers_garbage_is_reported(
    near: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    (tmp_path / "answer").write_text(answer, errors="surrogateescape")
    monkeypatch.setenv(PYTHON, script(tmp_path / "python there", f"cat '{tmp_path}/answer'"))
    with pytest.raises(InputError, match=f"^ssh:{ALIAS}: .*is not a Python") as caught, SshHost(ALIAS):
        pass
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500
    assert not list(near.iterdir())


@pytest.mark.parametrize(
    "replies",
    [
        "yes garbage",
        "exec cat /dev/zero",
        "head -c 100000 /dev/urandom",
        "yes '{}'",
        """echo '{"cpu": 5}'""",
        """echo '{"error": ["a\\nb"]}'""",
        "echo '[[[['",
        """yes '' | head -c 100000 >&2; echo gone >&2; exit 3""",
    ],
)
def test_a_worker_that_replies_garbage_is_reported(
    near: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replies: str
) -> None:
    # This Python has all libraries, but its worker prints something else than replies.
    answers = f'case "$*" in *worker*) {replies};; *) echo "[[3, 12], []]";; esac'
    monkeypatch.setenv(PYTHON, script(tmp_path / "python there", answers))
    with SshHost(ALIAS) as host, pytest.raises(InputError, match="cannot be described") as caught:
        host.machine()
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500
    assert not list(near.iterdir())


@pytest.mark.parametrize("flood", ["exec yes", "exec yes >&2"])
def test_a_host_that_prints_without_end_is_left(left: Path, tools: Path, flood: str) -> None:
    script(tools / "mktemp", flood)
    with pytest.raises(InputError, match=f"^ssh:{ALIAS}: printed more than") as caught, SshHost(ALIAS):
        pass
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("host", "said"), [("nobody", "Connection refused"), ("stranger", "Host key verification")])
def test_an_unreachable_host_is_reported(left: Path, host: str, said: str) -> None:
    with pytest.raises(InputError, match=f"^ssh:{host}: cannot be reached .*{said}") as caught, SshHost(host):
        pass
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("host", ["", "-oProxyCommand=true", "two words", "line\nbreak"])
def test_a_name_that_is_not_a_host_is_refused(host: str) -> None:
    with pytest.raises(InputError, match="is not a host; name one"):
        SshHost(host)


def test_a_missing_ssh_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SSH, "no-such-ssh")
    with pytest.raises(InputError, match="no-such-ssh not found; install the OpenSSH client"), SshHost("anywhere"):
        pass


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """Copy the files that go to another host, and nothing else."""
    package = Path(xcompress.__file__).parent
    for folder in RUNNER:
        (tmp_path / "xcompress" / folder).mkdir(parents=True, exist_ok=True)
        for module in (package / folder).glob("*.py"):
            shutil.copy(module, tmp_path / "xcompress" / folder)
    return tmp_path


@pytest.fixture(scope="module")
def requests() -> str:
    """Write every request that a bench sends to another host, one a line."""
    graph = peak_graph("int8")
    assert graph is not None
    requests = [
        {"do": "machine"},
        {"do": "limit", "bytes": 10**10},
        {"do": "load", "kind": "onnx", "source": str(bundle()), "precision": "int8", "sentence": "rain"},
        {"do": "threads", "count": 2},
        {"do": "time", "input_ids": [[0, 5, 6, 2]], "calls": 1, "warm": True},
        {"do": "memory"},
        {"do": "throughput", "texts": SENTENCES},
        {"do": "encode", "texts": SENTENCES},
        {"do": "peak", "graph": base64.b64encode(graph).decode("ascii"), "threads": 1, "calls": 1},
    ]
    return "".join(json.dumps(request) + "\n" for request in requests)


def test_the_runner_is_all_that_a_worker_needs(runner: Path, requests: str) -> None:
    code = f"""
import json, sys
for name in ("torch", "transformers", "pydantic", "rich", "typer", "yaml", "safetensors", "filelock"):
    sys.modules[name] = None
sys.path.insert(0, {str(runner)!r})
from xcompress.bench.workers.worker import RequestHandler
session = RequestHandler()
for line in sys.stdin:
    session.answer(json.loads(line))
print(json.dumps([module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "xcompress"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], input=requests, capture_output=True, text=True, cwd=runner, check=False
    )
    assert done.stderr == ""
    imported = {Path(name).relative_to(runner / "xcompress").parent.as_posix() for name in json.loads(done.stdout)}
    assert imported == set(RUNNER), "every folder is needed, and no other is imported from"


def test_a_worker_process_runs_from_the_runner_alone(runner: Path, requests: str) -> None:
    command = [sys.executable, "-m", "xcompress.bench.workers.worker"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True, cwd=runner, env=environment) as worker:
        assert worker.stdin and worker.stdout
        worker.stdin.write(requests)  # it stays open: at its end a worker ends, even during a request
        worker.stdin.flush()
        replies = [json.loads(worker.stdout.readline()) for _ in requests.splitlines()]
        assert worker.communicate() == ("", "")
    assert [reply.get("error") for reply in replies] == [None] * len(requests.splitlines())


@pytest.mark.slow
def test_a_bench_runs_on_another_host(left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    measure_little(monkeypatch)
    report = bench(bundle(), device=f"ssh:{ALIAS}", config=BenchConfig((Shape(1, 8),), (1,), quick=True))
    assert [one.name for one in report.results if not one.failed] == ["small, ONNX fp32", "small, ONNX int8"]
    assert report.reference == "small, ONNX fp32", "without another reference the float32 graph is one"
    assert report.device.name == f"ssh:{ALIAS}"
    assert report.machine.cpu == describe().cpu
    assert all(one.accuracy and one.latency and one.throughput for one in report.results)
    assert all(one.memory and one.memory.tokenizer is None for one in report.results), "it would be this machine's"
    assert not list(left.iterdir()), "nothing stays over there"
