"""The whole life of subscriptions on a real Kafka: dialects, selectors, exclusive groups, quotas, time."""

import json
import re
import time
from pathlib import Path

import pytest

from matcher.selectors import BloomFilter
from streaming.oracle import Effective
from streaming.records.model import BIND_TOPIC, WILDCARD, Reason
from streaming.records.updates import Cause
from tests.support.inspecting import assert_the_job_explains_itself
from tests.support.processes import eventually
from tests.support.running_job import POLL_SECONDS, SETTLE_SECONDS, Job, Streams, running
from tests.support.scene import Scene

TIMEOUT_MS = 10_000
TICKING = ("--tick-interval-ms", "1000")
LONG_INTERVAL_MS = 600_000


def rows(parent: str, group: str, client: str, *topics: str, part: str = "") -> set[Effective]:
    return {Effective(parent, group, client, topic, part) for topic in topics}


@pytest.mark.rule("group-file")
@pytest.mark.rule("share-in-key")
@pytest.mark.rule("selector")
def test_every_dialect_and_selector_end_to_end(streams: Streams, tmp_path: Path) -> None:
    """One client of each dialect on one parent, with topics before and after its request; its group is in a file."""
    scene = Scene(streams)
    file = tmp_path / "groups.toml"
    file.write_text(f'["g"]\n"{BIND_TOPIC}" = "p"\n"{WILDCARD}" = true\n')
    scene.born("p", "orders__1__created", "sensors/a/temp", "fleet.eu.1", "com.app.x", "com.app2")
    scene.asks("lite", "g", "p", "orders__*__created")
    scene.asks("mqtt", "g", "p", "sensors/+/temp", "$share/workers/sensors/#", dialect="mqtt")
    scene.asks("nats", "g", "p", "fleet.>", dialect="nats")
    scene.asks("wamp", "g", "p", "com.app", dialect="wamp", policy="prefix")
    scene.asks("wamp", "g", "p", "com..x", dialect="wamp", policy="wildcard", action="PARTIAL_ADD")
    prefix, wildcard = "wamp:prefix:com.app", "wamp:wildcard:com..x"
    first = (
        rows("p", "g", "lite", "orders__1__created")
        | rows("p", "g", "mqtt", "sensors/a/temp")
        | rows("p", "g", "mqtt", "sensors/a/temp", part="share:workers/sensors/#")
        | rows("p", "g", "nats", "fleet.eu.1")
        | rows("p", "g", "wamp", "com.app.x", "com.app2", part=prefix)
        | rows("p", "g", "wamp", "com.app.x", part=wildcard)
    )
    with running(streams, tmp_path / "job.log", "--groups", str(file)) as job:
        scene.leads_to(first, {"p"})
        scene.born("p", "sensors", "sensors/b/temp", "fleet.us", "com.b.x", "orders__2__created")
        second = (
            first
            | rows("p", "g", "lite", "orders__2__created")
            | rows("p", "g", "mqtt", "sensors/b/temp")
            | rows("p", "g", "mqtt", "sensors", "sensors/b/temp", part="share:workers/sensors/#")
            | rows("p", "g", "nats", "fleet.us")
            | rows("p", "g", "wamp", "com.b.x", part=wildcard)
        )
        scene.leads_to(second, {"p"})

        # A selector decides by tags and properties, also over topics that exist; a later one replaces it.
        scene.group("tagged", "s")
        scene.group("priced", "s")
        scene.born("s", "red__1", tags="red", properties={"price": "5"})
        scene.born("s", "blue__1", tags="blue", properties={"price": "50"})
        scene.asks("c", "tagged", "s", "*__*", selector={"type": "TAG", "expression": "red || green"})
        scene.asks("c", "priced", "s", "**", selector={"type": "SQL92", "expression": "price > 10"})
        scene.born("s", "plain__1")
        scene.leads_to(rows("s", "tagged", "c", "red__1") | rows("s", "priced", "c", "blue__1"), {"s"})
        bitmap = next(bytes.fromhex(u["bitmap"]) for u in streams.updates() if u["liteTopic"] == "blue__1")
        assert "priced#s" in BloomFilter().bitmap(bitmap)
        scene.asks("d", "priced", "s", "red__*", selector={"type": "SQL92", "expression": "price < 10"})
        scene.leads_to(rows("s", "tagged", "c", "red__1") | rows("s", "priced", "c", "red__1")
                       | rows("s", "priced", "d", "red__1"), {"s"})  # fmt: skip
        assert_the_job_explains_itself(streams)
        assert job.stop() == 0


@pytest.mark.rule("expiry")
@pytest.mark.rule("eviction")
@pytest.mark.rule("freed-quota")
@pytest.mark.rule("causes-of-time")
def test_limits_and_time_end_to_end(streams: Streams, tmp_path: Path) -> None:
    """Exclusive groups, quotas, silent clients, clients that leave all parents, and topics whose time is over.

    Clients are silent for the second job only: no pace of a machine ends them earlier.
    """
    scene = Scene(streams)
    with running(streams, tmp_path / "job.log", *TICKING) as job:
        scene.group("only", "x", model="Exclusive", reset="true")
        scene.group("few", "q", quota="2")
        scene.group("g", "t")
        scene.born("x", "a__1", "b__1")
        scene.born("q", "1", "2", "3")
        scene.born("t", "stays")
        scene.born("t", "passes", ttlMs=1_000)
        scene.asks("old", "only", "x", "**")
        scene.asks("some", "few", "q", "1", "2")
        scene.asks("watch", "others", "q", "3")
        scene.asks("keeps", "g", "t", "**")
        three = rows("q", "others", "watch", "3")
        held = rows("q", "few", "some", "1", "2") | three
        scene.leads_to(rows("x", "only", "old", "a__1", "b__1") | held, {"x", "q"})
        scene.asks("many", "few", "q", "*")  # refused whole, now that all three are known
        scene.asks("new", "only", "x", "a__*")
        scene.born("x", "a__2")
        scene.asks("some", "few", "q", "1", "2", "9")
        scene.settles(job)  # a topic that comes before the request would have it refused
        scene.born("q", "9")  # capped
        wanted = rows("x", "only", "old", "b__1") | rows("x", "only", "new", "a__1", "a__2")
        scene.leads_to(wanted | held, {"x", "q"})
        assert eventually(lambda: len(streams.dead_letters()) == 2, SETTLE_SECONDS, POLL_SECONDS)
        scene.gone("q", "1")
        scene.leads_to(rows("q", "few", "some", "2", "9") | three, {"q"})
        by_cause = {(update["cause"], update["liteTopic"]): update for update in streams.updates()}
        assert by_cause[Cause.EVICTED, "a__1"]["resetOffset"] is True
        assert (Cause.QUOTA_FREED, "9") in by_cause
        refused = [letter for letter in streams.dead_letters() if letter["reason"] == Reason.QUOTA_EXCEEDED]
        assert {json.loads(letter["original"]).get("clientId") for letter in refused} == {"many", None}

        for parent, topic in (("x", "b__1"), ("q", "2")):
            scene.asks("leaves", "both", parent, topic)
        scene.leads_to(rows("q", "few", "some", "2", "9") | rows("q", "both", "leaves", "2") | three, {"q"})
        scene.asks("leaves", "both", "", action="COMPLETE_REMOVE")
        stays = rows("t", "g", "keeps", "stays")  # and `passes` has ended by itself
        scene.leads_to(rows("q", "few", "some", "2", "9") | three | stays, {"q", "t"})
        assert job.stop() == 0
    with running(streams, tmp_path / "job.log", *TICKING, "--client-timeout-ms", str(TIMEOUT_MS)) as job:

        def others_have_ended() -> bool:
            scene.asks("keeps", "g", "t", "**")  # the other clients ask no more
            scene.sent()
            return streams.relation() == stays

        assert eventually(others_have_ended, SETTLE_SECONDS, 1)
        causes = {(update["clientId"], update["cause"]) for update in streams.updates() if update["op"] == "REMOVE"}
        assert {("old", Cause.LEASE_EXPIRED), ("leaves", Cause.UNSUBSCRIBED), ("keeps", Cause.TOPIC_EXPIRED)} <= causes
        assert job.stop() == 0


def test_ctrl_c_ends_the_job_after_the_running_micro_batch(streams: Streams, tmp_path: Path) -> None:
    """With exit code 0, and nothing is written twice by the next start."""
    scene = Scene(streams)
    topics = [f"t{number}" for number in range(2_000)]
    scene.asks("c", "g", "p", *topics)
    scene.born("p", "t0")
    log = tmp_path / "job.log"
    with running(streams, log) as job:
        scene.leads_to(rows("p", "g", "c", "t0"), {"p"})
        scene.born("p", *topics[1:])
        scene.sent()
        time.sleep(0.5)  # so that a micro-batch runs
        assert job.interrupt() == 0
        assert "stopped" in job.said()
        assert "Abort" not in job.said()
    with running(streams, log) as job:
        scene.leads_to(rows("p", "g", "c", *topics), {"p"})
        assert job.interrupt() == 0
    assert len(streams.updates()) == len(topics)


def test_a_job_between_two_triggers_ends_at_once(streams: Streams, tmp_path: Path) -> None:
    """It does not wait for the next one."""
    scene = Scene(streams)
    scene.asks("c", "g", "p", "t")
    scene.born("p", "t")
    scene.sent()
    with running(streams, tmp_path / "job.log", "--trigger-interval-ms", str(LONG_INTERVAL_MS)) as job:
        scene.leads_to(rows("p", "g", "c", "t"), {"p"})
        assert eventually(lambda: "micro-batch 0" in job.said(), SETTLE_SECONDS, POLL_SECONDS)
        assert job.stop() == 0


@pytest.mark.parametrize("content", [None, b""], ids=["missing", "empty"])
def test_a_checkpoint_that_has_lost_its_identity_is_refused(tmp_path: Path, content: bytes | None) -> None:
    """With a sentence and exit code 2, before anything is asked of Kafka."""
    streams = Streams("127.0.0.1:1", tmp_path / "checkpoint")
    (streams.checkpoint / "query").mkdir(parents=True)
    if content is not None:
        (streams.checkpoint / "reexpand.json").write_bytes(content)
    job = Job(streams, tmp_path / "job.log")
    try:
        assert job.process.wait(60) == 2
        assert f"Error: {streams.checkpoint}/reexpand.json " in job.said()
        assert "Traceback" not in job.said()
    finally:
        job.close()


def test_a_start_without_a_broker_leaves_the_checkpoint_new(tmp_path: Path) -> None:
    """The next one may have other settings."""
    streams = Streams("127.0.0.1:1", tmp_path / "checkpoint")
    options = tmp_path / "client.properties"
    options.write_text("default.api.timeout.ms=2000\nrequest.timeout.ms=1000\n")
    job = Job(streams, tmp_path / "job.log", "--kafka-options", str(options))
    try:
        assert job.process.wait(60) == 1
        assert re.search(r"connecting to 127\.0\.0\.1:1: 127\.0\.0\.1:1: connection refused; \d s left", job.said())
        assert "no Kafka broker answers at 127.0.0.1:1 within 2 s" in job.said()
        assert not (streams.checkpoint / "reexpand.json").exists()
    finally:
        job.close()
