"""Positions in the input topics: where they end, how far the query has read them, and where a new checkpoint begins."""

from typing import Any

import orjson
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config import Settings
from streaming.kafka.facts import Offsets
from streaming.spark.kafka_admin import KafkaAdmin

_EARLIEST = -2
"""Offset that denotes the beginning of a partition in Spark's options."""


def committed(query: StreamingQuery) -> Offsets:
    """Return the positions of committed micro-batches in the inputs; empty before the first micro-batch."""
    java: Any = query
    progress = java._jsq.streamingQuery().committedOffsets()  # noqa: SLF001 - PySpark shows no more than past progress
    return parse(str(progress.values().head().json())) if progress.nonEmpty() else {}


def parse(text: str | bytes) -> Offsets:
    """Return the positions in JSON of Spark's Kafka source."""
    return {
        topic: {int(number): offset for number, offset in offsets.items()}
        for topic, offsets in orjson.loads(text).items()
    }


def dump(positions: Offsets) -> str:
    """Return positions as JSON for Spark's Kafka source."""
    return orjson.dumps(positions, option=orjson.OPT_NON_STR_KEYS).decode()


def unread(wanted: Offsets, read: Offsets) -> list[str]:
    """Return the partitions that are not read up to the wanted positions, in words."""
    return [
        f"{topic}[{number}] is read up to {position} of {offset}"
        for topic, offsets in wanted.items()
        for number, offset in offsets.items()
        if (position := read.get(topic, {}).get(number, 0)) < offset
    ]


def beginning(admin: KafkaAdmin, settings: Settings, adopted: Offsets | None = None) -> str:
    """Return the first offsets of a new checkpoint, as an option of Spark's Kafka source.

    It reads all events, but no earlier records of the clock: ticks, alarms and wakes are made of the events, and a new
    checkpoint makes its own. Spark ignores this option for a checkpoint that has begun.

    Args:
        admin: Kafka, with all of the job's client options.
        settings: settings of the job.
        adopted: positions that the states have read with which the checkpoint begins: it goes on from there.

    Raises:
        KafkaUnavailable: no broker answers, or a topic does not exist.
    """
    found = admin.committed_ends(settings.inputs)  # Spark refuses to begin behind the records that it can read
    events = {topic: dict.fromkeys(offsets, _EARLIEST) for topic, offsets in found.items()}
    fresh = {**events, settings.clock: found[settings.clock]}
    return dump({topic: {**offsets, **(adopted or {}).get(topic, {})} for topic, offsets in fresh.items()})
