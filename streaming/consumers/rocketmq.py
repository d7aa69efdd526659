"""Consumer of RocketMQ's lite topics with patterns in place of names."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from streaming.client import UPDATES, Op, Subscriber, SubscriptionClient
from streaming.consumers.rocketmq_handover import Delivery, Handover
from streaming.consumers.rocketmq_keeper import Keeper
from streaming.consumers.rocketmq_requests import WRITE_SECONDS, InputWriter, OffsetOption, PatternSet, group_event
from streaming.consumers.rocketmq_subscriptions import OwnLiteTopics
from streaming.errors import ClientError, ExtraMissing, NotWritten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

    from streaming.client import Change

__all__ = ["OffsetOption", "WildcardLiteConsumer"]

log = logging.getLogger("reexpand.consumer")

PATTERN_CLIENT = "@reexpand"
"""End of the client ids, by which the mirror of a broker leaves these clients out: their patterns are in Kafka."""

_READY_SECONDS = 60.0
_CLOSE_SECONDS = 5.0
_REPEAT_SECONDS = 1.0
"""Wait in seconds for a repetition to be written: it holds up what RocketMQ is told."""

_POLL_SECONDS = 0.2


def official_client() -> ModuleType:
    """Return the module that uses RocketMQ's official client.

    Raises:
        ExtraMissing: the official client is not installed.
    """
    try:
        from streaming.consumers import rocketmq_official  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ExtraMissing(
            f"RocketMQ's official client is not installed ({error}). Install it: pip install 'reexpand[rocketmq]' "
            "(from a checkout: pip install '.[rocketmq]')"
        ) from None
    return rocketmq_official


class Topics(NamedTuple):
    """Kafka topics of the job that a consumer uses."""

    subscription_events: str = "lite-subscription-events"
    group_events: str = "lite-group-events"
    updates: str = UPDATES


class WildcardLiteConsumer:
    """The official `LitePushConsumer` with patterns in place of names.

    Its patterns go to the job as requests of a client. The lite topics that the job gives to this client are subscribed
    to in RocketMQ, as they come and go. Messages come as those of the official client, to a listener or by iteration:

        with WildcardLiteConsumer("proxy:8081", "billing", "orders", "kafka:9092") as consumer:
            consumer.subscribe("*__acme__**")
            for message in consumer:
                print(message.lite_topic, message.body)

    Args:
        endpoints: addresses of RocketMQ's proxies, HOST:PORT[;HOST:PORT...].
        group: consumer group; in RocketMQ it has `lite.bind.topic`, and not `lite.sub.wildcard`.
        parent: parent of the lite topics.
        bootstrap_servers: Kafka brokers of the job.
        listener: called with each message, or an official `MessageListener`; an exception, or the result FAILURE,
            makes RocketMQ deliver the message again. Without a listener messages come by iteration.
        attributes: declares the group to the job, with these attributes and as a group of patterns; None: it is
            declared elsewhere, by a group event or the job's file of groups.
        dialect: dialect of the patterns.
        selector: condition on tags and properties of topics, `{"type": ..., "expression": ...}`; one for the group.
        credentials: access key and secret key of RocketMQ.
        namespace: namespace of parent and group in RocketMQ.
        tls: use TLS to RocketMQ.
        threads: number of threads that call the listener.
        kafka_options: further options of the Kafka clients, in the names of librdkafka.
        topics: Kafka topics of the job.
        repeat_seconds: time between two repetitions of the patterns; below the job's lease (`client_timeout_ms`).
        sync_seconds: time between two repetitions of all names to RocketMQ, which forgets them when it restarts.

    Raises:
        ExtraMissing: the official client is not installed.
        ConfigInvalid: an option is not valid.
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
        self._writer = InputWriter(bootstrap_servers, group, self._kafka[1])
        self._topics = topics
        self._lite_topics = OwnLiteTopics()
        self._keeper = Keeper(self._official, self._lite_topics, self._besides, sync_seconds)
        self._repeat_seconds, self._repeat_at = repeat_seconds, time.monotonic() + repeat_seconds
        self._updates: SubscriptionClient | None = None
        self._stop = threading.Event()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Self:
        """Connect to RocketMQ and Kafka; the patterns come with `subscribe`.

        Raises:
            LiteSubscriptionRefused: RocketMQ does not answer, or takes no lite subscription.
            ClientError: the updates cannot be read.
            NotWritten: Kafka does not take the declaration of the group.
        """
        self._official.start()
        try:
            self._lite_topics.limit(self._official.quota, self._official.max_name_bytes)
            self._keeper.start()
            if self._declared is not None:
                self._writer.write(self._topics.group_events, self._declared)
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
        """Ask for all lite topics that match, those of now and those that are born later.

        Args:
            patterns: patterns in the dialect of the consumer.
            offset: where to begin in topics that are there now; later ones are read from their first message.

        Raises:
            InvalidPattern: a pattern is invalid; none is subscribed to.
            NotWritten: Kafka does not take the request.
        """
        with self._changing:
            self._request(self._patterns.add(patterns, offset))

    def unsubscribe(self, *patterns: str) -> None:
        """Ask for the lite topics of these patterns no longer.

        Raises:
            NotWritten: Kafka does not take the request.
        """
        with self._changing:
            self._request(self._patterns.remove(patterns))

    def __iter__(self) -> Iterator[Any]:
        """Yield messages until the consumer is closed; see `messages`."""
        return self.messages()

    def messages(self, timeout: float | None = None) -> Iterator[Any]:
        """Yield messages, in any number of threads; each is acknowledged when the next one is asked for.

        A message in whose turn the loop ends, by `break` or an exception, is delivered again.

        Args:
            timeout: seconds without a message after which the iteration ends; None: it does not.

        Raises:
            ClientError: the consumer cannot go on.
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
        """Id of the client, in RocketMQ and for the job."""
        return self._subscriber.client_id

    @property
    def lite_topics(self) -> frozenset[str]:
        """Lite topics to which the client subscribes now."""
        return frozenset(self._lite_topics.names)

    @property
    def not_received(self) -> dict[str, str]:
        """Lite topics that match and cannot be subscribed to, each with the reason."""
        return self._lite_topics.not_received

    def close(self) -> None:
        """End the client in RocketMQ and for the job; messages of a running loop are delivered again to others."""
        if self._stop.is_set():
            return
        self._stop.set()
        try:
            self._writer.write(self._topics.subscription_events, self._patterns.end(), _CLOSE_SECONDS)
        except NotWritten as error:
            log.warning("the job learns of the end of %s by its lease only: %s", self.client_id, error)
        self._end_clients()

    def _end_clients(self) -> None:
        self._handover.close()
        self._keeper.stop()
        if self._updates is not None:
            self._updates.close()
        self._official.stop()

    def _request(self, value: dict[str, Any] | None, seconds: float = WRITE_SECONDS) -> None:
        if value is not None:
            self._writer.write(self._topics.subscription_events, value, seconds)

    def _on_change(self, change: Change) -> None:
        self._lite_topics.apply(change)
        log.debug("%s %s", "+" if change.op is Op.ADD else "-", change.row.lite_topic)

    def _on_message(self, message: Any) -> Any:
        """Pass a message on, unless its topic has gone to another client meanwhile: then that one gets it."""
        if self._lite_topics.is_lost(message.lite_topic):
            return self._failure
        result = self._consume(message)
        return self._failure if result is False or result is self._failure else self._success

    def _next(self, timeout: float | None) -> Delivery | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._stop.is_set():
            self._check()
            left = _POLL_SECONDS if deadline is None else min(_POLL_SECONDS, deadline - time.monotonic())
            if left <= 0:
                return None
            delivery = self._handover.take(left)
            if delivery is not None:
                return delivery
        return None

    def _check(self) -> None:
        if self.error is not None:
            raise type(self.error)(*self.error.args) from self.error

    def _besides(self) -> None:
        """Keep the lease, and look after the updates."""
        if self._updates is not None and self._updates.error is not None and self.error is None:
            self.error = self._updates.error
            log.error("the consumer %s learns of no further change: %s", self.client_id, self.error)
        if time.monotonic() < self._repeat_at:
            return
        if not self._changing.acquire(blocking=False):
            return  # another request is being written, which may take long
        self._repeat_at = time.monotonic() + self._repeat_seconds
        try:
            self._request(self._patterns.repeat(), _REPEAT_SECONDS)
        except NotWritten as error:
            log.warning("%s", error)
        finally:
            self._changing.release()
