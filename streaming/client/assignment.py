"""Assignment of partitions to one client, updated from the relation."""

from __future__ import annotations

import logging
import threading
import time
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from streaming.client.offsets import PartShare
from streaming.errors import TopicsUnreadable
from streaming.kafka.clients import reason
from streaming.kafka.permissions import readable

if TYPE_CHECKING:
    from streaming.client import Relation
    from streaming.client.offsets import KafkaOffsets
    from streaming.client.requests import KafkaSubscription
    from streaming.kafka.reader import Partition

log = logging.getLogger("reexpand.consumer")

_NEW = "TOPIC_CREATED"
"""Cause of rows whose topic was created after the subscription."""


class KafkaTiming(NamedTuple):
    """Times of an assignment, in seconds.

    Attributes:
        handover_seconds: longest wait for the former reader of a partition.
        settle_seconds: time without changes before they are applied, because changes come in bursts.
        unsettled_seconds: longest wait for such a time.
        retry_seconds: pause before another attempt to take over partitions.
        refresh_seconds: interval of checks for added partitions.
    """

    handover_seconds: float = 1.0
    settle_seconds: float = 0.02
    unsettled_seconds: float = 0.2
    retry_seconds: float = 0.05
    refresh_seconds: float = 30.0


class KafkaAssignment:
    """Partitions that a client reads: its share of the group's topics, taken over as soon as they are free.

    All methods but `has_changed` are called in one thread.

    Args:
        latest: begin topics that are older than the subscription at their end.
        committed_only: count only committed records as processed.
    """

    def __init__(
        self,
        subscription: KafkaSubscription,
        offsets: KafkaOffsets,
        timing: KafkaTiming,
        *,
        latest: bool = False,
        committed_only: bool = False,
    ) -> None:
        self._subscription = subscription
        self._offsets = offsets
        self._timing = timing
        self._latest = latest
        self._committed_only = committed_only
        self._share = PartShare(subscription.client_id)
        self._received: set[str] = set()
        self._new: set[str] = set()
        self._waiting: dict[Partition, float] = {}
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._deleted: set[str] = set()
        self._changed_at = self._unchanged_at = 0.0
        self._unknown = _UnknownTopics()
        self._retry_at = 0.0
        self._refresh_at = time.monotonic() + timing.refresh_seconds

    def has_changed(self, topic: str, *, deleted: bool = False) -> None:
        """Note that the rows of a topic have changed, or that it was deleted; any thread may call this."""
        with self._lock:
            self._changed_at = time.monotonic()
            if not self._changed:
                self._unchanged_at = self._changed_at
            self._changed.add(topic)
            if deleted:
                self._deleted.add(topic)

    def is_due(self, now: float) -> bool:
        """Return True if `follow` has work to do."""
        timing = self._timing
        settled_at = min(self._changed_at + timing.settle_seconds, self._unchanged_at + timing.unsettled_seconds)
        if self._changed and now >= max(settled_at, self._retry_at):
            return True
        return now >= min(self._refresh_at, self._unknown.due_at) or (bool(self._waiting) and now >= self._retry_at)

    def follow(self, relation: Relation, now: float) -> None:
        """Give up and take over partitions according to the relation.

        Raises:
            TopicsUnreadable: a topic or its offset cannot be read.
            NotCommitted: the group rejects an offset.
        """
        with self._lock:
            changed, self._changed = self._changed, set()
            deleted, self._deleted = self._deleted, set()
        self._drop(deleted)
        changed |= self._unknown.take(now)
        if now >= self._refresh_at:
            self._refresh_at = now + self._timing.refresh_seconds
            changed |= self._received
        parent, group = self._subscription.parent, self._subscription.group
        rows = {
            topic: {row.client_id: row for row in relation.subscribers(parent, topic) if row.group == group}
            for topic in changed
        }
        received = {topic for topic in changed if self._subscription.client_id in rows[topic]}
        counts = self._count(sorted(received))
        for topic in received - counts.keys():
            self._unknown.put(topic, now)
        lost: set[Partition] = set()
        for topic in changed - (received - counts.keys()):
            gone, gained = self._share.change(topic, counts.get(topic, 0), rows[topic].keys())
            lost |= gone
            self._waiting.update(dict.fromkeys(gained, now + self._timing.handover_seconds))
            row = rows[topic].get(self._subscription.client_id)
            self._unknown.forget(topic)
            (self._received.discard if row is None else self._received.add)(topic)
            (self._new.add if row is not None and row.cause == _NEW else self._new.discard)(topic)
        for part in lost:
            self._waiting.pop(part, None)
        self._offsets.end(lost & self._offsets.parts, all_processed=not self._committed_only, lenient=True)
        self._take_over(now)
        self._retry_at = now + self._timing.retry_seconds

    def _drop(self, deleted: set[str]) -> None:
        """Give up the partitions of deleted topics without a commit: new topics may have their names already."""
        lost = {part for topic in deleted for part in self._share.change(topic, 0, ())[0]}
        for part in lost:
            self._waiting.pop(part, None)
        self._offsets.end(lost & self._offsets.parts, commit=False)

    def lose(self) -> None:
        """Give up all partitions without a commit: the lease has ended, and other clients may read them."""
        if not self._offsets.parts and not self._waiting:
            return
        log.warning("%s has lost its lease, and starts over", self._subscription.client_id)
        self._share = PartShare(self._subscription.client_id)
        self._waiting.clear()
        self._offsets.end(self._offsets.parts, commit=False)
        for topic in self._received:
            self.has_changed(topic)
        self._retry_at = time.monotonic() + self._timing.handover_seconds

    def give_up(self, *, commit: bool) -> None:
        """Give up all partitions when the consumer closes."""
        self._waiting.clear()
        self._offsets.end(self._offsets.parts, commit=commit, all_processed=not self._committed_only)

    def _count(self, topics: list[str]) -> dict[str, int]:
        """Return the number of partitions of each topic; topics without an answer are left out."""
        found = {}
        for topic, answer in self._offsets.describe(topics).items():
            if answer.error is None and answer.partitions:
                found[topic] = len(answer.partitions)
            elif answer.error is not None and answer.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise TopicsUnreadable(f"The topic {topic} cannot be read: {reason(answer.error, readable(topic))}.")
        return found

    def _take_over(self, now: float) -> None:
        """Read partitions that no other client reads, or whose handover has timed out."""
        if not self._waiting:
            return
        try:
            found = self._offsets.find(sorted(self._waiting))
        except KafkaException as error:
            log.debug("offsets cannot be read yet: %s", error)
            return
        me = self._subscription.client_id
        ready = {
            part: each.offset
            for part, each in found.items()
            if each.held_by in (None, me) or now >= self._waiting[part]
        }
        unread = [part for part, offset in ready.items() if offset is None]
        starts = {part: offset for part, offset in ready.items() if offset is not None}
        for latest in (False, True):
            starts |= self._offsets.bounds(
                (part for part in unread if latest == (self._latest and part.topic not in self._new)), latest=latest
            )
        self._offsets.begin(starts)
        for part in starts:
            del self._waiting[part]


class _UnknownTopics:
    """Topics without metadata in Kafka yet, each with the time of the next attempt; pauses double."""

    _FIRST_SECONDS = 0.05
    _LONGEST_SECONDS = 5.0

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._pauses: dict[str, float] = {}

    @property
    def due_at(self) -> float:
        """Time of the next attempt for any topic."""
        return min(self._due.values(), default=inf)

    def put(self, topic: str, now: float) -> None:
        """Schedule the next attempt for a topic."""
        pause = self._pauses.get(topic, self._FIRST_SECONDS)
        self._pauses[topic] = min(2 * pause, self._LONGEST_SECONDS)
        self._due[topic] = now + pause

    def take(self, now: float) -> set[str]:
        """Return the topics that are due now."""
        found = {topic for topic, at in self._due.items() if at <= now}
        for topic in found:
            del self._due[topic]
        return found

    def forget(self, topic: str) -> None:
        """Remove a topic that was found, or is no longer received."""
        self._pauses.pop(topic, None)
        self._due.pop(topic, None)
