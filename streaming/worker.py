"""The work on one state key: rows of a micro-batch in, new state bytes and output rows out; no Spark in here."""

import gc
import itertools
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

import orjson

from streaming import home, state
from streaming.batch import PARSERS, Event
from streaming.errors import Rejected
from streaming.events import (
    Alarm,
    GroupEvent,
    Reason,
    Source,
    Stream,
    SubscriptionRequest,
    Tick,
    TopicEvent,
    Wake,
)
from streaming.expansion import expand
from streaming.home import HOME, Home
from streaming.journal import Archive, Journal, Position
from streaming.records import Record, UpdateWriter, dead_letter
from streaming.routing import Routing
from streaming.shard import Shard
from streaming.state import ShardState
from streaming.subscription import Ignored
from streaming.update import Op, Problem, Update

STREAMS = tuple(Stream)
"""The input streams by their number in a row; also the order in which a micro-batch is read."""

_PARSERS = tuple(PARSERS[stream] for stream in STREAMS)
_GROUPS, _SUBSCRIPTIONS, _TOPICS, _CLOCK = range(4)

OUTPUT_ROWS = 10_000
"""Updates that are in memory at once; Spark sends as many rows at once to the JVM."""

CACHE_BYTES = 256 * 1024 * 1024
"""How many bytes of journals a worker process keeps decoded."""


class Kind:
    """What an output row is; IGNORED only stands in counts."""

    ADD = "add"
    REMOVE = "remove"
    TOMBSTONE = "tombstone"
    DEAD_LETTER = "dead-letter"
    INPUT = "input:"
    COUNTS = "counts"
    IGNORED = "ignored:"


_COUNTED = (Kind.ADD, Kind.REMOVE, Kind.DEAD_LETTER)


Entry = tuple[int, int, int, int, int, bytes | None]
"""A `Row` as Spark gives it; naming the fields takes 0.4 us each."""


class Row(NamedTuple):
    """One input entry; rows sort in the order in which they are read.

    Attributes:
        entry: twice its position in the record; one more where no shard sees it, because it names no parent.
    """

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
        client_timeout_ms: a client that has not asked for so long is ended; 0: never.
        archive: where the parts of a key's state are, which is named by parent and shard; None: all is in its value.
    """

    topics: tuple[str, str, str, str]
    routing: Routing = field(default_factory=Routing)
    inner_multi: bool = False
    client_timeout_ms: int = 0
    archive: Callable[[str, int], Archive] | None = None


@dataclass(slots=True)
class Output:
    """Output rows, by column, and how many entries were ignored for which reason."""

    kinds: list[str] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    payloads: list[bytes | None] = field(default_factory=list)
    ignored: Counter[Ignored] = field(default_factory=Counter)

    def add(self, kind: str, record: Record) -> None:
        """Appends a row."""
        self.kinds.append(kind)
        self.keys.append(record.key)
        self.payloads.append(record.value)

    def taken(self) -> "Output":
        """What there is, which is no more here."""
        taken = Output(self.kinds, self.keys, self.payloads, self.ignored)
        self.kinds, self.keys, self.payloads, self.ignored = [], [], [], Counter()
        return taken

    def say(self, updates: Iterable[Update], writer: UpdateWriter) -> None:
        """Appends what updates say; a REMOVE is followed by the tombstone with which compaction forgets its key."""
        record, kinds, keys, payloads = writer.record, self.kinds, self.keys, self.payloads
        for update in updates:
            key, value = record(update)
            keys.append(key)
            payloads.append(value)
            if update.op is Op.ADD:
                kinds.append(Kind.ADD)
            else:
                kinds += (Kind.REMOVE, Kind.TOMBSTONE)
                keys.append(key)
                payloads.append(None)

    def add_counts(self) -> None:
        """Appends a row that says what was done, as JSON; none where nothing was."""
        counts = {kind: count for kind in _COUNTED if (count := self.kinds.count(kind))}
        counts |= {Kind.IGNORED + reason: count for reason, count in self.ignored.items()}
        if counts:
            self.add(Kind.COUNTS, Record(b"", orjson.dumps(counts)))


def work(
    parent: str, number: int, rows: Iterable[Entry], data: bytes | None, settings: Settings, *, batch: int = 0
) -> Generator[Output, None, bytes | None]:
    """Applies a micro-batch's rows of one key.

    Args:
        parent: the parent topic; blank for the keys that place groups and report what cannot be routed.
        number: the shard of the parent.
        rows: in any order.
        data: the key's state, None for none.
        settings: of the job.
        batch: the number of the micro-batch.

    Yields:
        The output rows, at most some `OUTPUT_ROWS` at a time: what a wide pattern finds need not fit into memory.

    Returns:
        The key's new state (None for none, `data` itself when nothing changed).
    """
    output = Output()
    ordered = sorted(rows)
    events = _events(parent, number, ordered, settings, output)
    journal = Journal.open(data, settings.archive and settings.archive(parent, number), batch)
    if parent == HOME:
        done = _work_at_home(number, events, journal, settings.client_timeout_ms, output)
    else:
        shard = Shard(parent, number, settings.routing, settings.inner_multi)
        done = yield from _work_on_shard(shard, events, journal, output)
    if done.problems:
        named = map(Row._make, ordered)
        originals = {(settings.topics[row.stream], *row[1:3], _position(row.entry)): row.payload for row in named}
        for source, reason, message in done.problems:
            output.add(Kind.DEAD_LETTER, dead_letter(source, reason, message, originals[source[:4]]))
    output.ignored = done.ignored
    yield output
    return data if done.journal is journal else done.journal.stored


class _Done(NamedTuple):
    """The new state of a key, and what could not be applied."""

    journal: Journal
    problems: list[Problem]
    ignored: Counter[Ignored]


def _work_on_shard(
    shard: Shard, events: Iterable[tuple[Source, Event]], journal: Journal, output: Output
) -> Generator[Output, None, _Done]:
    key = (shard.parent, shard.number)
    former = _SHARDS.take(key, journal, ShardState(shard.inner_multi))
    expansion = expand(former, events, shard)
    writer = UpdateWriter(shard.parent)
    updates = iter(expansion.updates)
    while chunk := list(islice(updates, OUTPUT_ROWS)):
        output.say(chunk, writer)
        if len(chunk) == OUTPUT_ROWS:
            yield output.taken()
    for time, wanted in expansion.delta.alarms.items():
        if wanted:
            output.add(Kind.INPUT + Stream.CLOCK, home.alarm(*key, time))
    if expansion.delta:
        former.apply(expansion.delta)
        journal = state.renew(journal, former, expansion.delta)
    if former.pending:
        output.add(Kind.INPUT + Stream.CLOCK, home.wake(*key, 0))  # to go on with the next micro-batch
    _SHARDS.put(key, journal, former)
    return _Done(journal, expansion.problems, expansion.ignored)


def _work_at_home(
    number: int,
    events: Iterable[tuple[Source, Event]],
    journal: Journal,
    client_timeout_ms: int,
    output: Output,
) -> _Done:
    key = (HOME, number)
    former = _HOMES.take(key, journal, Home())
    done = home.follow(former, events, client_timeout_ms)
    for stream, record in done.records:
        output.add(Kind.INPUT + stream, record)
    if done.changed:
        former.apply(done.delta)
        journal = home.renew(journal, former, done.delta)
    _HOMES.put(key, journal, former)
    return _Done(journal, done.problems, done.ignored)


def _position(entry: int) -> int:
    return entry // 2


def _events(
    parent: str, number: int, rows: Iterable[Entry], settings: Settings, output: Output
) -> Iterator[tuple[Source, Event]]:
    """The valid events of a key; what is not valid is reported by exactly one of the keys that see it."""
    at_home = parent == HOME
    for stream, partition, offset, entry, timestamp, payload in rows:
        source = Source(settings.topics[stream], partition, offset, _position(entry), timestamp)
        try:
            event = _PARSERS[stream](payload)
        except Rejected as rejected:
            if at_home or stream in (_TOPICS, _CLOCK):
                output.add(Kind.DEAD_LETTER, dead_letter(source, rejected.reason, str(rejected), payload))
            continue
        if _is_routed_right(event, parent, number, entry):
            yield source, event
        elif _reports(stream, number, entry, at_home=at_home):
            output.add(Kind.DEAD_LETTER, dead_letter(source, Reason.NOT_ROUTABLE, _NOT_ROUTABLE, payload))


def _reports(stream: int, number: int, entry: int, *, at_home: bool) -> bool:
    """Whether this key is the one of those that see an entry that says that it was routed wrongly."""
    if stream == _GROUPS:
        return at_home
    if stream == _SUBSCRIPTIONS:  # the shards decide what a request means, where there is one
        return bool(entry % 2) if at_home else number == 0
    return True


_NOT_ROUTABLE = (
    "Spark reads this JSON text differently: a field stands in it twice, it nests too deep, or it has too long a number"
)


def _is_routed_right(event: Event, parent: str, number: int, entry: int) -> bool:
    """Whether the JVM has read what Python reads."""
    if isinstance(event, TopicEvent) or (parent != HOME and isinstance(event, SubscriptionRequest | GroupEvent)):
        return event.parent == parent
    if parent != HOME:
        return isinstance(event, Wake) and (event.parent, event.shard) == (parent, number)
    if isinstance(event, GroupEvent):
        return number == home.bucket_of(event.group)
    if isinstance(event, SubscriptionRequest):
        return number == home.bucket_of(event.group) and (event.parent == HOME) == bool(entry % 2)
    if isinstance(event, Alarm):
        return number == home.bucket_of(event.parent)
    return isinstance(event, Tick)


S = TypeVar("S", ShardState, Home)


class StateCache(Generic[S]):
    """Decoded states by key, the least recently used dropped first.

    A state is used only for a journal that continues what it stands for. A task that fails after it changed a state
    leaves an entry for a journal that was never stored, which therefore is never used.

    Args:
        max_bytes: of journals to keep decoded.
        catch_up: makes changes in a state.
    """

    def __init__(self, max_bytes: int, catch_up: Callable[[S, Iterable[Any]], None]) -> None:
        self._max_bytes = max_bytes
        self._catch_up: Callable[[S, Iterable[Any]], None] = catch_up
        self._bytes = 0
        self._entries: OrderedDict[tuple[str, int], tuple[Position, S]] = OrderedDict()

    def take(self, key: tuple[str, int], journal: Journal, fresh: S) -> S:
        """Removes the state of a key and returns what its journal says.

        A kept state only reads on from where it was; else all is read into `fresh`, a state of nothing.
        """
        entry = self._entries.pop(key, None)
        if entry is not None:
            position, decoded = entry
            self._bytes -= position.end
            if journal.continues(position):
                self._catch_up(decoded, journal.changes(position))
                return decoded
        self._catch_up(fresh, journal.changes())
        return fresh

    def put(self, key: tuple[str, int], journal: Journal, decoded: S) -> None:
        """Keeps the state that a journal amounts to; an empty one is not worth it."""
        position = journal.position
        former = self._entries.pop(key, None)
        self._bytes -= former[0].end if former else 0
        if position.end:
            self._entries[key] = (position, decoded)
            self._bytes += position.end
        while self._bytes > self._max_bytes:
            _, (dropped, _) = self._entries.popitem(last=False)
            self._bytes -= dropped.end

    def clear(self) -> None:
        """Forgets all states, as a new worker process has."""
        self._entries.clear()
        self._bytes = 0


_SHARDS: StateCache[ShardState] = StateCache(CACHE_BYTES, state.catch_up)
_HOMES: StateCache[Home] = StateCache(CACHE_BYTES, home.catch_up)


def forget() -> None:
    """Drops all decoded states, as a new worker process begins."""
    _SHARDS.clear()
    _HOMES.clear()


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
