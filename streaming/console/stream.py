"""Live changes as server-sent events."""

from __future__ import annotations

import asyncio
import time
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

import orjson
from starlette.responses import StreamingResponse

from streaming.console.asking import JsonAnswer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from streaming.console.live import LiveRelation

MAX_STREAMS: Final = 64
"""Maximum number of pages that follow the changes."""

_AT_ONCE: Final = 200
"""Maximum number of changes per event. The event also contains the number of omitted changes."""

_LOOK_SECONDS: Final = 0.25
_STATE_SECONDS: Final = 1.0
_BEAT_SECONDS: Final = 15.0
"""Maximum time between events in seconds, for proxies and for detecting lost connections."""


class ChangeStream:
    """Streams of a console.

    Streams have no queues: each reads the changes after its last number, so a slow browser needs no memory.

    Attributes:
        open: number of open streams.
    """

    def __init__(self, relation: LiveRelation) -> None:
        self._relation = relation
        self.open = 0
        self._closed = False
        self._run = token_hex(4)

    async def follow(self, request: Request) -> Response:
        """Stream the changes from now, or after the last event that the browser has received."""
        if self.open >= MAX_STREAMS:
            return JsonAnswer({"error": f"{MAX_STREAMS} pages already follow the changes"}, 503, {"Retry-After": "10"})
        self.open += 1  # before the response starts, to include concurrent requests
        run, _, number = request.headers.get("last-event-id", "").partition("-")
        seen = int(number) if run == self._run and number.isascii() and number.isdigit() else None
        events = self._events(self._relation.changes.last if seen is None else seen)
        return _Stream(self, events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    def close(self) -> None:
        """End all streams, before the server stops."""
        self._closed = True

    async def _events(self, seen: int) -> AsyncIterator[bytes]:
        yield b"retry: 2000\n\n"
        told, told_at = None, 0.0
        while not self._closed:
            health, now = self._relation.health(), time.monotonic()
            if not health.ready:  # send nothing while catching up; the page reloads when the reader is ready
                seen = health.changes
            changes, missed = self._relation.changes.since(seen, _AT_ONCE)
            if changes:
                seen = changes[-1].number
                fields = {"missed": missed, "changes": [change._asdict() for change in changes]}
                yield self._event("changes", fields, seen)
            due = health != told and now - told_at >= _STATE_SECONDS
            if told is None or due or now - told_at >= _BEAT_SECONDS:
                told, told_at = health, now
                yield self._event("state", {**health._asdict(), "run": self._run}, seen)
            await asyncio.sleep(_LOOK_SECONDS)

    def _event(self, name: str, fields: dict[str, Any], seen: int) -> bytes:
        return b"event: %b\nid: %b-%d\ndata: %b\n\n" % (name.encode(), self._run.encode(), seen, orjson.dumps(fields))


class _Stream(StreamingResponse):
    """Stream that counts as open until its end, even if it never started."""

    def __init__(self, streams: ChangeStream, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until the client disconnects."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.open -= 1
