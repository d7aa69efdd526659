"""Routes of metrics and health."""

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from streaming.monitor.health import Health

_UNAVAILABLE = 503


def routes(registry: CollectorRegistry, health: Health) -> list[BaseRoute]:
    """Return the routes `/metrics`, `/healthz` and `/readyz`."""

    def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"Content-Type": content_type})

    def healthz(_: Request) -> Response:
        answer = health.answer()
        return JSONResponse(answer.body(), 200 if answer.is_alive else _UNAVAILABLE)

    def readyz(request: Request) -> Response:
        answer = health.answer()
        is_ready = answer.is_ready(as_holder=request.query_params.get("role") == "holder")
        return JSONResponse({**answer.body(), "ready": is_ready}, 200 if is_ready else _UNAVAILABLE)

    return [Route("/metrics", metrics), Route("/healthz", healthz), Route("/readyz", readyz)]
