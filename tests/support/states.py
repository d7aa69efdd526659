"""Work on one key: its rows, its output, and its state as bytes."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgpack

from streaming import coordinator, state
from streaming.coordinator import COORDINATOR, CoordinatorState, bucket_of
from streaming.errors import StateCorrupted
from streaming.records.writing import TABLE_END, Tables
from streaming.state import ShardDelta, ShardState
from streaming.state.client import Ignored
from streaming.storage.journal import Archive, Journal
from streaming.storage.snapshots import Content
from streaming.worker import process
from streaming.worker.rows import InputRow, InputRows, Output, OutputKind, by_kind
from streaming.worker.worker import Worker, WorkerConfig
from tests.support.events import Event, encoded

GROUPS, SUBSCRIPTIONS, TOPICS, CLOCK = range(4)
"""Numbers of the input streams in rows."""

HOME = COORDINATOR, bucket_of("g")
"""Key of the coordinator for group `g`."""


def row(stream: int, payload: Event | bytes | None, offset: int = 0, entry: int = 0) -> InputRow:
    return InputRow(stream, 0, offset, entry, 1_000 + offset, None if payload is None else encoded(payload))


def as_read(content: Content | None) -> Content:
    """Return the content of a snapshot as it comes from its file."""
    assert content is not None
    return Content(content.arrays, msgpack.unpackb(msgpack.packb(content.others), use_list=False))


class Memory(dict[str, bytes]):
    """Archive in memory; parts are never changed."""

    def write(self, name: str, data: bytes) -> None:
        assert self.get(name, data) == data
        self[name] = data

    def read(self, name: str, start: int = 0) -> bytes:
        if name not in self:
            raise StateCorrupted(f"there is no {name}")
        return self[name][start:]

    def remove(self, name: str) -> None:
        """Remove a part if it exists: a repeated micro-batch removes it again."""
        self.pop(name, None)


@dataclass
class Written:
    """Records of output rows as columns, with the counts, and the ignored entries by reason."""

    kinds: list[str] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    payloads: list[bytes | None] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    ignored: Counter[Ignored] = field(default_factory=Counter)

    def add(self, output: Output) -> None:
        """Append the records of output rows."""
        for kind, start, tables in output.rows:
            for end, value in records(tables):
                self.kinds.append(_OPS[(value or b"")[:8]] if kind == OutputKind.UPDATES else kind)
                self.keys.append(start + end)
                self.payloads.append(value)
        self.counts.update(by_kind(output.counted))
        self.ignored.update(output.ignored)

    def payloads_of(self, kind: str) -> list[Any]:
        return [json.loads(value or b"") for each, value in zip(self.kinds, self.payloads, strict=True) if each == kind]

    @property
    def letters(self) -> list[dict[str, Any]]:
        return self.payloads_of(OutputKind.DEAD_LETTER)

    @property
    def reasons(self) -> list[str]:
        return [letter["reason"] for letter in self.letters]


def records(tables: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield keys without their common prefix, and values, as the sink does in the JVM."""
    lines = (text.split(b"\n") for text in tables.split(TABLE_END.encode()))
    table = dict(zip(Tables._fields, lines, strict=True))
    for number in map(int, table["records"]):
        rest, p = divmod(number, len(table["patterns"]) + 1)
        t, r = divmod(rest, len(table["key_starts"]))
        places = {
            "middle": 0, "end": 0, "patterns": p - 1,
            **dict.fromkeys(("names", "digests", "places", "timestamps"), t),
            **dict.fromkeys(("key_starts", "key_ends", "starts", "versions", "digest_ends"), r),
        }  # fmt: skip

        def joined(*names: str, table: dict[str, list[bytes]] = table, places: dict[str, int] = places) -> bytes:
            return b"".join(table[name][places[name]] for name in names)

        value = joined(
            *("starts", "names", "middle", "names", "patterns", "versions"),
            *("digests", "digest_ends", "places", "timestamps", "end"),
        )
        yield joined("key_starts", "names", "key_ends"), value if p else None


TOMBSTONE = "tombstone"
_OPS = {b'{"op":"A': OutputKind.ADD, b'{"op":"R': OutputKind.REMOVE, b"": TOMBSTONE}


def work(
    parent: str,
    number: int,
    rows: Iterable[InputRow],
    data: bytes | None,
    by: WorkerConfig | Worker,
    *,
    batch: int = 0,
    partition: int | None = None,
) -> tuple[bytes | None, Written]:
    """Return the new state and all records of a key, from a given worker or the process's worker."""
    columns = InputRows.of(rows)
    worker = by if isinstance(by, Worker) else process.kept(by)
    steps, whole = worker.work(parent, number, columns, data, batch=batch, partition=partition), Written()
    while True:
        try:
            output = next(steps)
        except StopIteration as end:
            return end.value, whole
        whole.add(output)


def forget() -> None:
    process._kept.clear()


def encode(shard: ShardState) -> bytes | None:
    """Encode a shard's state as a journal of one change that creates it."""
    return state.append(Journal(), shard, ShardDelta()).stored


def decode(data: bytes | None, archive: Archive | None = None, *, inner_multi: bool = False) -> ShardState:
    """Decode a shard's state, whose parts are in an archive if it has some."""
    shard = ShardState(inner_multi=inner_multi)
    state.replay(shard, Journal.open(data, archive).changes())
    return shard


def encode_home(made: CoordinatorState) -> bytes | None:
    """Encode a coordinator's state as a journal of one change."""
    return coordinator.append(Journal(), made, coordinator.CoordinatorDelta(made.clock)).stored


def decode_home(data: bytes | None) -> CoordinatorState:
    """Decode a coordinator's state."""
    made = CoordinatorState()
    coordinator.replay(made, Journal.open(data).changes())
    return made
