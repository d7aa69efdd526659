"""Compare inputs, state and updates, and classify each difference."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import orjson

from streaming.errors import StateCorrupted
from streaming.kafka.reader import Partition, Span
from streaming.operations.verify.findings import DamagedState, Difference, Fault, Findings, UpdateRecord
from streaming.operations.verify.ledger import Ledger, LedgerRow, Says
from streaming.operations.verify.values import CONTRADICTORY, ClientName, RequestLog, name_of, unexplained
from streaming.operations.verify.witnesses import (
    JobView,
    Moment,
    Progress,
    hear_inputs,
    hear_state,
    hear_updates,
    missing_input,
)
from streaming.tuning import DEFAULT_TUNING

_ATTEMPTS: Final = 3
"""Attempts to read a state before Spark deletes it."""

_KEPT_MICRO_BATCHES: Final = DEFAULT_TUNING.retained_micro_batches // 2
"""Micro-batches that the job may commit while a state is read, without deleting it."""


@dataclass(frozen=True, slots=True)
class Look:
    """Result of one comparison, and the end of the updates that were read."""

    moment: Moment
    ends: dict[Partition, int]
    findings: Findings


def look(job: JobView, folder: Path, progress: Progress, *, inputs: bool, doubted: Collection[bytes] = ()) -> Look:
    """Compare the sources once. Rows in `doubted` had a wrong value before.

    Raises:
        NotVerified: the job has not committed a micro-batch, or its checkpoint cannot be read.
        TopicUnreadable: Kafka does not answer, or lacks a topic.
    """

    def is_decided(row: LedgerRow) -> bool:
        return row.said == CONTRADICTORY or row.key in doubted

    with TemporaryDirectory(dir=folder) as temporary, Ledger(Path(temporary) / "rows.sqlite") as ledger:
        moment, damaged = _state(job, ledger, Path(temporary), progress)
        ends, foreign = hear_updates(job, moment, ledger, progress)
        wrong = list(filter(is_decided, ledger.doubts()))
        missing = missing_input(job) if inputs else None
        refused = None
        if inputs and missing is None:
            clients = {ClientName(*name_of(row.key)[:3]) for row in ledger.doubts() if not is_decided(row)}
            with RequestLog(Path(temporary) / "requests.sqlite", clients) as log:
                refused = hear_inputs(job, moment, ledger, log, Path(temporary) / "replay", progress=progress)
                rows = (row for row in ledger.doubts() if not is_decided(row))
                wrong += unexplained(job.rules, log, (row for row in rows if name_of(row.key)[:2] not in refused))
        found = _differences(job, ledger, damaged, wrong, refused)
        counts = ledger.counts()
        findings = Findings(
            moment.batches.committed,
            {
                "inputs": None if refused is None else counts[Says.INPUTS],
                "state": counts[Says.STATE],
                "updates": counts[Says.UPDATES],
            },
            ledger.count_in_flight(),
            damaged=damaged,
        )
    if missing is not None:
        findings.notes.append(f"the beginning of {missing} is gone, so only state and updates are compared")
    if foreign:
        findings.notes.append(f"{foreign:,} records of the updates topic are not updates, and are ignored")
    findings.differences = _with_records(job, found)
    return Look(moment, ends, findings)


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


def _differences(
    job: JobView,
    ledger: Ledger,
    damaged: Iterable[DamagedState],
    wrong: Iterable[LedgerRow],
    refused: Collection[tuple[str, str]] | None,
) -> list[Difference]:
    """Return the differences in order of their keys. `refused` is None if the inputs were not read."""
    lost = {(each.parent, each.shard) for each in damaged}
    found: dict[bytes, Difference | None] = {}
    for key, says, last, _ in ledger.disagreements(inputs=refused is not None):
        row = name_of(key)
        shard = row.parent, job.rules.routing.shard_of(row.parent, row.lite_topic)
        inputs = None if refused is None else bool(says & Says.INPUTS)
        state = bool(says & Says.STATE) if lost.isdisjoint((shard, ("", -1))) else None
        updates = bool(says & Says.UPDATES)
        fault: Fault | None
        if state is None:
            fault = None if inputs in (None, updates) else Fault.STATE_DAMAGED
        elif inputs in (None, state):
            fault = Fault.SURPLUS_UPDATE if updates else Fault.MISSING_UPDATE
        else:
            fault = Fault.QUOTA_ORDER if (row.parent, row.group) in (refused or ()) else Fault.STATE_DIFFERS
        place = None if last is None else UpdateRecord(*last, 0, None)
        found[key] = None if fault is None else Difference(key, row, fault, inputs, state, updates, place)
    for key, says, last, _ in wrong:
        if key not in found:
            inputs = None if refused is None else bool(says & Says.INPUTS)
            place = None if last is None else UpdateRecord(*last, 0, None)
            found[key] = Difference(key, name_of(key), Fault.WRONG_VALUE, inputs, True, True, place)
    return sorted(filter(None, found.values()), key=lambda difference: difference.key)


def _with_records(job: JobView, differences: list[Difference]) -> list[Difference]:
    """Return the differences with the last record of each row in the updates topic; compaction may have removed it."""
    wanted = {each.record[:2] for each in differences if each.record is not None}
    spans: dict[Partition, Span] = {}
    for number, offset in wanted:
        where = Partition(job.updates, number)
        start, end = spans.get(where, Span(offset, offset + 1))
        spans[where] = Span(min(start, offset), max(end, offset + 1))
    found: dict[tuple[int, int], UpdateRecord] = {}
    for block in job.reader.read(spans):
        for message in block:
            place = message.partition() or 0, message.offset() or 0
            if place in wanted:
                found[place] = UpdateRecord(*place, message.timestamp()[1], _update(message.value()))
    return [each if each.record is None else replace(each, record=found.get(each.record[:2])) for each in differences]


def _update(value: bytes | None) -> dict[str, Any] | None:
    """Return an update, or an empty one if the value is not a JSON object."""
    if value is None:
        return None
    try:
        update = orjson.loads(value)
    except orjson.JSONDecodeError:
        return {}
    return update if isinstance(update, dict) else {}
