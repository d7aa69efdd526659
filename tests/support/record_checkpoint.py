"""Records a job of any release as files, for the tests of later ones.

    python -m tests.support.record_checkpoint FOLDER --command OTHER/.venv/bin/reexpand

Needs a broker's jars (`make setup`). The job reads its inputs step by step: all records of a step have one timestamp,
and are read before the next step is sent. So an oracle that reads the steps as micro-batches decides what the job
decided, including quotas and leases. The clock is one of these inputs: the job's own clock is off.
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

from streaming.local.broker import Broker
from streaming.records.model import Stream
from tests.support.processes import eventually
from tests.support.recorded_job import options, save
from tests.support.running_job import PRODUCERS_TIME, REEXPAND, SETTLE_SECONDS, Streams, running
from tests.support.scene import Scene

START = 1_760_000_000_000
MINUTE = 60_000
SETTINGS = {
    "shards": {"wide": 2},
    "route_depth": 1,
    "shuffle_partitions": 2,
    "tick_interval_ms": 0,
    "client_timeout_ms": 60 * MINUTE,
}
MANY = 2_500
"""Topics of one parent: enough that its state has files in `parts`."""

SMALL_BACKFILLS = "from streaming import tuning; object.__setattr__(tuning.DEFAULT_TUNING, 'backfill_topics', 50)"
"""Python code that splits a backfill of `MANY` topics into enough micro-batches to stop the job within it."""

Step = tuple[int, Callable[[Scene], None]]
"""Minutes since the start, and the function that sends the records."""


def steps() -> list[Step]:
    return [
        (0, _groups),
        (1, _first_topics),
        (2, _requests),
        (3, _later_topics),
        (4, _changes),
        (5, _many_topics),
        (6, _ends),
        (40, _signs_of_life),
        (64, _time_passes),
        (66, _later_requests),
    ]


def at(minute: int) -> int:
    return START + minute * MINUTE


def _groups(scene: Scene) -> None:
    for name in ("billing", "tagged", "priced", "dropped"):
        scene.group(name, "orders")
    scene.group("fleet", "devices")
    scene.group("moving", "orders")
    scene.group("only", "exclusive", model="Exclusive", reset="true", reset_unsubscribed="true")
    scene.group("few", "limited", quota="3")
    scene.group("halves", "wide", quota="4")
    scene.group("all", "many", quota="-1")
    scene.group("hundred", "many", quota="100")
    scene.send(Stream.GROUPS, {"group": "unplaced", "attributes": {"lite.sub.wildcard": "true"}}, "unplaced")


def _first_topics(scene: Scene) -> None:
    scene.born("orders", "eu__acme__created", tags="paid", properties={"region": "eu", "price": "5"})
    scene.born("orders", "us__acme__created", tags="open", properties={"region": "us", "price": "50"})
    scene.born("orders", "eu__globex__shipped")
    scene.born("orders", "passes", ttlMs=20 * MINUTE)
    scene.born("orders", "lasts", tags="paid", ttlMs=180 * MINUTE)
    scene.born("devices", "sensors/a/temp", "sensors/b/temp", "fleet.eu.1", "com.app.x", "com.app2", "$sys/a")
    scene.born("exclusive", "a__1", "b__1")
    scene.born("limited", "1", "2")
    scene.born("wide", *(f"s{number}__a" for number in range(6)))


def _requests(scene: Scene) -> None:
    scene.asks("acme", "billing", "orders", "*__acme__**", version=7)
    scene.asks("exact", "billing", "orders", "lasts", "eu__globex__shipped", "passes", version=3)
    scene.asks("everything", "billing", "orders")
    scene.asks("red", "tagged", "orders", "**", selector={"type": "TAG", "expression": "paid || refused"})
    scene.asks("cheap", "priced", "orders", "**", selector={"type": "SQL92", "expression": "price < 10"})
    scene.asks("soon-gone", "dropped", "orders", "*__*__*")
    scene.asks("mover", "moving", "orders", "*__*__created")
    scene.asks("mover", "moving", "devices", "com.>", dialect="nats")
    scene.asks("mqtt", "fleet", "devices", "sensors/+/temp", "$share/workers/sensors/#", "#", dialect="mqtt")
    scene.asks("nats", "fleet", "devices", "fleet.>", dialect="nats")
    scene.asks("wamp", "fleet", "devices", "com.app", dialect="wamp", policy="prefix")
    scene.asks("wamp", "fleet", "devices", "com..x", dialect="wamp", policy="wildcard", action="PARTIAL_ADD")
    scene.asks("wamp", "fleet", "devices", "com.app2", dialect="wamp", policy="exact", action="PARTIAL_ADD")
    scene.asks("apart", "fleet", "devices", "sensors/#", "+/a/+", dialect="mqtt", delivery="per-subscription")
    scene.asks("mixed", "fleet", "devices", "com.*", dialect="nats", offsetOption={"type": "TAIL_N", "value": 10})
    scene.asks("mixed", "fleet", "devices", "sensors__**", "com.app2", action="PARTIAL_ADD")
    scene.asks("old", "only", "exclusive", "**")
    scene.asks("new", "only", "exclusive", "a__*")
    scene.asks("some", "few", "limited", "*")
    scene.asks("one", "few", "limited", "1")
    scene.asks("both", "halves", "wide", "s0__*", "s1__*", "s2__*")
    scene.asks("plain", "names", "limited", "2", "5")
    scene.asks("plain", "names", "wide", "s1__a")
    scene.asks("lost", "few", "orders", "**")  # its group is bound elsewhere
    scene.asks("wrong", "billing", "orders", "a*", "eu__**")
    scene.asks("narrow", "all", "many", "7__*")
    scene.asks("capped", "hundred", "many", "8__*")
    scene.asks("named", "names", "many", "5__105", "6__106", "none")
    scene.asks("silent", "billing", "orders", "us__**", version=5)
    scene.asks("silent", "names", "wide", "s2__a")
    scene.asks("leaves", "billing", "orders", "eu__**", version=4)
    scene.asks("leaves", "billing", "devices", "sensors/a/temp")


def _later_topics(scene: Scene) -> None:
    scene.born("orders", "eu__initech__created", tags="paid", properties={"price": "7"})
    scene.born("devices", "sensors", "com.b.x")
    scene.born("exclusive", "a__2", "c__1")
    scene.born("limited", "3", "4", "5", "6")  # the last three are capped for a client
    scene.born("wide", *(f"s{number}__{name}" for number in range(6) for name in "bc"))
    scene.send(Stream.TOPICS, b'{"event":"CREATED","parentTopic":"ord', "orders")


def _changes(scene: Scene) -> None:
    scene.asks("one", "few", "limited", "*", "1", "2", "3", "4", action="PARTIAL_ADD")  # beyond its quota
    scene.asks("acme", "billing", "orders", "**", version=6)  # stale
    scene.asks("exact", "billing", "orders", "passes", action="PARTIAL_REMOVE", version=4)
    scene.asks("new", "only", "exclusive", "c__*", action="PARTIAL_ADD")
    scene.asks("cheap", "priced", "orders", "**", selector={"type": "SQL92", "expression": "price BETWEEN 6 AND 60"})
    scene.asks("acme", "billing", "orders", "*__acme__**", version=8)  # as before
    scene.gone("orders", "us__acme__created")
    scene.gone("exclusive", "b__1")


def _many_topics(scene: Scene) -> None:
    scene.born("many", *(f"{number % 10}__{number}" for number in range(MANY)))


def _ends(scene: Scene) -> None:
    scene.asks("leaves", "billing", "", action="COMPLETE_REMOVE", version=9)
    scene.asks("named", "names", "many", "6__106", action="PARTIAL_REMOVE")
    scene.group("moving", "devices")
    scene.send(Stream.GROUPS, {"group": "dropped", "attributes": {}}, "dropped")
    scene.gone("many", "7__107")
    scene.born("many", "7__107")  # the newest of all


def _signs_of_life(scene: Scene) -> None:
    """Send requests from all clients but two."""
    scene.asks("acme", "billing", "orders", "*__acme__**", version=9)
    scene.asks("exact", "billing", "orders", "lasts", "eu__globex__shipped", version=5)
    scene.asks("everything", "billing", "orders")
    scene.asks("red", "tagged", "orders", "**")
    scene.asks("cheap", "priced", "orders", "**")
    scene.asks("mover", "moving", "orders", "*__*__created")
    for client in ("mqtt", "nats", "wamp", "apart", "mixed"):
        scene.asks(client, "fleet", "devices", "$sys/a", dialect="mqtt", action="PARTIAL_ADD", delivery="per-client")
    scene.asks("old", "only", "exclusive", "**")
    scene.asks("new", "only", "exclusive", "a__*", "c__*")
    scene.asks("some", "few", "limited", "*")
    scene.asks("one", "few", "limited", "1")
    scene.asks("both", "halves", "wide", "s0__*", "s1__*", "s2__*")
    scene.asks("plain", "names", "limited", "2", "5")
    scene.asks("narrow", "all", "many", "7__*")
    scene.asks("capped", "hundred", "many", "8__*", action="PARTIAL_ADD")
    scene.asks("named", "names", "many", "none", action="PARTIAL_REMOVE")


def _time_passes(scene: Scene) -> None:
    """End two clients and a topic by a tick."""
    scene.tick(at(64))


def _later_requests(scene: Scene) -> None:
    scene.asks("late", "billing", "orders", "eu__*__*")
    scene.asks("late", "names", "wide", "s3__a")
    scene.born("orders", "eu__late__created", ttlMs=30 * MINUTE)


def _ask_for_all_of_many(scene: Scene) -> None:
    scene.asks("wide", "all", "many", "*__*", version=1)


def main() -> None:
    """Run the job of a release on an embedded broker, and write the stopped job to files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the files go")
    parser.add_argument("--command", default=REEXPAND, help="the `reexpand` of the release to record")
    given = parser.parse_args()
    folder = given.folder.absolute()
    # Python workers import from the folder in which the job was started; this folder has another release.
    with tempfile.TemporaryDirectory() as place, chdir(place), Broker(Path(place) / "kafka") as broker:
        Path(place, "sitecustomize.py").write_text(SMALL_BACKFILLS)
        os.environ["PYTHONPATH"] = place
        streams = Streams(broker.bootstrap_servers, Path(place) / "checkpoint", "recorded")
        streams.create(partitions=1, config=PRODUCERS_TIME)
        _record(streams, Path(place) / "job.log", given.command)
        save(streams, folder, SETTINGS)


def _record(streams: Streams, log: Path, command: str) -> None:
    scene = Scene(streams)
    with running(streams, log, *options(SETTINGS), command=command) as job:
        for minute, step in steps():
            scene.timestamp = at(minute)
            step(scene)
            scene.settles(job)
        # Stopped in the first micro-batches that write, it has an unfinished backfill of a client.
        scene.timestamp = at(70)
        before = streams.ends(streams.settings.updates)
        _ask_for_all_of_many(scene)
        scene.sent()
        assert eventually(lambda: streams.ends(streams.settings.updates) != before, SETTLE_SECONDS)
    assert not streams.are_read(), "the job was done with everything before it was stopped"


if __name__ == "__main__":
    main()
