"""Wrapper of RocketMQ's official client, and its only importer.

The version of the official client is pinned, because this module uses private parts of it. `subscribe_lite` of 5.1.2
adds each letter of a name to a set, so this module sends the requests itself. The periodic sync of the official client
would overwrite them, so it is stopped, and the wildcard consumer repeats the whole set instead.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from types import SimpleNamespace
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

    from streaming.rocketmq.requests import LiteRequest

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
    ("grpc.max_reconnect_backoff_ms", 2_000),  # the default rises to two minutes while a proxy is down
)
_RENEW_SECONDS = 1.0
"""Minimum interval in seconds of checking the streams to the proxies."""


class OfficialConsumer:
    """A `LitePushConsumer` that sends the given subscription requests.

    Args:
        endpoints: addresses of proxies, HOST:PORT[;HOST:PORT...].
        consume: called with each message, in threads of the official client; returns `SUCCESS` or `FAILURE`.
        credentials: access key and secret key; empty for none.
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
            SimpleNamespace(consume=consume),
            consumption_thread_count=threads,
            tls_enable=tls,
        )
        self._consumer._Client__client_id = f"{self._consumer.client_id}{client_suffix}"  # noqa: SLF001 - see above
        self._manager = self._consumer._LitePushConsumer__subscription_manager  # noqa: SLF001 - see above
        # Its own method fails if metrics are off, which ends the stream that carries changes of the quota.
        self._consumer.reset_metric = self._consumer.client_metrics.reset_metrics
        # It logs a failed heartbeat, and then raises in a thread that prints a traceback.
        self._consumer._Client__heartbeat_callback = _quiet(self._consumer._Client__heartbeat_callback)  # noqa: SLF001
        self._open_quick_channels(tls=tls)
        self._renew_at = 0.0

    @property
    def client_id(self) -> str:
        """Id of the client: host, process and time, with the suffix."""
        return str(self._consumer.client_id)

    @property
    def quota(self) -> int:
        """Maximum number of lite topics per client, which RocketMQ sends at the start and every five minutes."""
        return int(self._manager.lite_subscription_quota)

    @property
    def max_name_bytes(self) -> int:
        """Maximum length of a lite topic's name, in bytes."""
        return int(self._manager.max_lite_topic_size)

    def start(self) -> None:
        """Connect and start to receive messages.

        Raises:
            LiteSubscriptionRefused: RocketMQ does not answer, or rejects the client.
        """
        try:
            self._consumer.startup()
        except Exception as error:
            # After a failed start its clean-up fails too, and that error would hide the cause.
            first = error.__context__ or error
            raise LiteSubscriptionRefused(
                f"RocketMQ does not accept the consumer of group {self._group!r} on {self._parent!r} ({first}). "
                f"Check that {self._where} answers, that the parent is of message type LITE, and that the group exists "
                f"with lite.bind.topic={self._parent} and without lite.sub.wildcard."
            ) from error
        self._manager.stop_scheduler()

    def send(self, request: LiteRequest, names: tuple[str, ...]) -> None:
        """Send a request, and note all names for requests of the official client.

        Raises:
            LiteSubscriptionRefused: RocketMQ rejects the request.
            Exception: the proxy does not answer; any error of gRPC.
        """
        # A new set, because threads of the official client read the previous one.
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
            code, message = Code.Name(answer.status.code), answer.status.message
            raise LiteSubscriptionRefused(refusal(code, message, self._where, self._group, self._parent)) from error

    def renew(self) -> None:
        """Register the client again at proxies whose streams have ended.

        A proxy rejects clients without a stream. After a restart of the proxy, the official client opens a new stream
        only after up to ten minutes.
        """
        if time.monotonic() >= self._renew_at:
            self._renew_at = time.monotonic() + _RENEW_SECONDS
            self._consumer.rpc_client.get_channel_io_loop().call_soon_threadsafe(self._renew)

    def _renew(self) -> None:
        """Reopen ended streams, in the connection thread of the official client."""
        if not self._consumer.is_running:
            return
        for endpoints in self._consumer.route_manager.get_all_endpoints().values():
            stream = self._consumer.rpc_client.retrieve_or_create_channel(endpoints).telemetry_stream_stream_call
            if stream is None or stream._RpcStreamStreamCall__stream_stream_call.done():  # noqa: SLF001 - see above
                self._consumer.on_new_endpoints(endpoints)

    def _open_quick_channels(self, *, tls: bool) -> None:
        """Replace the connections of the official client by connections that reconnect quickly."""
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
        """Close the client after waiting for messages in progress."""
        if self._consumer.is_running:
            self._consumer.shutdown()


def refusal(code: str, message: str, where: str, group: str, parent: str) -> str:
    """Describe a rejected request: the reason, and a remedy."""
    text = f"RocketMQ rejects the lite subscriptions of group {group!r} on {parent!r}: {code}, {message.strip()!r}."
    if "NullPointerException" in message:
        return f"{text} If {where} runs in local mode, start it in cluster mode (-pm cluster)."
    if Code.Value(code) in _QUOTA_CODES:
        return f"{text} Raise lite.sub.client.quota of the group, or maxLiteSubscriptionCount of the broker."
    if code == "TOPIC_NOT_FOUND":
        return (
            f"{text} Create {parent!r} with message.type=LITE, if it does not exist. "
            "Brokers register at a restarted name server within 30 s."
        )
    if "org.apache.rocketmq.remoting.netty" in message:
        return f"{text} {where[0].upper()}{where[1:]} does not reach the broker: check that the broker is running."
    return f"{text} In RocketMQ the group needs lite.bind.topic={parent} and no lite.sub.wildcard."


def _quiet(callback: Callable[..., None]) -> Callable[..., None]:
    """Wrap a callback to suppress its exceptions."""

    def call(*arguments: Any, **options: Any) -> None:
        with suppress(Exception):
            callback(*arguments, **options)

    return call


class _QuickChannel(RpcChannel):  # type: ignore[misc] # untyped
    """Connection of the official client that reconnects every two seconds while a proxy is down."""

    def __init__(self, endpoints: Any, tls: bool) -> None:  # noqa: FBT001 - as its base
        super().__init__(endpoints, tls)
        self._address, self._tls = endpoints.facade, tls

    def create_channel(self, loop: asyncio.AbstractEventLoop) -> None:
        """Create the connection, which the first request opens."""
        asyncio.set_event_loop(loop)
        if self._tls:
            channel = aio.secure_channel(self._address, grpc.ssl_channel_credentials(), _CHANNEL_OPTIONS)
        else:
            channel = aio.insecure_channel(self._address, _CHANNEL_OPTIONS)
        self._RpcChannel__async_channel, self._RpcChannel__async_stub = channel, MessagingServiceStub(channel)


class LiteProducer:
    """The official producer, for lite topics of a parent. A `with` block starts and stops it."""

    def __init__(self, endpoints: str, parent: str) -> None:
        self._parent = parent
        self._producer = Producer(ClientConfiguration(endpoints, Credentials()), (parent,))

    def __enter__(self) -> Self:
        self._producer.startup()
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.shutdown()

    def send(self, lite_topic: str, body: bytes) -> None:
        """Send a message. The first message creates the lite topic."""
        message = Message()
        message.topic, message.lite_topic, message.body = self._parent, lite_topic, body
        self._producer.send(message)
