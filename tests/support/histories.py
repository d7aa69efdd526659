"""Random histories of the input streams, dense enough that events interact."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from random import Random
from typing import Any, TypeVar

from streaming.errors import Rejected
from streaming.oracle import Oracle
from streaming.records.model import BIND_TOPIC, MODEL, QUOTA, VERSION_RETENTION_MS, WILDCARD, Place, Stream
from streaming.records.parsing import parse_clock, parse_group_event, parse_subscription, parse_topic_event
from streaming.records.routing import Routing
from tests.support.simulator import Record

E = TypeVar("E")


@dataclass(frozen=True)
class Profile:
    """Rules that a history covers, in addition to `lite` patterns, versions and changing groups.

    Attributes:
        dialects: several notations, mixed in one client.
        selectors: topics with tags and properties, and selectors.
        exclusive: groups of which one client holds a topic.
        quotas: small quotas. Refusals depend on the state of the shard at that time, so groups stay on one parent, and
            no event needs the coordinator.
        capped: small quotas in a job that caps requests instead of refusing them; combines with all other rules.
        bound: groups that move between two parents, on which their clients send requests.
        life: clients that end on all parents or stop sending requests, and topics with a TTL. Excludes `quotas`.
        refusals: `quotas` and `life` together. Topics have no TTL, and topics and groups precede all requests, so
            refusals depend on the requests only.
    """

    dialects: bool = False
    selectors: bool = False
    exclusive: bool = False
    quotas: bool = False
    capped: bool = False
    bound: bool = False
    life: bool = False
    refusals: bool = False


NO_METADATA = Profile()
ALL = Profile(dialects=True, selectors=True, exclusive=True, quotas=True, bound=True, life=True)
PROFILES = {
    "plain": NO_METADATA,
    "dialects": Profile(dialects=True),
    "selectors": Profile(selectors=True),
    "exclusive": Profile(exclusive=True),
    "quota": Profile(quotas=True),
    "capped": Profile(selectors=True, exclusive=True, capped=True, bound=True, life=True),
    "bound": Profile(bound=True),
    "life": Profile(life=True),
    "all": ALL,
}
"""Profiles by name. A history of `all` has `quotas` or `life`, and some of the other rules."""

REFUSALS = Profile(selectors=True, exclusive=True, quotas=True, life=True, refusals=True)
"""Profile with quotas that refuse requests, selectors, versions, leaves and leases."""

CLIENT_TIMEOUT_MS = 20_000
"""Lease of a client of profile `life`."""

# Few names, unevenly drawn: with many names, events would rarely interact.
PARENTS = ["p"] * 7 + ["q"]
GROUPS = ["g1"] * 4 + ["g2"]
CLIENTS = ["c1", "c1", "c1", "c2"]
RIVALS = ["c1", "c1", "c2", "c2", "c3"]
ACTIONS = ["COMPLETE_ADD"] * 3 + ["PARTIAL_ADD"] * 3 + ["PARTIAL_REMOVE"] * 2 + ["COMPLETE_REMOVE"]
STREAMS = [Stream.TOPICS] * 6 + [Stream.SUBSCRIPTIONS] * 5 + [Stream.GROUPS]


@dataclass(frozen=True)
class Language:
    """Topics, patterns that match some of them, and invalid patterns, in one dialect and policy."""

    dialect: str
    topics: Sequence[str]
    patterns: Sequence[str]
    invalid: Sequence[str]
    policy: str | None = None


LITE = Language(
    "lite",
    ["a", "b", "a__a", "a__b", "b__a", "a__b__a", "b__b__b"],
    ["*", "**", "a__*", "a__**", "*__a", "*__*", "b__**", "a", "a__b", "*__b__*"],
    ["a*", "a____b", "**__a", "", " ", "__", "*b__c"],
)
MQTT = Language(
    "mqtt",
    ["a", "a/b", "b/a", "a/", "$s/a"],
    ["#", "+", "+/+", "a/#", "a/+", "+/a", "a/b", "$s/#", *["$share/x/#", "$share/x/a/#", "$share/y/+/b"] * 2],
    ["a+", "+/#/c", "$share/x/a+", "$share/x", "$share//a", "#/a", " "],
)
NATS = Language(
    "nats", ["a", "a.b", "b.a", "a.b.a"], ["*", ">", "a.*", "a.>", "*.a", "a.b", "*.*"], ["a..b", "a b", ".a"]
)
WAMP_TOPICS = ["a", "a.b", "b.a", "a.b.a", "ab", "a.*"]
LANGUAGES = {
    "lite": [LITE],
    "mqtt": [MQTT],
    "nats": [NATS],
    "wamp": [
        Language("wamp", WAMP_TOPICS, ["a.*", "a*", "*.a", "a.**", "a.b", "*.b.*"], ["a b", "a*b", "*b.c"]),
        Language("wamp", WAMP_TOPICS, ["a", "a.b", "a.*"], ["a b", ".a", "a."], "exact"),
        Language("wamp", WAMP_TOPICS, ["a", "a.", "b", "a.b"], ["a b", "a..b", "#"], "prefix"),
        Language("wamp", WAMP_TOPICS, ["a.", ".a", ".", "a..a", "a.b"], ["a b", "#", "\t"], "wildcard"),
    ],
}
"""Languages by dialect. Topics are strings, so each is a topic of every dialect."""

TAGS = [None, "red", "blue"]
SIZES = [None, "1", "2", "3", "large"]
SELECTORS: list[Any] = [
    *[{"type": "TAG", "expression": text} for text in ("red", "red || blue", "*", "green||blue")],
    *[
        {"type": "SQL92", "expression": text}
        for text in ("size > 1", "size <= 2", "size IS NULL", "size = '3' OR color = 'red'", "NOT (color = 'blue')")
    ],
]
BAD_SELECTORS: list[Any] = [
    {"type": "SQL92", "expression": "size >"},
    {"type": "TAG", "expression": "||"},
    {"type": "XPATH", "expression": "//a"},
    {"type": "TAG"},
    "red",
]
MODELS = ["Exclusive", "Exclusive", "exclusive", "Shared", "shared", "Single"]
QUOTAS: list[Any] = ["0", "1", 1, "2", "2", 3, "3", "-1", "-2", "many"]


def history(random: Random, length: int, profile: Profile = NO_METADATA) -> list[Record]:
    """Draw records in production order, with ascending offsets per stream; one in ten is a duplicate."""
    return _Writer(random, profile).write(length)


def large_state(parent: str, topics: int = 2_500) -> list[Record]:
    """Create enough topics of one parent that Python keeps its state in parts."""
    return [_birth(parent, f"stored__{number:05}__{'x' * 20}", number) for number in range(topics)]


def _birth(parent: str, topic: str, offset: int) -> Record:
    event = {"event": "CREATED", "parentTopic": parent, "liteTopic": topic}
    return Record(Stream.TOPICS, json.dumps(event).encode(), 0, offset)


def lease_of(records: Iterable[Record]) -> int:
    """Return the client timeout for job and oracle: nonzero in histories with ticks."""
    return CLIENT_TIMEOUT_MS if any(record.stream is Stream.CLOCK for record in records) else 0


def batches(
    random: Random, records: Iterable[Record], largest: int = 12, *, punctual: bool = False
) -> Iterator[list[Record]]:
    """Cut a history into micro-batches: each stream keeps its order, streams interleave randomly.

    With `punctual`, all records that were produced before a tick are in earlier batches.
    """
    queues: dict[Stream, list[tuple[int, Record]]] = {stream: [] for stream in Stream}
    for number, record in enumerate(records):
        queues[record.stream].append((number, record))
    while any(queues.values()):
        unread = min(
            (queue[0][0] for stream, queue in queues.items() if queue and stream is not Stream.CLOCK), default=inf
        )
        batch: list[Record] = []
        for stream, queue in queues.items():
            ready = [
                record for number, record in queue if stream is not Stream.CLOCK or not punctual or number < unread
            ]
            count = random.randint(0, min(len(ready), largest))
            batch += ready[:count]
            queues[stream] = queue[count:]
        if batch:
            yield batch


def feed(oracle: Oracle, batch: Iterable[Record]) -> None:
    """Feed a micro-batch to the oracle, in the order of each stream, without invalid entries."""
    streams: dict[Stream, list[Record]] = {stream: [] for stream in Stream}
    for record in batch:
        streams[record.stream].append(record)
    oracle.batch(
        _parsed(parse_topic_event, streams[Stream.TOPICS]),
        _parsed(parse_subscription, streams[Stream.SUBSCRIPTIONS]),
        _parsed(parse_group_event, streams[Stream.GROUPS]),
        _parsed(parse_clock, streams[Stream.CLOCK]),
    )


def expected(cut: Iterable[Iterable[Record]], routing: Routing | None = None, *, client_timeout_ms: int = 0) -> Oracle:
    oracle = Oracle(routing or Routing(), client_timeout_ms=client_timeout_ms)
    for batch in cut:
        feed(oracle, batch)
    return oracle


def entries_of(value: bytes | None) -> list[bytes]:
    record = json.loads(value or b"")
    return [json.dumps(entry).encode() for entry in record.get("subscriptionSet", [record])]


def _parsed(parse: Callable[[bytes | None], E], records: Iterable[Record]) -> Iterator[tuple[Place, E]]:
    for record in records:
        place = Place(record.partition, record.offset, record.timestamp)
        for value in entries_of(record.value) if record.stream is Stream.SUBSCRIPTIONS else [record.value]:
            with suppress(Rejected):
                yield place, parse(value)


class _Writer:
    """Writer of one history: its profile, and values drawn once for all of its records."""

    def __init__(self, random: Random, profile: Profile) -> None:
        self.random = random
        self.profile = profile = self._drawn(profile)
        self.now = 1_000_000
        self.parents = ["p", "p", "q"] if profile.bound else PARENTS
        self.clients = RIVALS if profile.exclusive else CLIENTS
        dialects = random.sample(list(LANGUAGES), random.randint(1, 3)) if profile.dialects else ["lite"]
        self.languages = [random.choice(LANGUAGES[dialect]) for dialect in dialects for _ in range(2)]
        topics = list(dict.fromkeys(topic for language in self.languages for topic in language.topics))
        self.topics = random.sample(topics, min(len(topics), 9))
        self.home = {group: random.choice(self.parents) for group in GROUPS}
        self.streams = STREAMS + [Stream.CLOCK] * profile.life + [Stream.GROUPS] * (profile != NO_METADATA)

    def _drawn(self, profile: Profile) -> Profile:
        """Draw a subset of the rules without conflicts; all rules at once would hide each other."""
        if profile.refusals:
            rest = [name for name in ("selectors", "exclusive") if self.random.random() < 0.5]
            return replace(profile, **dict.fromkeys(rest, False))
        if profile.quotas and profile.life:
            profile = replace(profile, **{self.random.choice(["quotas", "life"]): False})
        if profile.dialects and profile.selectors:
            rest = [name for name in ("dialects", "selectors", "exclusive", "bound") if self.random.random() < 0.25]
            profile = replace(profile, **dict.fromkeys(rest, False))
        if profile.capped:
            rest = [name for name in ("selectors", "exclusive", "bound", "life") if self.random.random() < 0.6]
            profile = replace(profile, **dict.fromkeys(rest, False))
        return profile

    def write(self, length: int) -> list[Record]:
        makers = {
            Stream.TOPICS: self._topic_event,
            Stream.SUBSCRIPTIONS: self._subscription,
            Stream.GROUPS: self._group_event,
            Stream.CLOCK: self._tick,
        }
        offsets = dict.fromkeys(Stream, 0)
        found: list[Record] = []
        streams = [self.random.choice(self.streams) for _ in range(length)]
        if self.profile.refusals:
            streams.sort(key=lambda stream: stream in (Stream.SUBSCRIPTIONS, Stream.CLOCK))
        for stream in streams:
            if self.profile.life and self._maybe(0.02):
                self.now += VERSION_RETENTION_MS
            value = json.dumps(makers[stream]()).encode()
            for _ in range(self.random.choice([1] * 9 + [2])):
                self.now += self.random.choice([0, 0, 1_000, 2_000])
                found.append(Record(stream, value, 0, offsets[stream], timestamp=self.now))
                offsets[stream] += 1
        return found

    def _maybe(self, share: float) -> bool:
        return self.random.random() < share

    def _topic_event(self) -> dict[str, Any]:
        parent, topic = self.random.choice(self.parents), self.random.choice(self.topics)
        event: dict[str, Any] = {"event": self.random.choice(["CREATED", "CREATED", "DELETED"])}
        event |= (
            {"lmqName": f"%LMQ%${parent}${topic}"} if self._maybe(0.3) else {"parentTopic": parent, "liteTopic": topic}
        )
        if self.profile.selectors and self._maybe(0.8):
            properties = {"size": self.random.choice(SIZES), "color": self.random.choice(TAGS)}
            event["tags"] = self.random.choice(TAGS)
            event["properties"] = {name: value for name, value in properties.items() if value is not None}
        if self.profile.life and not self.profile.refusals:
            if self._maybe(0.4):
                event["ttlMs"] = self.random.choice([1_000, 5_000, 10_000, 20_000, 50_000])
            if self._maybe(0.3):
                event["timestamp"] = self.now - self.random.choice([0, 3_000, 10_000])
        return event

    def _entries(self, language: Language) -> list[str]:
        kind = self.random.random()
        if kind < 0.15:
            return []
        if kind < 0.25:
            return self.random.sample(language.invalid, self.random.randint(1, 2))
        pool = [*language.topics, *language.patterns, *language.patterns, *language.invalid[:2]]
        return [self.random.choice(pool) for _ in range(self.random.randint(1, 3))]

    def _request(self, group: str) -> dict[str, Any]:
        action = self.random.choice(ACTIONS)
        language = self.random.choice(self.languages)
        body: dict[str, Any] = {
            "action": action,
            "clientId": self.random.choice(self.clients),
            "group": group,
            "topic": self.random.choice(self.parents),
            "liteTopicSet": self._entries(language),
        }
        if self._maybe(0.4):
            body["version"] = self.random.choice([1, 2, 2, 3, 3, 3])
        if language is not LITE or self._maybe(0.1):
            body |= {"dialect": language.dialect, "policy": language.policy}
        if self.profile.dialects:
            body["delivery"] = self.random.choice([None, None, "per-client", "per-subscription"])
            if self._maybe(0.03):
                body |= self.random.choice([{"dialect": "amqp"}, {"policy": "regex"}, {"delivery": "twice"}])
        if self.profile.selectors and self._maybe(0.3):
            body["selector"] = self.random.choice([*SELECTORS, *SELECTORS, self.random.choice(BAD_SELECTORS), None])
        if self.profile.life and action == "COMPLETE_REMOVE" and self._maybe(0.7):
            body["topic"] = self.random.choice(["", " ", None])
        if self._maybe(0.3):
            body["offsetOption"] = {"type": "TAIL_N", "value": self.random.randint(1, 9)}
        return body

    def _subscription(self) -> dict[str, Any]:
        group = self.random.choice(GROUPS)
        if self._maybe(0.5):
            return self._request(group)
        return {"subscriptionSet": [self._request(group) for _ in range(self.random.randint(1, 3))]}

    def _group_event(self) -> dict[str, Any]:
        group = self.random.choice(GROUPS)
        parent = self.home[group] if self.profile.quotas else self.random.choice(self.parents)
        kind = self.random.random()
        if kind > 0.85:
            deletion: dict[str, Any] = {"group": group, "attributes": {}}
            # If quotas depend on it, the record goes to the parent directly, not through the job one batch later.
            return deletion | ({"parentTopic": parent} if self.profile.quotas else {})
        attributes: dict[str, Any] = {BIND_TOPIC: parent}
        if kind < 0.7:
            attributes[WILDCARD] = "true"
        if self.profile.exclusive and self._maybe(0.8):
            attributes[MODEL] = self.random.choice(MODELS)
        if (self.profile.quotas or self.profile.capped) and self._maybe(0.9):
            attributes[QUOTA] = self.random.choice(QUOTAS)
        elif self._maybe(0.5):
            attributes[QUOTA] = "-1"
        if self.profile.bound and self._maybe(0.05):
            del attributes[BIND_TOPIC]
        return {"group": group, "attributes": attributes}

    def _tick(self) -> dict[str, Any]:
        return {"tick": self.now}
