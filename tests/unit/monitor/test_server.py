"""The HTTP server: whom it serves, and what it does where it cannot listen."""

import logging
from http.client import HTTPConnection
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from streaming.config import Address, parse_address
from streaming.errors import ConfigInvalid
from streaming.monitor.health import Condition, Health
from streaming.monitor.server import TOKEN_VARIABLE, HttpServer, read_token, routes

SECRET = "0123456789abcdef"  # noqa: S105 - of this test


def page(_: Request) -> PlainTextResponse:
    """Answer as a page of others."""
    return PlainTextResponse("page")


def served(host: str, health: Health) -> HttpServer:
    all_routes = [*routes(CollectorRegistry(), health), Mount("/", routes=[Route("/", page)])]
    return HttpServer(Address(host, 0), all_routes)


def ask(server: HttpServer, path: str) -> tuple[int, str]:
    port = int((server.url or "").rpartition(":")[2])
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_status_codes_follow_the_condition_and_pages_stand_beside_them() -> None:
    health = Health(0)
    with served("127.0.0.1", health) as server:
        assert [ask(server, path)[0] for path in ("/healthz", "/readyz", "/metrics")] == [200, 503, 200]
        health.enter(Condition.STANDING_BY, "")
        assert [ask(server, path)[0] for path in ("/healthz", "/readyz", "/readyz?role=holder")] == [200, 200, 503]
        health.enter(Condition.READY, "")
        assert [ask(server, path)[0] for path in ("/healthz", "/readyz")] == [503, 503]
        assert ask(server, "/") == (200, "page")


def test_a_port_in_use_is_a_warning_with_the_way_out(caplog: pytest.LogCaptureFixture) -> None:
    with served("127.0.0.1", Health(1)) as first:
        port = int((first.url or "").rpartition(":")[2])
        with caplog.at_level(logging.WARNING), HttpServer(Address("127.0.0.1", port), []) as second:
            assert second.url is None
        assert ask(first, "/")[0] == 200
    (message,) = caplog.messages
    assert f"cannot listen on 127.0.0.1:{port}" in message
    assert "--http off" in message


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9464", Address("127.0.0.1", 9464)),
        ("[::1]:0", Address("::1", 0)),
        ("localhost:1", Address("localhost", 1)),
        ("off", None),
    ],
)
def test_addresses_are_read(text: str, address: Address | None) -> None:
    assert parse_address(text) == address
    assert address is None or (address.is_loopback and str(address) == text)


def test_what_is_no_address_is_refused() -> None:
    for text in ("", "9464", ":9464", "host", "host:x", "host:65536", "host:-1", "host:٣", "[::1", "[::1:1"):
        with pytest.raises(ValueError, match="must be HOST:PORT"):
            parse_address(text)
    assert not any(Address(host, 1).is_loopback for host in ("0.0.0.0", "job.example"))  # noqa: S104 - as above


def test_the_token_comes_from_a_file_or_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_token(None) is None
    monkeypatch.setenv(TOKEN_VARIABLE, SECRET)
    assert read_token(None) == SECRET
    file = tmp_path / "token"
    file.write_text(f"{SECRET}-of-the-file\n")
    assert read_token(file) == f"{SECRET}-of-the-file"
    file.write_text("short")
    with pytest.raises(ConfigInvalid, match="has 5 characters, but needs at least 16"):
        read_token(file)


@pytest.mark.parametrize("accept", ["text/plain;version=1.x", "application/openmetrics-text;version=a.b"])
def test_a_malformed_accept_header_gets_the_metrics_as_text(accept: str) -> None:
    app = Starlette(routes=routes(CollectorRegistry(), Health(1)))
    answer = TestClient(app).get("/metrics", headers={"accept": accept})
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "text/plain")
