"""Routes of metrics and health."""

from typing import Final

import anyio.to_thread
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from streaming.address import is_loopback_name
from streaming.monitor.health import Health

PROBES: Final = ("/healthz", "/readyz")
"""Paths that are answered however many other requests are running."""

_UNAVAILABLE = 503
_COLLECTED_AT_ONCE = 2


def routes(registry: CollectorRegistry, health: Health, *, local: bool = False) -> list[BaseRoute]:
    """Return the routes `/metrics`, `/healthz` and `/readyz`.

    Args:
        registry: the metrics.
        health: condition of the job.
        local: answer requests for a loopback name only, so that no page of a foreign name pointed here reads them.
    """
    threads = anyio.CapacityLimiter(_COLLECTED_AT_ONCE)

    def refusal(request: Request) -> Response | None:
        if not local or is_loopback_name(request.headers.get("host", "")):
            return None
        return JSONResponse({"error": "this address answers to localhost only"}, 403)

    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        if refused := refusal(request):
            return refused
        text = await anyio.to_thread.run_sync(encode, registry, limiter=threads)
        return Response(text, headers={"Content-Type": content_type})

    # Both run in the event loop: they take no time, and no thread that other requests may occupy.
    async def healthz(request: Request) -> Response:
        answer = health.answer()
        return refusal(request) or JSONResponse(answer.body(), 200 if answer.is_alive else _UNAVAILABLE)

    async def readyz(request: Request) -> Response:
        answer = health.answer()
        is_ready = answer.is_ready(as_holder=request.query_params.get("role") == "holder")
        body = {**answer.body(), "ready": is_ready}
        return refusal(request) or JSONResponse(body, 200 if is_ready else _UNAVAILABLE)

    return [Route("/metrics", metrics), *map(Route, PROBES, (healthz, readyz))]
