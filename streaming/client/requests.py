"""Requests that subscribe a consumer: checked, sent, and repeated within the lease."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from confluent_kafka import KafkaError, KafkaException, Producer

from matcher.dialects import DIALECTS
from matcher.errors import MatcherError
from streaming.errors import NotWritten, PatternsRefused
from streaming.kafka.clients import NO_ACCESS, cause, create, reason
from streaming.kafka.names import everything, is_everything, unmatchable
from streaming.kafka.permissions import writable
from streaming.records.model import BIND_TOPIC, MODEL, QUOTA, UNLIMITED, WILDCARD, Action

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from confluent_kafka import Message

log = logging.getLogger("reexpand.consumer")

_LEAVE_SECONDS = 10.0
"""Timeout of the last request, in seconds."""

_REPEATS_PER_LEASE = 3
_TICK_SECONDS = 0.05
_REFUSED = NO_ACCESS | {
    *(KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION),
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
}


def check_patterns(patterns: Sequence[str], dialect: str, policy: str | None = None) -> None:
    """Raise `PatternsRefused` for a pattern that is invalid, or matches no topic."""
    if isinstance(patterns, str):
        raise PatternsRefused(f"patterns must be a list, not the text {patterns!r}: write [{patterns!r}].")
    if not patterns:
        raise PatternsRefused(f"patterns is empty; {everything(dialect)!r} matches every topic.")
    if dialect not in DIALECTS:
        raise PatternsRefused(f"Unknown dialect {dialect!r}; use one of {', '.join(DIALECTS)}.")
    for pattern in patterns:
        try:
            reason = unmatchable(pattern, dialect, policy)
        except (MatcherError, ValueError) as error:
            raise PatternsRefused(f"The pattern {pattern!r} is invalid in dialect {dialect}: {error}") from None
        if reason is not None:
            raise PatternsRefused(f"The pattern {pattern!r} has {reason}")


class KafkaSubscription(NamedTuple):
    """Content of the requests of one client.

    Attributes:
        parent: parent topic under which the Kafka topics are announced.
        policy: match policy, in dialects that have match policies.
        exclusive: only the newest subscriber of the group receives each topic.
    """

    parent: str
    group: str
    client_id: str
    patterns: tuple[str, ...]
    dialect: str = "nats"
    policy: str | None = None
    exclusive: bool = False

    def group_event(self) -> dict[str, Any]:
        """Return the event that declares the group."""
        model = "Exclusive" if self.exclusive else "Shared"
        attributes = {BIND_TOPIC: self.parent, WILDCARD: "true", MODEL: model, QUOTA: str(UNLIMITED)}
        return {"group": self.group, "attributes": attributes}

    def request(self) -> dict[str, Any]:
        """Return the request that subscribes the client, or renews its lease.

        A pattern for every Kafka topic is sent as an empty set: `>` of `nats` matches no name with an empty token.
        """
        is_all = any(is_everything(pattern, self.dialect, self.policy) for pattern in self.patterns)
        patterns = () if is_all else self.patterns
        found = {**self._names(Action.COMPLETE_ADD), "liteTopicSet": patterns, "dialect": self.dialect}
        found["delivery"] = "per-client"
        return found if self.policy is None else {**found, "policy": self.policy}

    def end(self) -> dict[str, Any]:
        """Return the request that ends the subscription."""
        return self._names(Action.COMPLETE_REMOVE)

    def _names(self, action: Action) -> dict[str, Any]:
        return {"action": action, "clientId": self.client_id, "group": self.group, "topic": self.parent}


class KafkaRequests:
    """Sender of a client's requests, in a separate thread, for as long as the client calls `is_alive`.

    Args:
        topics: Kafka topics of subscription events and of group events; None as the second sends no group event.
        options: librdkafka options, with the addresses of the brokers.
        lease_seconds: time without requests after which the job ends a client.
        silent_seconds: time without a call of `is_alive` after which no request is sent.
    """

    def __init__(
        self,
        subscription: KafkaSubscription,
        topics: tuple[str, str | None],
        options: Mapping[str, Any],
        *,
        lease_seconds: float,
        silent_seconds: float,
    ) -> None:
        self.error: NotWritten | None = None
        self._subscription = subscription
        self._requests, self._groups = topics
        self._interval = lease_seconds / _REPEATS_PER_LEASE
        self._lease_seconds = lease_seconds
        self._silent_seconds = silent_seconds
        self._producer = create(
            Producer,
            {
                "log_level": 0,
                # A request after the lease has no effect.
                "message.timeout.ms": max(1_000, round(1_000 * lease_seconds)),
                **options,
                "enable.idempotence": True,
                "error_cb": lambda _: None,
            },
        )
        self._alive_at = self._renewed_at = time.monotonic()
        self._due = threading.Event()
        self._stop = threading.Event()
        self._is_declared = False
        self._renew()
        self._thread = threading.Thread(target=self._run, name=f"requests of {subscription.client_id}", daemon=True)
        self._thread.start()

    def is_alive(self, now: float) -> None:
        """Note that the client is alive."""
        self._alive_at = now

    def lease_ends_at(self) -> float:
        """Return the monotonic time until which the job keeps the client."""
        return self._renewed_at + self._lease_seconds

    def renew_now(self) -> None:
        """Send the next request at once."""
        self._due.set()

    def close(self) -> bool:
        """End the subscription; return False if Kafka did not acknowledge the request in time."""
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            return False
        self._send(self._requests, self._subscription.end())
        return self._producer.flush(_LEAVE_SECONDS) == 0 and self.error is None

    def _run(self) -> None:
        due_at = time.monotonic() + self._interval
        while not self._stop.wait(_TICK_SECONDS):
            try:
                self._producer.poll(0)
            except KafkaException as error:
                self._fail(self._requests, error)
                return
            now = time.monotonic()
            if (self._due.is_set() or now >= due_at) and not len(self._producer):
                self._due.clear()
                due_at = now + self._interval
                if now < self._alive_at + self._silent_seconds:
                    self._renew()

    def _renew(self) -> None:
        """Send the request; once Kafka acknowledges it, the lease counts from now.

        The group event precedes it until Kafka acknowledges that: it may expire while no broker answers.
        """
        asked_at = time.monotonic()

        def renewed() -> None:
            self._renewed_at = max(self._renewed_at, asked_at)

        def declared() -> None:
            self._is_declared = True

        if self._groups is not None and not self._is_declared:
            self._send(self._groups, self._subscription.group_event(), declared)
        self._send(self._requests, self._subscription.request(), renewed)

    def _send(self, topic: str, record: Mapping[str, Any], taken: Callable[[], None] = lambda: None) -> None:
        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                taken()
            elif error.code() in _REFUSED or error.fatal():
                self._fail(topic, error)
            else:
                log.warning(
                    "A request of %s to %s was not written: %s", self._subscription.client_id, topic, error.str()
                )

        try:
            self._producer.produce(topic, orjson.dumps(record), self._subscription.group, on_delivery=delivered)
        except (KafkaException, BufferError) as error:
            if isinstance(error, KafkaException):
                self._fail(topic, error)

    def _fail(self, topic: str, error: KafkaException | KafkaError) -> None:
        why = reason(cause(self._producer, error), writable(topic))
        self.error = self.error or NotWritten(
            f"The requests of the consumer cannot be written to the topic {topic}: {why}."
        )
