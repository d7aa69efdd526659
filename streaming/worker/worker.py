"""The work on one state key: rows of a micro-batch in, new state bytes and output rows out; no Spark in here."""

import gc
import itertools
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from streaming import coordinator
from streaming.coordinator import COORDINATOR, CoordinatorState
from streaming.events.columns import Event
from streaming.events.model import Source, Stream
from streaming.events.routing import Routing
from streaming.expansion.expansion import expand
from streaming.state import state
from streaming.state.shard import Shard
from streaming.state.state import ShardState
from streaming.storage.journal import Archive, Journal
from streaming.subscription.client import Ignored
from streaming.updates.model import Problem
from streaming.updates.records import UpdateWriter, dead_letter
from streaming.worker.cache import CACHE_BYTES, StateCache
from streaming.worker.output import Output, OutputKind
from streaming.worker.reading import Rows, position, read

PIECE_BYTES = 4 * 1024 * 1024
"""Some so many bytes of updates leave at once."""

COLUMN_ROW_BYTES = 512 * 1024
"""Some so many bytes of updates are in a row of updates by column, which holds a sixth of them."""

_CHUNK = 1_000
"""So many updates are found before their bytes are counted."""

_SHARDS: StateCache[ShardState] = StateCache(CACHE_BYTES, state.catch_up)
_HOMES: StateCache[CoordinatorState] = StateCache(CACHE_BYTES, coordinator.catch_up)


def forget() -> None:
    """Drops all decoded states, as a new worker process begins."""
    _SHARDS.clear()
    _HOMES.clear()


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


def work(
    parent: str, number: int, rows: Rows, data: bytes | None, settings: Settings, *, batch: int = 0
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
        The output rows, some `PIECE_BYTES` at a time: what a wide pattern finds need not fit into memory.

    Returns:
        The key's new state (None for none, `data` itself when nothing changed).
    """
    output = Output()
    ordered = rows.ordered()
    events = read(parent, number, ordered, settings.topics, output)
    journal = Journal.open(data, settings.archive and settings.archive(parent, number), batch)
    if parent == COORDINATOR:
        done = _work_at_home(number, events, journal, settings.client_timeout_ms, output)
    else:
        shard = Shard(parent, number, settings.routing, settings.inner_multi)
        done = yield from _work_on_shard(shard, events, journal, output)
    if done.problems:
        originals = {
            (settings.topics[stream], partition, offset, position(entry)): payload
            for stream, partition, offset, entry, _, payload in ordered.by_row()
        }
        for source, reason, message in done.problems:
            output.add(OutputKind.DEAD_LETTER, dead_letter(source, reason, message, originals[source[:4]]))
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
    while chunk := list(islice(updates, _CHUNK)):
        output.say(chunk, writer)
        if output.size >= PIECE_BYTES:
            yield output.drain()
    for columns in expansion.columns:
        for piece in columns.pieces(COLUMN_ROW_BYTES):
            output.say_columns(piece, writer)
            if output.size >= PIECE_BYTES:
                yield output.drain()
    for time, wanted in expansion.delta.alarms.items():
        if wanted:
            output.add(OutputKind.INPUT + Stream.CLOCK, coordinator.alarm(*key, time))
    if expansion.delta:
        former.apply(expansion.delta)
        journal = state.renew(journal, former, expansion.delta)
    if former.backfills:
        output.add(OutputKind.INPUT + Stream.CLOCK, coordinator.wake(*key, 0))  # to go on with the next micro-batch
    _SHARDS.put(key, journal, former)
    return _Done(journal, expansion.problems, expansion.ignored)


def _work_at_home(
    number: int,
    events: Iterable[tuple[Source, Event]],
    journal: Journal,
    client_timeout_ms: int,
    output: Output,
) -> _Done:
    key = (COORDINATOR, number)
    former = _HOMES.take(key, journal, CoordinatorState())
    done = coordinator.follow(former, events, client_timeout_ms)
    for stream, record in done.records:
        output.add(OutputKind.INPUT + stream, record)
    if done.changed:
        former.apply(done.delta)
        journal = coordinator.append(journal, former, done.delta)
    _HOMES.put(key, journal, former)
    return _Done(journal, done.problems, done.ignored)


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
