"""The work on one state key: rows of a micro-batch in, new state bytes and output rows out; no Spark in here."""

import gc
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from streaming import codec, placement, state
from streaming.errors import Rejected
from streaming.events import (
    GroupEvent,
    Reason,
    Source,
    Stream,
    parse_group_event,
    parse_subscription,
    parse_topic_event,
)
from streaming.expansion import Event, Op, Shard, expand
from streaming.records import Record, UpdateWriter, dead_letter
from streaming.routing import Routing
from streaming.state import ShardState

STREAMS = (Stream.GROUPS, Stream.SUBSCRIPTIONS, Stream.TOPICS)
"""The input streams by their number in a row; also the order in which a micro-batch is read."""

_PARSERS: tuple[Callable[[bytes | None], Event], ...] = (parse_group_event, parse_subscription, parse_topic_event)
_GROUPS, _SUBSCRIPTIONS, _TOPICS = range(3)

CACHE_BYTES = 256 * 1024 * 1024
"""How many bytes of encoded state a worker process keeps decoded."""


class Kind:
    """What an output row is."""

    ADD = "add"
    REMOVE = "remove"
    TOMBSTONE = "tombstone"
    DEAD_LETTER = "dead-letter"
    GROUP_EVENT = "group-event"
    IGNORED = "ignored:"


class Row(NamedTuple):
    """One input entry; rows sort in the order in which they are read."""

    stream: int
    partition: int
    offset: int
    entry: int
    timestamp: int
    payload: bytes | None


@dataclass(frozen=True, slots=True)
class Settings:
    """What the work depends on.

    Attributes:
        topics: Kafka topic names of the input streams, in the order of `STREAMS`.
        routing: how topics are spread over shards.
        inner_multi: `**` may stand inside a pattern.
    """

    topics: tuple[str, str, str]
    routing: Routing = field(default_factory=Routing)
    inner_multi: bool = False


@dataclass(slots=True)
class Output:
    """Output rows, by column: kind, key, payload, and for ignored entries how many."""

    kinds: list[str] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    payloads: list[bytes | None] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def add(self, kind: str, record: Record | None, count: int = 1) -> None:
        """Appends a row."""
        self.kinds.append(kind)
        self.keys.append(record and record.key)
        self.payloads.append(record and record.value)
        self.counts.append(count)


def work(
    parent: str, number: int, rows: Iterable[Row], data: bytes | None, settings: Settings
) -> tuple[bytes | None, Output]:
    """Applies a micro-batch's rows of one key.

    Args:
        parent: the parent topic; blank for the keys that place groups and report what cannot be routed.
        number: the shard of the parent.
        rows: in any order.
        data: the key's state, None for none.
        settings: of the job.

    Returns:
        The key's new state (None for none, `data` itself when nothing changed), and the output rows.
    """
    output = Output()
    ordered = sorted(rows)
    events = list(_events(parent, number, ordered, settings, output))
    if parent == placement.HOME:
        placements = [(source, event) for source, event in events if isinstance(event, GroupEvent)]
        return _place(placements, data, output), output
    shard = Shard(parent, number, settings.routing, settings.inner_multi)
    former = _load(parent, number, data, settings)
    expansion = expand(former, events, shard)
    writer = UpdateWriter(parent)
    for update in expansion.updates:
        records = writer.records(update)
        output.add(Kind.ADD if update.op is Op.ADD else Kind.REMOVE, records[0])
        for tombstone in records[1:]:
            output.add(Kind.TOMBSTONE, tombstone)
    if expansion.problems:
        originals = {(settings.topics[row.stream], *row[1:4]): row.payload for row in ordered}
        for source, reason, message in expansion.problems:
            output.add(Kind.DEAD_LETTER, dead_letter(source, reason, message, originals[source[:4]]))
    for ignored, count in expansion.ignored.items():
        output.add(Kind.IGNORED + ignored, None, count)
    renewed = data
    if expansion.delta:
        former.apply(expansion.delta)
        renewed = state.renew(data, former, expansion.delta)
    _CACHE.put((parent, number), renewed, former)
    return renewed, output


def _events(
    parent: str, number: int, rows: Iterable[Row], settings: Settings, output: Output
) -> Iterable[tuple[Source, Event]]:
    """The valid events of a key; what is not valid is reported by exactly one of the keys that see it."""
    home = parent == placement.HOME
    for stream, partition, offset, entry, timestamp, payload in rows:
        source = Source(settings.topics[stream], partition, offset, entry, timestamp)
        try:
            event = _PARSERS[stream](payload)
            _check_place(event, parent, number)
        except Rejected as rejected:
            if home or stream == _TOPICS or (stream == _SUBSCRIPTIONS and number == 0):
                output.add(Kind.DEAD_LETTER, dead_letter(source, rejected.reason, str(rejected), payload))
        else:
            yield source, event


def _check_place(event: Event, parent: str, number: int) -> None:
    """The JVM has read what Python reads."""
    if isinstance(event, GroupEvent) and parent == placement.HOME:
        right = number == placement.bucket_of(event.group)
    else:
        right = event.parent == parent
    if not right:
        raise Rejected(
            Reason.NOT_ROUTABLE,
            "Spark reads this JSON text differently: a field stands in it twice, it nests too deep, "
            "or it has too long a number",
        )


def _place(events: list[tuple[Source, GroupEvent]], data: bytes | None, output: Output) -> bytes | None:
    bucket = placement.Bucket() if data is None else placement.decode(data)
    placed = placement.place(bucket, events)
    for record in placed.events:
        output.add(Kind.GROUP_EVENT, record)
    for reason, count in placed.ignored.items():
        output.add(Kind.IGNORED + reason, None, count)
    if placed.parents == bucket.parents:
        return data
    renewed = placement.Bucket(placed.parents)
    return placement.encode(renewed) if renewed else None


class StateCache:
    """Decoded states by key, the least recently used dropped first.

    A state is used only for bytes that begin with those that it stands for. A task that fails after it changed a state
    leaves an entry for bytes that were never stored, which therefore is never used.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[tuple[str, int], tuple[codec.Position, ShardState]] = OrderedDict()

    def take(self, key: tuple[str, int], data: bytes) -> ShardState | None:
        """Removes the state of a key, and returns it as of `data` if it stands for the beginning of that."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        position, decoded = entry
        self._bytes -= position.end
        if not codec.continues(data, position):
            return None
        state.catch_up(decoded, data, position)
        return decoded

    def put(self, key: tuple[str, int], data: bytes | None, decoded: ShardState) -> None:
        """Keeps the state that `data` encodes; None keeps nothing."""
        if data is None:
            return
        former, _ = self._entries.pop(key, (codec.Position(0, b""), decoded))
        position = codec.position(data)
        self._entries[key] = (position, decoded)
        self._bytes += position.end - former.end
        while self._bytes > self._max_bytes:
            _, (dropped, _) = self._entries.popitem(last=False)
            self._bytes -= dropped.end


_CACHE = StateCache(CACHE_BYTES)


@contextmanager
def without_collection() -> Iterator[None]:
    """Holds the cyclic garbage collector off, and hides from it what stays.

    A micro-batch makes many objects and no cycles; scanning them again and again took a quarter of the time. Besides,
    PySpark's worker collects all of its memory after each task: with Spark's own modules alone that took 0.15 s a
    task, two thirds of the worker's CPU at 20 events a second, and it would grow with the state that is kept decoded.
    Frozen objects are not scanned. Now and then all are, in case a library left cycles among them.
    """
    gc.disable()
    try:
        yield
    finally:
        if next(_CALLS) % _CALLS_BETWEEN_COLLECTIONS == 0:
            gc.unfreeze()
            gc.collect()
        gc.freeze()
        gc.enable()


_CALLS = itertools.count(1)
_CALLS_BETWEEN_COLLECTIONS = 10_000


def _load(parent: str, number: int, data: bytes | None, settings: Settings) -> ShardState:
    if data is None:
        return ShardState(settings.inner_multi)
    cached = _CACHE.take((parent, number), data)
    return state.decode(data, inner_multi=settings.inner_multi) if cached is None else cached
