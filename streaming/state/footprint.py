"""Estimate of the memory of a decoded shard, from counts that each micro-batch keeps up: no object is looked at."""

from collections.abc import Mapping
from typing import Final

from streaming.events.model import NO_METADATA, TopicMetadata
from streaming.state.delta import ShardDelta
from streaming.subscription.client import Client
from streaming.subscription.subscribers import ClientKey

# Measured with `tracemalloc`, on CPython 3.11 of 64 bits, and tested with it: bytes besides those of the texts.
_SHARD: Final = 3_000
_TOPIC: Final = 80
_METADATA: Final = 360
_INDEXED_TOPIC: Final = 410
_CLIENT: Final = 900
_ENTRY: Final = 540


class Footprint:
    """Counts of what a shard holds."""

    def __init__(self) -> None:
        self._described_topics = 0
        self._entries = 0

    def follow(
        self, delta: ShardDelta, topics: Mapping[str, TopicMetadata], clients: Mapping[ClientKey, Client]
    ) -> None:
        """Follow a micro-batch.

        Args:
            delta: its changes.
            topics: as they were before it.
            clients: as they were before it.
        """
        self._described_topics += sum(metadata is not NO_METADATA for metadata in delta.added.values())
        self._described_topics -= sum(topics[topic] is not NO_METADATA for topic in delta.removed)
        for key, client in delta.clients.items():
            self._entries += _entries(client) - _entries(clients.get(key))

    def memory_bytes(self, *, text_bytes: int, topics: int, indexes: int, clients: int) -> int:
        """Return the estimate, in bytes.

        Args:
            text_bytes: bytes of all names, patterns and properties.
            topics: number of stored topics.
            indexes: number of indexes over them.
            clients: number of clients.
        """
        return (
            _SHARD
            + text_bytes
            + topics * (_TOPIC + indexes * _INDEXED_TOPIC)
            + self._described_topics * _METADATA
            + clients * _CLIENT
            + self._entries * _ENTRY
        )


def _entries(client: Client | None) -> int:
    """Return the number of entries that a client's subscriptions keep."""
    if client is None:
        return 0
    kept = (client.literal,) if client.literal is client.wildcard else client
    return sum(len(block.entries) for subscription in kept for block in subscription.blocks)
