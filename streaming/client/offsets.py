"""Partitions that a client of a group owns, and their offsets: committed by hand, marked with the owner."""

from __future__ import annotations

import logging
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin._listoffsets import OffsetSpec

from streaming.errors import NotCommitted, TopicsUnreadable
from streaming.kafka.clients import reason
from streaming.kafka.permissions import usable_group
from streaming.kafka.reader import Partition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._metadata import TopicMetadata

log = logging.getLogger("reexpand.consumer")

REQUEST_SECONDS = 10.0
"""Timeout of requests for offsets, in seconds."""

_MEMBERS = frozenset({KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS})
"""Error codes of a group that accepts offsets from its members only."""

_GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID})
"""Error codes of a deleted partition."""

REFUSED = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED})
"""Error codes of a missing permission."""

_HELD = "reexpand held "
_FREE = "reexpand free "
_PARTS_PER_REQUEST = 1_000
_TOPICS_ONE_BY_ONE = 8
"""Maximum number of topics described one by one; above it, one request describes all topics of the cluster."""


def owner(part: Partition, clients: Collection[str]) -> str | None:
    """Return the client that reads a partition, among the clients that receive its topic; None if there is none.

    The highest hash wins, so a client that joins or leaves moves no partition between two others.
    """

    def weight(client: str) -> tuple[bytes, str]:
        return blake2b(f"{part.topic}\0{part.number}\0{client}".encode(), digest_size=8).digest(), client

    return max(clients, key=weight, default=None)


class PartShare:
    """Partitions that a client should read, updated with each change of clients and topics."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._parts: dict[str, set[Partition]] = {}

    def change(self, topic: str, partitions: int, clients: Collection[str]) -> tuple[set[Partition], set[Partition]]:
        """Apply a topic's state and receivers; return lost and gained partitions."""
        wanted = set()
        if self._client_id in clients:
            parts = (Partition(topic, number) for number in range(partitions))
            wanted = {part for part in parts if owner(part, clients) == self._client_id}
        former = self._parts.pop(topic, set())
        if wanted:
            self._parts[topic] = wanted
        return former - wanted, wanted - former


def mark(client_id: str, *, held: bool) -> str:
    """Return the metadata of a committed offset: the client that reads the partition, or has released it."""
    return f"{_HELD if held else _FREE}{client_id}"


def holder(metadata: str | None) -> str | None:
    """Return the client that reads a partition, from the metadata of its committed offset; None if it is free."""
    return metadata.removeprefix(_HELD) if metadata and metadata.startswith(_HELD) else None


class CommittedOffset(NamedTuple):
    """Committed offset of a partition, and the client that has marked the partition as its own, if any."""

    offset: int | None
    held_by: str | None


class KafkaOffsets:
    """Positions of the partitions that a client reads, and their committed offsets."""

    def __init__(self, consumer: Consumer, admin: AdminClient, group_id: str, client_id: str) -> None:
        self._consumer = consumer
        self._admin = admin
        self._group_id = group_id
        self._client_id = client_id
        self._returned: dict[Partition, int] = {}
        self._processed: dict[Partition, int] = {}
        self._committed: dict[Partition, int] = {}
        self._changed: set[Partition] = set()

    def __contains__(self, part: Partition) -> bool:
        return part in self._committed

    @property
    def parts(self) -> set[Partition]:
        """Partitions that are read."""
        return set(self._committed)

    def returned(self, part: Partition, offset: int) -> None:
        """Note a returned record, which is not processed yet."""
        self._returned[part] = offset + 1

    def all_processed(self) -> None:
        """Mark all returned records as processed."""
        if self._returned:
            self._processed.update(self._returned)
            self._changed.update(self._returned)
            self._returned.clear()

    def describe(self, topics: Sequence[str]) -> dict[str, TopicMetadata]:
        """Return Kafka's metadata of topics, without topics for which Kafka does not answer.

        The consumer sends the request, and then has the leaders cached. Otherwise it would search them for a second.
        """
        found: dict[str, TopicMetadata] = {}
        try:
            for topic in [None] if len(topics) > _TOPICS_ONE_BY_ONE else topics:
                found |= self._consumer.list_topics(topic, timeout=REQUEST_SECONDS).topics
        except KafkaException as error:
            log.debug("topics are not known yet: %s", error)
        return {topic: found[topic] for topic in topics if topic in found}

    def find(self, parts: Sequence[Partition]) -> dict[Partition, CommittedOffset]:
        """Return the committed offsets of partitions.

        Raises:
            TopicsUnreadable: the user lacks a permission.
            KafkaException: the coordinator of the group does not answer.
        """
        found = {}
        for start in range(0, len(parts), _PARTS_PER_REQUEST):
            wanted = [TopicPartition(*part) for part in parts[start : start + _PARTS_PER_REQUEST]]
            try:
                answers = self._consumer.committed(wanted, timeout=REQUEST_SECONDS)
            except KafkaException as error:
                if error.args[0].code() in REFUSED:
                    raise TopicsUnreadable(self._sentence(error.args[0])) from None
                raise
            for each in answers:
                offset = each.offset if each.offset >= 0 else None
                found[Partition(each.topic, each.partition)] = CommittedOffset(offset, holder(each.metadata))
        return found

    def bounds(self, parts: Iterable[Partition], *, latest: bool) -> dict[Partition, int]:
        """Return the first offsets of partitions, or their end offsets. Partitions without an answer are left out."""
        spec: OffsetSpec = OffsetSpec.latest() if latest else OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(*part): spec for part in parts}
        found = {}
        for each, future in self._admin.list_offsets(wanted, request_timeout=REQUEST_SECONDS).items() if wanted else ():
            try:
                found[Partition(each.topic, each.partition)] = future.result().offset
            except KafkaException as error:
                log.debug("%s[%d] has no offset yet: %s", each.topic, each.partition, error)
        return found

    def begin(self, starts: Mapping[Partition, int]) -> None:
        """Read partitions from these offsets on, and mark them in the group."""
        self._consumer.incremental_assign([TopicPartition(*part, offset) for part, offset in starts.items()])
        self._committed.update(starts)
        self._commit(starts, held=True, wait=False)

    def end(
        self, parts: set[Partition], *, commit: bool = True, all_processed: bool = True, lenient: bool = False
    ) -> None:
        """Stop reading partitions, and commit their positions.

        Partitions that another client reads meanwhile keep its offset. Without `commit` the offsets of the group stay
        unchanged. Without `all_processed` only records that were committed before count. With `lenient` no answer of
        Kafka is no error: the next reader repeats the records that are not committed.

        Raises:
            NotCommitted: the group rejects the offsets.
        """
        if not parts:
            return
        self._consumer.incremental_unassign([TopicPartition(*part) for part in parts])
        positions = {**self._committed, **(self._processed if all_processed else {})}
        ends = {part: positions[part] for part in parts}
        for each in (self._returned, self._processed, self._committed):
            for part in parts:
                each.pop(part, None)
        self._changed -= parts
        if commit:
            try:
                found = self.find(sorted(ends))
                mine = {part for part, each in found.items() if each.held_by in (None, self._client_id)}
                self._commit({part: ends[part] for part in mine}, held=False, wait=True)
            except KafkaException as error:
                if not lenient or error.args[0].code() in _MEMBERS | REFUSED:
                    raise NotCommitted(self._sentence(error.args[0])) from None
                log.warning("%s", self._sentence(error.args[0]))

    def commit(self, *, wait: bool) -> None:
        """Commit processed records. Without `wait`, `was_committed` handles the result.

        Raises:
            NotCommitted: Kafka does not accept the offsets, or does not answer.
        """
        changed = {part: self._processed[part] for part in self._changed}
        self._changed.clear()
        self._committed.update(changed)
        try:
            self._commit(changed, held=True, wait=wait)
        except KafkaException as error:
            raise NotCommitted(self._sentence(error.args[0])) from None

    def keep(self) -> None:
        """Commit all offsets again: Kafka forgets those of a group without members a week after their commit."""
        self._commit(self._committed, held=True, wait=False)

    def _commit(self, offsets: Mapping[Partition, int], *, held: bool, wait: bool) -> None:
        if not offsets:
            return
        metadata = mark(self._client_id, held=held)
        wanted = [TopicPartition(*part, offset, metadata) for part, offset in offsets.items()]
        if not wait:
            self._consumer.commit(offsets=wanted, asynchronous=True)
            return
        try:
            answers = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() in _GONE:  # librdkafka raises instead of answering if no partition is left
                return
            raise
        for each in answers:
            if each.error is not None and each.error.code() not in _GONE:
                raise KafkaException(each.error)

    def was_committed(self, error: KafkaError | None, answers: Sequence[TopicPartition]) -> None:
        """Handle the result of an asynchronous commit; failed offsets are committed again.

        Raises:
            NotCommitted: another attempt would not succeed either.
        """
        for each in answers:
            failed = error or each.error
            if failed is None or failed.code() in _GONE:
                continue
            if failed.code() in _MEMBERS or failed.code() in REFUSED:
                raise NotCommitted(self._sentence(failed))
            part = Partition(each.topic, each.partition)
            if part in self._committed:
                self._processed.setdefault(part, self._committed[part])
                self._changed.add(part)

    def _sentence(self, error: KafkaError) -> str:
        if error.code() in _MEMBERS:
            return (
                f"The consumer group {self._group_id} rejects these offsets: consumers that subscribe are its members. "
                "Give this consumer a group_id of its own."
            )
        why = reason(error, usable_group(self._group_id))
        return f"The offsets of the consumer group {self._group_id} cannot be read or committed: {why}."
