"""The work on one state key: rows of a micro-batch in, new state bytes and output rows out; no Spark in here."""

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from streaming import coordinator, state
from streaming.coordinator import COORDINATOR, OVERSIZE, CoordinatorState
from streaming.errors import EntriesLethal
from streaming.events.columns import Event
from streaming.events.model import Reason, Source, Stream, Tick, Wake
from streaming.events.routing import Routing
from streaming.expansion import Expansion, Updates, expand
from streaming.expansion.renamed import FORMAT_WITH_FILTERS, has_shares, renamed_rows
from streaming.inquiry.answering import Asked, Inquiry, answer_coordinator, answer_shard, answers
from streaming.quarantine.decisions import Decision, left_out, reported
from streaming.state import Shard, ShardState
from streaming.storage.journal import FORMAT, Journal
from streaming.subscription.client import Ignored
from streaming.tuning import DEFAULT_TUNING, Tuning
from streaming.updates.model import Problem
from streaming.updates.records import KafkaRecord, UpdateWriter
from streaming.worker.bounds import Bounds
from streaming.worker.cache import STATE_CACHE_BYTES, StateCache
from streaming.worker.facts import facts
from streaming.worker.failures import EntryFailed, decision_fields, no_entry_to_blame
from streaming.worker.isolation import Isolation, Ran
from streaming.worker.letters import DeadLetters
from streaming.worker.output import Output, OutputKind
from streaming.worker.reading import Entry, KeyReader, StreamTopics
from streaming.worker.renewal import Archives, adopted
from streaming.worker.rows import InputRows
from streaming.worker.signature import Signer
from streaming.worker.suspects import literal, noting, told
from streaming.worker.watchdog import Observer


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Settings of the job that the work depends on.

    Attributes:
        topics: Kafka topics of the input streams, in the order of `STREAMS`.
        routing: how lite topics are spread over shards.
        inner_multi: `**` may stand inside a pattern.
        client_timeout_ms: time without a request after which a client is ended; 0 for never.
        archives: places of the parts of states; None keeps each state in its value as a whole.
        bounds: bounds of what records may say; None for none.
        signer: signer of the records that the job writes to its own inputs; None takes everybody's for the job's own.
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


class _Result(NamedTuple):
    """New state of a key, and entries that could not be applied."""

    journal: Journal
    problems: list[Problem]
    ignored: Counter[Ignored]
    topics: int
    clients: int


class Worker:
    """Works on the keys of a job in one process, and keeps their states decoded."""

    def __init__(self, config: WorkerConfig, tuning: Tuning = DEFAULT_TUNING) -> None:
        self.config = config
        self.tuning = tuning
        self.states = StateCache(config.state_cache_bytes)
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
            observer: sees each entry when it is read.

        Yields:
            The output rows, about `Tuning.piece_bytes` at a time: those of a wide pattern need not fit into memory.

        Returns:
            The new state bytes of the key: None for none, `data` itself if nothing changed.
        """
        config, tuning, ordered = self.config, self.tuning, rows.ordered()
        if (parent, number) == (COORDINATOR, OVERSIZE):
            yield from self._letters.oversize(ordered, config.bounds)
            return data
        excluded = left_out(config.decisions, batch, partition) if config.decisions else None
        reader = KeyReader(
            parent,
            number,
            config.topics,
            tuning.columnar_min_topics,
            bounds=config.bounds,
            signer=config.signer,
            excluded=excluded,
        )
        archive = None if self.config.archives is None else self.config.archives.of(parent, number)
        former = adopted(archive) if data is None and self.config.adopts else data
        journal = Journal.open(former, archive, batch, self.tuning)

        def read(part: InputRows) -> Iterator[Entry]:
            entries = reader.read(part)
            return entries if observer is None else observer.follow(entries, len(part.streams))

        run = partial(self._run, (parent, number), read, excluded or {})
        isolation = Isolation(run, self._letters.source_of, self._letters.reject)
        try:
            output, ran = yield from isolation.apply(ordered, journal)
        except EntryFailed as error:
            named = decision_fields(error.source, batch, (parent, number), partition, str(error))
            raise EntriesLethal([named]) from error
        later = journal if ran is None else ran.journal
        if ran is not None and (rows.has_events or later is not journal):  # a tick that changes nothing is no news
            output.facts = facts(parent, number, (*ran.size, later.position.end), ordered)
        yield output
        if later is journal:
            return former
        # A key that has become empty must not begin with its adopted state once more.
        is_adopted = self.config.adopts and former is not None
        return later.kept if is_adopted else later.stored

    def _run(
        self,
        key: tuple[str, int],
        read: Callable[[InputRows], Iterator[Entry]],
        excluded: Mapping[tuple[str, int, int, int], Problem],
        rows: InputRows,
        journal: Journal,
    ) -> Generator[Output, None, Ran]:
        """Apply some rows of a key in one go."""
        output = Output()
        rejected: list[Problem] = []
        inquiries: list[Inquiry] = []
        events = _without_inquiries(_without_problems(read(rows), rejected), inquiries)
        parent, number = key
        if parent == COORDINATOR:
            result = self._coordinate(number, events, journal, output, inquiries)
        else:
            renamed = yield from self._rename_shares(key, journal, rows, output)
            result = yield from self._expand(key, events, renamed, output, inquiries)
            if result.journal.has_left_parts:
                result = result._replace(journal=result.journal.swept())
            if result.journal.has_left_parts:  # nobody may have anything more to say to this shard
                sweep = _time_to_sweep(int(rows.timestamps.max()))
                output.add(OutputKind.INPUT + Stream.CLOCK, coordinator.alarm(parent, number, sweep))
        if excluded:
            rejected = [each for each in rejected if each.reason != Reason.QUARANTINED]
            rejected += reported(self.config.decisions, excluded, key, rows.places(self.config.topics))
        yield from self._letters.add((*rejected, *result.problems), rows, output)
        output.ignored = result.ignored
        return Ran(output, result.journal, (result.topics, result.clients))

    def _shard(self, key: tuple[str, int]) -> Shard:
        return Shard(*key, self.config.routing, self.config.inner_multi, self.config.cap_requests)

    def _take(self, key: tuple[str, int], journal: Journal) -> ShardState:
        tuning, inner_multi = self.tuning, self.config.inner_multi
        with no_entry_to_blame(key):
            return self.states.take(
                key, journal, lambda: ShardState(inner_multi=inner_multi, tuning=tuning), state.replay
            )

    def _rename_shares(
        self, key: tuple[str, int], journal: Journal, rows: InputRows, output: Output
    ) -> Generator[Output, None, Journal]:
        """Give the rows of shares that an earlier release wrote the keys of this one, once."""
        if journal.format >= FORMAT_WITH_FILTERS:
            return journal
        former = self._take(key, journal)
        if has_shares(former):
            source = self._letters.source_of(rows.take(slice(1)))
            journal, writer = replace(journal, format=FORMAT), UpdateWriter(key[0])
            for updates in renamed_rows(former, self._shard(key), source, self.tuning):
                for _ in self._add_updates(updates, writer, output):
                    if output.size >= self.tuning.piece_bytes:
                        yield output.drain()
        self.states.put(key, journal, former)
        return journal

    def _expand(
        self,
        key: tuple[str, int],
        events: Iterable[tuple[Source, Event]],
        journal: Journal,
        output: Output,
        inquiries: list[Inquiry],
    ) -> Generator[Output, None, _Result]:
        """Apply events to a shard."""
        tuning = self.tuning
        shard, former = self._shard(key), self._take(key, journal)
        suspects: dict[str, str] = {}
        steps = expand(former, noting(events, suspects) if shard.is_first else events, shard, tuning)
        try:
            delta, problems, ignored = yield from self._write(steps, UpdateWriter(shard.parent), output)
        except Exception:  # which may have left an index half built
            self.states.put(key, journal, former.without_indexes())
            raise
        for due, wanted in delta.alarms.items():
            if wanted:
                output.add(OutputKind.INPUT + Stream.CLOCK, coordinator.alarm(*key, due))
        if delta:
            former.apply(delta)
            journal = state.append(journal, former, delta)
        if former.backfills:  # they go on with the next micro-batch
            output.add(OutputKind.INPUT + Stream.CLOCK, coordinator.wake(*key, 0))
        output.suspects = list(told(shard.parent, literal(suspects, former)))
        self._add_answers(answers(inquiries, lambda each: answer_shard(each, former, shard, self._asked)), output)
        self.states.put(key, journal, former)
        return _Result(journal, problems, ignored, len(former.topics), len(former.clients))

    def _write(
        self, steps: Generator[Updates, None, Expansion], writer: UpdateWriter, output: Output
    ) -> Generator[Output, None, Expansion]:
        """Add the updates of an expansion to the output, and return its result."""
        while True:
            try:
                updates = next(steps)
            except StopIteration as end:
                result: Expansion = end.value
                return result
            for _ in self._add_updates(updates, writer, output):
                if output.size >= self.tuning.piece_bytes:
                    yield output.drain()

    def _add_updates(self, updates: Updates, writer: UpdateWriter, output: Output) -> Iterator[None]:
        """Add updates to the output, and stop after each piece that may fill it."""
        if isinstance(updates, list):
            output.add_updates(updates, writer, self.tuning.output_row_bytes)
            yield
        else:
            for piece in updates.pieces(self.tuning.column_row_bytes):
                output.add_columns(piece, writer)
                yield

    def _coordinate(
        self,
        number: int,
        events: Iterable[tuple[Source, Event]],
        journal: Journal,
        output: Output,
        inquiries: list[Inquiry],
    ) -> _Result:
        """Apply events to a bucket of the coordinator."""
        key = (COORDINATOR, number)
        with no_entry_to_blame(key):
            former = self.states.take(key, journal, CoordinatorState, coordinator.replay)
        try:
            outcome = coordinator.follow(
                former,
                events,
                self.config.client_timeout_ms,
                inner_multi=self.config.inner_multi,
                max_later_bytes=self.tuning.end_bytes,
            )
        except Exception:
            self.states.put(key, journal, former)
            raise
        signer = self.config.signer
        for stream, (name, value) in outcome.records:
            if signer is not None and value is not None and stream is not Stream.CLOCK:
                value = signer.sign(value)  # noqa: PLW2901 - the same record, signed
            output.add(OutputKind.INPUT + stream, KafkaRecord(name, value))
        if outcome.changed:
            former.apply(outcome.delta)
            journal = coordinator.append(journal, former, outcome.delta)
        self._add_answers(
            answers(inquiries, lambda each: answer_coordinator(each, former, number, self._asked)), output
        )
        self.states.put(key, journal, former)
        return _Result(journal, outcome.problems, outcome.ignored, 0, former.clients)

    def _add_answers(self, records: Iterable[KafkaRecord | None], output: Output) -> None:
        for record in records:
            if record is not None:
                output.add(OutputKind.ANSWER, record)


SWEEP_MS = 1_200_000
"""Milliseconds between two looks for parts to remove; ticks alone make 120 micro-batches meanwhile."""


def _time_to_sweep(now: int) -> int:
    """Return the next of these looks, at the same time for all shards."""
    return (now // SWEEP_MS + 1) * SWEEP_MS


def _without_problems(entries: Iterable[Entry], problems: list[Problem]) -> Iterator[tuple[Source, Event]]:
    """Yield the events, and collect the problems."""
    for entry in entries:
        if isinstance(entry, Problem):
            problems.append(entry)
        else:
            yield entry


def _without_inquiries(
    events: Iterable[tuple[Source, Event]], inquiries: list[Inquiry]
) -> Iterator[tuple[Source, Event]]:
    """Yield the events, and collect the questions for whose answers somebody waits."""
    for source, event in events:
        if isinstance(event, Tick | Wake) and event.inquiry is not None:
            inquiry = Inquiry(source, event.inquiry)
            if inquiry.has_id and not inquiry.is_stale(time.time()):
                inquiries.append(inquiry)
        else:
            yield source, event
