"""The job's HTTP server in a thread: metrics, health, and other routes; and the token of the console."""

import logging
import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

import anyio.to_thread
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from streaming.config import Address
from streaming.errors import ConfigInvalid
from streaming.monitor.bounded import BoundedServer
from streaming.monitor.health import Health

log = logging.getLogger("reexpand")

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_STOP_SECONDS: Final = 2

PROBES: Final = ("/healthz", "/readyz")
"""Paths that are answered regardless of the number of running requests."""

_UNAVAILABLE = 503
_COLLECTED_AT_ONCE = 2

TOKEN_VARIABLE: Final = "REEXPAND_HTTP_TOKEN"  # noqa: S105 - a name
"""Environment variable of the token, if no file is given."""

_LEAST_LENGTH: Final = 16
"""Minimum number of characters of a token."""


class HttpServer:
    """HTTP server, as a context manager; `url` is None if it is not running. Each route checks access itself."""

    def __init__(self, address: Address, routes: Sequence[BaseRoute]) -> None:
        self._address = address
        self._server = BoundedServer(Starlette(routes=list(routes)), PROBES)
        self._exit = ExitStack()
        self.url: str | None = None

    def __enter__(self) -> Self:
        try:
            listener = self._exit.enter_context(self._address.listen())
        except OSError as error:
            log.warning(
                "no metrics and no health: cannot listen on %s (%s). The job continues; choose another address with "
                "--http HOST:PORT, port 0 for a free one, or --http off",
                self._address,
                error.strerror or error,
            )
            return self
        self.url = f"http://{Address(self._address.host, listener.getsockname()[1])}"
        thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]}, name="http", daemon=True)
        thread.start()
        self._exit.callback(self._stop, thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()
        self.url = None

    def _stop(self, thread: threading.Thread) -> None:
        self._server.should_exit = True
        thread.join(_STOP_SECONDS)
        if thread.is_alive():  # a stream is open
            self._server.force_exit = True
            thread.join(_STOP_SECONDS)


def routes(registry: CollectorRegistry, health: Health, *, local: bool = False) -> list[BaseRoute]:
    """Return the routes `/metrics`, `/healthz` and `/readyz`.

    A local server answers only requests for a loopback name, to protect from DNS rebinding.
    """
    threads = anyio.CapacityLimiter(_COLLECTED_AT_ONCE)

    def refusal(request: Request) -> Response | None:
        if not local or is_loopback_name(request.headers.get("host", "")):
            return None
        return JSONResponse({"error": "this address answers to localhost only"}, 403)

    async def metrics(request: Request) -> Response:
        if refused := refusal(request):
            return refused
        try:
            encode, content_type = choose_encoder(request.headers.get("accept", ""))
        except (TypeError, ValueError):  # a version that is no number
            encode, content_type = choose_encoder("")
        text = await anyio.to_thread.run_sync(encode, registry, limiter=threads)
        return Response(text, headers={"Content-Type": content_type})

    # Both run in the event loop, because other requests may occupy all threads.
    async def healthz(request: Request) -> Response:
        answer = health.answer()
        return refusal(request) or JSONResponse(answer.body(), 200 if answer.is_alive else _UNAVAILABLE)

    async def readyz(request: Request) -> Response:
        answer = health.answer()
        is_ready = answer.is_ready(as_holder=request.query_params.get("role") == "holder")
        body = {**answer.body(), "ready": is_ready}
        return refusal(request) or JSONResponse(body, 200 if is_ready else _UNAVAILABLE)

    return [Route("/metrics", metrics), *map(Route, PROBES, (healthz, readyz))]


def read_token(file: Path | None) -> str | None:
    """Return the token from a file or the environment; raise `ConfigInvalid`."""
    if file is not None:
        return token_of_file(file)
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    return checked_token(token, TOKEN_VARIABLE) if token else None


def token_of_file(file: Path) -> str:
    """Return the token in a file; raise `ConfigInvalid` if it cannot be read or is invalid."""
    try:
        token = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"the token cannot be read from {file}: {error}") from None
    return checked_token(token, file)


def checked_token(token: str, source: object) -> str:
    """Return a stripped token; raise `ConfigInvalid` if short or not ASCII.

    The error contains the source, a file or variable, and not the token.
    """
    token = token.strip()
    if len(token) < _LEAST_LENGTH or not token.isascii():
        raise ConfigInvalid(
            f"the token in {source} has {len(token)} characters, but needs at least {_LEAST_LENGTH} ASCII characters. "
            "Generate one with: openssl rand -hex 16"
        )
    return token


def host_name(host: str) -> str:
    """Return the name in a Host header without its port, or an empty text if the header is malformed."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_loopback_name(host: str) -> bool:
    """Tell whether a Host header names the loopback interface."""
    return host_name(host) in _LOOPBACK
