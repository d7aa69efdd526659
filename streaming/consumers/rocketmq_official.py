"""The official client of RocketMQ, as the wildcard consumer uses it: the only module that imports it.

Its version is pinned, since it is used past its public methods. `subscribe_lite` of 5.1.2 extends a set by the letters
of a name, so requests are sent through its connection. Its own sync every 30 s would overtake them, so it is stopped,
and the wildcard consumer repeats the whole set itself.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import grpc
from grpc import aio
from rocketmq import ClientConfiguration, ConsumeResult, Credentials, LitePushConsumer, Message, Producer
from rocketmq.grpc_protocol import Code, LiteSubscriptionAction, MessagingServiceStub, SyncLiteSubscriptionRequest
from rocketmq.v5.client.connection.rpc_channel import RpcChannel
from rocketmq.v5.util import MessagingResultChecker

from streaming.errors import LiteSubscriptionRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.consumers.rocketmq_subscriptions import LiteRequest

SUCCESS, FAILURE = ConsumeResult.SUCCESS, ConsumeResult.FAILURE

_OPTION_FIELDS = {"POLICY": "policy", "OFFSET": "offset", "TAIL_N": "tail_n"}
_QUOTA_CODES = frozenset({Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, Code.LITE_TOPIC_QUOTA_EXCEEDED})
_CHANNEL_OPTIONS = (
    ("grpc.enable_retries", 0),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),  # by default it rises to two minutes while a proxy is away
)
_RENEW_SECONDS = 1.0
"""Shortest time in seconds between two looks at the streams to the proxies."""


class OfficialConsumer:
    """A `LitePushConsumer` whose subscriptions are sent as they are given.

    Args:
        endpoints: addresses of proxies, HOST:PORT[;HOST:PORT...].
        group: consumer group.
        parent: parent of the lite topics.
        consume: called with each message, in threads of the official client; returns `SUCCESS` or `FAILURE`.
        credentials: access key and secret key; empty texts for none.
        namespace: namespace of parent and group.
        tls: use TLS.
        threads: number of threads that call `consume`.
        client_suffix: end of the id of the client.
    """

    def __init__(
        self,
        endpoints: str,
        group: str,
        parent: str,
        consume: Callable[[Any], Any],
        *,
        credentials: tuple[str, str],
        namespace: str,
        tls: bool,
        threads: int,
        client_suffix: str = "",
    ) -> None:
        self._where = f"the proxy at {endpoints}"
        self._group, self._parent = group, parent
        self._configuration = ClientConfiguration(endpoints, Credentials(*credentials), namespace)
        self._consumer = LitePushConsumer(
            self._configuration,
            group,
            parent,
            _Listener(consume),
            consumption_thread_count=threads,
            tls_enable=tls,
        )
        self._consumer._Client__client_id = f"{self._consumer.client_id}{client_suffix}"  # noqa: SLF001 - see above
        self._manager = self._consumer._LitePushConsumer__subscription_manager  # noqa: SLF001 - see above
        # Its own method fails where metrics are off, which ends the stream by which RocketMQ tells of another quota.
        self._consumer.reset_metric = self._consumer.client_metrics.reset_metrics
        # It logs that a heartbeat has failed, and raises in a thread that prints a traceback.
        self._consumer._Client__heartbeat_callback = _quiet(self._consumer._Client__heartbeat_callback)  # noqa: SLF001
        self._open_quick_channels(tls=tls)
        self._renew_at = 0.0

    @property
    def client_id(self) -> str:
        """Id of the client, which the official one makes of host, process, and time."""
        return str(self._consumer.client_id)

    @property
    def quota(self) -> int:
        """Largest number of lite topics of the client, as RocketMQ says at the start and every five minutes."""
        return int(self._manager.lite_subscription_quota)

    @property
    def max_name_bytes(self) -> int:
        """Longest name of a lite topic, in bytes."""
        return int(self._manager.max_lite_topic_size)

    def start(self) -> None:
        """Connect, and receive messages from now on.

        Raises:
            LiteSubscriptionRefused: RocketMQ does not answer, or refuses the client.
        """
        try:
            self._consumer.startup()
        except Exception as error:
            # A failure of its start makes its own clean-up fail, and that error would hide the first one.
            first = error.__context__ or error
            raise LiteSubscriptionRefused(
                f"RocketMQ does not take the consumer of group {self._group!r} on {self._parent!r} ({first}). "
                f"Check that {self._where} answers, that the parent is of message type LITE, and that the group exists "
                f"with lite.bind.topic={self._parent}, and without lite.sub.wildcard."
            ) from error
        self._manager.stop_scheduler()

    def send(self, request: LiteRequest, names: tuple[str, ...]) -> None:
        """Send a request.

        Args:
            request: the request.
            names: all names of the client, which the official one is told as its own.

        Raises:
            LiteSubscriptionRefused: RocketMQ refuses it.
            Exception: the proxy does not answer; any error of gRPC.
        """
        # As a new set: the official client reads the former one in threads of its own.
        self._manager._LiteTopicSubscriptionManager__lite_topics = set(names)  # noqa: SLF001 - see above
        message = SyncLiteSubscriptionRequest()
        message.action = LiteSubscriptionAction.Value(request.action.value)
        message.topic.name, message.group.name = self._parent, self._group
        message.topic.resource_namespace = message.group.resource_namespace = self._configuration.namespace
        message.lite_topic_set.extend(request.names)
        if request.option is not None and request.option[0] in _OPTION_FIELDS:
            setattr(message.offset_option, _OPTION_FIELDS[request.option[0]], request.option[1])
        answer = self._consumer.rpc_client.sync_lite_subscription_async(
            self._configuration.rpc_endpoints,
            message,
            metadata=self._consumer.sign(),
            timeout=self._configuration.request_timeout,
        ).result()
        try:
            MessagingResultChecker.check(answer.status)
        except Exception as error:
            raise self._refusal(answer.status.code, answer.status.message) from error

    def renew(self) -> None:
        """Introduce the client anew to proxies whose streams have ended.

        A proxy knows its clients by those streams. One that has started again answers nothing but errors to others, and
        the official client opens a new stream after up to ten minutes.
        """
        if time.monotonic() >= self._renew_at:
            self._renew_at = time.monotonic() + _RENEW_SECONDS
            self._consumer.rpc_client.get_channel_io_loop().call_soon_threadsafe(self._renew)

    def _renew(self) -> None:
        """Do so, in the thread of the official client's connections."""
        if not self._consumer.is_running:
            return
        for endpoints in self._consumer.route_manager.get_all_endpoints().values():
            stream = self._consumer.rpc_client.retrieve_or_create_channel(endpoints).telemetry_stream_stream_call
            if stream is None or stream._RpcStreamStreamCall__stream_stream_call.done():  # noqa: SLF001 - see above
                self._consumer.on_new_endpoints(endpoints)

    def _open_quick_channels(self, *, tls: bool) -> None:
        """Let the official client use connections that are tried again soon."""
        client = self._consumer.rpc_client
        retrieve = client.retrieve_or_create_channel

        def quick(endpoints: Any) -> Any:
            if client.channels.get(endpoints) is None:
                channel = _QuickChannel(endpoints, tls)
                channel.create_channel(client.get_channel_io_loop())
                client.channels.put(endpoints, channel)
            return retrieve(endpoints)

        client.retrieve_or_create_channel = quick

    def stop(self) -> None:
        """End; messages under way are waited for."""
        if self._consumer.is_running:
            self._consumer.shutdown()

    def _refusal(self, code: int, message: str) -> LiteSubscriptionRefused:
        return LiteSubscriptionRefused(refusal(Code.Name(code), message, self._where, self._group, self._parent))


def refusal(code: str, message: str, where: str, group: str, parent: str) -> str:
    """Return a sentence about a refused request: the reason, and what to do about it."""
    text = f"RocketMQ refuses the lite subscriptions of group {group!r} on {parent!r}: {code}, {message.strip()!r}."
    if "NullPointerException" in message:
        return f"{text} If {where} runs in local mode, start it in cluster mode (-pm cluster)."
    if Code.Value(code) in _QUOTA_CODES:
        return f"{text} Raise lite.sub.client.quota of the group, or maxLiteSubscriptionCount of the broker."
    if code == "TOPIC_NOT_FOUND":
        return (
            f"{text} Create {parent!r} with message.type=LITE, if it does not exist. "
            "A name server that has just started learns of it within half a minute."
        )
    if "org.apache.rocketmq.remoting.netty" in message:
        return f"{text} {where[0].upper()}{where[1:]} does not reach the broker: check that it runs."
    return f"{text} The group needs lite.bind.topic={parent}, and no lite.sub.wildcard, in RocketMQ."


def _quiet(callback: Callable[..., None]) -> Callable[..., None]:
    """Return a callback that raises nothing."""

    def call(*arguments: Any, **options: Any) -> None:
        with suppress(Exception):
            callback(*arguments, **options)

    return call


class _QuickChannel(RpcChannel):  # type: ignore[misc] # untyped
    """Connection of the official client that is tried again every other second while a proxy is away."""

    def __init__(self, endpoints: Any, tls: bool) -> None:  # noqa: FBT001 - as its base
        super().__init__(endpoints, tls)
        self._address, self._tls = endpoints.facade, tls

    def create_channel(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make the connection; it is opened with the first request."""
        asyncio.set_event_loop(loop)
        if self._tls:
            channel = aio.secure_channel(self._address, grpc.ssl_channel_credentials(), _CHANNEL_OPTIONS)
        else:
            channel = aio.insecure_channel(self._address, _CHANNEL_OPTIONS)
        self._RpcChannel__async_channel, self._RpcChannel__async_stub = channel, MessagingServiceStub(channel)


class LiteProducer:
    """The official producer, for messages of lite topics of one parent; ends with its `with` block."""

    def __init__(self, endpoints: str, parent: str) -> None:
        self._parent = parent
        self._producer = Producer(ClientConfiguration(endpoints, Credentials()), (parent,))

    def __enter__(self) -> Self:
        self._producer.startup()
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.shutdown()

    def send(self, lite_topic: str, body: bytes) -> None:
        """Send a message; the first one makes the lite topic."""
        message = Message()
        message.topic, message.lite_topic, message.body = self._parent, lite_topic, body
        self._producer.send(message)


class _Listener:
    """What the official client calls with a message."""

    def __init__(self, consume: Callable[[Any], Any]) -> None:
        self.consume = consume
