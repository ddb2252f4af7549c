import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from xcompress.web import server as module
from xcompress.web.server import Server, host_names

CONTENT = b"1;" * 1000
LARGE = 64 << 20
"""Bytes that fit into no socket's buffers."""


@pytest.fixture
def server(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Server]:
    """A server that still answers after the test, and has printed nothing."""
    (tmp_path / "page.js").write_bytes(CONTENT)
    (tmp_path / "secret").write_text("2")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(LARGE)
    files = {"/page.js": "page.js", "/a b%41é.js": "page.js", "/large": "large", "/folder": ".", "/gone": "gone"}
    with Server({url: tmp_path / name for url, name in files.items()}) as server:
        yield server
        with urlopen(server.address + "/page.js", timeout=10) as reply:
            assert reply.read() == CONTENT
    assert capfd.readouterr() == ("", "")


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=20)


def exchange(server: Server, sent: bytes) -> bytes:
    """Send bytes and the end of them; return what comes back."""
    received = b""
    with connect(server) as client:
        with suppress(OSError):  # the server may have answered and closed already
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while block := client.recv(1 << 16):
                received += block
    return received


def request(server: Server, line: str, *headers: str) -> bytes:
    host = f"Host: 127.0.0.1:{server.server_address[1]}"
    return exchange(server, "\r\n".join([line, *(headers or [host]), "", ""]).encode("latin-1"))


def status(reply: bytes) -> int:
    return int(reply.split()[1])


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}", " 127.0.0.1:{port} "])
def test_its_own_names_are_answered(server: Server, host: str) -> None:
    reply = request(server, "GET /page.js HTTP/1.1", "Host: " + host.format(port=server.server_address[1]))
    assert status(reply) == 200
    assert reply.endswith(CONTENT)


def test_the_default_port_may_be_left_out(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    assert status(request(server, "GET /page.js HTTP/1.1", "Host: localhost")) == 403
    names = server.names
    server.names = host_names(80)  # only some users may open port 80 itself
    for host in ("127.0.0.1", "localhost", "LOCALHOST", "127.0.0.1:80"):
        assert status(request(server, "GET /page.js HTTP/1.1", f"Host: {host}")) == 200
    assert status(request(server, "GET /page.js HTTP/1.1", "Host: rebound.example")) == 403
    server.names = names


def test_a_refusal_says_which_address_to_open(server: Server) -> None:
    reply = request(server, "GET /page.js HTTP/1.1", "Host: localhost:9")
    assert f"Open it as {server.address}/. To forward it, use the same port number".encode() in reply


@pytest.mark.parametrize(
    "headers",
    [
        ["Host: rebound.example:{port}"],
        ["Host: rebound.example"],
        ["Host: 127.0.0.1:{port}.rebound.example"],
        ["Host: 127.0.0.1:1"],
        ["Host: 127.0.0.1:{port}", "Host: rebound.example:{port}"],
        ["Host:"],
        ["Origin: http://127.0.0.1:{port}"],
    ],
)
def test_another_host_name_is_refused(server: Server, headers: list[str]) -> None:
    port = server.server_address[1]
    for line in ("GET /page.js HTTP/1.1", "HEAD /page.js HTTP/1.1", "POST /page.js HTTP/1.1"):
        reply = request(server, line, *(header.format(port=port) for header in headers))
        assert status(reply) == 403
        assert CONTENT not in reply


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/page.js?x=1", 200),
        ("/p%61ge.js", 200),
        ("/a%20b%2541%c3%a9.js", 200),
        ("/../page.js", 404),
        ("/..%2fsecret", 404),
        ("/%2e%2e/secret", 404),
        ("/secret", 404),
        ("/folder", 404),
        ("/gone", 404),
        ("/", 404),
        ("/./secret", 404),
        ("/page.js/", 404),
        ("/page.js%00", 404),
        ("/page.js%", 404),
        ("/%zz%f", 404),
        ("/%ff%fe", 404),
        ("//[", 404),
        ("//rebound.example/page.js", 404),
        ("http://rebound.example/page.js", 404),
        ("http://[/page.js", 404),
        ("*", 404),
        ("/" + "a" * 60_000, 404),
        ("/" + "a" * 70_000, 414),
    ],
)
def test_only_paths_of_the_list_are_answered(server: Server, path: str, code: int) -> None:
    reply = request(server, f"GET {path} HTTP/1.1")
    assert status(reply) == code
    assert b"Content-Security-Policy: default-src 'none'" in reply or code == 414


def test_a_file_is_sent_with_its_type_until_the_server_is_closed(tmp_path: Path) -> None:
    (tmp_path / "page.js").write_text("1")
    with Server({"/page.js": tmp_path / "page.js"}) as server:
        address = server.address
        assert address.startswith("http://127.0.0.1:")
        with urlopen(f"{address}/page.js") as reply:
            assert reply.read() == b"1"
            assert reply.headers["Content-Type"].startswith("text/javascript")
    with pytest.raises(OSError, match="refused"):
        urlopen(f"{address}/page.js")


@pytest.mark.parametrize("method", ["POST", "PUT", "OPTIONS", "TRACE", "CONNECT", "get", "FOO", "__init__"])
def test_other_methods_are_refused(server: Server, method: str) -> None:
    assert status(request(server, f"{method} /page.js HTTP/1.1")) == 501


def test_head_sends_the_headers_alone(server: Server) -> None:
    head, full = (request(server, f"{method} /page.js HTTP/1.1") for method in ("HEAD", "GET"))
    assert head.endswith(b"\r\n\r\n")
    assert b"Content-Length: 2000" in head

    def without_date(reply: bytes) -> list[bytes]:
        return [line for line in reply.partition(b"\r\n\r\n")[0].splitlines() if not line.startswith(b"Date")]

    assert without_date(head) == without_date(full)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
        b"GET",
        b"GET /page.js",
        b"GET /page.js\r\n\r\n",
        b"GET /page.js HTTP/\xb2.\xb3\r\n\r\n",
        b"GET /page.js HTTP/9.9\r\n\r\n",
        b"GET /page.js HTTP/" + b"1" * 5000 + b".1\r\n\r\n",
        b"GET /page.js HTTP/1.1\r\nHost",
        b"GET /page.js HTTP/1.1\r\n: \r\n\x00\r\n\r\n",
        b"GET /page.js HTTP/1.1\r\n" + b"X: 1\r\n" * 5000 + b"\r\n",
        b"GET /page.js HTTP/1.1\r\nX: " + b"1" * 3_000_000,
        b"X" * 3_000_000,
    ],
    ids=lambda value: ascii(value[:24]),
)
def test_garbage_is_refused(server: Server, sent: bytes) -> None:
    reply = exchange(server, sent)
    assert CONTENT not in reply
    assert b"Traceback" not in reply


def test_a_reader_may_leave_early(server: Server) -> None:
    for _ in range(3):
        with connect(server) as client:
            client.sendall(f"GET /large HTTP/1.1\r\nHost: 127.0.0.1:{server.server_address[1]}\r\n\r\n".encode())
            client.recv(1000)
            # Close with a reset, as a browser does that is killed.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")


def ends_within(client: socket.socket, seconds: float, *, drip: bytes = b"") -> bool:
    """Tell whether the server closes a connection, on which bytes are sent one by one."""
    client.settimeout(0.05)
    for start in range(int(seconds / 0.05)):
        try:
            if drip:
                client.sendall(drip[start % len(drip) :][:1])
            if not client.recv(1 << 16):
                return True
        except TimeoutError:
            pass
        except ConnectionError:
            return True
    return False


@pytest.mark.parametrize("drip", [b"", b"X: y\r\n"], ids=["silent", "slow"])
def test_a_request_that_never_ends_is_dropped(server: Server, monkeypatch: pytest.MonkeyPatch, drip: bytes) -> None:
    monkeypatch.setattr(module, "HEAD_SECONDS", 0.3)
    with connect(server) as client:
        client.sendall(b"GET /page.js HTTP/1.1\r\n")
        assert ends_within(client, 5, drip=drip)


def wait_until_idle(threads: int) -> bool:
    for _ in range(100):
        if threading.active_count() <= threads:
            return True
        time.sleep(0.05)
    return False


def test_a_reader_that_never_reads_is_dropped(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    assert module._Handler.timeout
    monkeypatch.setattr(module._Handler, "timeout", 0.3)
    idle = threading.active_count()
    with connect(server) as client:
        client.sendall(f"GET /large HTTP/1.1\r\nHost: 127.0.0.1:{server.server_address[1]}\r\n\r\n".encode())
        client.recv(1000)
        assert threading.active_count() == idle + 1
        assert wait_until_idle(idle)


def test_at_most_32_connections_are_answered_at_once(server: Server) -> None:
    idle = threading.active_count()
    with ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(connect(server))
        assert status(request(server, "GET /page.js HTTP/1.1")) == 503
        assert threading.active_count() == idle + 32
    assert wait_until_idle(idle)


def test_a_closed_server_leaves_no_connection_open(tmp_path: Path) -> None:
    idle = threading.active_count()
    with Server({}) as server:
        client = connect(server)
        time.sleep(0.2)
    with client:
        assert ends_within(client, 5)
    assert wait_until_idle(idle)
