"""The console at the job's own address: it reads nothing before somebody opens it."""

import logging
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute, Mount
from starlette.types import Receive, Scope, Send

from streaming import address
from streaming.config import Settings
from streaming.console.access import Access
from streaming.console.timings import RecentBatches
from streaming.monitor.server import read_token

if TYPE_CHECKING:
    from streaming.monitor.batch import BatchReport

log = logging.getLogger("reexpand")

_MAX_ROWS: Final = 1_000_000
"""Number of rows that it keeps; `reexpand console --max-rows` takes more, in a process of its own."""


class JobConsole:
    """Page of a running job.

    Args:
        settings: settings of the job.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._access = Access(read_token(settings.http_token_file))
        self._timings = RecentBatches()
        self._app: Starlette | None = None
        self._opening = threading.Lock()
        self._open = ExitStack()

    def routes(self) -> list[BaseRoute]:
        """Return the route of the page; none where others reach the address and no token guards it."""
        where = address.parse(self._settings.http)
        if where is None:
            return []
        if self._access.token is None and not where.is_loopback:
            log.info("no console at %s: others reach it, and there is no --http-token-file", where)
            return []
        return [Mount("/", app=self._serve)]

    def follow(self, batch: "BatchReport") -> None:
        """Take over a micro-batch that was committed."""
        self._timings.follow(batch)

    def close(self) -> None:
        """End the streams of open pages, and follow nothing more."""
        with self._opening:
            self._open.close()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = await run_in_threadpool(self._begin) if self._app is None else self._app
        await app(scope, receive, send)

    def _begin(self) -> Starlette:
        """Begin to follow updates and dead letters, once."""
        from streaming.console.app import console  # noqa: PLC0415 - only a page that is opened needs these
        from streaming.console.explaining import UpdatesExplainer  # noqa: PLC0415
        from streaming.console.job_explaining import JobExplainer  # noqa: PLC0415
        from streaming.console.live import LiveRelation  # noqa: PLC0415
        from streaming.console.sources import ConsoleSources  # noqa: PLC0415
        from streaming.kafka.options import for_librdkafka  # noqa: PLC0415
        from streaming.operations.dlq.tail import LetterTail  # noqa: PLC0415

        with self._opening:
            if self._app is None:
                settings, options = self._settings, for_librdkafka(self._settings)
                servers = settings.bootstrap_servers
                relation = self._open.enter_context(
                    LiveRelation(servers, settings.updates, options=options, max_rows=_MAX_ROWS)
                )
                letters = self._open.enter_context(LetterTail(servers, settings.dead_letters, options))
                explainer = JobExplainer(settings, UpdatesExplainer(relation))
                about = {"broker": servers, "updates": settings.updates, "checkpoint": settings.checkpoint}
                sources = ConsoleSources(relation, explainer, letters, self._timings, about)
                self._app = console(sources, self._access)
                self._open.callback(self._app.state.close)
            return self._app
