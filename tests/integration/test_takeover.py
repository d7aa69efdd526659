"""Checkpoints of former releases, taken over by this one."""

import json
from pathlib import Path

import pytest

from streaming.oracle import Effective, Oracle
from streaming.records.model import Stream
from streaming.records.updates import Cause
from streaming.storage import journal
from tests.support.brokers import StartBroker
from tests.support.histories import expected
from tests.support.record_checkpoint import at
from tests.support.recorded_job import RecordedJob, steps_sent
from tests.support.running_job import Streams, assert_equal_relations, running
from tests.support.scene import Scene

RECORDED = sorted((Path(__file__).parents[1] / "fixtures").glob("checkpoint-format-*"))


def _topics_come_and_go(scene: Scene) -> None:
    """New topics for each dialect, deleted ones, and room in three quotas."""
    scene.born("orders", "eu__acme__paid", tags="paid", properties={"price": "20"})
    scene.born("orders", "eu__acme__open", ttlMs=60 * 60_000)
    scene.born("devices", "sensors/c/temp", "fleet.us", "com.app.y", "com.c.x", "sensors__1")
    scene.born("exclusive", "a__3", "d__1")
    scene.born("many", "7__new", "8__new", "6__106")
    scene.gone("orders", "eu__globex__shipped")
    scene.gone("devices", "fleet.eu.1", "com.app2")
    scene.gone("limited", "1")
    scene.gone("wide", "s0__a", "s1__a")
    scene.gone("many", "8__8", "7__207")


def _clients_change_their_minds(scene: Scene) -> None:
    scene.asks("acme", "billing", "orders", "*__acme__**", version=9)  # a re-sync
    scene.asks("exact", "billing", "orders", "lasts", version=4)  # stale
    scene.asks("leaves", "billing", "orders", "eu__**", version=8)  # stale, by what it said when it left
    scene.asks("silent", "billing", "orders", "us__**", version=4)  # stale, although it fell silent since
    scene.asks("new", "only", "exclusive", action="COMPLETE_REMOVE")
    scene.asks("third", "only", "exclusive", "d__*")
    scene.asks("cheap", "priced", "orders", "**", selector={"type": "SQL92", "expression": "price > 10"})
    scene.asks("wamp", "fleet", "devices", "com.app", dialect="wamp", policy="prefix", action="PARTIAL_REMOVE")
    scene.asks("nats", "fleet", "devices", "com.>", dialect="nats", action="PARTIAL_ADD", version=1)
    scene.asks("narrow", "all", "many", "7__*", "9__*")
    scene.asks("some", "few", "limited", "2", "5")


def _clients_and_groups_end(scene: Scene) -> None:
    scene.asks("mqtt", "fleet", "", action="COMPLETE_REMOVE")
    scene.asks("apart", "fleet", "devices", "sensors/#", dialect="mqtt", action="PARTIAL_REMOVE",
               delivery="per-subscription")  # fmt: skip
    scene.group("moving", "orders")
    scene.group("dropped", "orders")
    scene.group("halves", "wide", quota="2")
    scene.group("few", "limited", quota="1")
    scene.send(Stream.GROUPS, {"group": "tagged", "attributes": {}}, "tagged")


def _some_clients_ask_again(scene: Scene) -> None:
    scene.asks("acme", "billing", "orders", "*__acme__**", version=9)
    scene.asks("everything", "billing", "orders")
    scene.asks("cheap", "priced", "orders", "**")
    scene.asks("mover", "moving", "orders", "*__*__created")
    scene.asks("nats", "fleet", "devices", "fleet.>", dialect="nats", version=2)
    scene.asks("old", "only", "exclusive", "**")
    scene.asks("both", "halves", "wide", "s0__*", "s1__*", "s2__*")
    scene.asks("wide", "all", "many", "*__*", version=1)


def _time_passes(scene: Scene) -> None:
    """Topics end by their TTL, and the clients that did not ask again."""
    scene.tick(at(200))


STEPS = [
    (80, _topics_come_and_go),
    (81, _clients_change_their_minds),
    (82, _clients_and_groups_end),
    (150, _some_clients_ask_again),
    (200, _time_passes),
]
"""Minute, and what is sent then."""


class Updates:
    """The updates topic, read on and on: each update must change the relation."""

    def __init__(self, streams: Streams) -> None:
        self.relation: set[Effective] = set()
        self._streams = streams
        self._read = 0

    def new(self) -> list[tuple[Effective, str, str]]:
        """The rows of new updates, each with what happens to it and why."""
        found = []
        messages = [
            message for message in self._streams.read(self._streams.settings.updates)
            if (message.offset() or 0) >= self._read and message.value()
        ]  # fmt: skip
        for message in messages:
            self._read = (message.offset() or 0) + 1
            row, update = Effective(*json.loads(message.key() or b"")), json.loads(message.value() or b"")
            assert (row in self.relation) is (update["op"] == "REMOVE"), f"an update that changes nothing: {update}"
            self.relation.symmetric_difference_update({row})
            found.append((row, update["op"], update["cause"]))
        return found


@pytest.mark.rule("old-shares")
@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_a_checkpoint_of_a_former_release_goes_on(folder: Path, own_broker: StartBroker, tmp_path: Path) -> None:
    """Nothing of before is written again, a change that was under way is completed, and all that comes is right.

    The former release was stopped within a backfill of a client. Its checkpoint and the records of its six Kafka topics
    are restored on another broker.
    """
    recorded = RecordedJob(folder)
    streams = recorded.streams(own_broker().bootstrap_servers, tmp_path / "checkpoint")
    recorded.restore(streams)
    updates = Updates(streams)
    assert updates.new()
    letters = len(streams.dead_letters())
    log = tmp_path / "job.log"
    scene = Scene(streams)

    def wanted() -> set[Effective]:
        return oracle(recorded, streams).relation()

    def assert_as_wanted() -> None:
        """Rows of shares keep their former keys until their shard has a record."""
        assert_equal_relations(without_filters(updates.relation), without_filters(wanted()))

    with running(streams, log, *recorded.options) as job:
        scene.settles(job)
        assert {(row[:3], op, cause) for row, op, cause in updates.new()} == {
            (("many", "all", "wide"), "ADD", "SUBSCRIBED")
        }
        assert len(streams.dead_letters()) == letters
        assert any(row.part == "share:workers" for row in updates.relation)
        assert_as_wanted()
        causes = set()
        for minute, step in STEPS:
            scene.timestamp = at(minute)
            step(scene)
            scene.settles(job)
            causes |= {cause for _, _, cause in updates.new()}
            assert_as_wanted()
        assert_equal_relations(updates.relation, wanted())
        assert causes == set(Cause)
    assert json.loads((streams.checkpoint / "reexpand.json").read_text())["format"] == journal.FORMAT
    with running(streams, log, *recorded.options) as job:
        scene.timestamp = at(201)
        scene.born("orders", "eu__acme__last")
        scene.settles(job)
        assert {row.lite_topic for row, _, _ in updates.new()} == {"eu__acme__last"}
        assert_equal_relations(updates.relation, wanted())
    sources = [json.dumps(letter["source"], sort_keys=True) for letter in streams.dead_letters()]
    assert len(set(sources)) == len(sources), "an entry is reported twice"


def without_filters(relation: set[Effective]) -> set[Effective]:
    """The relation in the words of the former release, which named a share without its filter."""
    return {row._replace(part=row.part.partition("/")[0] if row.part.startswith("share:") else row.part)
            for row in relation}  # fmt: skip


def oracle(recorded: RecordedJob, streams: Streams) -> Oracle:
    """The oracle that was told all inputs, step by step.

    The former release refused requests of parents with several shards, which this one caps. They stay refused.
    """
    letters = [json.loads(record.value) for record in recorded.records("dead_letters") if record.value]
    refused = {
        (letter["source"]["partition"], letter["source"]["offset"])
        for letter in letters
        if letter["reason"] == "quota-exceeded" and "on shard" in letter["message"]
    }
    steps = [
        [
            record
            for record in step
            if record.stream is not Stream.SUBSCRIPTIONS or (record.partition, record.offset) not in refused
        ]
        for step in steps_sent(streams)
    ]
    return expected(steps, recorded.routing, client_timeout_ms=recorded.settings["client_timeout_ms"])
