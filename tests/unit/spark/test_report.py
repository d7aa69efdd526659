"""What the log says of micro-batches, and at which level."""

import json
import logging
from typing import Any
from unittest.mock import MagicMock

import pytest

from streaming.spark.monitoring import Report, add_up


def progress(number: int, records: int, counts: dict[str, int] | None = None) -> MagicMock:
    """Return the progress of a micro-batch, as Spark's JVM gives it."""
    rows = [json.dumps(counts)] if counts else []
    found: dict[str, Any] = {"batchId": number, "numInputRows": records, "durationMs": {"triggerExecution": 7}}
    if records:
        found["sink"] = {"metrics": {"counts": f"[{','.join(rows)}]"}}
    return MagicMock(**{"batchId.return_value": number, "json.return_value": json.dumps(found)})


def query_of(recent: list[MagicMock]) -> Any:
    """Return a query with the progress of its last micro-batches."""
    query = MagicMock()
    query._jsq.lastProgress.side_effect = lambda: recent[-1] if recent else None
    query._jsq.recentProgress.return_value = recent
    return query


def test_counts_are_sums_over_the_keys() -> None:
    facts = ["p", 0, 1, 2, 3, [4], 1.0, [[2, 0, 4]]]
    rows = [{"add:SUBSCRIBED": 1, "ignored:stale-version": 3, "facts": facts}, {"ignored:stale-version": 4}]
    total, keys = add_up({"sink": {"metrics": {"counts": json.dumps(rows)}}})
    assert total == {"add:SUBSCRIBED": 1, "ignored:stale-version": 7}
    assert [list(each) for each in keys] == [facts]
    assert add_up({}) == ({}, [])


FAILURES = {f'failure:["t",0,{offset},2,"TypeError at x.py:{offset}"]': 1 for offset in (7, 5)}


NOT_APPLIED = (
    "9 entries are not applied, with a dead letter each; the first is in t, partition 0, offset 5, at position "
    "2 of its record: TypeError at x.py:5"
)


@pytest.mark.parametrize(
    ("recent", "lines"),
    [
        (
            [
                progress(3, 5, {"remove:UNSUBSCRIBED": 1, "add:TOPIC_CREATED": 2}),
                progress(4, 1, {"dead-letter:not-json": 1}),
            ],
            [
                (logging.INFO, "micro-batch 3: 5 records in 7 ms: 2 add, 1 remove"),
                (logging.INFO, "micro-batch 4: 1 record in 7 ms: 1 dead-letter"),
            ],
        ),
        ([progress(3, 1), progress(4, 0)], [(logging.DEBUG, "micro-batch 3: 1 record in 7 ms: no change")]),
        (
            [progress(1, 2, {**FAILURES, "dead-letter:not-applicable": 9})],
            [
                (logging.INFO, "micro-batch 1: 2 records in 7 ms: 9 dead-letter"),
                (
                    logging.WARNING,
                    NOT_APPLIED,
                ),
            ],
        ),
    ],
    ids=["news", "ticks of an idle job", "entries that raised"],
)
def test_each_micro_batch_that_did_something_is_one_line(
    caplog: pytest.LogCaptureFixture, recent: list[MagicMock], lines: list[tuple[int, str]]
) -> None:
    with caplog.at_level(logging.DEBUG, "reexpand"):
        Report(query_of(recent)).write()
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == lines


def test_no_micro_batch_is_reported_twice(caplog: pytest.LogCaptureFixture) -> None:
    recent: list[MagicMock] = []
    report = Report(query_of(recent))
    with caplog.at_level(logging.INFO, "reexpand"):
        report.write()
        recent.append(progress(0, 1, {"add": 1}))
        report.write()
        report.write()
        recent.append(progress(1, 1, {"add": 2}))
        report.write()
    assert [message.partition(":")[0] for message in caplog.messages] == ["micro-batch 0", "micro-batch 1"]


@pytest.mark.rule("suspicious-names")
def test_a_literal_group_that_is_sent_patterns_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """With the way out; a request that is repeated now and then warns no more."""
    suspect = 'suspect:["orders","billing","eu__**"]'
    recent = [progress(1, 1, {suspect: 1})]
    report = Report(query_of(recent))
    with caplog.at_level(logging.DEBUG, "reexpand"):
        report.write()
        recent.append(progress(2, 1, {suspect: 1, "add": 1}))
        report.write()
    said = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in said] == [logging.DEBUG, logging.WARNING, logging.INFO]
    assert "clients of the group 'billing' ask for patterns on 'orders', as 'eu__**'" in said[1][1]
    assert "reexpand send group --wildcard --parent=orders -- billing" in said[1][1]
    assert said[2][1] == "micro-batch 2: 1 record in 7 ms: 1 add"
