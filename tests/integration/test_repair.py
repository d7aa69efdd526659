"""Corrections beside a job that writes at the same moment; states come from memory, since the moments are chosen."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streaming.kafka.reader import TopicReader
from streaming.operations.checkpoint import JobCheckpoint
from streaming.operations.verify.comparison import JobView, look
from streaming.operations.verify.findings import Fault
from streaming.operations.verify.replay import Rules
from streaming.operations.verify.session import Correction, Corrector
from streaming.oracle import Effective
from streaming.records.model import Source, Stream
from streaming.records.routing import Routing
from streaming.records.subscribers import SubscriberKey
from streaming.records.updates import Cause, Op, Update
from streaming.records.writing import UpdateWriter, update_key
from tests.support.events import created, replace
from tests.support.running_job import Streams
from tests.support.simulator import Record, Simulation

HELD = Effective("p", "g", "c", "held")
LOST = Effective("p", "g", "c", "lost")
STALE = Effective("p", "g", "c", "stale")


class Story:
    """A job with the rows `held` and `lost`, of which the updates topic has `held` and `stale`."""

    def __init__(self, streams: Streams, folder: Path) -> None:
        self.streams, self.folder, self.batch = streams, folder, 0
        self.topic = streams.settings.updates
        self.job = Simulation()
        self.sends(Stream.SUBSCRIPTIONS, replace("held", "lost", "stale"))
        self.sends(Stream.TOPICS, created("held"))
        self.sends(Stream.TOPICS, created("lost"))
        self.says("ADD", HELD)
        self.says("ADD", STALE)

    def sends(self, stream: Stream, value: dict[str, Any]) -> None:
        """An event, in a micro-batch of its own."""
        self.job.run([Record(stream, json.dumps(value).encode(), 0, self.batch)])
        self.batch += 1
        for log in ("commits", "offsets"):
            (self.streams.checkpoint / "query" / log).mkdir(parents=True, exist_ok=True)
            (self.streams.checkpoint / "query" / log / str(self.batch)).touch()

    def says(self, op: str, row: Effective, cause: str = "SUBSCRIBED") -> None:
        key = update_key(*row)
        who, source = SubscriberKey(row.group, row.client_id), Source("t", 0, 0, 0, 0)
        update = Update(Op(op), who, row.lite_topic, (row.lite_topic,), Cause.SUBSCRIBED, None, source)
        value = {**json.loads(UpdateWriter(row.parent).record(update).value or b""), "cause": cause}
        tombstone = [(key, None)] if op == "REMOVE" else []
        self.streams.write(self.topic, (key, json.dumps(value, separators=(",", ":")).encode()), *tombstone)

    def values(self, micro_batch: int) -> Iterator[tuple[str, int, bytes]]:
        """Yield the states, as of now."""
        assert micro_batch == self.batch
        for (parent, number), value in self.job.states.items():
            yield parent, number, value

    def view(self, reader: TopicReader) -> JobView:
        """The job as `reexpand verify` sees it."""
        settings = self.streams.settings
        rules = Rules(settings.inputs, Routing(), inner_multi=False)
        checkpoint = JobCheckpoint(settings.checkpoint)
        return JobView(checkpoint, self.values, reader, settings.updates, settings.dead_letters, rules)

    def repair(self, before_write: Callable[[], None] = lambda: None, before_check: bool = False) -> set[bytes]:  # noqa: FBT001, FBT002
        """Look and correct, and let something happen in between."""
        servers = self.streams.bootstrap_servers
        with TopicReader(servers, {}) as reader:
            view = self.view(reader)
            found = look(view, self.folder, lambda *_: None, inputs=False)
            assert {each.row.lite_topic: each.fault for each in found.findings.differences} == {
                "lost": Fault.MISSING_UPDATE, "stale": Fault.SURPLUS_UPDATE
            }  # fmt: skip
            if before_check:
                before_write()
                before_write = lambda: None  # noqa: E731
            corrector = _Interrupted(view, servers, {})
            corrector.meanwhile = before_write
            return corrector.correct(found)


class _Interrupted(Corrector):
    """Corrector to which something happens right before its first correction is written."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    def _write(self, written: Iterable[Correction]) -> None:
        due = list(written)
        happens, self.meanwhile = self.meanwhile, lambda: None
        happens()
        super()._write(due)


@pytest.fixture
def story(streams: Streams, tmp_path: Path) -> Story:
    return Story(streams, tmp_path)


@pytest.mark.rule("repaired")
def test_the_relation_is_that_of_the_state_afterwards(story: Story) -> None:
    """The corrections stand in the partition of the row, with a source that is the record they correct."""
    assert story.repair() == {update_key(*LOST), update_key(*STALE)}
    assert story.streams.relation() == {HELD, LOST}
    updates = {u["op"]: u for u in story.streams.updates() if u["cause"] == Cause.REPAIRED}
    assert updates["REMOVE"]["source"]["topic"] == story.topic
    assert updates["REMOVE"]["source"]["offset"] >= 0
    assert updates["ADD"]["source"]["offset"] == -1
    assert updates["ADD"]["patterns"] == ["lost"]
    by_key: dict[bytes, set[int]] = {}
    for message in story.streams.read(story.topic):
        by_key.setdefault(message.key() or b"", set()).add(message.partition() or 0)
    assert {len(partitions) for partitions in by_key.values()} == {1}


def test_what_the_job_mends_before_the_check_is_left_to_it(story: Story) -> None:
    """By a record, or by a change of its state."""

    def mends() -> None:
        story.says("ADD", LOST, "REPEATED")
        story.sends(Stream.TOPICS, created("stale"))

    assert story.repair(mends, before_check=True) == set()
    assert {u["cause"] for u in story.streams.updates()} == {"SUBSCRIBED", "REPEATED"}


def test_what_the_job_says_at_the_very_moment_is_said_again_behind_the_correction(story: Story) -> None:
    """`lost` is deleted, and `stale` is created, between the last look and the correction."""

    def changes() -> None:
        story.says("ADD", LOST, "REPEATED")
        story.says("REMOVE", LOST, "TOPIC_DELETED")
        story.says("ADD", STALE, "TOPIC_CREATED")

    story.repair(changes)
    assert story.streams.relation() == {HELD, STALE}
    last = [(m.key(), m.value()) for m in story.streams.read(story.topic) if m.key() == update_key(*LOST)]
    assert last[-1][1] is None
    assert json.loads(last[-2][1] or b"")["cause"] == "TOPIC_DELETED"
