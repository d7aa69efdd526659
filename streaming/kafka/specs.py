"""Specifications of the job's Kafka topics."""

from streaming.config import Settings
from streaming.kafka.topics import TopicSpec

COMPACTION = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "delete.retention.ms": "86400000"}
"""Configuration of the updates topic: compaction, with a day in which every reader can see a removal."""

UNLIMITED_RETENTION = {"retention.ms": "-1"}
"""Configuration of the input topics: no expiry, since a new checkpoint builds the relation from them."""


def specs(settings: Settings, partitions: int = 1) -> list[TopicSpec]:
    """Return the specifications of all six topics."""
    return [
        *(TopicSpec(name, partitions, UNLIMITED_RETENTION) for name in settings.inputs),
        TopicSpec(settings.updates, partitions, COMPACTION),
        TopicSpec(settings.dead_letters, partitions, {}),
    ]
