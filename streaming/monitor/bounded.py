"""A uvicorn server with limits on connections, on running requests, and on the time of requests and responses.

uvicorn itself has no timeout for incomplete requests or for responses that the client does not read.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, cast

import uvicorn
from starlette.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

if TYPE_CHECKING:
    import socket

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONNECTIONS: Final = 256
"""Maximum number of open connections. Another connection closes one that waits for its client."""

RECEIVE_SECONDS: Final = 10.0
"""Timeout in seconds for receiving a request with its body."""

ANSWER_SECONDS: Final = 60.0
"""Timeout in seconds for starting a response."""

TAKE_SECONDS: Final = 10.0
"""Timeout in seconds for a client to read a response, in addition to the time at `SLOWEST`."""

SLOWEST: Final = 8_192
"""Minimum number of bytes per second that a client must read."""

RUNNING: Final = 32
"""Maximum number of running requests, without `/healthz` and `/readyz`."""

_HEAD_BYTES: Final = 16_384
_ACCEPTED_AT_ONCE: Final = 32
"""Connections accepted per iteration of the event loop, so new ones are read before others replace them."""

_QUEUE: Final = 1_024
"""Connections that the kernel queues until they are accepted."""

_LOOK_SECONDS: Final = 0.5
_LOG_SECONDS: Final = 60.0

log = logging.getLogger("reexpand")


class BoundedServer(uvicorn.Server):
    """Server whose clients cannot exhaust its file descriptors or its log; `always` are paths without a limit."""

    def __init__(self, app: "ASGIApp", always: Collection[str] = (), **options: Any) -> None:
        config = uvicorn.Config(
            Turns(app, always), http=_Connection, ws="none", loop="asyncio", lifespan="off", log_config=None,
            access_log=False, server_header=False, h11_max_incomplete_event_size=_HEAD_BYTES,
            backlog=_ACCEPTED_AT_ONCE, **options,
        )  # fmt: skip
        super().__init__(config)
        self._looked = 0.0

    async def startup(self, sockets: "list[socket.socket] | None" = None) -> None:
        """Start to listen."""
        sparse = _Sparse()
        logging.getLogger("uvicorn.error").filters = [sparse]
        asyncio.get_running_loop().set_exception_handler(lambda _, about: sparse.report(about))
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_QUEUE)  # asyncio uses one number for the queue and for accepted connections

    async def on_tick(self, counter: int) -> bool:
        """Drop connections that have timed out."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            for each in [each for each in _opened(self.server_state) if each.is_late(now)]:
                each.drop()
        return await super().on_tick(counter)


class _Connection(H11Protocol):
    """A connection; `since` is the monotonic start of its current request, response, or idle time after it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.since = time.monotonic()
        self._take_until: float | None = None

    @property
    def host(self) -> str:
        return self.client[0] if self.client else ""

    @property
    def waits(self) -> bool:
        """True if the server waits for the client to send or to read."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # before the first request
        return cycle is None or cycle.response_complete or cycle.more_body or self._take_until is not None

    def is_late(self, now: float) -> bool:
        if self._take_until is not None:
            return now > self._take_until
        if self.waits:
            return now > self.since + RECEIVE_SECONDS
        return not self.cycle.response_started and now > self.since + ANSWER_SECONDS

    def drop(self) -> None:
        """Close the connection immediately, with unsent data."""
        self.connections.discard(self)
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """If there are too many connections, drop the oldest of the address with the most connections."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            opened = _opened(self.server_state)
            choice = [each for each in opened if each.waits] or opened
            by_host = Counter(each.host for each in choice)
            most = max(by_host.values())
            min((each for each in choice if by_host[each.host] == most), key=lambda each: each.since).drop()

    def handle_events(self) -> None:
        """Restart the clock for a new request."""
        former = self.cycle
        super().handle_events()
        if self.cycle is not former:
            self.since = time.monotonic()

    def on_response_complete(self) -> None:
        """Restart the clock for the next request."""
        self.since = time.monotonic()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Start the timeout of reading the response."""
        ready = self.transport.get_write_buffer_size()
        self._take_until = time.monotonic() + TAKE_SECONDS + ready / SLOWEST
        super().pause_writing()

    def resume_writing(self) -> None:
        """Stop the timeout of reading the response."""
        self._take_until = None
        self.since = time.monotonic()
        super().resume_writing()


def _opened(state: ServerState) -> list[_Connection]:
    return [each for each in state.connections if isinstance(each, _Connection)]


class Turns:
    """Middleware that rejects requests beyond `RUNNING`, except to some paths. Started responses do not count."""

    def __init__(self, app: "ASGIApp", always: Collection[str] = ()) -> None:
        self._app = app
        self._always = frozenset(always)
        self._running = 0

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer or reject a request."""
        if scope["type"] != "http" or scope["path"] in self._always:
            await self._app(scope, receive, send)
        elif self._running >= RUNNING:
            refusal = JSONResponse({"error": "too many requests at once"}, 503, {"Retry-After": "1"})
            await refusal(scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        turn = ExitStack()
        turn.callback(self._end_turn)
        self._running += 1

        async def began(message: "Message") -> None:
            turn.close()
            await send(message)

        with turn:
            await self._app(scope, receive, began)

    def _end_turn(self) -> None:
        self._running -= 1


class _Sparse(logging.Filter):
    """Filter that passes one error per minute and drops lower levels, because clients can cause uvicorn's log lines."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._next = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR and self._is_due()

    def report(self, about: dict[str, Any]) -> None:
        """Log an error of the event loop in one line."""
        if self._is_due():
            log.warning("HTTP: %s: %r (logged once per minute)", about["message"], about.get("exception"))

    def _is_due(self) -> bool:
        now = self._now()
        if now < self._next:
            return False
        self._next = now + _LOG_SECONDS
        return True
