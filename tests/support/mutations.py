"""Damaged records: valid bytes with random changes."""

from collections.abc import Iterator
from random import Random
from typing import Any

import orjson

from streaming.records.model import Stream
from tests.support.events import created, encoded, leave, quota, replace, tick, wake, with_attributes

NOW = 1_000_000_000_000
"""Time of these records, in ms: long before any time that a running job has."""

VICTIMS: list[tuple[Stream, dict[str, Any]]] = [
    (Stream.TOPICS, created("a__b", "victim", tags="x", properties={"a": "1"}, timestamp=NOW, ttlMs=60_000)),
    (Stream.TOPICS, {"event": "DELETED", "lmqName": "%LMQ%$victim$a__b"}),
    (
        Stream.SUBSCRIPTIONS,
        replace(
            "t", parent="victim", group="hurt", version=7, dialect="mqtt", policy=None, delivery="per-client",
            offsetOption={"type": "OFFSET", "value": 3}, sql="a > 1",
        ),
    ),
    (Stream.SUBSCRIPTIONS, {"subscriptionSet": [replace("a__*", "**", parent="victim", group="hurt")] * 2}),
    (Stream.SUBSCRIPTIONS, leave(parent=..., group="hurt", version=3)),
    (
        Stream.SUBSCRIPTIONS,
        leave(
            parent="victim", group="hurt", asOf=[0, 1, NOW], through=[0, 1, NOW], laterCount=1, continues=True,
            ends={"literal": {"place": [0, 1, NOW], "version": 3, "known": 2}},
            later=[replace("t", place=[0, 2, NOW], client=..., group=..., parent=...)],
        ),
    ),
    (Stream.GROUPS, quota(3, group="hurt", parent="victim")),
    (Stream.GROUPS, with_attributes({}, "hurt", parentTopic="victim", boundTo="q", supersededBy=[0, 1, 2])),
    (Stream.CLOCK, tick(NOW)),
    (Stream.CLOCK, {"tick": 0, "inquiry": {"id": "i", "ask": "explain", "client": "c", "topic": "t", "group": "hurt"}}),
    (Stream.CLOCK, {"alarm": NOW, "parentTopic": "victim", "shard": 0}),
    (Stream.CLOCK, wake(NOW, "victim", 1)),
    (
        Stream.CLOCK,
        {
            **wake(0, "victim"),
            "inquiry": {"id": "i", "ask": "plan", "stream": "topics", "record": created(parent="victim")},
        },
    ),
    (
        Stream.CLOCK,
        {
            **wake(0, "victim"),
            "inquiry": {"id": "i", "ask": "topics", "pattern": "*", "dialect": "lite", "cursor": 0, "limit": 1},
        },
    ),
]  # fmt: skip
"""Valid records on which no test depends, with names that few changes cannot turn into other names."""

_TOKENS = [
    *(b"NaN", b"-Infinity", b"null", b"true", b"1e999", b"9" * 30, b"-0", b"[]", b"{}", b'""', b'"\\ud800"', b"'x'"),
    *(b"[" * 60, b'{"a":' * 20, b"\xef\xbb\xbf", b"\x00", b"\xff", b"\xc3\x28", b"/*x*/", b"\\u0000", b"asOf", b"sign"),
]


def mutated(random: Random, count: int) -> Iterator[tuple[Stream, bytes]]:
    for _ in range(count):
        stream, victim = random.choice(VICTIMS)
        value = encoded(victim)
        for _ in range(random.randint(1, 4)):
            value = mutate(random, value)
        yield stream, value


def mutate(random: Random, value: bytes) -> bytes:
    """Return a value with one random change."""
    at, behind = sorted(random.choices(range(len(value) + 1), k=2))
    kind = random.randrange(6)
    if kind == 0:  # a byte
        return value[:at] + bytes([random.randrange(256)]) + value[at + 1 :]
    if kind == 1:  # bytes lost
        return value[:at] + value[behind:]
    if kind == 2:  # bytes repeated
        return value[:behind] + value[at:behind] + value[behind:]
    if kind == 3:  # foreign bytes
        return value[:at] + random.choice(_TOKENS) + value[at:]
    if kind == 4:  # a value replaced
        return value[:at] + random.choice(_TOKENS) + value[behind:]
    parts = value.split(b", ")  # fields reordered or repeated
    return b", ".join(random.choices(parts, k=len(parts)))


def is_json(value: bytes) -> bool:
    try:
        orjson.loads(value)
    except orjson.JSONDecodeError:
        return False
    return True
