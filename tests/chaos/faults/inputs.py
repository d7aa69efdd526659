"""Producers send too much, nonsense, or transactions."""

import json
import time
from collections.abc import Iterator

from confluent_kafka import KafkaException, Producer

from streaming.records.model import Reason, Stream
from tests.chaos.load import CANARIES, HOT, topic
from tests.chaos.model import Proof, Struck, fault
from tests.chaos.stage import Stage
from tests.support.events import created, encoded, replace
from tests.support.mutations import mutated
from tests.support.poison import HUGE
from tests.support.topics import add_partitions

DAMAGED = 3_000
HOT_EVENTS = 30_000
BACKLOG = 100_000
HOUR_MS = 3_600_000


@fault(
    "damaged-records",
    f"{DAMAGED:,} records whose bytes were changed at random, and a SIGKILL",
    "look at the dead letters",
    survivable=True,
)
def _(stage: Stage) -> Struck:
    before = len(stage.streams.dead_letters())
    for stream, value in mutated(stage.random, DAMAGED):
        stage.load.feed.send(stream, value, str(stage.random.randrange(9)))
    stage.load.feed.flush()
    proof = stage.strikes(stage.running.kill)
    stage.start()
    stage.answers()
    letters = stage.streams.dead_letters()
    places = {
        json.dumps([letter["source"], letter["reason"], letter.get("message")], sort_keys=True) for letter in letters
    }
    assert len(letters) - before > DAMAGED / 3, "too few dead letters"
    assert len(places) == len(letters), "a dead letter was written twice"
    return Struck(proof, f"{len(letters) - before:,} dead letters, each once")


@fault(
    "oversize-records",
    "20 requests above 1 MB, 20 names above 16 kB, and a SIGKILL",
    "look at the dead letters",
    survivable=True,
)
def _(stage: Stage) -> Struck:
    before = stage.letters()
    producer = stage.producer(message_max_bytes=1_048_000)
    for number in range(20):
        value = replace("t", parent=HOT, client=f"large{number}", group="large", filler="x" * 1_010_000)
        producer.produce(stage.streams.settings.subscription_events, json.dumps(value), "large")
        producer.produce(
            stage.streams.settings.topic_events, json.dumps(created(f"{HUGE}{number}", parentTopic=HOT)), HOT
        )
    assert producer.flush(60) == 0
    proof = stage.strikes(stage.running.kill)
    stage.start()
    stage.answers()
    found = stage.letters() - before
    assert found[Reason.VALUE_TOO_LARGE] == 20, found
    assert found[Reason.NAME_TOO_LONG] >= 20, found
    return Struck(proof, "40 dead letters with their reason")


@fault(
    "clock-ahead",
    "ticks ten days ahead on the clock topic, as of a driver with a wrong clock",
    "look at the dead letters",
    survivable=True,
)
def _(stage: Stage) -> Struck:
    proof = stage.proof()
    before = len(stage.streams.dead_letters())
    for hours in range(240):
        tick = {"tick": int(time.time() * 1_000) + hours * HOUR_MS + HOUR_MS}
        stage.load.feed.send(Stream.CLOCK, tick, "tick")
    stage.load.feed.flush()
    stage.answers()
    letters = len(stage.streams.dead_letters()) - before
    assert letters >= 240, f"{letters} dead letters"
    return Struck(proof, "240 dead letters; no client and no topic ends early")


@fault(
    "producer-transactions",
    "transactions of producers: one aborted, one fenced, one open for 8 s; a SIGKILL meanwhile",
    survivable=True,
)
def _(stage: Stage) -> Struck:
    name = f"{stage.streams.prefix}-{stage.random.randrange(10**9)}"
    number = stage.streams.settings.topic_events

    def writes(label: str, count: int, suffix: str = "") -> Producer:
        producer = stage.producer(transactional_id=f"{name}{suffix}")
        producer.init_transactions(30)
        producer.begin_transaction()
        for each in range(count):
            producer.produce(number, encoded(created(f"{name}__{label}__{each}", parent=HOT)), HOT)
        producer.flush(30)
        return producer

    writes("aborted", 200, "-1").abort_transaction(30)
    fenced = writes("fenced", 200)
    kept = writes("kept", 200)
    try:
        fenced.commit_transaction(30)
    except KafkaException:
        pass
    else:
        raise AssertionError("a producer that was replaced commits")
    time.sleep(4)
    proof = stage.strikes(stage.running.kill)
    time.sleep(4)
    kept.commit_transaction(30)
    stage.start()
    stage.quiet()
    found = {row.lite_topic.split("__")[1] for row in stage.streams.relation() if row.lite_topic.startswith(name)}
    assert found == {"kept"}, found
    stage.load.go()
    return Struck(proof, "nothing uncommitted was read; the open one held its partition back until its end")


@fault("hot-key", f"{HOT_EVENTS:,} events of one key at once, and a SIGKILL")
def _(stage: Stage) -> Struck:
    stage.burst(HOT_EVENTS)
    proof = stage.strikes(stage.running.kill)
    stage.start()
    return Struck(proof, "works it off")


@fault("backlog", f"{BACKLOG:,} events wait for a start in micro-batches of 10,000, and two SIGKILLs")
def _(stage: Stage) -> Struck:
    stage.strikes(stage.running.kill)
    keys = [HOT, "many", "few"]
    stage.load.send([topic(keys[each % 3], f"even__{each % 20_000}") for each in range(BACKLOG)])
    proof = Proof()
    for seconds in (4, 8):
        stage.start("--max-offsets-per-trigger", "10000")
        time.sleep(seconds)
        proof = stage.strikes(stage.running.kill)
    stage.start("--max-offsets-per-trigger", "10000")
    return Struck(proof, "works it off")


# Events of one topic then lie in two partitions, between which a new checkpoint knows no order.
@fault("partitions-added", "each input gets 4 more partitions, and a SIGKILL once they have records", spends_stage=True)
def _(stage: Stage) -> Struck:
    stage.quiet()
    names = stage.streams.settings.inputs[:3]
    for name in names:
        add_partitions(stage.streams, name, len(stage.streams.ends(name)) + 4)
    time.sleep(1)

    def spread() -> Iterator[dict[str, object]]:
        for parent in range(40):
            yield {
                "group": f"new{parent}",
                "topic": CANARIES,
                "clientId": f"n{parent}",
                "liteTopicSet": [f"new__{parent}"],
            }

    stage.load.feed = stage.streams.producer()  # one that knows the new partitions at once
    for request in spread():
        stage.load.feed.send(Stream.SUBSCRIPTIONS, replace("t", **request), str(request["group"]))
    stage.load.send([topic(CANARIES, f"new__{each}") for each in range(40)])
    stage.load.go()
    proof = stage.strikes(stage.running.kill)
    used = sum(end > 0 for end in stage.streams.ends(names[1]).values())
    stage.start()
    return Struck(proof, f"reads them from their beginning ({used} partitions of requests hold records)")
