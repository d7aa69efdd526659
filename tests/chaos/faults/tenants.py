"""A tenant tries to stop the service with the records that it may write."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from random import Random

from confluent_kafka import Message, Producer

from streaming.events.model import Stream
from tests.chaos.judge import HOSTILE_KEY
from tests.chaos.load import CANARIES, topic
from tests.chaos.model import Proof, Struck, fault
from tests.chaos.stage import Stage
from tests.support.hostile import hostile
from tests.support.tail import Tail

GOOD_EVENTS = 100_000
GOOD_RATE = 500
"""Good events per second."""

BEARABLE_SECONDS = 5.0
"""Largest 99th percentile of the latency of good events."""

_ROUNDS = 3
"""Number of times that the hostile tenant sends each kind of record."""

_STEP_SECONDS = 0.05


class Latencies(threading.Thread):
    """Seconds from the broker's timestamp of each good topic event until a consumer has its committed update."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(name="latencies", daemon=True)
        self._settings = stage.streams.settings
        self._ended = threading.Event()
        self.seconds: list[float] = []

    def run(self) -> None:
        """Read updates until the end."""
        with Tail(self._settings.bootstrap_servers, [self._settings.updates]) as tail:
            tail.read()  # what was there before
            while not self._ended.wait(_STEP_SECONDS):
                found = tail.read()
                now = time.time()
                self.seconds += [now - sent for message in found if (sent := _sent(message)) is not None]

    def end(self) -> None:
        """Stop reading."""
        self._ended.set()
        self.join(60)

    def percentile(self, share: float) -> float:
        """Return the latency that a share of the events does not exceed."""
        return sorted(self.seconds)[int(share * (len(self.seconds) - 1))]


def _sent(message: Message) -> float | None:
    """Return the time of the canary behind an update, in seconds since the epoch."""
    value = json.loads(message.value() or b"{}")
    if value.get("parentTopic") != CANARIES or not value["liteTopic"].startswith("good__"):
        return None
    return float(value["source"]["timestamp"]) / 1_000


def _send_good(stage: Stage, events: int) -> None:
    """Send good events at a steady rate, each a topic that one client receives."""
    steps = int(GOOD_RATE * _STEP_SECONDS)
    begun = time.monotonic()
    for number in range(events):
        record = topic(CANARIES, f"good__{number}")
        stage.load.feed.send(record.stream, record.value, CANARIES)
        if number % steps == 0:
            time.sleep(max(0.0, begun + number / GOOD_RATE - time.monotonic()))
    stage.load.feed.flush()


def _send_hostile(stage: Stage, random: Random, rounds: int, sent: Counter[Stream]) -> None:
    """Send all hostile records from a producer of their own."""
    options = {"bootstrap.servers": stage.streams.bootstrap_servers, "message.max.bytes": 1_048_000, "log_level": 0}
    producer = Producer(options)
    for stream, value in hostile(random, rounds):
        producer.produce(stage.streams.name(stream), value, f"{HOSTILE_KEY}{random.randrange(9)}")
        producer.poll(0)
        sent[stream] += 1
        if sent.total() % 100 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0


def strike(stage: Stage, good_events: int, rounds: int) -> tuple[Proof, Latencies, Counter[Stream]]:
    """Send good and hostile events at the same time; return the proof, the latencies and what the tenant has sent."""
    stage.load.hold()
    latencies, sent = Latencies(stage), Counter[Stream]()
    latencies.start()
    arguments = (stage, Random(stage.random.random()), rounds, sent)
    tenant = threading.Thread(target=_send_hostile, args=arguments, name="tenant", daemon=True)
    tenant.start()
    try:
        _send_good(stage, good_events)
        proof = stage.proof()
        tenant.join(300)
        assert not tenant.is_alive(), "the tenant cannot send"
        assert stage.is_up, f"the job has ended: {stage.running.said()[-2000:]}"
        _wait_for(stage, latencies, good_events)
    finally:
        latencies.end()
    return proof, latencies, sent


def _wait_for(stage: Stage, latencies: Latencies, good_events: int) -> None:
    deadline = time.monotonic() + 120
    while len(latencies.seconds) < good_events and time.monotonic() < deadline:
        assert stage.is_up, f"the job has ended: {stage.running.said()[-2000:]}"
        time.sleep(0.2)
    assert len(latencies.seconds) == good_events, f"{len(latencies.seconds):,} of {good_events:,} good events arrived"


def _letters(stage: Stage) -> Iterator[str]:
    reasons = Counter(letter["reason"] for letter in stage.streams.dead_letters())
    yield from (f"{count:,} {reason}" for reason, count in reasons.most_common(3))


@fault(
    "hostile-tenant",
    f"a second producer sends {_ROUNDS} times every kind of hostile record, mutations and random bytes "
    f"among {GOOD_EVENTS:,} good events",
    "look at the dead letters",
    spends_stage=True,
)
def _(stage: Stage) -> Struck:
    proof, latencies, sent = strike(stage, GOOD_EVENTS, _ROUNDS)
    p50, p99, worst = (latencies.percentile(share) for share in (0.5, 0.99, 1.0))
    measured = f"p50 {p50:.2f} s, p99 {p99:.2f} s, worst {worst:.2f} s"
    assert p99 <= BEARABLE_SECONDS, f"good events wait too long: {measured}"
    return Struck(
        proof, f"{sent.total():,} hostile records; good events: {measured}; dead letters: {', '.join(_letters(stage))}"
    )
