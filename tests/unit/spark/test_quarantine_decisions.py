"""What the driver decides about entries that kill or hang workers, without Spark."""

import logging
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streaming.config import load
from streaming.errors import CheckpointMismatch, EntriesLethal, JobFailed
from streaming.kafka.facts import Offsets
from streaming.spark import checkpoint, quarantine
from streaming.spark.checkpoint import Agreement, QueryProgress
from streaming.spark.expand import NO_PRECAUTIONS, Precautions
from streaming.worker.quarantine import MAX_PER_HOUR, NOTE, Decision, Quarantine, now_ms
from tests.unit.spark.conftest import Markers

SETTINGS = load({"bootstrap_servers": "b:1", "checkpoint": "/c"})
AGREED = Agreement("id", 4)
ENTRY = {
    "topic": "t",
    "partition": 2,
    "offset": 12,
    "entry": 1,
    "timestamp": 5,
    "micro_batch": 7,
    "parent": "p",
    "number": 0,
    "reason": "it kills",
    "state_partition": 3,
}
DECISION = Decision("t", 2, 12, 1, 5, 7, "p", 0, "it kills")


def leave_out(kafka: Markers, *entries: dict[str, Any], delivery: str = "exactly-once") -> None:
    settings = SETTINGS.model_copy(update={"delivery": delivery})
    spark: Any = None
    admin: Any = kafka
    quarantine.leave_out(spark, settings, admin, AGREED, EntriesLethal(entries))


def noted(folder: Path) -> tuple[Decision, ...]:
    """Return the decisions without their times."""
    note = folder / NOTE
    decisions = Quarantine.parse(note.read_bytes()).decisions if note.exists() else ()
    return tuple(replace(each, decided=0) for each in decisions)


def test_partitions_that_have_written_the_micro_batch_are_exempt(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Their transactions are ended before the markers are read."""
    leave_out(Markers(8, 7, 8, 7), ENTRY)
    assert noted(folder) == (replace(DECISION, exempt=(0, 2)),)
    (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "t[2]@12#1 of micro-batch 7: it kills" in line.getMessage()
    assert "state partitions 0, 2 had applied it" in line.getMessage()


def test_without_transactions_no_partition_is_exempt(folder: Path) -> None:
    kafka = Markers(8, 8, 8, 8)
    leave_out(kafka, ENTRY, delivery="at-least-once")
    assert noted(folder) == (DECISION,)
    assert not kafka.ended


UNWRITTEN = (7, 7, 7, 7)
Step = tuple[tuple[int, ...], list[dict[str, Any]]]
"""Markers of the state partitions, and entries that kill."""

CASES: dict[str, tuple[list[Step], str | None, list[tuple[int, tuple[int, ...]]]]] = {
    "further entries": (
        [(UNWRITTEN, [ENTRY]), ((8, 7, 7, 7), [{**ENTRY, "offset": 13}, {**ENTRY, "offset": 14}])],
        None, [(12, ()), (13, (0,)), (14, (0,))],
    ),
    "an entry that two tasks have found": (
        [(UNWRITTEN, [ENTRY]), ((7, 7, 8, 7), [{**ENTRY, "state_partition": 2}])], None, [(12, ())],
    ),
    "an entry that kills where it was written": (
        [((7, 7, 7, 8), [ENTRY])], "state partition 3, which has already written", [],
    ),
    "an entry that all have written": ([((8, 8, 8, 8), [ENTRY])], "state partition 3, which has already written", []),
    "an entry that kills an exempt partition": (
        [((8, 7, 7, 7), [ENTRY]), (UNWRITTEN, [{**ENTRY, "state_partition": 0}])],
        "state partition 0, which has already written", [(12, (0,))],
    ),
    "a key that kills without its entries": ([(UNWRITTEN, [])], "whatever entry is left out", []),
}  # fmt: skip
"""Steps, the failure that ends the last one, and the decisions that are noted, by offset with exempt partitions."""


@pytest.mark.parametrize("case", CASES)
def test_entries_are_left_out_once_or_end_the_job(folder: Path, case: str) -> None:
    steps, failure, kept = CASES[case]
    for number, (counts, entries) in enumerate(steps, 1):
        fails = failure is not None and number == len(steps)
        with pytest.raises(JobFailed, match=failure) if fails else nullcontext():
            leave_out(Markers(*counts), *entries)
    assert [(each.offset, each.exempt) for each in noted(folder)] == kept


def test_too_many_decisions_within_an_hour_end_the_job(folder: Path) -> None:
    many = tuple(replace(DECISION, offset=1_000 + number, decided=now_ms()) for number in range(MAX_PER_HOUR))
    write(folder, Quarantine(many).dump())
    with pytest.raises(JobFailed, match="100 entries within an hour"):
        leave_out(Markers(*UNWRITTEN), ENTRY)
    assert len(noted(folder)) == MAX_PER_HOUR


def test_a_damaged_note_is_refused(folder: Path) -> None:
    write(folder, b"{")
    with pytest.raises(CheckpointMismatch, match=r"/c/quarantine\.json cannot be read"):
        leave_out(Markers(*UNWRITTEN), ENTRY)


def write(folder: Path, note: bytes) -> None:
    folder.mkdir()
    (folder / NOTE).write_bytes(note)


# Starts.


def start(monkeypatch: pytest.MonkeyPatch, read: Offsets, planned: Offsets) -> Precautions:
    progress = QueryProgress(begun=True, read=read, planned=planned, micro_batches=8)
    monkeypatch.setattr(checkpoint, "progress", lambda *_: progress)
    spark: Any = None
    return quarantine.precautions(spark, SETTINGS)


def test_the_second_start_on_one_micro_batch_tries_its_keys_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start on committed micro-batches takes no precautions."""
    write(folder, Quarantine((DECISION,)).dump())
    assert start(monkeypatch, {"t": {2: 20}}, {"t": {2: 20}}) == NO_PRECAUTIONS
    looks = [start(monkeypatch, {"t": {2: 12}}, {"t": {2: 20}}) for _ in range(3)]
    assert [(each.decisions, each.repeated) for each in looks] == [((DECISION,), number) for number in (-1, 7, 7)]
    assert [each.bounded for each in looks] == [True, False, True]


def test_entries_in_the_text_of_a_failed_task_are_read() -> None:
    text = (
        f"PythonException: Traceback\n  File x\nstreaming.errors.EntriesLethal: {EntriesLethal([ENTRY])}\n\n\tat java"
    )
    found = quarantine.lethal(text)
    assert found is not None
    assert found.entries == [ENTRY]
    assert quarantine.lethal("PythonException: something else") is None
