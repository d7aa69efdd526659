"""The Kafka topics of the job, as the job wants them."""

from streaming.config import Settings
from streaming.kafka.topics import TopicSpec

KEEP = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "delete.retention.ms": "86400000"}
"""The updates topic forgets what no longer holds, and keeps a removal for a day so that every reader sees it."""

FOR_EVER = {"retention.ms": "-1"}
"""The inputs are what the relation is made of: a new checkpoint is built from them."""


def specs(settings: Settings, partitions: int = 1) -> list[TopicSpec]:
    """The specifications of all six topics."""
    return [
        *(TopicSpec(name, partitions, FOR_EVER) for name in settings.inputs),
        TopicSpec(settings.updates, partitions, KEEP),
        TopicSpec(settings.dead_letters, partitions, {}),
    ]
