"""A tenant tries to stop the service with the records that it may write."""

import json
import resource
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from random import Random

from confluent_kafka import Message

from streaming.local.server import free_port
from streaming.records.model import Stream
from tests.chaos.judge import HOSTILE_KEY
from tests.chaos.load import CANARIES, topic
from tests.chaos.model import Proof, Struck, fault
from tests.chaos.stage import Stage
from tests.support.hostile import KINDS, Sent, hostile
from tests.support.tail import Tail

GOOD_EVENTS = 100_000
GOOD_RATE = 500
"""Good events per second."""

_ALONE_EVENTS = 10_000
"""Good events before the tenant sends, whose latency is the reference."""

_BEARABLE = 10
"""Largest ratio of the 99th percentiles of good events' latency, with and without the tenant."""

_ROUNDS = 3
"""Number of times that the hostile tenant sends each kind of record."""

_STEP_SECONDS = 0.05


class Latencies(threading.Thread):
    """Seconds from the broker's timestamp of each good topic event until a consumer has its committed update."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(name="latencies", daemon=True)
        self._settings = stage.streams.settings
        self._begun, self._ended = threading.Event(), threading.Event()
        self.seconds: list[float] = []

    def start(self) -> None:
        """Begin to read, behind the updates that are there."""
        super().start()
        assert self._begun.wait(60)

    def run(self) -> None:
        with Tail(self._settings.bootstrap_servers, [self._settings.updates]) as tail:
            tail.read()  # what was there before
            self._begun.set()
            while not self._ended.wait(_STEP_SECONDS):
                found = tail.read()
                now = time.time()
                self.seconds += [now - sent for message in found if (sent := _sent(message)) is not None]

    def end(self) -> None:
        self._ended.set()
        self.join(60)

    def percentile(self, share: float) -> float:
        """Return the latency that a share of the events does not exceed."""
        return sorted(self.seconds)[int(share * (len(self.seconds) - 1))]

    def __str__(self) -> str:
        p50, p99, worst = (self.percentile(share) for share in (0.5, 0.99, 1.0))
        return f"p50 {p50:.2f} s, p99 {p99:.2f} s, worst {worst:.2f} s"


def _sent(message: Message) -> float | None:
    """Return the time of the canary behind an update, in seconds since the epoch."""
    value = json.loads(message.value() or b"{}")
    if value.get("parentTopic") != CANARIES or not value["liteTopic"].startswith("good__"):
        return None
    return float(value["source"]["timestamp"]) / 1_000


def _send_good(stage: Stage, events: int, name: str = "good") -> None:
    """Send good events at a steady rate, each a topic that one client receives."""
    steps = int(GOOD_RATE * _STEP_SECONDS)
    begun = time.monotonic()
    for number in range(events):
        record = topic(CANARIES, f"{name}__{number}")
        stage.load.feed.send(record.stream, record.value, CANARIES)
        if number % steps == 0:
            time.sleep(max(0.0, begun + number / GOOD_RATE - time.monotonic()))
    stage.load.feed.flush()


def _send_hostile(stage: Stage, random: Random, records: Iterable[Sent], sent: Counter[Stream]) -> None:
    """Send hostile records from a producer of their own."""
    producer = stage.producer(message_max_bytes=1_048_000)
    for stream, value in records:
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
    random = Random(stage.random.random())
    arguments = (stage, random, hostile(random, rounds), sent)
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


def _alone(stage: Stage) -> Latencies:
    """Send good events without a hostile tenant; return their latencies."""
    stage.load.hold()
    latencies = Latencies(stage)
    latencies.start()
    try:
        _send_good(stage, _ALONE_EVENTS, "good__alone")
        _wait_for(stage, latencies, _ALONE_EVENTS)
    finally:
        latencies.end()
    return latencies


def _wait_for(stage: Stage, latencies: Latencies, good_events: int) -> None:
    deadline = time.monotonic() + 120
    while len(latencies.seconds) < good_events and time.monotonic() < deadline:
        assert stage.is_up, f"the job has ended: {stage.running.said()[-2000:]}"
        time.sleep(0.2)
    assert len(latencies.seconds) == good_events, f"{len(latencies.seconds):,} of {good_events:,} good events arrived"


@fault(
    "hostile-tenant",
    f"a second producer sends {_ROUNDS} times every kind of hostile record, mutations and random bytes "
    f"among {GOOD_EVENTS:,} good events",
    "look at the dead letters",
    spends_stage=True,
)
def _(stage: Stage) -> Struck:
    alone = _alone(stage)
    proof, latencies, sent = strike(stage, GOOD_EVENTS, _ROUNDS)
    measured = f"{latencies}; without the tenant {alone}"
    assert latencies.percentile(0.99) <= _BEARABLE * alone.percentile(0.99), f"good events wait too long: {measured}"
    letters = ", ".join(f"{count:,} {reason}" for reason, count in stage.letters().most_common(3))
    return Struck(proof, f"{sent.total():,} hostile records; good events: {measured}; dead letters: {letters}")


HALF_OPEN = 1_200
"""Number of connections on which a request never ends."""

_KIND_SECONDS = 5.0
"""Seconds of good events next to each kind of hostile record."""

_KIND_RATE = 20
"""Good events per second next to one kind."""


class _Waits(threading.Thread):
    """Sends good events at a steady rate until it ends."""

    def __init__(self, stage: Stage, name: str) -> None:
        super().__init__(name="good", daemon=True)
        self._stage = stage
        self._topics = f"good__{name.replace(' ', '-')}"
        self._ended = threading.Event()
        self.sent = 0

    def run(self) -> None:
        while not self._ended.wait(1 / _KIND_RATE):
            record = topic(CANARIES, f"{self._topics}__{self.sent}")
            self._stage.load.feed.send(record.stream, record.value, CANARIES)
            self.sent += 1
        self._stage.load.feed.flush()

    def end(self) -> None:
        self._ended.set()
        self.join(60)


def _one_by_one(stage: Stage, port: int) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the name of each attack and what carries it out, which returns what the attacker sees."""

    def sends(kind: Callable[[], Iterator[Sent]]) -> Callable[[], str]:
        def send() -> str:
            sent = Counter[Stream]()
            _send_hostile(stage, stage.random, kind(), sent)
            return f"{sent.total():,} records"

        return send

    for kind in KINDS:
        yield kind.__name__.replace("_", " "), sends(kind)
    yield f"{HALF_OPEN:,} half-open connections", lambda: _health_beside_half_open(port)
    yield "wide question at the playground", lambda: _wide_question(port)


def _ask(port: int, method: str, path: str, body: str | None = None) -> tuple[int, float]:
    begun = time.monotonic()
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        response = connection.getresponse()
        response.read()
        return response.status, time.monotonic() - begun
    finally:
        connection.close()


def _health_beside_half_open(port: int) -> str:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4_096)), hard))
    slowest = 0.0
    with ExitStack() as clients:
        for number in range(HALF_OPEN):
            client = clients.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
            if number % 50 == 0:
                status, seconds = _ask(port, "GET", "/healthz")
                assert status == 200, f"health answers {status}"
                slowest = max(slowest, seconds)
    return f"health answers in {slowest:.2f} s at most"


def _wide_question(port: int) -> str:
    names = [f"{number}__" + "__".join("a" * 400) for number in range(20)]
    pattern = "__".join(["**", "a"] * 100)
    status, seconds = _ask(port, "POST", "/api/match", json.dumps({"pattern": pattern, "topics": names}))
    assert _ask(port, "GET", "/healthz")[0] == 200
    return f"status {status} after {seconds:.2f} s"


def _largest_wait(stage: Stage, name: str, attack: Callable[[], str]) -> tuple[float, str, str]:
    """Attack next to good events; return their largest latency, what the attacker saw, and the dead letters."""
    before = stage.letters()
    latencies, waits = Latencies(stage), _Waits(stage, name)
    latencies.start()
    waits.start()
    try:
        begun = time.monotonic()
        seen = attack()
        time.sleep(max(0.0, _KIND_SECONDS - (time.monotonic() - begun)))
        waits.end()
        _wait_for(stage, latencies, waits.sent)
    finally:
        waits.end()
        latencies.end()
    letters = stage.letters() - before
    return latencies.percentile(1), seen, ", ".join(f"{count:,} {reason}" for reason, count in letters.items())


@fault(
    "hostile-kinds",
    "each kind of hostile record alone next to good events, then half-open connections, then a wide question",
    "look at the dead letters",
    spends_stage=True,
)
def _(stage: Stage) -> Struck:
    port = free_port()
    stage.load.hold()
    stage.stop()
    stage.start("--http", f"127.0.0.1:{port}")
    stage.load.hold()
    stage.answers()
    lines = []
    for name, attack in _one_by_one(stage, port):
        worst, seen, letters = _largest_wait(stage, name, attack)
        assert stage.is_up, f"the job has ended: {stage.running.said()[-2000:]}"
        lines.append(f"{name}: {worst:.2f} s ({seen}; {letters or 'no dead letters'})")
    stage.burst(100)
    return Struck(stage.proof(), "largest latency of a good event: " + "; ".join(lines))
