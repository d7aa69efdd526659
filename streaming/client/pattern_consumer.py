"""Consumer of Kafka topics by pattern. New topics are consumed from their first record, without a group rebalance."""

from __future__ import annotations

import logging
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from confluent_kafka import Consumer, Message
from confluent_kafka.admin import AdminClient

from streaming.client import UPDATES, Change, SubscriptionClient
from streaming.client.assignment import KafkaAssignment, KafkaTiming
from streaming.client.offsets import REFUSED, KafkaOffsets
from streaming.client.requests import KafkaRequests, KafkaSubscription, check_patterns
from streaming.config import Settings
from streaming.errors import ConfigInvalid, ConsumerClosed, NotCommitted, TopicsUnreadable
from streaming.kafka.clients import NO_ACCESS, PARTITION_END, concerns_group, create, reason
from streaming.kafka.permissions import readable, usable_group
from streaming.kafka.reader import partition_of_record
from streaming.records.model import check_name
from streaming.records.op import Cause

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    from confluent_kafka import KafkaError, TopicPartition

    from streaming.kafka.reader import Partition

log = logging.getLogger("reexpand.consumer")

_SLICE_SECONDS = 0.05
"""Longest wait for records, in seconds, before the relation is checked again."""

_KEEP_SECONDS = 3_600.0
"""Seconds between two commits of all offsets, far below `offsets.retention.minutes`."""

_MAX_CLIENT_ID = 1_000
"""Maximum number of characters in the id of a client, which is in the metadata of each committed offset."""

_DEFAULTS: Final = {
    "log_level": 0,  # its log lines are also reported as errors
    "auto.offset.reset": "earliest",
    "reconnect.backoff.max.ms": 1_000,
    "fetch.wait.max.ms": 100,  # instead of 500: a new topic waits for the end of the current fetch request
}
_FIXED: Final = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "allow.auto.create.topics": False,
}
_FATAL: Final = NO_ACCESS | REFUSED
_LATEST: Final = ("latest", "end", "largest")


class PatternConsumer:
    """Consumer of the Kafka topics that match patterns, according to the relation that the job maintains.

    Use it as `confluent_kafka.Consumer`, with `poll`, `consume` and `commit`, or as an iterator, in one thread. It is
    closed at the end of its `with` block.

    Args:
        bootstrap_servers: Kafka brokers.
        patterns: patterns of topic names.
        group: group of the client, and its consumer group in Kafka.
        parent: parent topic under which `reexpand watch-kafka` announces the topics.
        dialect: dialect of the patterns.
        policy: match policy, in dialects that have match policies.
        exclusive: assign each topic to the newest client of the group, instead of each partition to one of its clients.
        client_id: id of the client, unique among running clients.
        group_id: consumer group in Kafka for the offsets; None for `group`.
        declare: declare the group, and whether it is exclusive, with a group event. False if another program does this.
        lease_seconds: `client_timeout_ms` of the job, in seconds.
        auto_commit_seconds: seconds between two commits of processed records; None leaves commits to `commit`.
        handover_seconds: longest wait for the former reader of a partition to release it.
        max_poll_seconds: time without `poll` after which the client counts as hung and its lease is not renewed.
        options: librdkafka options of the consumer, such as credentials and `auto.offset.reset`.
        topics: other names of the job's topics: `updates`, `subscription_events`, `group_events`.

    Raises:
        PatternsRefused: a pattern is invalid, or no Kafka topic can match it.
        ConfigInvalid: another argument is invalid.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        patterns: Sequence[str],
        *,
        group: str,
        parent: str = "kafka",
        dialect: str = "nats",
        policy: str | None = None,
        exclusive: bool = False,
        client_id: str | None = None,
        group_id: str | None = None,
        declare: bool = True,
        lease_seconds: float = 30,
        auto_commit_seconds: float | None = 1,
        handover_seconds: float = 1,
        max_poll_seconds: float = 300,
        options: Mapping[str, Any] | None = None,
        topics: Mapping[str, str] | None = None,
    ) -> None:
        check_patterns(patterns, dialect, policy)
        self.client_id = client_id or f"{socket.gethostname()}-{uuid4().hex[:12]}"
        _check_names(group=group, parent=parent, client_id=self.client_id)
        for label, value in (("lease_seconds", lease_seconds), ("max_poll_seconds", max_poll_seconds)):
            if value <= 0:
                raise ConfigInvalid(f"{label} must be greater than 0, got {value:g}")
        names = _topic_names(topics or {})
        self._group = group
        self._group_id = group_id or group
        self._subscription = KafkaSubscription(
            parent, group, self.client_id, tuple(patterns), dialect, policy, exclusive=exclusive
        )
        self._auto_commit_seconds = auto_commit_seconds
        self._error: Exception | None = None
        self._closed = False
        self._stop = threading.Event()
        common = {**(options or {}), "bootstrap.servers": bootstrap_servers}
        own = {**_DEFAULTS, **(options or {}), **_FIXED, "bootstrap.servers": bootstrap_servers}
        self._consumer = create(
            Consumer,
            {**own, "group.id": self._group_id, "error_cb": self._on_error, "on_commit": self._on_commit},
        )
        admin = create(AdminClient, {"log_level": 0, **common, "error_cb": lambda _: None})
        self._offsets = KafkaOffsets(self._consumer, admin, self._group_id, self.client_id)
        latest = own["auto.offset.reset"] in _LATEST
        timing = KafkaTiming(handover_seconds=handover_seconds)
        self._assignment = KafkaAssignment(
            self._subscription, self._offsets, timing, latest=latest, committed_only=auto_commit_seconds is None
        )
        self._commit_at = time.monotonic()
        self._keep_at = self._commit_at + _KEEP_SECONDS
        self._requests = KafkaRequests(
            self._subscription,
            (names["subscription_events"], names["group_events"] if declare else None),
            common,
            lease_seconds=lease_seconds,
            silent_seconds=max_poll_seconds,
        )
        self._updates = SubscriptionClient(
            bootstrap_servers,
            names["updates"],
            options=common,
            on_change=self._on_change,
            admits=lambda subscriber: subscriber[:2] == (parent, group),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._offsets.all_processed()
        self.close()

    def __iter__(self) -> Iterator[Message]:
        """Yield records until `stop` is called."""
        while not self._stop.is_set():
            message = self.poll(1)
            if message is not None:
                yield message

    @property
    def topics(self) -> set[str]:
        """Topics of which this client reads a partition."""
        return {part.topic for part in self._offsets.parts}

    @property
    def assignment(self) -> set[Partition]:
        """Partitions that this client reads."""
        return self._offsets.parts

    def stop(self) -> None:
        """End the iteration, from any thread or signal handler."""
        self._stop.set()

    def poll(self, timeout: float | None = None) -> Message | None:
        """Return the next record, or None if there is none within `timeout` seconds; a timeout of None waits forever.

        Records that were returned earlier count as processed.

        Raises:
            ConsumerClosed: the consumer is closed.
            TopicsUnreadable: a topic or its offsets cannot be read.
            NotCommitted: the group rejects the offsets.
            NotWritten: Kafka rejects the requests of the client.
            UpdatesUnreadable: the updates topic cannot be read.
        """
        self._offsets.all_processed()
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            now = self._look()
            left = _SLICE_SECONDS if deadline is None else min(_SLICE_SECONDS, deadline - now)
            message = self._consumer.poll(max(left, 0))
            if message is not None and self._take(message):
                return message
            if self._stop.is_set() or (deadline is not None and time.monotonic() >= deadline):
                return None

    def consume(self, count: int = 500, timeout: float | None = None) -> list[Message]:
        """Wait for a record, and return it with the buffered ones, up to `count` records.

        Raises:
            ClientError, NotWritten: as `poll`.
        """
        first = self.poll(timeout)
        if first is None:
            return []
        rest = self._consumer.consume(count - 1, 0) if count > 1 else []
        return [first, *(message for message in rest if self._take(message))]

    def commit(self) -> None:
        """Commit the returned records, and wait for the acknowledgement.

        Raises:
            NotCommitted: the group rejects the offsets.
            ConsumerClosed: the consumer is closed.
        """
        self._check()
        self._offsets.all_processed()
        self._offsets.commit(wait=True)

    def close(self) -> None:
        """Commit processed records, release all partitions, and end the subscription."""
        if self._closed:
            return
        self._closed = True
        self._stop.set()
        try:
            self._assignment.give_up(commit=time.monotonic() < self._requests.lease_ends_at())
        finally:
            if not self._requests.close():
                log.warning("%s could not end its subscription, which now ends with its lease", self.client_id)
            self._updates.close()
            self._consumer.close()

    def _look(self) -> float:
        """Renew the lease, follow the relation and commit, as far as each is due; return the time."""
        self._check()
        now = time.monotonic()
        self._requests.is_alive(now)
        if now >= self._requests.lease_ends_at():
            self._assignment.lose()
            self._requests.renew_now()
            return now
        # Until the client has caught up, its rows may be outdated.
        if self._updates.ready and self._assignment.is_due(now):
            self._assignment.follow(self._updates.relation, now)
        if self._auto_commit_seconds is not None and now >= self._commit_at:
            self._commit_at = now + self._auto_commit_seconds
            self._offsets.commit(wait=False)
        if now >= self._keep_at:
            self._keep_at = now + _KEEP_SECONDS
            self._offsets.keep()
        return now

    def _check(self) -> None:
        if self._closed:
            raise ConsumerClosed(f"The consumer {self.client_id} of the group {self._group} is closed.")
        for error in (self._error, self._updates.error, self._requests.error):
            if error is not None:
                raise error

    def _take(self, message: Message) -> bool:
        """Note a record before it is returned; return False for errors and for partitions of other clients."""
        error = message.error()
        if error is not None:
            self._judge(error, message.topic())
            return False
        part = partition_of_record(message)
        if part not in self._offsets:
            return False
        self._offsets.returned(part, message.offset() or 0)
        return True

    def _judge(self, error: KafkaError, topic: str | None) -> None:
        """Raise a permanent error. librdkafka recovers from others, and the job reports deleted topics."""
        if error.fatal() or error.code() in _FATAL:
            where = f"The topic {topic}" if topic else f"Kafka, for the group {self._group},"
            needed = readable(topic) if topic else usable_group(self._group_id)
            raise TopicsUnreadable(f"{where} cannot be read: {reason(error, needed)}.")
        if error.code() != PARTITION_END:
            log.debug("%s: %s", topic, error.str())

    def _on_error(self, error: KafkaError) -> None:
        """Keep a permanent error for the next `poll`."""
        if (error.fatal() or error.code() in _FATAL) and self._error is None:
            needed = usable_group(self._group_id) if concerns_group(error) else None
            self._error = TopicsUnreadable(f"Kafka cannot be read: {reason(error, needed)}.")

    def _on_commit(self, error: KafkaError | None, answers: list[TopicPartition]) -> None:
        try:
            self._offsets.was_committed(error, answers)
        except NotCommitted as failure:
            self._error = self._error or failure

    def _on_change(self, change: Change) -> None:
        """Note a change; the thread that reads the updates calls this."""
        self._assignment.has_changed(change.row.lite_topic, deleted=change.row.cause == Cause.TOPIC_DELETED)


def _check_names(**names: str) -> None:
    for label, name in names.items():
        problem = check_name(label, name)
        if problem is not None:
            raise ConfigInvalid(problem)
    if len(names["client_id"]) > _MAX_CLIENT_ID:
        raise ConfigInvalid(f"client_id is longer than {_MAX_CLIENT_ID:,} characters")


def _topic_names(given: Mapping[str, str]) -> dict[str, str]:
    fields = Settings.model_fields
    names = {"updates": UPDATES} | {name: str(fields[name].default) for name in ("subscription_events", "group_events")}
    unknown = given.keys() - names.keys()
    if unknown:
        raise ConfigInvalid(f"topics has unknown keys: {', '.join(sorted(unknown))}; use {', '.join(names)}")
    return {**names, **given}
