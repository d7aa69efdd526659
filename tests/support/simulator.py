"""Spark's part of the job in plain Python: routes records, keeps state by key, and runs `work` on each micro-batch."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from weakref import finalize

from streaming.coordinator import COORDINATOR
from streaming.operations.adoption import Layout, renewed_states
from streaming.oracle import Effective
from streaming.records.model import Reason, Stream
from streaming.records.routing import Routing, placed
from streaming.state import Shard
from streaming.state.holdings import holdings
from streaming.storage.snapshots import Snapshots
from streaming.storage.store import ADOPTED
from streaming.worker.rows import STREAMS, InputRow, OutputKind
from streaming.worker.worker import Worker, WorkerConfig
from tests.support.states import TOMBSTONE, Memory, Written, decode, work

TOPICS = ("lite-group-events", "lite-subscription-events", "lite-topic-events", "lite-clock")
NUMBER = {stream: number for number, stream in enumerate(STREAMS)}


@dataclass(frozen=True)
class Record:
    """A record of an input stream."""

    stream: Stream
    value: bytes | None
    partition: int = 0
    offset: int = 0
    timestamp: int = 0


def element(update: dict[str, Any]) -> Effective:
    part = f"share:{update['share']}/{update['filter']}" if "share" in update else update.get("subscription", "")
    return Effective(update["parentTopic"], update["group"], update["clientId"], update["liteTopic"], part)


def rows_of(output: Written) -> list[tuple[Any, ...]]:
    """Sort output rows; their order matters only between a removal and its tombstone."""
    return sorted(
        [*zip(output.kinds, output.keys, output.payloads, strict=True), *output.ignored.items()],
        key=repr,
    )


class Memories(defaultdict[tuple[str, int], Memory]):
    """Archives of all keys; snapshots are in files."""

    def __init__(self) -> None:
        super().__init__(Memory)
        self._folder: Path | None = None

    def of(self, parent: str, number: int) -> Memory:
        return self[parent, number]

    def snapshots(self, parent: str, number: int) -> Snapshots:
        if self._folder is None:
            self._folder = Path(mkdtemp(prefix="reexpand-snapshots-"))
            finalize(self, rmtree, self._folder)
        return Snapshots(self._folder / f"{parent.encode().hex()}-{number}")


@dataclass
class Simulation:
    """Job without Spark and Kafka: state by key, and all output rows so far."""

    routing: Routing = field(default_factory=Routing)
    inner_multi: bool = False
    client_timeout_ms: int = 0
    states: dict[tuple[str, int], bytes] = field(default_factory=dict)
    relation: set[Effective] = field(default_factory=set)
    updates: list[dict[str, Any]] = field(default_factory=list)
    dead_letters: list[dict[str, Any]] = field(default_factory=list)
    ignored: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    echoes: list[Record] = field(default_factory=list)
    slices: list[Record] = field(default_factory=list)
    offset: int = 1_000_000
    now: int = 0
    archives: Memories = field(default_factory=Memories)
    worker: Worker | None = None
    batch: int = 0
    adopts: bool = False
    cap_requests: bool = False
    own_partition: int = 1  # of the records that the job writes to itself

    @property
    def config(self) -> WorkerConfig:
        return WorkerConfig(
            TOPICS,
            self.routing,
            self.inner_multi,
            self.client_timeout_ms,
            self.archives,
            adopts=self.adopts,
            cap_requests=self.cap_requests,
        )

    @property
    def refused(self) -> list[int]:
        """Offsets of the requests that a quota refused, by the dead letters that were not taken back."""
        letters = [letter["source"] for letter in self.dead_letters if letter["reason"] == Reason.QUOTA_EXCEEDED]
        return sorted(source["offset"] for source in letters if source["topic"] == TOPICS[1])

    def run(self, records: Iterable[Record], *, crash: bool = False, settle: bool = True) -> int:
        """Run a micro-batch, then micro-batches for the records that the job wrote to itself.

        Without `settle`, the next call continues backfills.

        With `crash`, each micro-batch is repeated from the same state, as after a failed commit, and must give the
        same records to the byte. Return the number of micro-batches.
        """
        batch: Sequence[Record] = [*records, *self.slices]
        count, self.slices = 0, []
        while batch:
            self._run_batch(batch, crash=crash)
            batch, self.echoes = self.echoes, []
            if settle and not batch:
                batch, self.slices = self.slices, []
            count += 1
        return count

    def move(self, routing: Routing) -> "Simulation":
        """Return a job with another routing that continues from these states, like `reexpand rebuild`.

        It has not read this job's records to itself. Its relation is computed from the states.
        """
        later = Simulation(routing, self.inner_multi, self.client_timeout_ms, now=self.now, adopts=True)
        later.cap_requests = self.cap_requests
        later.echoes, later.slices, later.offset = self.echoes, self.slices, self.offset
        waiting = {key: memory[ADOPTED] for key, memory in self.archives.items() if ADOPTED in memory}
        values = [(*key, value) for key, value in (waiting | self.states).items()]
        former, renewed = Layout(self.routing, self.archives), Layout(routing, later.archives)
        for parent, number, value, records in renewed_states(values, former, renewed, inner_multi=self.inner_multi):
            later.archives.of(parent, number).write(ADOPTED, value)
            for record in records:
                later.offset += 1
                later.echoes.append(Record(Stream.CLOCK, record.value, self.own_partition, later.offset, self.now))
            if parent != COORDINATOR:
                later.relation |= _relation(value, Shard(parent, number, routing, self.inner_multi), later.archives)
        return later

    def run_once(self, records: Iterable[Record]) -> None:
        """Run one micro-batch; keep the job's records to itself in `echoes` and `slices`."""
        self._run_batch(list(records), crash=False)

    def _run_batch(self, records: Sequence[Record], *, crash: bool) -> None:
        rows: dict[tuple[str, int], list[InputRow]] = defaultdict(list)
        for record in records:
            for parent, shard, entry, payload in placed(record.stream, record.value, self.routing):
                row = InputRow(NUMBER[record.stream], record.partition, record.offset, entry, record.timestamp, payload)
                rows[parent, shard].append(row)
        config = self.worker or self.config
        self.batch += 1
        for key, batch in rows.items():
            former = self.states.get(key)
            state, output = work(*key, batch, former, config, batch=self.batch)
            if crash:
                again, repeated = work(*key, list(reversed(batch)), former, config, batch=self.batch)
                assert again == state
                assert rows_of(repeated) == rows_of(output)
            if state is None:
                self.states.pop(key, None)
            else:
                self.states[key] = state
            self._fold(output)

    def _fold(self, output: Written) -> None:
        kinds = Counter(output.kinds)
        counted = (OutputKind.ADD, OutputKind.REMOVE, OutputKind.DEAD_LETTER)
        kinds[OutputKind.DEAD_LETTER] -= sum(
            kind == OutputKind.DEAD_LETTER and value is None
            for kind, value in zip(output.kinds, output.payloads, strict=True)
        )
        assert output.counts == {kind: kinds[kind] for kind in counted if kinds[kind]}
        for reason, count in output.ignored.items():
            self.ignored[reason] += count
        for kind, key, value in zip(output.kinds, output.keys, output.payloads, strict=True):
            if kind == OutputKind.DEAD_LETTER:
                self._add_dead_letter(json.loads(key), value)
            elif kind.startswith(OutputKind.INPUT):
                self.offset += 1
                stream = Stream(kind.removeprefix(OutputKind.INPUT))
                goes_on = stream is Stream.CLOCK and json.loads(value or b"").get("wake") == 0
                record = Record(stream, value, self.own_partition, self.offset, self.now)
                (self.slices if goes_on else self.echoes).append(record)
            elif kind == OutputKind.ANSWER:
                assert json.loads(value or b"")["id"] == (key or b"").decode()
            elif kind == TOMBSTONE:
                assert value is None
                assert Effective(*json.loads(key or b"")) not in self.relation
            else:
                self._update(Effective(*json.loads(key or b"")), json.loads(value or b""))

    def _add_dead_letter(self, place: list[Any], value: bytes | None) -> None:
        """Add a dead letter, or remove the last dead letter of an entry for a tombstone."""
        if value is not None:
            self.dead_letters.append(json.loads(value))
            return
        letters = [each for each in self.dead_letters if list(each["source"].values())[:4] == place]
        assert letters, "a dead letter that was not there is taken back"
        self.dead_letters.remove(letters[-1])

    def _update(self, row: Effective, update: dict[str, Any]) -> None:
        """Apply an update, which must change the relation: no repeated ADD, no REMOVE of a missing row."""
        assert element(update) == row
        self.updates.append(update)
        if update["op"] == "ADD":
            assert row not in self.relation, f"added twice: {row}"
            self.relation.add(row)
        else:
            assert row in self.relation, f"removed but not there: {row}"
            self.relation.remove(row)


def _relation(value: bytes, shard: Shard, archives: Memories) -> set[Effective]:
    made = decode(value, archives.of(shard.parent, shard.number), inner_multi=shard.inner_multi)
    return {
        Effective(shard.parent, row.group, row.client_id, topic, row.part)
        for topic, rows in holdings(made, shard)
        for row in rows
    }
