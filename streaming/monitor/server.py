"""The HTTP server of the job, in a thread of its own: metrics, health, and the routes of others."""

import base64
import binascii
import hmac
import logging
import socket
import threading
from collections.abc import Sequence
from typing import Final, Self

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from streaming.address import Address

log = logging.getLogger("reexpand")

OPEN_PATHS: Final = ("/healthz", "/readyz", "/metrics")
"""Paths that need no token."""

_LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_STOP_SECONDS: Final = 2


class _Guard:
    """Middleware that asks for the token, except on open paths.

    On the loopback interface nobody needs a token, but a page of a stranger in a local browser must not reach the
    server under a name of its own (DNS rebinding): only local names are taken there.
    """

    def __init__(self, app: ASGIApp, *, address: Address, token: str | None) -> None:
        self._app = app
        self._address = address
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] in ("http", "websocket") else None
        await (self._app if refusal is None else refusal)(scope, receive, send)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        if scope["path"] in OPEN_PATHS:
            return None
        if self._token is None:
            if not self._address.is_loopback:
                return PlainTextResponse("This page needs a token: give the job --http-token-file.\n", 403)
            name = headers.get("host", "").rpartition(":")[0] or headers.get("host", "")
            if name.strip("[]") not in _LOCAL_NAMES:
                return PlainTextResponse("This page is for this machine only.\n", 403)
            return None
        if hmac.compare_digest(_token_of(headers.get("authorization", "")).encode(), self._token.encode()):
            return None
        challenge = {"WWW-Authenticate": 'Basic realm="reexpand", charset="UTF-8"'}
        return PlainTextResponse("The token is missing or wrong.\n", 401, challenge)


def _token_of(authorization: str) -> str:
    """Return the token of a header: `Bearer TOKEN`, or the password of `Basic`, which browsers ask for."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return ""


class HttpServer:
    """HTTP server, as a context manager.

    Args:
        address: host and port to listen on.
        routes: routes and mounts of the application, in the order in which they are tried.
        token: what clients must present, except on `OPEN_PATHS`; None for none, on the loopback interface.
    """

    def __init__(self, address: Address, routes: Sequence[BaseRoute], token: str | None = None) -> None:
        self._asked = address
        self._address: Address | None = None
        guard = Middleware(_Guard, address=address, token=token)
        self._app = Starlette(routes=list(routes), middleware=[guard])
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str | None:
        """Address in force, as a URL; None if the server does not run."""
        return None if self._address is None else f"http://{self._address}"

    def __enter__(self) -> Self:
        try:
            self._socket = self._listen()
        except OSError as error:
            log.warning(
                "no metrics and no health: cannot listen on %s (%s). The job goes on; choose another address with "
                "--http HOST:PORT, port 0 for a free one, or --http off",
                self._asked,
                error.strerror or error,
            )
            return self
        self._address = Address(self._asked.host, self._socket.getsockname()[1])
        config = uvicorn.Config(self._app, log_config=None, access_log=False, lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="http", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(_STOP_SECONDS)
            if self._thread.is_alive():  # somebody's stream is open
                self._server.force_exit = True
                self._thread.join(_STOP_SECONDS)
        if self._socket is not None:
            self._socket.close()
        self._address = None

    def _listen(self) -> socket.socket:
        """Return a socket that listens; the kernel keeps who asks before the thread runs."""
        family, kind, protocol, _, place = socket.getaddrinfo(
            self._asked.host, self._asked.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(place)
            listening.listen()
        except OSError:
            listening.close()
            raise
        return listening
