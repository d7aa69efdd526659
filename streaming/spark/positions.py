"""Positions in the input topics: where they end, how far the query has read them, and where a new checkpoint begins."""

import re
from collections.abc import Collection, Mapping
from typing import Any

import orjson
from py4j.protocol import Py4JJavaError
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config import Settings
from streaming.errors import KafkaUnavailable
from streaming.kafka.facts import Offsets, offsets_of
from streaming.spark.kafka_admin import KafkaAdmin
from streaming.spark.kafka_clients import root_cause

EARLIEST = -2
"""Offset that denotes the beginning of a partition in Spark's options."""

_END = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)=ListOffsetsResultInfo\(offset=(\d+)")
"""Partition and offset in Java's text of an answer: asking for the fields one by one takes a call each."""


def committed(query: StreamingQuery) -> Offsets:
    """Return the positions of committed micro-batches in the inputs; empty before the first micro-batch."""
    java: Any = query
    progress = java._jsq.streamingQuery().committedOffsets()  # noqa: SLF001 - PySpark shows no more than past progress
    text = str(progress.values().mkString())  # of the only source, as JSON
    return parse(text) if text else {}


def parse(text: str | bytes) -> Offsets:
    """Return the positions in JSON of Spark's Kafka source."""
    return offsets_of(orjson.loads(text))


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
    """Return the first offsets of a new checkpoint for Spark's Kafka source.

    It reads all events, or goes on at adopted positions, but no earlier records of the clock: ticks, alarms and wakes
    are made of the events, and a new checkpoint makes its own. Spark ignores this option for a checkpoint that has
    begun. Raises `KafkaUnavailable`, also if a topic does not exist.
    """
    found = admin.ends(settings.inputs, "READ_COMMITTED")  # Spark refuses to begin behind the records that it can read
    events = {topic: dict.fromkeys(offsets, EARLIEST) for topic, offsets in found.items()}
    fresh = {**events, settings.clock: found[settings.clock]}
    return dump({topic: {**offsets, **(adopted or {}).get(topic, {})} for topic, offsets in fresh.items()})


class InputEnds:
    """Asynchronous request for the ends of the inputs."""

    def __init__(self, admin: KafkaAdmin, inputs: Collection[str]) -> None:
        self._admin = admin
        self._numbers = {topic: set(offsets) for topic, offsets in admin.ends(inputs).items()}
        self._request = admin.ends_request(self._numbers)
        self._future: Any = None

    @property
    def is_asked(self) -> bool:
        """True while an answer is awaited."""
        return self._future is not None

    def ask(self, known: Offsets) -> None:
        """Ask for the ends; `known` has the partitions that the query reads."""
        grown = {topic: numbers | set(known.get(topic, ())) for topic, numbers in self._numbers.items()}
        if grown != self._numbers:
            self._numbers = grown
            self._request = self._admin.ends_request(grown)
        self._future = self._admin.asked_ends(self._request)

    def answer(self) -> Offsets | None:
        """Return the ends, None without an answer yet; raise `KafkaUnavailable`."""
        if self._future is None or not self._future.isDone():
            return None
        future, self._future = self._future, None
        text = str(_result(future).toString())
        found: dict[str, dict[int, int]] = {}
        for topic, number, offset in _END.findall(text):
            found.setdefault(topic, {})[int(number)] = int(offset)
        return found


class CommittedPositions:
    """Positions of the job, committed as offsets of a consumer group, so that lag monitors see them."""

    def __init__(self, admin: KafkaAdmin, group: str) -> None:
        self._admin = admin
        self._group = group
        self._committed: dict[tuple[str, int], int] = {}
        self._sent: Mapping[tuple[str, int], int] = {}
        self._future: Any = None

    def commit(self, read: Offsets, *, again: bool = False) -> None:
        """Commit changed positions without waiting, unless one is in flight.

        `again` commits unchanged ones as well: Kafka forgets them after some days. Raises `KafkaUnavailable` if the
        last commit failed.
        """
        if self._future is not None:
            if not self._future.isDone():
                return
            future, self._future = self._future, None
            _result(future)
            self._committed.update(self._sent)
        positions = {(topic, number): offset for topic, offsets in read.items() for number, offset in offsets.items()}
        changed = {place: offset for place, offset in positions.items() if self._committed.get(place) != offset}
        self._sent = positions if again else changed
        if self._sent:
            self._future = self._admin.asked_to_commit(self._group, self._sent)


def _result(future: Any) -> Any:
    try:
        return future.get()
    except Py4JJavaError as error:
        raise KafkaUnavailable(root_cause(error)) from None
