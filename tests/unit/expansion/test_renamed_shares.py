"""Rows of MQTT shares that an earlier release wrote under the name of the share alone."""

import json
from typing import Any

import pytest

from streaming.records.model import BIND_TOPIC, QUOTA, WILDCARD
from streaming.storage.journal import FORMAT
from streaming.tuning import Tuning
from streaming.worker.rows import InputRow, OutputKind
from streaming.worker.worker import Worker, WorkerConfig
from tests.support.events import created, deleted, replace, with_attributes
from tests.support.simulator import TOPICS as NAMES
from tests.support.states import GROUPS, SUBSCRIPTIONS, TOMBSTONE, TOPICS, Written, row, work

FORMAT_AT = 2
"""Place of the format's number in a state value."""


def asks(client: str, *entries: str, offset: int, **fields: Any) -> InputRow:
    return row(SUBSCRIPTIONS, replace(*entries, client=client, dialect="mqtt", **fields), offset)


def changes(output: Written) -> list[tuple[str, ...]]:
    """Op, client, topic and part of each update, in order."""
    found: list[tuple[str, ...]] = []
    for kind, key in zip(output.kinds, output.keys, strict=True):
        if kind in (OutputKind.ADD, OutputKind.REMOVE):
            _, _, client, topic, *part = json.loads(key)
            found.append((kind, client, topic, *part))
    return found


def former_release(*rows: InputRow, worker: Worker | None = None, attributes: dict[str, str] | None = None) -> bytes:
    """The state after some rows, as a release with the former format wrote it."""
    group = with_attributes({BIND_TOPIC: "p", WILDCARD: "true", **(attributes or {})})
    data, _ = work("p", 0, [row(GROUPS, group, 0), *rows], None, worker or Worker(WorkerConfig(NAMES)))
    assert data is not None
    return data[:FORMAT_AT] + b"\x05" + data[FORMAT_AT + 2 :]  # without the complement


def taken_over(data: bytes, *rows: InputRow, tuning: Tuning | None = None) -> tuple[bytes, Written]:
    worker = Worker(WorkerConfig(NAMES), tuning or Tuning())
    later, output = work("p", 0, rows, data, worker, batch=7)
    assert later is not None
    return later, output


ADD, REMOVE = OutputKind.ADD, OutputKind.REMOVE
SHARED = [
    asks("c", "$share/s/t", "$share/s/+", "plain", offset=1),
    asks("d", "$share/s/+", offset=2),
    row(TOPICS, created("t"), 3),
    row(TOPICS, created("plain"), 4),
]
RENAMED = [
    (ADD, "c", "t", "share:s/t"), (ADD, "c", "t", "share:s/+"), (ADD, "d", "t", "share:s/+"),
    (REMOVE, "c", "t", "share:s"), (REMOVE, "d", "t", "share:s"),
    (ADD, "c", "plain", "share:s/+"), (ADD, "d", "plain", "share:s/+"),
    (REMOVE, "c", "plain", "share:s"), (REMOVE, "d", "plain", "share:s"),
]  # fmt: skip


@pytest.mark.rule("old-shares")
def test_the_first_micro_batch_renames_the_rows_of_a_shard_once() -> None:
    """Rows without a share stay as they are, and so does everything in a second micro-batch."""
    later, output = taken_over(former_release(*SHARED), row(TOPICS, created("u"), 5))
    born = [(ADD, "c", "u", "share:s/+"), (ADD, "d", "u", "share:s/+")]
    found = changes(output)
    assert sorted(found[: len(RENAMED)]) == sorted(RENAMED)
    assert sorted(found[len(RENAMED) :]) == sorted(born)
    assert output.kinds.count(TOMBSTONE) == 4
    assert later[FORMAT_AT] == FORMAT
    _, again = taken_over(later, row(TOPICS, created("v"), 6))
    assert {topic for _, _, topic, *_ in changes(again)} == {"v"}


def test_the_records_name_share_and_filter_and_are_repeated_to_the_byte() -> None:
    data = former_release(*SHARED)
    _, output = taken_over(data, row(TOPICS, created("t"), 5))
    values = {key: json.loads(value) for key, value in zip(output.keys, output.payloads, strict=True) if value}
    added, removed = (values[f'["p","g","c","t","{part}"]'.encode()] for part in ("share:s/t", "share:s"))
    assert (added["share"], added["filter"], added["patterns"], added["cause"]) == ("s", "t", ["t"], "REPAIRED")
    assert (removed["share"], removed["patterns"], removed.get("filter")) == ("s", ["+", "t"], None)
    assert added["source"] == {"topic": NAMES[TOPICS], "partition": 0, "offset": 5, "entry": 0, "timestamp": 1_005}
    _, again = taken_over(data, row(TOPICS, created("t"), 5))
    assert (again.keys, again.payloads) == (output.keys, output.payloads)


def test_an_event_of_the_same_micro_batch_comes_after_the_rename() -> None:
    _, output = taken_over(former_release(*SHARED), row(TOPICS, deleted("t"), 5))
    found = changes(output)
    for change in [(client, "t", "share:s/+") for client in "cd"]:
        assert found.index((ADD, *change)) < found.index((REMOVE, *change))


def test_topics_beyond_a_quota_have_no_row_to_rename() -> None:
    topics = [row(TOPICS, created(f"t{number}"), 5 + number) for number in range(4)]
    data = former_release(asks("c", "$share/s/+", offset=1), *topics, attributes={QUOTA: "2"})
    _, output = taken_over(data, row(TOPICS, created("t0"), 20))
    assert {topic for _, _, topic, *_ in changes(output)} == {"t0", "t1"}


def test_many_rows_are_written_in_pieces() -> None:
    topics = [row(TOPICS, created(f"t{number}"), 5 + number) for number in range(40)]
    data = former_release(asks("c", "$share/s/+", offset=1), *topics)
    worker = Worker(WorkerConfig(NAMES), Tuning(updates_per_chunk=4, piece_bytes=1_000, output_row_bytes=500))
    _, output = work("p", 0, [row(TOPICS, created("t0"), 90)], data, worker)
    assert len(changes(output)) == 80


def test_a_state_without_shares_is_left_alone() -> None:
    """Nothing is written until something changes."""
    data = former_release(asks("c", "+", offset=1), row(TOPICS, created(), 2))
    later, output = taken_over(data, row(TOPICS, created(), 3))
    assert (later, changes(output)) == (data, [])


@pytest.mark.parametrize("malformed", ["$share/g", "$share//x", "$share/g/", "$share/+/x"])
def test_a_malformed_share_of_an_earlier_release_is_dropped(malformed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a valid filter that matched nothing; its client keeps its other entries, and never gets everything."""
    with monkeypatch.context() as earlier:
        earlier.setattr("matcher.dialects.mqtt._flaw_of_share", lambda _: None)
        earlier.setattr("matcher.dialects.mqtt.shared", lambda _: None)
        earlier.setattr("streaming.state.interests.shared", lambda _: None)
        data = former_release(asks("c", malformed, "a", offset=1), asks("d", malformed.upper(), malformed, offset=2))
    from streaming.state.group import _PATTERN_PROBLEMS  # noqa: PLC0415 - a cache that this test has filled

    _PATTERN_PROBLEMS.clear()
    later, output = taken_over(data, row(TOPICS, created("a"), 5), row(TOPICS, created(), 6))
    assert changes(output) == [(ADD, "c", "a")]
    _, output = taken_over(later, asks("c", "b", offset=7), asks("d", offset=8, action="COMPLETE_REMOVE"))
    assert changes(output) == [(REMOVE, "c", "a")]
