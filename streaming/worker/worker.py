"""The work on one state key: rows of a micro-batch in, new state bytes and output rows out; no Spark in here."""

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from streaming import coordinator, state
from streaming.coordinator import COORDINATOR, OVERSIZE, CoordinatorDelta, CoordinatorState
from streaming.errors import EntriesLethal
from streaming.expansion import Expansion, Updates, expand
from streaming.expansion.renamed import FORMAT_WITH_FILTERS, has_shares, renamed_rows
from streaming.records.columns import Event
from streaming.records.model import Reason, Source, Stream
from streaming.records.record import KafkaRecord
from streaming.records.routing import Routing
from streaming.records.writing import UpdateWriter
from streaming.state import Shard, ShardDelta, ShardState
from streaming.state.client import Mode
from streaming.storage.journal import FORMAT, Journal, Key
from streaming.storage.store import STATE_CACHE_BYTES, Archives, Kind, S, SnapshotCodec, StateStore
from streaming.tuning import DEFAULT_TUNING, Tuning
from streaming.worker.bounds import Bounds
from streaming.worker.failures import NOT_OF_AN_ENTRY, EntryFailed, decision_fields, unreadable
from streaming.worker.inquiry.answering import Asked, answer_coordinator, answer_shard, answers
from streaming.worker.letters import DeadLetters
from streaming.worker.quarantine import Decision, left_out, reported
from streaming.worker.reading import KeyReader, Observer, Reading
from streaming.worker.rows import (
    CLOCK,
    InputRows,
    Isolation,
    Output,
    OutputKind,
    Ran,
    StreamTopics,
    facts,
    label,
)
from streaming.worker.signature import Signer


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Settings of the job that the work depends on.

    Attributes:
        topics: Kafka topics of the input streams, in the order of `STREAMS`.
        routing: how lite topics are spread over shards.
        inner_multi: `**` is allowed inside a pattern.
        client_timeout_ms: time without a request after which a client is ended; 0 for never.
        archives: places of the parts of states; None keeps each state in its value as a whole.
        bounds: bounds of input records; None for none.
        signer: signer of the records that the job writes to its own inputs; None trusts all records.
        state_cache_bytes: memory of the states that a worker keeps decoded.
        adopts: keys begin with the states in their archives (see `renewed_states`).
        cap_requests: requests beyond a quota are applied, and capped, on parents with one shard as well.
        decisions: decisions to leave out entries.
    """

    topics: StreamTopics
    routing: Routing = field(default_factory=Routing)
    inner_multi: bool = False
    client_timeout_ms: int = 0
    archives: Archives | None = None
    bounds: Bounds | None = None
    signer: Signer | None = None
    state_cache_bytes: int = STATE_CACHE_BYTES
    adopts: bool = False
    cap_requests: bool = False
    decisions: tuple[Decision, ...] = ()


class Worker:
    """Works on the keys of a job in one process, and keeps their states decoded."""

    def __init__(self, config: WorkerConfig, tuning: Tuning = DEFAULT_TUNING) -> None:
        self.config = config
        self.tuning = tuning
        self.states = StateStore(
            config.archives, adopts=config.adopts, cache_bytes=config.state_cache_bytes, tuning=tuning
        )
        new = partial(ShardState, inner_multi=config.inner_multi, tuning=tuning)
        snapshots = SnapshotCodec[ShardState](
            tuning.snapshot_min_bytes, state.has_new_topics, state.snapshot_content, state.settle, state.restore
        )
        self._shards = Kind[ShardState, ShardDelta](new, state.replay, state.append, snapshots)
        self._buckets = Kind[CoordinatorState, CoordinatorDelta](
            CoordinatorState, coordinator.replay, coordinator.append
        )
        self._letters = DeadLetters(config.topics, tuning.piece_bytes)
        self._asked = Asked(config.topics, config.client_timeout_ms, config.bounds and config.bounds.check)

    def work(
        self,
        parent: str,
        number: int,
        rows: InputRows,
        data: bytes | None,
        *,
        batch: int = 0,
        partition: int | None = None,
        observer: Observer | None = None,
    ) -> Generator[Output, None, bytes | None]:
        """Apply the rows of one key in a micro-batch.

        Args:
            parent: the parent topic; `COORDINATOR` for keys of the coordinator.
            number: the shard of the parent.
            rows: in any order.
            data: state bytes of the key, None for none.
            batch: number of the micro-batch.
            partition: state partition of the key; None if unknown.
            observer: sees each entry when it is read, and when it is applied.

        Yields:
            The output rows, about `Tuning.piece_bytes` at a time, because all of them may not fit in memory.

        Returns:
            The new state bytes of the key: None for none, `data` itself if nothing changed.
        """
        config, ordered, key = self.config, rows.ordered(), (parent, number)
        if key == (COORDINATOR, OVERSIZE):
            yield from self._letters.oversize(ordered, config.bounds)
            return data
        excluded = left_out(config.decisions, batch, partition) if config.decisions else {}
        columnar = self.tuning.columnar_min_topics
        reader = KeyReader(*key, config.topics, columnar, config.bounds, config.signer, excluded, observer)
        opened = self.states.open(key, data, batch)
        isolation = Isolation(partial(self._run, key, reader), self._letters.source_of, self._letters.reject)
        try:
            output, ran = yield from isolation.apply(ordered, opened.journal)
        except EntryFailed as error:
            named = decision_fields(error.source, batch, key, partition, str(error))
            raise EntriesLethal([named]) from error
        journal = opened.journal if ran is None else ran.journal
        # A tick that changes nothing is not reported.
        if ran is not None and (journal is not opened.journal or (rows.streams != CLOCK).any()):
            output.facts = facts(parent, number, ran.size, ordered)
        yield output
        return self.states.value(opened, journal)

    def _run(self, key: Key, reader: KeyReader, rows: InputRows, journal: Journal) -> Generator[Output, None, Ran]:
        """Apply some rows of a key."""
        output, found = Output(), reader.read(rows)
        events: Iterable[tuple[Source, Event]] = found.events
        if reader.observer is not None:
            events = reader.observer.follow(iter(found.events), len(found.events))
        if reader.excluded:
            own = [each for each in found.rejected if each.reason != Reason.QUARANTINED]
            places = rows.places(self.config.topics)
            found.rejected = own + reported(self.config.decisions, reader.excluded, key, places)
        if key[0] == COORDINATOR:
            ran = self._coordinate(key, journal, found, events, output)
        else:
            if journal.format < FORMAT_WITH_FILTERS:
                journal = yield from self._rename_shares(key, journal, rows, output)
            ran = yield from self._expand(key, journal, found, events, output)
            if ran.journal.retired and ran.journal.has_left_parts:  # the shard may not receive another event
                # All shards search at the same times.
                sweep = (int(rows.timestamps.max()) // SWEEP_MS + 1) * SWEEP_MS
                output.add(OutputKind.INPUT + Stream.CLOCK, coordinator.alarm(*key, sweep))
        if found.rejected:
            yield from self._letters.add(found.rejected, rows, output)
        return ran

    def _shard(self, key: Key) -> Shard:
        return Shard(*key, self.config.routing, self.config.inner_multi, self.config.cap_requests)

    def _load(self, kind: Kind[S, Any], key: Key, journal: Journal) -> S:
        """Return a decoded state. An exception here would be raised for each entry, so no entry is to blame.

        Raises:
            StateCorrupted: the state cannot be read.
        """
        try:
            return self.states.load(kind, key, journal)
        except NOT_OF_AN_ENTRY:
            raise
        except Exception as error:
            raise unreadable(key, error) from error

    def _rename_shares(
        self, key: Key, journal: Journal, rows: InputRows, output: Output
    ) -> Generator[Output, None, Journal]:
        """Give the rows of shares that an earlier release wrote the keys of this release, once."""
        former = self._load(self._shards, key, journal)
        if has_shares(former):
            source = self._letters.source_of(rows.take(slice(1)))
            journal, writer = replace(journal, format=FORMAT), UpdateWriter(key[0])
            for updates in renamed_rows(former, self._shard(key), source, self.tuning):
                yield from self._write(updates, writer, output)
        self.states.keep(key, journal, former)
        return journal

    def _expand(
        self, key: Key, journal: Journal, found: Reading, events: Iterable[tuple[Source, Event]], output: Output
    ) -> Generator[Output, None, Ran]:
        """Apply events to a shard."""
        shard, former = self._shard(key), self._load(self._shards, key, journal)
        steps = expand(former, events, shard, self.tuning)
        try:
            delta, problems, output.ignored = yield from self._write_all(steps, UpdateWriter(shard.parent), output)
        except Exception:  # which may have left an index half built
            self.states.keep(key, journal, former.without_indexes())
            raise
        found.rejected += problems
        for due, wanted in delta.alarms.items():
            if wanted:
                output.add(OutputKind.INPUT + Stream.CLOCK, coordinator.alarm(*key, due))
        is_changed = delta.added or delta.clients or delta  # nearly always one of the first two
        journal, size = self.states.save(self._shards, key, journal, former, delta if is_changed else None)
        if former.backfills:  # they continue with the next micro-batch
            output.add(OutputKind.INPUT + Stream.CLOCK, coordinator.wake(*key, 0))
        if found.suspects:
            # Without a group event, the entries of a group are read as names. The driver logs the texts.
            output.suspects = [
                (label(shard.parent), label(name), label(entry))
                for name, entry in found.suspects.items()
                if former.mode(name) is Mode.LITERAL and not former.group(name).bound_to
            ]
        if found.inquiries:
            for record in answers(found.inquiries, lambda each: answer_shard(each, former, shard, self._asked)):
                output.add(OutputKind.ANSWER, record)
        return Ran(output, journal, (len(former.topics), len(former.clients), size))

    def _write_all(
        self, steps: Generator[Updates, None, Expansion], writer: UpdateWriter, output: Output
    ) -> Generator[Output, None, Expansion]:
        """Add the updates of an expansion to the output, and return its result."""
        while True:
            try:
                updates = next(steps)
            except StopIteration as end:
                result: Expansion = end.value
                return result
            yield from self._write(updates, writer, output)

    def _write(self, updates: Updates, writer: UpdateWriter, output: Output) -> Iterator[Output]:
        """Add updates to the output, and yield it whenever it is full."""
        pieces = [updates] if isinstance(updates, list) else updates.pieces(self.tuning.column_row_bytes)
        for piece in pieces:
            output.add_updates(piece, writer, self.tuning.output_row_bytes)
            if output.size >= self.tuning.piece_bytes:
                yield output.drain()

    def _coordinate(
        self, key: Key, journal: Journal, found: Reading, events: Iterable[tuple[Source, Event]], output: Output
    ) -> Ran:
        """Apply events to a bucket of the coordinator."""
        config, former = self.config, self._load(self._buckets, key, journal)
        try:
            outcome = coordinator.follow(
                former,
                events,
                config.client_timeout_ms,
                inner_multi=config.inner_multi,
                max_later_bytes=self.tuning.end_bytes,
            )
        except Exception:
            self.states.keep(key, journal, former)
            raise
        for stream, record in outcome.records:
            value = record.value
            if config.signer is not None and value is not None and stream is not Stream.CLOCK:
                value = config.signer.sign(value)
            output.add(OutputKind.INPUT + stream, KafkaRecord(record.key, value))
        journal, size = self.states.save(
            self._buckets, key, journal, former, outcome.delta if outcome.changed else None
        )
        if found.inquiries:
            for record in answers(found.inquiries, lambda each: answer_coordinator(each, former, key[1], self._asked)):
                output.add(OutputKind.ANSWER, record)
        found.rejected += outcome.problems
        output.ignored = outcome.ignored
        return Ran(output, journal, (0, former.clients, size))


SWEEP_MS = 1_200_000
"""Milliseconds between two searches for parts to remove; ticks alone make 120 micro-batches meanwhile."""
