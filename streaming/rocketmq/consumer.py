"""Consumer of RocketMQ lite topics by pattern."""

from __future__ import annotations

import logging
import queue
import threading
import time
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import orjson

from streaming.client import UPDATES, Op, Subscriber, SubscriptionClient
from streaming.errors import ClientError, ConsumerClosed, ExtraMissing, NotWritten
from streaming.kafka.writer import Writer
from streaming.rocketmq.requests import OffsetOption, PatternSet, group_event
from streaming.rocketmq.subscriptions import Keeper, OwnLiteTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

    from streaming.client import Change

__all__ = ["OffsetOption", "WildcardLiteConsumer"]

log = logging.getLogger("reexpand.consumer")

PATTERN_CLIENT = "@reexpand"
"""Suffix of the client ids. The broker's mirror hook skips these clients, because their patterns are in Kafka."""

_READY_SECONDS = 60.0
_CLOSE_SECONDS = 5.0
_WRITE_SECONDS = 30.0
"""Timeout in seconds for writing a request."""

_REPEAT_SECONDS = 1.0
"""Timeout in seconds for writing a repetition, which delays requests to RocketMQ."""

_POLL_SECONDS = 0.2


def official_client() -> ModuleType:
    """Import the module that uses RocketMQ's official client.

    Raises:
        ExtraMissing: the official client is not installed.
    """
    try:
        from streaming.rocketmq import official  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ExtraMissing(
            f"RocketMQ's official client is not installed ({error}). Install it: pip install 'reexpand[rocketmq]' "
            "(from a checkout: pip install '.[rocketmq]')"
        ) from None
    return official


@dataclass(frozen=True, eq=False)
class Delivery:
    """A message for a loop, with its result: True if the loop consumed it."""

    message: Any
    done: Future[bool] = field(default_factory=Future)

    def end(self, *, is_consumed: bool) -> None:
        """Set the result once. Later calls are ignored."""
        with suppress(InvalidStateError):
            self.done.set_result(is_consumed)


class Handover:
    """Queue of messages from the threads of the official client to threads that iterate."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open: set[Delivery] = set()
        self._closed = False

    def consume(self, message: Any) -> bool:
        """Offer a message, and wait for its result; False after `close`."""
        delivery = Delivery(message)
        with self._lock:
            if self._closed:
                return False
            self._open.add(delivery)
        self._queue.put(delivery)
        try:
            return delivery.done.result()
        finally:
            with self._lock:
                self._open.remove(delivery)

    def take(self, seconds: float) -> Delivery | None:
        """Return the next message, or None after a timeout."""
        try:
            return self._queue.get(timeout=seconds)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Return all messages unconsumed, because the official client waits for them when it closes."""
        with self._lock:
            self._closed = True
            for delivery in self._open:
                delivery.end(is_consumed=False)


class _RequestWriter(Writer):
    """Writer of one client's requests, one at a time; rejects requests after the last one."""

    def __init__(self, bootstrap_servers: str, options: Mapping[str, Any], client: Subscriber) -> None:
        super().__init__(bootstrap_servers, options, NotWritten, {"message.timeout.ms": 0})
        self._client = client
        self._lock = threading.Lock()
        self._has_ended = False

    def write(self, topic: str, value: dict[str, Any], seconds: float, *, is_last: bool = False) -> None:
        """Write a record, and wait for Kafka. After a timeout the write continues.

        Raises:
            NotWritten: Kafka does not accept the record.
            ConsumerClosed: the last record was written. Another one would start the client again.
        """
        with self._lock:
            if self._has_ended:
                _, group, client_id, _ = self._client
                raise ConsumerClosed(f"The consumer {client_id} of the group {group} is closed.")
            self._has_ended = is_last
            self.send(topic, orjson.dumps(value), self._client.group.encode())
            self.flush(seconds)


class Topics(NamedTuple):
    """Kafka topics of the job that a consumer uses."""

    subscription_events: str = "lite-subscription-events"
    group_events: str = "lite-group-events"
    updates: str = UPDATES


class WildcardLiteConsumer:
    """The official `LitePushConsumer` with patterns instead of names.

    The consumer sends its patterns to the job as requests of a client. It subscribes in RocketMQ to the lite topics
    that the job assigns to this client. Messages arrive like messages of the official client, in a listener or by
    iteration:

        with WildcardLiteConsumer("proxy:8081", "billing", "orders", "kafka:9092") as consumer:
            consumer.subscribe("*__acme__**")
            for message in consumer:
                print(message.lite_topic, message.body)

    Args:
        endpoints: addresses of RocketMQ's proxies, HOST:PORT[;HOST:PORT...].
        group: consumer group; in RocketMQ it needs `lite.bind.topic`, without `lite.sub.wildcard`.
        parent: parent of the lite topics.
        bootstrap_servers: Kafka brokers of the job.
        listener: called with each message, or an official `MessageListener`. After an exception or the result FAILURE
            RocketMQ redelivers the message. Without a listener, iterate over the consumer.
        attributes: declares the group to the job as a wildcard group with these attributes; None if it is declared
            elsewhere, by a group event or the job's group file.
        dialect: dialect of the patterns.
        selector: condition on tags and properties of topics, `{"type": ..., "expression": ...}`; one per group.
        credentials: access key and secret key of RocketMQ.
        namespace: namespace of parent and group in RocketMQ.
        tls: use TLS to RocketMQ.
        threads: number of threads that call the listener.
        kafka_options: additional librdkafka options of the Kafka clients.
        topics: Kafka topics of the job.
        repeat_seconds: interval of repeating the patterns, below the job's lease (`client_timeout_ms`).
        sync_seconds: interval of repeating all names to RocketMQ, which loses them when it restarts.

    Raises:
        ExtraMissing: the official client is not installed.
        ConfigInvalid: an option is invalid.
    """

    def __init__(
        self,
        endpoints: str,
        group: str,
        parent: str,
        bootstrap_servers: str,
        *,
        listener: Any = None,
        attributes: Mapping[str, str] | None = None,
        dialect: str = "lite",
        selector: Mapping[str, str] | None = None,
        credentials: tuple[str, str] = ("", ""),
        namespace: str = "",
        tls: bool = False,
        threads: int = 20,
        kafka_options: Mapping[str, Any] | None = None,
        topics: Topics = Topics(),  # noqa: B008 - never changed in place
        repeat_seconds: float = 30,
        sync_seconds: float = 10,
    ) -> None:
        official = official_client()
        self.error: ClientError | None = None
        self._success, self._failure = official.SUCCESS, official.FAILURE
        self._handover = Handover()
        self._consume: Callable[[Any], Any] = getattr(listener, "consume", listener) or self._handover.consume
        self._official = official.OfficialConsumer(
            endpoints, group, parent, self._on_message, credentials=credentials, namespace=namespace, tls=tls,
            threads=threads, client_suffix=PATTERN_CLIENT,
        )  # fmt: skip
        self._declared = None if attributes is None else group_event(group, parent, attributes)
        self._subscriber = Subscriber(parent, group, self._official.client_id)
        self._patterns = PatternSet(self._official.client_id, group, parent, dialect, selector)
        self._changing = threading.Lock()
        self._kafka = bootstrap_servers, dict(kafka_options or {})
        self._writer = _RequestWriter(bootstrap_servers, self._kafka[1], self._subscriber)
        self._topics = topics
        self._lite_topics = OwnLiteTopics()
        self._keeper = Keeper(self._official, self._lite_topics, self._attend, sync_seconds)
        self._repeat_seconds, self._repeat_at = repeat_seconds, time.monotonic() + repeat_seconds
        self._updates: SubscriptionClient | None = None
        self._stop = threading.Event()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Self:
        """Connect to RocketMQ and Kafka. Call `subscribe` next.

        Raises:
            LiteSubscriptionRefused: RocketMQ does not answer, or rejects lite subscriptions.
            ClientError: the updates cannot be read.
            NotWritten: Kafka does not accept the declaration of the group.
        """
        self._official.start()
        try:
            self._lite_topics.limit(self._official.quota, self._official.max_name_bytes)
            self._keeper.start()
            if self._declared is not None:
                self._writer.write(self._topics.group_events, self._declared, _WRITE_SECONDS)
            servers, options = self._kafka
            self._updates = SubscriptionClient(
                servers,
                self._topics.updates,
                options=options,
                on_change=self._on_change,
                admits=lambda subscriber: subscriber[:3] == self._subscriber[:3],
            )
            self._updates.wait_ready(_READY_SECONDS)
        except BaseException:
            self._end_clients()
            raise
        return self

    def subscribe(self, *patterns: str, offset: OffsetOption | None = None) -> None:
        """Subscribe to all existing and future lite topics that match.

        Args:
            patterns: patterns in the dialect of the consumer.
            offset: start position in existing topics. New topics are read from their first message.

        Raises:
            InvalidPattern: a pattern is invalid. None of them is subscribed to.
            NotWritten: Kafka does not accept the request. If it rejects it, none of them is subscribed to.
            ConsumerClosed: the consumer is closed.
        """
        with self._changing:
            request = self._patterns.add(patterns, offset)
            try:
                self._request(request)
            except NotWritten:
                if request is not None and not self._writer.wait(0):  # it is not on its way any more
                    self._patterns.forget(request["liteTopicSet"])
                raise

    def unsubscribe(self, *patterns: str) -> None:
        """Unsubscribe from patterns.

        Raises:
            NotWritten: Kafka does not accept the request.
            ConsumerClosed: the consumer is closed.
        """
        with self._changing:
            self._request(self._patterns.remove(patterns))

    def __iter__(self) -> Iterator[Any]:
        """Yield messages until the consumer is closed; see `messages`."""
        return self.messages()

    def messages(self, timeout: float | None = None) -> Iterator[Any]:
        """Yield messages, in any number of threads. Requesting the next message acknowledges the previous message.

        If a `break` or an exception ends the loop, RocketMQ redelivers the message.

        Args:
            timeout: seconds without a message after which the iteration ends; None for no timeout.

        Raises:
            ClientError: the updates can no longer be read.
        """
        while (delivery := self._next(timeout)) is not None:
            try:
                yield delivery.message
            except BaseException:
                delivery.end(is_consumed=False)
                raise
            delivery.end(is_consumed=True)

    @property
    def client_id(self) -> str:
        """Id of the client, in RocketMQ and in the job."""
        return self._subscriber.client_id

    @property
    def lite_topics(self) -> frozenset[str]:
        """Lite topics that the client subscribes to now."""
        return frozenset(self._lite_topics.names)

    @property
    def not_received(self) -> dict[str, str]:
        """Lite topics that match but cannot be subscribed to, each with the reason."""
        return self._lite_topics.not_received

    def close(self) -> None:
        """End the client in RocketMQ and in the job. RocketMQ redelivers messages that a loop has not acknowledged."""
        if self._stop.is_set():
            return
        self._stop.set()
        try:
            self._writer.write(self._topics.subscription_events, self._patterns.end(), _CLOSE_SECONDS, is_last=True)
        except NotWritten as error:
            log.warning("the job ends %s only when its lease expires: %s", self.client_id, error)
        self._end_clients()

    def _end_clients(self) -> None:
        self._handover.close()
        self._keeper.stop()
        if self._updates is not None:
            self._updates.close()
        self._official.stop()

    def _request(self, value: dict[str, Any] | None, seconds: float = _WRITE_SECONDS) -> None:
        if value is not None:
            self._writer.write(self._topics.subscription_events, value, seconds)

    def _on_change(self, change: Change) -> None:
        self._lite_topics.apply(change)
        log.debug("%s %s", "+" if change.op is Op.ADD else "-", change.row.lite_topic)

    def _on_message(self, message: Any) -> Any:
        """Consume a message, or reject it if the job has since assigned its topic to another client."""
        if self._lite_topics.is_lost(message.lite_topic):
            return self._failure
        result = self._consume(message)
        return self._failure if result is False or result is self._failure else self._success

    def _next(self, timeout: float | None) -> Delivery | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._stop.is_set():
            if self.error is not None:
                raise type(self.error)(*self.error.args) from self.error
            left = _POLL_SECONDS if deadline is None else min(_POLL_SECONDS, deadline - time.monotonic())
            if left <= 0:
                return None
            delivery = self._handover.take(left)
            if delivery is not None:
                return delivery
        return None

    def _attend(self) -> None:
        """Renew the lease, and check the reader of updates."""
        if self._updates is not None and self._updates.error is not None and self.error is None:
            self.error = self._updates.error
            log.error("the consumer %s receives no further updates: %s", self.client_id, self.error)
        if time.monotonic() < self._repeat_at:
            return
        if not self._changing.acquire(blocking=False):
            return  # another request is being written, which may take time
        self._repeat_at = time.monotonic() + self._repeat_seconds
        try:
            self._request(self._patterns.repeat(), _REPEAT_SECONDS)
        except ConsumerClosed:
            pass
        except NotWritten as error:
            log.warning("%s", error)
        finally:
            self._changing.release()
