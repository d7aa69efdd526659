"""The bounds of the HTTP server, with real sockets."""

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from streaming.config import Address
from streaming.monitor import bounded
from streaming.monitor.bounded import CONNECTIONS, RUNNING, Turns
from streaming.monitor.health import Condition, Health
from streaming.monitor.server import HttpServer, routes
from tests.support.processes import eventually

_HALF = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
_LARGE = b"x" * 30_000_000


class Page:
    """A server with a large answer, one that takes until it is let go, and a form."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.began = 0
        health = Health(1)
        health.enter(Condition.STANDING_BY, "")
        own = [Route("/large", self.large), Route("/slow", self.slow), Route("/form", self.form, methods=["POST"])]
        self.server = HttpServer(Address("127.0.0.1", 0), [*routes(CollectorRegistry(), health, local=True), *own])

    @property
    def port(self) -> int:
        return int((self.server.url or "").rpartition(":")[2])

    @property
    def connections(self) -> list[Any]:
        server: Any = self.server._server
        return list(server.server_state.connections)

    def large(self, _: Request) -> Response:
        return Response(_LARGE)

    async def slow(self, _: Request) -> Response:
        self.began += 1
        while not self.go.is_set():  # noqa: ASYNC110 - another thread lets it go
            await asyncio.sleep(0.01)
        return PlainTextResponse("done")

    async def form(self, request: Request) -> Response:
        return PlainTextResponse(str(len(await request.body())))

    def connect(self, sent: bytes = b"") -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        client.sendall(sent)
        return client

    def ask(self, path: str = "/healthz", host: str = "localhost") -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path, headers={"Host": host})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    monkeypatch.setattr(bounded, "RECEIVE_SECONDS", 600)  # until the next day
    page = Page()
    with page.server:
        yield page
        page.go.set()


@pytest.fixture
def next_day(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets a day pass for the server."""
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 86_400)
    return lambda: monkeypatch.setattr(bounded, "time", later)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def is_broken(client: socket.socket) -> bool:
    """Send a character, and tell whether the server has closed the connection."""
    with suppress(ConnectionError):
        client.sendall(b"x")
        return False
    return True


def is_closed(client: socket.socket) -> bool:
    """Tell whether the server has closed a connection without an answer."""
    with suppress(ConnectionError):
        return client.recv(1) == b""
    return True


def test_health_answers_beside_many_half_open_connections(page: Page, caplog: pytest.LogCaptureFixture) -> None:
    """Both ends of each are in this process, which may have no more than 1,024 descriptors."""
    before, count = descriptors(), 2 * CONNECTIONS
    with ExitStack() as clients, caplog.at_level(logging.WARNING):
        for number in range(count):
            clients.enter_context(page.connect(_HALF))
            assert number % 50 or page.ask()[0] == 200
        assert eventually(lambda: descriptors() - before - count <= CONNECTIONS + 8)
        assert page.ask()[0] == 200
    assert caplog.text == ""


def test_the_oldest_connection_that_waits_makes_room(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "CONNECTIONS", 3)
    with ExitStack() as clients:
        running = clients.enter_context(page.connect(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        assert eventually(lambda: page.began == 1)
        half = [clients.enter_context(page.connect(_HALF)) for _ in range(2)]
        newest = clients.enter_context(page.connect(_HALF))
        assert is_closed(half[0])
        page.go.set()
        assert running.recv(12) == b"HTTP/1.1 200"
        for client in (half[1], newest):
            client.sendall(b"1\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"


def test_many_connections_of_one_address_push_out_their_own(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a probe of another address is not in their way, however slow it is."""
    monkeypatch.setattr(bounded, "CONNECTIONS", 4)
    other = socket.create_connection(("127.0.0.1", page.port), timeout=10, source_address=("127.0.0.2", 0))
    with ExitStack() as clients, other:
        other.sendall(_HALF)
        half = [clients.enter_context(page.connect(_HALF)) for _ in range(12)]
        assert all(map(is_closed, half[:9]))
        other.sendall(b"1\r\n\r\n")
        assert other.recv(12) == b"HTTP/1.1 200"


TRICKLE = "head that trickles in"
STEPS: dict[str, tuple[bytes, Callable[[Any], object]]] = {
    "nothing": (b"", lambda _: True),
    "head": (_HALF, lambda each: each.conn.trailing_data[0]),
    TRICKLE: (_HALF, lambda _: True),
    "body": (
        b"POST /form HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nshort",
        lambda each: each.cycle and each.cycle.more_body,
    ),
    "answer": (b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n", lambda each: not each.waits),
    "taking": (b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n", lambda each: each._take_until),
    "body of an answered request": (
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
        lambda each: each.cycle and each.cycle.response_complete,
    ),
}


@pytest.mark.parametrize("step", STEPS)
def test_each_step_has_its_time(page: Page, step: str, next_day: Callable[[], None]) -> None:
    sent, has_begun = STEPS[step]
    with page.connect(sent) as client:
        assert eventually(lambda: any(map(has_begun, page.connections)))
        next_day()
        assert eventually(lambda: is_broken(client) if step == TRICKLE else not page.connections)


def test_a_client_that_takes_its_answer_gets_it(page: Page) -> None:
    assert page.ask("/large") == (200, _LARGE)


def test_running_requests_are_bounded_and_probes_are_not(page: Page) -> None:
    with ExitStack() as clients:
        for _ in range(RUNNING):
            clients.enter_context(page.connect(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        assert eventually(lambda: page.began == RUNNING)
        status, body = page.ask("/slow")
        assert (status, json.loads(body)) == (503, {"error": "too many requests at once"})
        assert [page.ask(path)[0] for path in ("/healthz", "/readyz")] == [200, 200]
        page.go.set()
        assert eventually(lambda: page.ask("/slow")[0] == 200)


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
def test_a_foreign_name_that_points_to_this_machine_is_refused(page: Page, path: str) -> None:
    assert page.ask(path, "evil.example")[0] == 403
    assert page.ask(path, "localhost:1")[0] == 200


@pytest.mark.parametrize("sent", [b"\x00\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000], ids=["bytes", "large"])
def test_malformed_requests_write_no_log(page: Page, caplog: pytest.LogCaptureFixture, sent: bytes) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            with page.connect(sent) as client:
                assert client.recv(12) == b"HTTP/1.1 400"
    assert caplog.text == ""


def test_a_lack_of_descriptors_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    sparse = bounded._Sparse(now=lambda: 1_000.0)
    for _ in range(1_000):
        sparse.report({"message": "accept() out of system resource", "exception": OSError(24, "Too many open files")})
    assert len(caplog.records) == 1
    assert "Too many open files" in caplog.text
    assert "Traceback" not in caplog.text


def test_an_answer_that_fails_counts_no_more() -> None:
    async def failing(*_: object) -> Any:
        raise ValueError("no answer")

    async def refused(*_: object) -> None:
        pytest.fail("too many requests at once")

    async def ask(turns: Turns) -> None:
        for _ in range(RUNNING + 1):
            with pytest.raises(ValueError, match="no answer"):
                await turns({"type": "http", "path": "/"}, failing, refused)

    asyncio.run(ask(Turns(failing)))
