"""Entries that the job leaves out: the note in the checkpoint, and what a worker makes of it."""

import dataclasses
from typing import Any

import pytest

from streaming.kafka.facts import EntryPlace
from streaming.records.model import Reason
from streaming.tuning import Tuning
from streaming.worker.quarantine import MAX_PER_HOUR, Decision, Quarantine
from streaming.worker.rows import InputRow, OutputKind
from streaming.worker.worker import Worker, WorkerConfig
from tests.support.events import WILD, created, replace
from tests.support.simulator import TOPICS as NAMES
from tests.support.simulator import rows_of
from tests.support.states import GROUPS, HOME, SUBSCRIPTIONS, TOPICS, Written, row, work

BATCH = 7


SUBSCRIBED = [row(GROUPS, WILD), row(SUBSCRIPTIONS, replace("*"))]
CREATED = [row(TOPICS, created(f"t{number}"), number) for number in range(4)]


def decided(stream: int, offset: int = 0, **changes: Any) -> Decision:
    """Return the decision to leave out an entry, found in the first shard of `p`."""
    found = Decision(
        NAMES[stream], 0, offset, 0, 1_000 + offset, BATCH, "p", 0, "two workers were killed at this entry"
    )
    return dataclasses.replace(found, **changes)


def worked(
    rows: list[InputRow],
    *decisions: Decision,
    key: tuple[str, int] = ("p", 0),
    partition: int = 1,
    batch: int = BATCH,
    data: bytes | None = None,
    many: float = 32,
) -> tuple[bytes | None, Written]:
    worker = Worker(WorkerConfig(NAMES, decisions=decisions), Tuning(columnar_min_topics=many))
    return work(*key, rows, data, worker, batch=batch, partition=partition)


def test_an_entry_is_left_out_and_reported() -> None:
    state, output = worked([*SUBSCRIBED, *CREATED], decided(TOPICS, 2))
    assert output.counts == {OutputKind.ADD: 3, OutputKind.DEAD_LETTER: 1}
    (letter,) = output.letters
    assert letter["reason"] == Reason.QUARANTINED
    assert "two workers were killed" in letter["message"]
    assert "liteTopic" in letter["original"]
    assert state == worked([*SUBSCRIBED, *CREATED[:2], CREATED[3]])[0]


@pytest.mark.parametrize("place", [0, 2, 3])
def test_topics_by_column_are_the_same_as_one_by_one(place: int) -> None:
    whole = [*SUBSCRIBED, *CREATED]
    state, output = worked(whole, decided(TOPICS, place), many=2)
    again, one_by_one = worked(whole, decided(TOPICS, place), many=100)
    assert state == again
    assert rows_of(output) == rows_of(one_by_one)


@pytest.mark.parametrize(("key", "letters"), [(("p", 0), 1), (("p", 1), 0), (HOME, 0)])
def test_the_key_that_the_decision_names_reports_the_entry(key: tuple[str, int], letters: int) -> None:
    """All others leave it out in silence."""
    _, output = worked([SUBSCRIBED[1]], decided(SUBSCRIPTIONS), key=key)
    assert output.counts[OutputKind.DEAD_LETTER] == letters


def test_a_partition_that_had_written_the_micro_batch_repeats_it_to_the_byte() -> None:
    rows = [*SUBSCRIBED, *CREATED]
    exempt = decided(TOPICS, 2, exempt=(1, 4))
    before = worked(rows)
    assert worked(rows, exempt) == before
    assert worked(rows, exempt, partition=4) == before
    assert worked(rows, exempt, partition=2) != before


def test_a_repeated_micro_batch_leaves_out_the_same() -> None:
    rows = [*SUBSCRIBED, *CREATED]
    first = worked(rows, decided(TOPICS, 2))
    state, again = worked(rows[::-1], decided(TOPICS, 2))
    assert state == first[0]
    assert rows_of(again) == rows_of(first[1])


def test_decisions_about_other_entries_change_nothing() -> None:
    rows = [*SUBSCRIBED, *CREATED]
    others = [decided(TOPICS, 9), decided(TOPICS, 2, partition=1), decided(TOPICS, 2, micro_batch=BATCH + 1)]
    assert worked(rows, *others) == worked(rows)


def test_a_note_is_read_as_it_was_written() -> None:
    noted = Quarantine().with_(decided(TOPICS, 2, exempt=(0, 3))).with_(decided(SUBSCRIPTIONS, by_hand=True)).started(7)
    assert Quarantine.parse(noted.dump()) == noted
    assert Quarantine.parse(None) == Quarantine()


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"decisions": [{}], "micro_batch": 1, "starts": 0}'])
def test_a_damaged_note_is_an_error(content: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        Quarantine.parse(content)


def test_starts_on_one_micro_batch_are_counted() -> None:
    noted = Quarantine().started(7).started(7)
    assert (noted.micro_batch, noted.starts) == (7, 2)
    assert noted.started(8).starts == 1


def test_only_unread_entries_go_to_the_workers() -> None:
    noted = Quarantine((decided(TOPICS, 2), decided(TOPICS, 5), decided(SUBSCRIPTIONS)))
    assert noted.unread({NAMES[TOPICS]: {0: 5}}) == noted.decisions[1:]
    assert noted.without(EntryPlace(NAMES[TOPICS], 0, 5, 0)).decisions == (noted.decisions[0], noted.decisions[2])


def test_the_job_may_leave_out_so_many_entries_an_hour() -> None:
    now = 10_000_000
    many = tuple(decided(TOPICS, number, decided=now - number) for number in range(MAX_PER_HOUR))
    assert Quarantine(many).is_full(now)
    assert not Quarantine(many[1:]).is_full(now)
    assert not Quarantine(tuple(dataclasses.replace(each, by_hand=True) for each in many)).is_full(now)
    assert not Quarantine(many).is_full(now + 3_600_000)
