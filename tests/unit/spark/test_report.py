"""What the log says of micro-batches, and at which level."""

import json
import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from streaming.spark.monitoring import Report, add_up


@dataclass
class Progress:
    """The progress of a micro-batch, as Spark's JVM gives it."""

    number: int
    records: int
    counts: dict[str, int] = field(default_factory=dict)

    def batchId(self) -> int:  # noqa: N802 - Spark's name
        """Its number."""
        return self.number

    def json(self) -> str:
        """All of it."""
        rows = [json.dumps(self.counts)] if self.counts else []
        progress: dict[str, Any] = {
            "batchId": self.number,
            "numInputRows": self.records,
            "durationMs": {"triggerExecution": 7},
        }
        if self.records:
            progress["sink"] = {"metrics": {"counts": f"[{','.join(rows)}]"}}
        return json.dumps(progress)


class Query:
    """A query with the progress of its last micro-batches."""

    def __init__(self, *recent: Progress) -> None:
        self.recent = list(recent)
        self._jsq = self

    def lastProgress(self) -> Progress | None:  # noqa: N802 - Spark's name
        """The last one."""
        return self.recent[-1] if self.recent else None

    def recentProgress(self) -> list[Progress]:  # noqa: N802 - Spark's name
        """All that Spark keeps."""
        return self.recent


def test_counts_are_sums_over_the_keys() -> None:
    facts = ["p", 0, 1, 2, 3, [4], 1.0, [[2, 0, 4]]]
    rows = [{"add:SUBSCRIBED": 1, "ignored:stale-version": 3, "facts": facts}, {"ignored:stale-version": 4}]
    total, keys = add_up({"sink": {"metrics": {"counts": json.dumps(rows)}}})
    assert total == {"add:SUBSCRIBED": 1, "ignored:stale-version": 7}
    assert [list(each) for each in keys] == [facts]
    assert add_up({}) == ({}, [])


def lines(caplog: pytest.LogCaptureFixture, *recent: Progress) -> list[tuple[int, str]]:
    query: Any = Query(*recent)
    with caplog.at_level(logging.DEBUG, "reexpand"):
        Report(query).write()
    return [(record.levelno, record.getMessage()) for record in caplog.records]


def test_each_micro_batch_that_did_something_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    assert lines(
        caplog,
        Progress(3, 5, {"remove:UNSUBSCRIBED": 1, "add:TOPIC_CREATED": 2}),
        Progress(4, 1, {"dead-letter:not-json": 1}),
    ) == [
        (logging.INFO, "micro-batch 3: 5 records in 7 ms: 2 add, 1 remove"),
        (logging.INFO, "micro-batch 4: 1 records in 7 ms: 1 dead-letter"),
    ]


def test_ticks_of_an_idle_job_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """They change nothing, so only those who look for everything see them."""
    assert lines(caplog, Progress(3, 1), Progress(4, 0)) == [
        (logging.DEBUG, "micro-batch 3: 1 records in 7 ms: no change")
    ]


def test_no_micro_batch_is_reported_twice(caplog: pytest.LogCaptureFixture) -> None:
    query: Any = Query()
    report = Report(query)
    with caplog.at_level(logging.INFO, "reexpand"):
        report.write()
        query.recent = [Progress(0, 1, {"add": 1})]
        report.write()
        report.write()
        query.recent.append(Progress(1, 1, {"add": 2}))
        report.write()
    assert [message.partition(":")[0] for message in caplog.messages] == ["micro-batch 0", "micro-batch 1"]


@pytest.mark.rule("suspicious-names")
def test_a_literal_group_that_is_sent_patterns_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """With the way out; a request that is repeated now and then warns no more."""
    suspect = 'suspect:["orders","billing","eu__**"]'
    query: Any = Query(Progress(1, 1, {suspect: 1}))
    report = Report(query)
    with caplog.at_level(logging.DEBUG, "reexpand"):
        report.write()
        query.recent.append(Progress(2, 1, {suspect: 1, "add": 1}))
        report.write()
    said = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in said] == [logging.DEBUG, logging.WARNING, logging.INFO]
    assert "clients of the group 'billing' ask for patterns on 'orders', as 'eu__**'" in said[1][1]
    assert "reexpand send group --wildcard --parent=orders -- billing" in said[1][1]
    assert said[2][1] == "micro-batch 2: 1 records in 7 ms: 1 add"


def test_entries_that_raised_are_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """With the place of the first one."""
    failures = {f'failure:["t",0,{offset},2,"TypeError at x.py:{offset}"]': 1 for offset in (7, 5)}
    said = lines(caplog, Progress(1, 2, {**failures, "dead-letter:not-applicable": 9}))
    (warning,) = [text for level, text in said if level == logging.WARNING]
    assert warning == (
        "9 entries are not applied and have become dead letters; the first one is in t, partition 0, offset 5, at "
        "position 2 of its record: TypeError at x.py:5"
    )
    assert [text for level, text in said if level == logging.INFO] == [
        "micro-batch 1: 2 records in 7 ms: 9 dead-letter"
    ]
