"""Damaged records: valid bytes with random changes."""

import json
from collections.abc import Iterator
from random import Random

from streaming.records.model import BIND_TOPIC, WILDCARD, Stream
from tests.support.builders import request_value, topic_value

VICTIMS: list[tuple[Stream, bytes]] = [
    (stream, json.dumps(value).encode())
    for stream, value in (
        (Stream.TOPICS, topic_value(parentTopic="victim", liteTopic="a__b", ttlMs=60_000, tags="x")),
        (Stream.TOPICS, {"event": "DELETED", "lmqName": "%LMQ%$victim$a__b"}),
        (Stream.SUBSCRIPTIONS, request_value(topic="victim", group="hurt", liteTopicSet=["a__*", "**"], version=7)),
        (Stream.SUBSCRIPTIONS, {"subscriptionSet": [request_value(topic="victim", group="hurt")] * 2}),
        (Stream.SUBSCRIPTIONS, request_value(action="COMPLETE_REMOVE", topic=..., group="hurt")),
        (
            Stream.SUBSCRIPTIONS,
            request_value(group="hurt", topic="victim", selector={"type": "SQL92", "expression": "a > 1"}),
        ),
        (Stream.GROUPS, {"group": "hurt", "attributes": {BIND_TOPIC: "victim", WILDCARD: "true"}}),
        (Stream.GROUPS, {"group": "hurt", "attributes": {}, "parentTopic": "victim"}),
        (Stream.CLOCK, {"tick": 1_000_000_000_000}),
        (Stream.CLOCK, {"alarm": 1_000_000_000_000, "parentTopic": "victim", "shard": 0}),
        (Stream.CLOCK, {"wake": 1_000_000_000_000, "parentTopic": "victim", "shard": 0}),
    )
]
"""Valid records on which no test depends, with names that few changes cannot turn into other names."""

_TOKENS = [
    *(b"NaN", b"-Infinity", b"null", b"true", b"1e999", b"9" * 30, b"-0", b"[]", b"{}", b'""', b'"\\ud800"', b"'x'"),
    *(b"[" * 60, b'{"a":' * 20, b"\xef\xbb\xbf", b"\x00", b"\xff", b"\xc3\x28", b"/*x*/", b"\\u0000", b"asOf", b"sign"),
]


def mutated(random: Random, count: int) -> Iterator[tuple[Stream, bytes]]:
    for _ in range(count):
        stream, value = random.choice(VICTIMS)
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
