"""Compare inputs, state and updates, and classify each difference."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import orjson

from streaming.errors import StateCorrupted
from streaming.kafka.reader import Partition, Span
from streaming.operations.verify.findings import DamagedState, Difference, Fault, Findings, RowName, UpdateRecord
from streaming.operations.verify.ledger import LastRecord, Ledger, LedgerRow, Says
from streaming.operations.verify.values import CONTRADICTORY, ClientName, RequestLog, name_of, unexplained
from streaming.operations.verify.witnesses import (
    InputsHeard,
    JobView,
    Moment,
    Notes,
    Progress,
    UpdatesHeard,
    hear_inputs,
    hear_state,
    hear_updates,
)
from streaming.tuning import DEFAULT_TUNING

_ATTEMPTS: Final = 3
"""Attempts to read a state before Spark deletes it."""

_KEPT_MICRO_BATCHES: Final = DEFAULT_TUNING.retained_micro_batches // 2
"""Micro-batches that the job may commit while a state is read, without deleting it."""


@dataclass(frozen=True, slots=True)
class Look:
    """Result of one comparison.

    Attributes:
        moment: the moment that was compared.
        heard: end of the updates that were read.
    """

    moment: Moment
    heard: UpdatesHeard
    findings: Findings


def look(job: JobView, folder: Path, progress: Progress, *, inputs: bool, doubted: Collection[bytes] = ()) -> Look:
    """Compare the sources once.

    Args:
        job: the job.
        folder: folder for temporary files.
        progress: called with the progress.
        inputs: also read the inputs.
        doubted: keys of rows whose ADD had a wrong value before.

    Raises:
        NotVerified: the job has not committed a micro-batch, or its checkpoint cannot be read.
        TopicUnreadable: Kafka does not answer, or lacks a topic.
    """
    with TemporaryDirectory(dir=folder) as temporary, Ledger(Path(temporary) / "rows.sqlite") as ledger:
        moment, damaged = _state(job, ledger, Path(temporary), progress)
        heard = hear_updates(job, moment, ledger, progress)
        told = InputsHeard()
        findings = Findings(moment.batches.committed, damaged=damaged)
        values = _Values(job, ledger, doubted)
        with RequestLog(Path(temporary) / "requests.sqlite", values.clients if inputs else ()) as log:
            if inputs:
                told = hear_inputs(job, moment, Notes(ledger, log), Path(temporary) / "replay", progress)
            has_inputs = inputs and told.missing is None
            wrong = values.wrong(log, told) if has_inputs else values.wrong()
        findings.notes = list(_notes(heard, told))
        counts = ledger.counts()
        findings.rows = {
            "inputs": counts[Says.INPUTS] if has_inputs else None,
            "state": counts[Says.STATE],
            "updates": counts[Says.UPDATES],
        }
        findings.in_flight = ledger.count_in_flight()
        found = list(_Judge(job, damaged, told, inputs=has_inputs).differences(ledger, wrong))
    findings.differences = _with_records(job, found)
    return Look(moment, heard, findings)


def _state(job: JobView, ledger: Ledger, folder: Path, progress: Progress) -> tuple[Moment, list[DamagedState]]:
    """Read the state, again if Spark deleted it because the job committed too much meanwhile."""
    attempt = 0
    while True:
        attempt += 1
        moment = job.moment()
        ledger.clear()
        try:
            damaged = hear_state(job, moment, ledger, folder / f"state-{attempt}", progress)
        except StateCorrupted as error:
            damaged = [DamagedState("", -1, str(error))]
        went_on = job.checkpoint.micro_batches().committed - moment.batches.committed
        if not damaged or went_on < _KEPT_MICRO_BATCHES or attempt == _ATTEMPTS:
            return moment, damaged


def _notes(heard: UpdatesHeard, told: InputsHeard) -> Iterator[str]:
    if told.missing is not None:
        yield (f"the beginning of {told.missing} is gone, so only state and updates are compared")
    if heard.foreign:
        yield f"{heard.foreign:,} records of the updates topic are not updates, and are ignored"


class _Values:
    """Values of the rows that are in state and updates."""

    def __init__(self, job: JobView, ledger: Ledger, doubted: Collection[bytes]) -> None:
        self._rules = job.rules
        self._ledger = ledger
        self._doubted = doubted

    @property
    def clients(self) -> set[ClientName]:
        """Clients with an ADD that differs from the state, whose requests must be checked."""
        return {ClientName(*name_of(row.key)[:3]) for row in self._ledger.doubts() if not self._is_decided(row)}

    def wrong(self, log: RequestLog | None = None, told: InputsHeard | None = None) -> list[LedgerRow]:
        """Return the rows whose ADD has a provably wrong value.

        Args:
            log: requests of the clients; None if the inputs were not read.
            told: result of reading the inputs.
        """
        found = list(filter(self._is_decided, self._ledger.doubts()))
        if log is not None and told is not None:
            open_ones = (row for row in self._ledger.doubts() if not self._is_decided(row))
            judged = (row for row in open_ones if name_of(row.key)[:2] not in told.refused)
            found += unexplained(self._rules, log, judged)
        return found

    def _is_decided(self, row: LedgerRow) -> bool:
        return row.said == CONTRADICTORY or row.key in self._doubted


class _Judge:
    """Classifier of differences."""

    def __init__(self, job: JobView, damaged: Iterable[DamagedState], told: InputsHeard, *, inputs: bool) -> None:
        self._routing = job.rules.routing
        self._damaged = {(each.parent, each.shard) for each in damaged}
        self._is_lost = ("", -1) in self._damaged
        self._refused = told.refused
        self._inputs = inputs

    def differences(self, ledger: Ledger, wrong: Collection[LedgerRow]) -> Iterator[Difference]:
        """Yield the differences in order of their keys, without their records.

        Args:
            ledger: table of rows.
            wrong: rows whose ADD has a wrong value.
        """
        known = set()
        found = []
        for entry in ledger.disagreements(inputs=self._inputs):
            known.add(entry.key)
            difference = self._difference(entry)
            if difference is not None:
                found.append(difference)
        for entry in wrong:
            if entry.key not in known:
                inputs = bool(entry.says & Says.INPUTS) if self._inputs else None
                place = None if entry.last is None else UpdateRecord(*entry.last, 0, None)
                row = name_of(entry.key)
                found.append(Difference(entry.key, row, Fault.WRONG_VALUE, inputs, True, True, place))
        yield from sorted(found, key=lambda difference: difference.key)

    def _difference(self, entry: LedgerRow) -> Difference | None:
        row = name_of(entry.key)
        inputs = bool(entry.says & Says.INPUTS) if self._inputs else None
        state: bool | None = bool(entry.says & Says.STATE)
        updates = bool(entry.says & Says.UPDATES)
        if self._is_lost or self._is_damaged(row):
            state = None
        fault = self._fault(row, inputs=inputs, state=state, updates=updates)
        place = None if entry.last is None else UpdateRecord(*entry.last, 0, None)
        return None if fault is None else Difference(entry.key, row, fault, inputs, state, updates, place)

    def _is_damaged(self, row: RowName) -> bool:
        return (row.parent, self._routing.shard_of(row.parent, row.lite_topic)) in self._damaged

    def _fault(self, row: RowName, *, inputs: bool | None, state: bool | None, updates: bool) -> Fault | None:
        if state is None:
            return None if inputs in (None, updates) else Fault.STATE_DAMAGED
        if inputs in (None, state):
            return Fault.SURPLUS_UPDATE if updates else Fault.MISSING_UPDATE
        if (row.parent, row.group) in self._refused:
            return Fault.QUOTA_ORDER
        return Fault.STATE_DIFFERS


def _with_records(job: JobView, differences: list[Difference]) -> list[Difference]:
    """Return the differences with the last record of each row in the updates topic."""
    places = {LastRecord(each.record.partition, each.record.offset) for each in differences if each.record is not None}
    records = records_at(job, places)
    return [
        each
        if each.record is None
        else replace(each, record=records.get(LastRecord(each.record.partition, each.record.offset)))
        for each in differences
    ]


def records_at(job: JobView, places: Iterable[LastRecord]) -> Mapping[LastRecord, UpdateRecord]:
    """Return the records of the updates topic at some places, without records removed by compaction."""
    wanted = set(places)
    spans: dict[Partition, Span] = {}
    for number, offset in wanted:
        where = Partition(job.updates, number)
        start, end = spans.get(where, Span(offset, offset + 1))
        spans[where] = Span(min(start, offset), max(end, offset + 1))
    found = {}
    for block in job.reader.read(spans):
        for message in block:
            place = LastRecord(message.partition() or 0, message.offset() or 0)
            if place in wanted:
                value = message.value()
                found[place] = UpdateRecord(*place, message.timestamp()[1], _update(value))
    return found


def _update(value: bytes | None) -> dict[str, Any] | None:
    """Return an update, or an empty one if the value is not a JSON object."""
    if value is None:
        return None
    try:
        update = orjson.loads(value)
    except orjson.JSONDecodeError:
        return {}
    return update if isinstance(update, dict) else {}
