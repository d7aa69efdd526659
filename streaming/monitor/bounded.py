"""An HTTP server of uvicorn with bounds: connections, time to send a request and to take its answer, answers at once.

uvicorn itself has no time limit for a request that never arrives, and none for an answer that is never read.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final, cast

import uvicorn
from starlette.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

if TYPE_CHECKING:
    import socket

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONNECTIONS: Final = 256
"""Greatest number of open connections. One more closes one that waits for its client."""

RECEIVE_SECONDS: Final = 10.0
"""Time in seconds for a whole request, head and body, to arrive."""

ANSWER_SECONDS: Final = 60.0
"""Time in seconds until an answer begins."""

TAKE_SECONDS: Final = 10.0
"""Time in seconds for a client to take what is ready for it, beyond that of `SLOWEST`."""

SLOWEST: Final = 8_192
"""Least number of bytes per second that a client must take."""

RUNNING: Final = 32
"""Greatest number of requests that are being answered at once; `/healthz` and `/readyz` do not count."""

_HEAD_BYTES: Final = 16_384
_ACCEPTED_AT_ONCE: Final = 32
"""Connections accepted per turn of the event loop: a new one is read several turns before others replace it."""

_QUEUE: Final = 1_024
"""Connections that the kernel keeps until they are accepted."""

_LOOK_SECONDS: Final = 0.5
_LOG_SECONDS: Final = 60.0

log = logging.getLogger("reexpand")


class BoundedServer(uvicorn.Server):
    """Server whose clients can exhaust neither its file descriptors nor its log.

    Args:
        app: the application.
        always: paths that are answered however many other requests are running.
        options: further options of uvicorn.
    """

    def __init__(self, app: "ASGIApp", always: Collection[str] = (), **options: Any) -> None:
        config = uvicorn.Config(
            Turns(app, always), http=_Connection, ws="none", loop="asyncio", lifespan="off", log_config=None,
            access_log=False, server_header=False, h11_max_incomplete_event_size=_HEAD_BYTES,
            backlog=_ACCEPTED_AT_ONCE, **options,
        )  # fmt: skip
        super().__init__(config)
        self.server_state = _Connections()
        self._looked = 0.0

    async def startup(self, sockets: "list[socket.socket] | None" = None) -> None:
        """Listen."""
        sparse = _Sparse()
        logging.getLogger("uvicorn.error").filters = [sparse]
        asyncio.get_running_loop().set_exception_handler(lambda _, about: sparse.tell(about))
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_QUEUE)  # asyncio has one number for the queue and for what it accepts at once

    async def on_tick(self, counter: int) -> bool:
        """Drop the connections whose time is over."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            for each in [each for each in cast("_Connections", self.server_state).open() if each.is_late(now)]:
                each.drop()
        return await super().on_tick(counter)


class _Connections(ServerState):
    """Open connections of a server."""

    def open(self) -> "list[_Connection]":
        """Return the open connections."""
        return [each for each in self.connections if isinstance(each, _Connection)]

    def make_room(self) -> None:
        """Drop one connection if there are too many: of the address with most, that which has waited longest."""
        if len(self.connections) > CONNECTIONS:
            choice = [each for each in self.open() if each.waits] or self.open()
            by_host = Counter(each.host for each in choice)
            most = max(by_host.values())
            min((each for each in choice if by_host[each.host] == most), key=lambda each: each.since).drop()


class _Connection(H11Protocol):
    """One connection.

    Attributes:
        since: monotonic time at which its present step began: a request, an answer, or the silence after one.
    """

    server_state: _Connections

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.since = time.monotonic()
        self._take_until: float | None = None

    @property
    def host(self) -> str:
        """Address of the client."""
        return self.client[0] if self.client else ""

    @property
    def waits(self) -> bool:
        """True if the client must act next: send the rest of a request, take an answer, or ask again."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # before the first request
        return cycle is None or cycle.response_complete or cycle.more_body or self._take_until is not None

    def is_late(self, now: float) -> bool:
        """Tell whether its time is over."""
        if self._take_until is not None:
            return now > self._take_until
        if self.waits:
            return now > self.since + RECEIVE_SECONDS
        return not self.cycle.response_started and now > self.since + ANSWER_SECONDS

    def drop(self) -> None:
        """Close it at once, whatever its client has not taken yet."""
        self.connections.discard(self)
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Begin."""
        super().connection_made(transport)
        self.server_state.make_room()

    def handle_events(self) -> None:
        """Take over what has arrived."""
        former = self.cycle
        super().handle_events()
        if self.cycle is not former:
            self.since = time.monotonic()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self.since = time.monotonic()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Wait until the client has taken what is ready."""
        ready = self.transport.get_write_buffer_size()
        self._take_until = time.monotonic() + TAKE_SECONDS + ready / SLOWEST
        super().pause_writing()

    def resume_writing(self) -> None:
        """Go on."""
        self._take_until = None
        self.since = time.monotonic()
        super().resume_writing()


class Turns:
    """Middleware that refuses requests beyond `RUNNING`; an answer that has begun counts no more.

    Args:
        app: the application.
        always: paths without a bound, whose answers take no time.
    """

    def __init__(self, app: "ASGIApp", always: Collection[str] = ()) -> None:
        self._app = app
        self._always = frozenset(always)
        self._running = 0

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer, or refuse."""
        if scope["type"] != "http" or scope["path"] in self._always:
            await self._app(scope, receive, send)
        elif self._running >= RUNNING:
            refusal = JSONResponse({"error": "too many requests at once"}, 503, {"Retry-After": "1"})
            await refusal(scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        counted = True
        self._running += 1

        def release() -> None:
            nonlocal counted
            self._running -= counted
            counted = False

        async def began(message: "Message") -> None:
            release()
            await send(message)

        try:
            await self._app(scope, receive, began)
        finally:
            release()


class _Sparse(logging.Filter):
    """Filter that lets one error per minute through, and nothing below: clients cause what uvicorn logs."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._next = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is logged."""
        return record.levelno >= logging.ERROR and self._is_due()

    def tell(self, about: dict[str, Any]) -> None:
        """Log an error of the event loop in one line."""
        if self._is_due():
            log.warning("HTTP: %s: %r (logged once a minute)", about["message"], about.get("exception"))

    def _is_due(self) -> bool:
        now = self._now()
        if now < self._next:
            return False
        self._next = now + _LOG_SECONDS
        return True
