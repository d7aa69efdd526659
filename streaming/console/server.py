"""Servers of the console: standalone until SIGTERM or Ctrl-C, or as a page of a running job."""

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute, Mount
from starlette.types import Receive, Scope, Send

from streaming.config import Address, Settings, parse_address
from streaming.console.app import ConsoleSources, console
from streaming.console.explaining import explain
from streaming.console.job_lists import JobLists
from streaming.console.letters import LetterTail
from streaming.console.live import MAX_ROWS, LiveRelation
from streaming.console.overview import JobWatch, own_state, slowest
from streaming.errors import AddressUnusable, ConfigInvalid
from streaming.kafka.options import for_librdkafka
from streaming.monitor.batch import PHASES, TOTAL, BatchReport, LagMeter
from streaming.monitor.bounded import BoundedServer
from streaming.monitor.health import Health
from streaming.monitor.server import checked_token, read_token, token_of_file
from streaming.records.op import Op

log = logging.getLogger("reexpand")

VARIABLE: Final = "REEXPAND_CONSOLE_TOKEN"
"""Environment variable of the token, if no file is given."""

_BATCHES: Final = 500
"""Maximum number of micro-batches with records in the timings."""

_UPDATES: Final = tuple(f"{op.lower()}:" for op in Op)

_GOODBYE_SECONDS: Final = 2
"""Timeout of running responses at the end, in seconds."""


def address(text: str) -> Address:
    """Parse HOST:PORT.

    Raises:
        ConfigInvalid: the text is not an address.
    """
    try:
        found = parse_address(text)
    except ValueError:
        found = None
    if found is None:
        raise ConfigInvalid(f"--http {text!r} is not an address; expected HOST:PORT, such as 127.0.0.1:9465")
    return found


def access_token(where: Address, token: str | None, token_file: Path | None) -> str | None:
    """Return the token of a console; None for a console on the loopback interface.

    Args:
        where: address of the console.
        token: token from the environment.
        token_file: file with the token, which has precedence.

    Raises:
        ConfigInvalid: the token is too short, cannot be read, or is missing for a non-loopback address.
    """
    if token_file is not None:
        return token_of_file(token_file)
    if token is not None:
        return checked_token(token, VARIABLE)
    if where.is_loopback:
        return None
    raise ConfigInvalid(
        f"other machines can reach {where.host}, so the console needs a token: use --token-file or "
        f"{VARIABLE}, or listen on 127.0.0.1"
    )


def open_sources(
    stack: ExitStack,
    settings: Settings,
    about: Mapping[str, str],
    *,
    max_rows: int = MAX_ROWS,
    parents: Collection[str] = (),
    timings: Callable[[], Sequence[Mapping[str, Any]]] | None = None,
    job: Callable[[], Mapping[str, Any]] | None = None,
) -> ConsoleSources:
    """Start to read updates and dead letters, and to watch the job if it does not report its state itself.

    Args:
        stack: closes the readers.
        settings: addresses, topics and client options of the job.
        about: labels in the header of the page.
        max_rows: maximum number of rows.
        parents: parents whose rows are read; empty for all.
        timings: returns the job's last micro-batches.
        job: returns the state of the job.
    """
    servers, options = settings.bootstrap_servers, for_librdkafka(settings)
    relation = stack.enter_context(
        LiveRelation(servers, settings.updates, options=options, max_rows=max_rows, parents=parents)
    )
    letters = stack.enter_context(LetterTail(servers, settings.dead_letters, options))
    job = job or stack.enter_context(JobWatch(settings)).state
    labels = {"broker": servers, "updates": settings.updates, **about}
    lists = JobLists.of(settings)
    return ConsoleSources(relation, partial(explain, settings, relation), letters.page, timings, labels, job, lists)


def serve(app: Starlette, where: Address, opened: Callable[[str], None]) -> None:
    """Serve an application until SIGTERM or Ctrl-C.

    Args:
        app: the application.
        where: address to listen on; port 0 for a free port.
        opened: called with the URL when the server listens.

    Raises:
        AddressUnusable: the address cannot be listened on.
    """
    try:
        listener = where.listen()
    except OSError as error:
        raise AddressUnusable(
            f"the console cannot listen on {where}: {error.strerror or error}. "
            "Choose another address with --http, or port 0 for a free port."
        ) from None
    with listener:
        opened(f"http://{Address(where.host, listener.getsockname()[1])}/")
        _ConsoleServer(app, timeout_graceful_shutdown=_GOODBYE_SECONDS).run(sockets=[listener])


class _ConsoleServer(BoundedServer):
    """Server that ends the streams of open pages before it stops."""

    def __init__(self, app: Starlette, **options: Any) -> None:
        super().__init__(app, **options)
        self._close = app.state.close

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the server."""
        self._close()
        await super().shutdown(sockets)


class JobConsole:
    """Page of a running job. It reads no data before its first request.

    Args:
        settings: settings of the job.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._token = read_token(settings.http_token_file)
        self._batches: deque[dict[str, Any]] = deque(maxlen=_BATCHES)
        self._state: Callable[[], Mapping[str, Any]] | None = None
        self._app: Starlette | None = None
        self._opening = threading.Lock()
        self._open = ExitStack()

    def routes(self, health: Health, lag: LagMeter) -> list[BaseRoute]:
        """Return the route of the page; none for a non-loopback address without a token."""
        self._state = lambda: own_state(health.answer().body(), lag)
        where = parse_address(self._settings.http)
        if where is None:
            return []
        if self._token is None and not where.is_loopback:
            log.info("no console at %s: other machines can reach it, and there is no --http-token-file", where)
            return []
        return [Mount("/", app=self._serve)]

    def follow(self, batch: BatchReport) -> None:
        """Add a committed micro-batch, if it has read records."""
        if batch.records:
            phases = {label: batch.phases[name] for name, label in PHASES.items() if name in batch.phases}
            seconds = phases.pop(PHASES[TOTAL], 0.0)
            self._batches.append(
                {
                    "number": batch.number,
                    "started_ms": int((batch.ended - seconds) * 1_000),
                    "seconds": seconds,
                    "records": batch.records,
                    "updates": sum(count for kind, count in batch.counts.items() if kind.startswith(_UPDATES)),
                    "phases": phases,
                    "slowest": slowest(batch),
                }
            )

    def close(self) -> None:
        """End the streams of open pages, and stop reading."""
        with self._opening:
            self._open.close()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = await run_in_threadpool(self._start) if self._app is None else self._app
        await app(scope, receive, send)

    def _start(self) -> Starlette:
        """Start to read updates and dead letters, once."""
        with self._opening:
            if self._app is None:
                about = {"checkpoint": self._settings.checkpoint}
                batches = self._batches.copy
                sources = open_sources(self._open, self._settings, about, timings=batches, job=self._state)
                self._app = console(sources, self._token)
                self._open.callback(self._app.state.close)
            return self._app
