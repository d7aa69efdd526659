"""Random histories of the three input streams, dense enough that events meet."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

from streaming.events import BIND_TOPIC, WILDCARD, Stream
from streaming.oracle import Effective, replay
from tests.support.simulator import Record

# Few names, unevenly drawn: a history over many names is a history of strangers.
PARENTS = ["p"] * 7 + ["q"]
GROUPS = ["g1"] * 4 + ["g2"]
CLIENTS = ["c1", "c1", "c1", "c2"]
TOPICS = ["a", "b", "a__a", "a__b", "b__a", "a__b__a", "b__b__b"]
PATTERNS = ["*", "**", "a__*", "a__**", "*__a", "*__*", "b__**", "a", "a__b", "*__b__*"]
INVALID = ["a*", "a____b", "**__a", "", " ", "__", "*b__c"]
ACTIONS = ["COMPLETE_ADD"] * 3 + ["PARTIAL_ADD"] * 3 + ["PARTIAL_REMOVE"] * 2 + ["COMPLETE_REMOVE"]
STREAMS = [Stream.TOPICS] * 6 + [Stream.SUBSCRIPTIONS] * 5 + [Stream.GROUPS]


def history(random: Random, length: int) -> list[Record]:
    """Records in the order in which they are produced; each stream's offsets grow. One in ten is a duplicate."""
    offsets = dict.fromkeys(Stream, 0)
    found: list[Record] = []
    for _ in range(length):
        stream = random.choice(STREAMS)
        value = json.dumps(_MAKERS[stream](random)).encode()
        for _ in range(random.choice([1] * 9 + [2])):
            found.append(Record(stream, value, 0, offsets[stream]))
            offsets[stream] += 1
    return found


def batches(random: Random, records: list[Record], largest: int = 12) -> Iterator[list[Record]]:
    """Cuts a history into micro-batches: each stream keeps its order, how streams interleave is anybody's guess."""
    queues = {stream: [record for record in records if record.stream is stream] for stream in Stream}
    while any(queues.values()):
        batch: list[Record] = []
        for stream, queue in queues.items():
            count = random.randint(0, min(len(queue), largest))
            batch += queue[:count]
            queues[stream] = queue[count:]
        if batch:
            yield batch


def expected(records: list[Record]) -> set[Effective]:
    """The relation that a history leaves, by its definition."""
    topics, requests, groups = ([record.value for record in records if record.stream is s] for s in (
        Stream.TOPICS, Stream.SUBSCRIPTIONS, Stream.GROUPS
    ))  # fmt: skip
    return replay(topics, [entry for value in requests for entry in entries_of(value)], groups)


def entries_of(value: bytes | None) -> list[bytes]:
    """The entries of a subscription record."""
    record = json.loads(value or b"")
    return [json.dumps(entry).encode() for entry in record.get("subscriptionSet", [record])]


def _topic_event(random: Random) -> dict[str, Any]:
    event = random.choice(["CREATED", "CREATED", "DELETED"])
    parent, topic = random.choice(PARENTS), random.choice(TOPICS)
    if random.random() < 0.3:
        return {"event": event, "lmqName": f"%LMQ%${parent}${topic}"}
    return {"event": event, "parentTopic": parent, "liteTopic": topic}


def _entries(random: Random) -> list[str]:
    kind = random.random()
    if kind < 0.15:
        return []
    if kind < 0.25:
        return random.sample(INVALID, random.randint(1, 2))
    pool = [*TOPICS, *PATTERNS * 2, *INVALID[:2]]
    return [random.choice(pool) for _ in range(random.randint(1, 3))]


def _request(random: Random, group: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "action": random.choice(ACTIONS),
        "clientId": random.choice(CLIENTS),
        "group": group,
        "topic": random.choice(PARENTS),
        "liteTopicSet": _entries(random),
    }
    if random.random() < 0.4:
        body["version"] = random.choice([1, 2, 2, 3, 3, 3])
    return body


def _subscription(random: Random) -> dict[str, Any]:
    group = random.choice(GROUPS)
    if random.random() < 0.5:
        return _request(random, group)
    return {"subscriptionSet": [_request(random, group) for _ in range(random.randint(1, 3))]}


def _group_event(random: Random) -> dict[str, Any]:
    attributes = {BIND_TOPIC: random.choice(PARENTS)}
    kind = random.random()
    if kind < 0.7:
        attributes[WILDCARD] = "true"
    elif kind > 0.85:
        attributes = {}
    return {"group": random.choice(GROUPS), "attributes": attributes}


_MAKERS = {Stream.TOPICS: _topic_event, Stream.SUBSCRIPTIONS: _subscription, Stream.GROUPS: _group_event}
