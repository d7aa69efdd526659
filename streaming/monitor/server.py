"""The HTTP server of the job, in a thread of its own: metrics, health, and the routes of others."""

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Self

from starlette.applications import Starlette
from starlette.routing import BaseRoute

from streaming.address import Address
from streaming.monitor.bounded import BoundedServer
from streaming.monitor.routes import PROBES

if TYPE_CHECKING:
    import socket

log = logging.getLogger("reexpand")

_STOP_SECONDS: Final = 2


class HttpServer:
    """HTTP server, as a context manager.

    Args:
        address: host and port to listen on.
        routes: routes and mounts of the application, in the order in which they are tried; each guards itself.
    """

    def __init__(self, address: Address, routes: Sequence[BaseRoute]) -> None:
        self._asked = address
        self._address: Address | None = None
        self._app = Starlette(routes=list(routes))
        self._socket: socket.socket | None = None
        self._server: BoundedServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str | None:
        """Address in force, as a URL; None if the server does not run."""
        return None if self._address is None else f"http://{self._address}"

    def __enter__(self) -> Self:
        try:
            self._socket = self._asked.listen()
        except OSError as error:
            log.warning(
                "no metrics and no health: cannot listen on %s (%s). The job goes on; choose another address with "
                "--http HOST:PORT, port 0 for a free one, or --http off",
                self._asked,
                error.strerror or error,
            )
            return self
        self._address = Address(self._asked.host, self._socket.getsockname()[1])
        self._server = BoundedServer(self._app, PROBES)
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
