"""State of the job for the overview: from the job itself, or from its traces in Kafka for a standalone console."""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from streaming.config import Settings
from streaming.console.looking import Looking
from streaming.errors import TopicMissing, TopicUnreadable
from streaming.kafka.clients import create
from streaming.kafka.options import for_librdkafka
from streaming.kafka.permissions import lag_group
from streaming.kafka.reader import Partition, Span, TopicReader
from streaming.monitor.batch import BatchReport, LagMeter
from streaming.monitor.health import Condition

LEVELS: Final[Mapping[str, str]] = {
    **dict.fromkeys((Condition.READY, Condition.STANDING_BY), "good"),
    **dict.fromkeys((Condition.STARTING, Condition.CATCHING_UP, Condition.STOPPING), "busy"),
    **dict.fromkeys((Condition.HUNG, Condition.KAFKA_UNREACHABLE), "bad"),
}
"""How a condition of the job is shown."""

SLOWEST: Final = 10
"""Maximum number of shards in the overview, and of kept shards per micro-batch."""

RECENT_SECONDS: Final = 300
"""Age in seconds up to which micro-batches count for the slowest shards."""

_SILENT_SECONDS: Final = 30.0
"""Minimum age of the last tick in seconds before the job is reported as missing."""

_TICKS_MISSED: Final = 3
_LAST_RECORDS: Final = 200
"""Number of records per partition of the clock topic in which the first look finds the last ticks."""

_ANSWER_SECONDS: Final = 5.0


def own_state(answer: Mapping[str, Any], lag: LagMeter) -> dict[str, Any]:
    """Return the state that the job itself reports, for the page.

    `rates` is None until the job has committed a micro-batch, because the rate of the first one is known at its end.
    """
    rates = None if answer["micro_batch"] is None else lag.rates or None
    return {**answer, "level": LEVELS[answer["state"]], "rates": rates}


def slowest(batch: BatchReport) -> list[dict[str, Any]]:
    """Return the shards of a micro-batch whose events waited longest until its commit."""
    found = [
        {"parent": key.parent, "shard": key.shard, "topics": key.topics, "clients": key.clients,
         "bytes": key.state_bytes, "seconds": round(max(0.0, batch.ended - min(key.times) / 1_000), 3)}
        for key in batch.keys if key.parent and key.times
    ]  # fmt: skip
    return sorted(found, key=_seconds, reverse=True)[:SLOWEST]


def slowest_of(batches: Iterable[Mapping[str, Any]], now: float) -> list[dict[str, Any]]:
    """Return the slowest shards of recent micro-batches, each with its longest wait."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for batch in batches:
        if now - batch["started_ms"] / 1_000 > RECENT_SECONDS:
            continue
        for shard in batch["slowest"]:
            place = shard["parent"], shard["shard"]
            longest = max(shard["seconds"], found.get(place, shard)["seconds"])
            found[place] = {**shard, "seconds": longest}
    return sorted(found.values(), key=_seconds, reverse=True)[:SLOWEST]


def _seconds(shard: Mapping[str, Any]) -> float:
    return float(shard["seconds"])


class JobWatch(Looking):
    """Watcher of a job from outside, as a context manager: its ticks, lag and input rates. Thread-safe.

    It reads only Kafka: the clock topic, the ends of the inputs, and the positions that the job commits for
    lag monitors.

    Args:
        settings: addresses, topics and client options; the checkpoint is ignored.
    """

    def __init__(self, settings: Settings) -> None:
        options = for_librdkafka(settings)
        super().__init__(settings.bootstrap_servers, options, "watches the job")
        self._settings = settings
        self._lag = LagMeter()
        self._ticks: list[float] = []
        self._next: dict[Partition, int] = {}
        self._state: dict[str, Any] = {"state": "unknown", "level": "busy", "reason": "the clock topic is being read"}
        servers, group = settings.bootstrap_servers, lag_group(settings.updates)
        own = {"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False}
        self._committed = create(Consumer, {"log_level": 0, **options, **own})

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._committed.close()

    def state(self) -> dict[str, Any]:
        """Return the state for the page."""
        with self._lock:
            return self._state

    def _look(self, reader: TopicReader) -> None:
        found = self._found(reader)
        with self._lock:
            self._state = found

    def _found(self, reader: TopicReader) -> dict[str, Any]:
        clock = self._settings.clock
        try:
            self._read_ticks(reader, reader.spans([clock]))
        except TopicMissing:
            return _state("missing", "bad", f"there is no topic {clock}: no job has run on this broker")
        except TopicUnreadable as error:
            return _state("unknown", "busy", str(error))
        return {**self._judged(time.time()), **self._measured(reader)}

    def _read_ticks(self, reader: TopicReader, spans: Mapping[Partition, Span]) -> None:
        wanted = {
            where: Span(max(span.start, min(self._next.get(where, span.end - _LAST_RECORDS), span.end)), span.end)
            for where, span in spans.items()
        }
        for block in reader.read(wanted, self._stop.is_set):
            ticks = [message.timestamp()[1] / 1_000 for message in block if message.key() == b"tick"]
            self._ticks = sorted([*self._ticks, *ticks])[-2:]
        self._next = {where: span.end for where, span in spans.items()}

    def _judged(self, now: float) -> dict[str, Any]:
        if not self._ticks:
            return _state(
                "unknown", "busy", f"{self._settings.clock} contains no recent tick: no job has run, or it has no ticks"
            )
        last, interval = self._ticks[-1], self._ticks[-1] - self._ticks[0]
        if now - last <= max(_SILENT_SECONDS, _TICKS_MISSED * interval):
            return _state("running", "good", "it writes its ticks in time")
        since = datetime.fromtimestamp(last, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return _state("missing", "bad", f"no tick since {since}: the job has stopped, or is far behind")

    def _measured(self, reader: TopicReader) -> dict[str, Any]:
        """Return lag and rates; nothing if they cannot be read, such as without permissions."""
        try:
            ends = reader.spans(self._settings.inputs)
            places = self._committed.committed([TopicPartition(*where) for where in ends], timeout=_ANSWER_SECONDS)
        except (TopicUnreadable, KafkaException):
            return {}
        read = _by_topic((place.topic, place.partition, place.offset) for place in places if place.offset >= 0)
        if not read:
            return {}
        self._lag.look(_by_topic((*where, span.end) for where, span in ends.items()), read)
        return {"lag_records": self._lag.records, "lag_seconds": round(self._lag.seconds, 1),
                "rates": self._lag.rates or None}  # fmt: skip


def _by_topic(places: Iterable[Sequence[Any]]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for topic, number, offset in places:
        found.setdefault(topic, {})[number] = offset
    return found


def _state(state: str, level: str, reason: str) -> dict[str, Any]:
    return {"state": state, "level": level, "reason": reason}
