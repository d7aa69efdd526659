"""The official client beside a proxy that is played, over real connections."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc
from rocketmq.grpc_protocol import AddressScheme, Code, Permission
from rocketmq.grpc_protocol.service_pb2 import (
    HeartbeatResponse,
    NotifyClientTerminationResponse,
    QueryAssignmentResponse,
    QueryRouteResponse,
    SyncLiteSubscriptionResponse,
    TelemetryCommand,
)
from rocketmq.grpc_protocol.service_pb2_grpc import (
    MessagingServiceServicer,
    add_MessagingServiceServicer_to_server,
)

from streaming.local.server import free_port
from streaming.rocketmq.official import OfficialConsumer, _QuickChannel
from streaming.rocketmq.subscriptions import Keeper, OwnLiteTopics
from tests.support.processes import eventually
from tests.support.rocketmq import be_patient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest


def _accepts(kind: Callable[[], Any]) -> Callable[[Any, Any, Any], Any]:
    """Return a method that answers any request with success."""

    def answer(_: Any, __: Any, ___: Any) -> Any:
        found = kind()
        found.status.code = Code.OK
        return found

    return answer


class PlayedProxy(MessagingServiceServicer):  # type: ignore[misc] # untyped
    """Answers as a proxy does that knows those clients only whose settings it has."""

    SyncLiteSubscription = _accepts(SyncLiteSubscriptionResponse)
    QueryAssignment = _accepts(QueryAssignmentResponse)
    NotifyClientTermination = _accepts(NotifyClientTerminationResponse)

    def __init__(self, port: int) -> None:
        self.known = threading.Event()
        self._port = port
        self._ended = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(8))
        add_MessagingServiceServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"127.0.0.1:{port}")
        self._server.start()

    def end(self) -> None:
        self._ended.set()
        self._server.stop(None).wait()

    def QueryRoute(self, request: Any, _: Any) -> Any:  # noqa: N802
        answer = QueryRouteResponse()
        answer.status.code = Code.OK
        queue = answer.message_queues.add(permission=Permission.READ_WRITE)
        queue.topic.CopyFrom(request.topic)
        queue.broker.name = "broker"
        queue.broker.endpoints.scheme = AddressScheme.IPv4
        queue.broker.endpoints.addresses.add(host="127.0.0.1", port=self._port)
        return answer

    def Telemetry(self, commands: Iterator[Any], _: Any) -> Iterator[Any]:  # noqa: N802
        for command in commands:
            self.known.set()
            answer = TelemetryCommand()
            answer.CopyFrom(command)
            answer.status.code = Code.OK
            answer.settings.subscription.lite_subscription_quota = 10
            yield answer

    def Heartbeat(self, _: Any, __: Any) -> Any:  # noqa: N802
        answer = HeartbeatResponse()
        answer.status.code = Code.OK if self.known.is_set() else Code.UNRECOGNIZED_CLIENT_TYPE
        return answer


def test_the_client_introduces_itself_to_a_proxy_that_has_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The official client alone does so after five to ten minutes, and gets no message until then.

    It is away for a moment, and for longer.
    """
    be_patient(monkeypatch)
    port = free_port()
    proxy = PlayedProxy(port)
    official = OfficialConsumer(
        f"127.0.0.1:{port}", "billing", "orders", print, credentials=("", ""), namespace="", tls=False, threads=1
    )
    official.start()
    keeper = Keeper(official, OwnLiteTopics(), lambda: None, 60)
    keeper.start()
    try:
        assert official.quota == 10
        assert proxy.known.is_set()
        for away_seconds in (0, 2):
            proxy.end()
            time.sleep(away_seconds)
            proxy = PlayedProxy(port)
            assert eventually(proxy.known.is_set)
        (channel,) = official._consumer.rpc_client.channels.values()
        assert isinstance(channel, _QuickChannel)  # which tries again soon, however long the proxy was away
    finally:
        keeper.stop()
        official.stop()
        proxy.end()
