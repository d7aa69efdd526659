"""The share of one client in the partitions of its group: rules without Kafka."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

_HELD = "reexpand held "
_FREE = "reexpand free "


class TopicPart(NamedTuple):
    """Partition of a Kafka topic."""

    topic: str
    number: int


class ShareChange(NamedTuple):
    """Partitions of one topic that a client loses and gains."""

    lost: set[TopicPart]
    gained: set[TopicPart]


def owner(part: TopicPart, clients: Collection[str]) -> str | None:
    """Return the client that reads a partition, of those that receive its topic; None if nobody receives it.

    The highest hash wins, so a client that comes or goes moves no partition between two others.
    """
    return max(clients, key=lambda client: (_hash(part, client), client), default=None)


def _hash(part: TopicPart, client: str) -> bytes:
    return blake2b(f"{part.topic}\0{part.number}\0{client}".encode(), digest_size=8).digest()


class PartShare:
    """Partitions that one client is to read, after each change of clients and of topics."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._parts: dict[str, set[TopicPart]] = {}

    @property
    def topics(self) -> set[str]:
        """Topics of which the client is to read a partition."""
        return set(self._parts)

    def __contains__(self, part: TopicPart) -> bool:
        return part in self._parts.get(part.topic, ())

    def change(self, topic: str, partitions: int, clients: Collection[str]) -> ShareChange:
        """Take over the state of a topic, and return the difference.

        Args:
            topic: name of the topic.
            partitions: number of its partitions.
            clients: clients of the group that receive it.
        """
        wanted = set()
        if self._client_id in clients:
            parts = (TopicPart(topic, number) for number in range(partitions))
            wanted = {part for part in parts if owner(part, clients) == self._client_id}
        former = self._parts.pop(topic, set())
        if wanted:
            self._parts[topic] = wanted
        return ShareChange(former - wanted, wanted - former)


def mark(client_id: str, *, held: bool) -> str:
    """Return the metadata of a committed offset: the client that reads the partition, or gave it up there."""
    return f"{_HELD if held else _FREE}{client_id}"


def holder(metadata: str | None) -> str | None:
    """Return the client that reads a partition, by the metadata of its committed offset; None if nobody does."""
    return metadata.removeprefix(_HELD) if metadata and metadata.startswith(_HELD) else None
