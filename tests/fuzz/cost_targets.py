"""Targets of the search for expensive inputs, with what they may cost.

Budgets hold for inputs of at most 16 kB. They count products too: so many topics, looked at by so many entries.
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import orjson

import matcher
from matcher import selectors
from matcher.batch import FlatPatterns, FlatTopics
from matcher.batch.postings import Postings
from matcher.batch.shapes import shape_of
from streaming import state
from streaming.console.asking import MAX_CHARACTERS, MAX_OWN, Trial, attempt
from streaming.records.model import Notation, Source, Stream
from streaming.records.routing import Routing
from streaming.state import Shard, ShardState
from streaming.storage.journal import Journal
from streaming.worker.inquiry.answering import Asked, Inquiry, answer_shard
from streaming.worker.rows import OutputKind
from tests.fuzz.cost import Cost, Json, Target
from tests.support import events
from tests.support.events import stream_of
from tests.support.keys import match_by_keys
from tests.support.simulator import TOPICS, Record, Simulation
from tests.support.states import Written

_ROUTING: Final = Routing({"q": 2})
_TIMEOUT_MS: Final = 60_000
_MAX_BATCHES: Final = 4


class CountedJob(Simulation):
    """A job that counts the bytes which it writes, and does not read answers."""

    written = 0

    def _fold(self, output: Written) -> None:
        self.written += sum(map(len, output.keys)) + sum(len(each or b"") for each in output.payloads)
        rows = zip(output.kinds, output.keys, output.payloads, strict=True)
        kept = [row for row in rows if row[0] != OutputKind.ANSWER]
        records = Written(counts=output.counts, ignored=output.ignored)
        for kind, key, payload in kept:
            records.kinds.append(kind)
            records.keys.append(key)
            records.payloads.append(payload)
        super()._fold(records)


def job(value: Json) -> CountedJob:
    """Return a job after the micro-batches of a list of records, with null between two of them.

    A writer does not choose the number of micro-batches, so it is bounded.
    """
    made = CountedJob(_ROUTING, inner_multi=True, client_timeout_ms=_TIMEOUT_MS)
    batch: list[Record] = []
    offset, batches = 0, 1
    for item in value if isinstance(value, list) else []:
        match item:
            case None if batches < _MAX_BATCHES:
                batches += 1
                made.now = 1_000 * offset
                made.run(batch)
                batch = []
            case [str(name), record] if name in tuple(Stream):
                offset += 1
                batch.append(Record(Stream(name), json.dumps(record).encode(), 0, offset, 1_000 * offset))
    made.now = 1_000 * offset
    made.run(batch)
    return made


def _worker(value: Json) -> int:
    return job(value).written


def _asked(value: Json) -> tuple[ShardState, Json]:
    """Return the state of a shard after a history, and a question."""
    history, question = (value.get("history"), value.get("question")) if isinstance(value, dict) else (None, None)
    made = job(history)
    shard = ShardState(inner_multi=True)
    stored = made.states.get(("p", 0))
    if stored is not None:
        state.replay(shard, Journal.open(stored, made.archives.of("p", 0)).changes())
    return shard, question


def _question(asked: tuple[ShardState, Json]) -> int:
    shard, fields = asked
    if not isinstance(fields, dict):
        return 0
    inquiry = Inquiry(Source("lite-clock", 0, 0, 0, 0), fields)
    if not inquiry.has_id:
        return 0
    found = answer_shard(inquiry, shard, Shard("p", inner_multi=True), Asked(TOPICS, _TIMEOUT_MS))
    return len(found.value or b"")


def _routing(value: Json) -> int:
    routing = Routing({"p": 7}, _integer(value, "depth"))
    for entry in _texts(value, "entries"):
        for notation in (Notation("lite"), Notation("mqtt"), Notation("nats"), Notation("wamp", "prefix")):
            routing.may_touch("p", entry, 3, notation)
    for topic in _texts(value, "topics"):
        routing.shard_of("p", topic)
    return 0


def _selector(value: Json) -> int:
    kind = "TAG" if isinstance(value, dict) and value.get("type") == "TAG" else "SQL92"
    with suppress(matcher.MatcherError):
        compiled = selectors.compile(kind, _text(value, "text"))
        found = value.get("properties")
        properties = {k: v for k, v in found.items() if isinstance(v, str)} if isinstance(found, dict) else {}
        for tag in [*_texts(value, "tags"), ""]:
            compiled.agrees([tag], properties)
    return 0


def _patterns(value: Json) -> int:
    dialect, inner = _text(value, "dialect"), _text(value, "dialect") == "lite"
    if dialect not in matcher.DIALECTS:
        return 0
    texts, topics = _texts(value, "patterns"), _texts(value, "topics")
    parse = matcher.get_dialect(dialect).parse
    patterns = []
    for text in texts:
        with suppress(matcher.MatcherError):
            patterns.append(parse(text, allow_inner_multi=inner))
    index: matcher.PatternIndex[int] = matcher.PatternIndex(dialect)
    stored = matcher.TopicIndex(dialect)
    for number, pattern in enumerate(patterns):
        index.add(pattern, number)
    for topic in topics:
        stored.add(topic)
        index.match(topic)
    stored.expand_any(patterns)
    FlatPatterns(patterns, dialect, salt=b"0").match_batch(topics)
    FlatTopics(topics, dialect).expand_batch(patterns)
    rules, shaped = matcher.get_dialect(dialect), [pattern for pattern in patterns if shape_of(pattern) is not None]
    postings = Postings(Postings.empty(rules, b"0").replaced((), topics), rules, b"0")
    wild = [pattern for pattern in patterns if pattern.literal is None]
    deque(postings.expand(wild, lambda rows: [topics[row] for row in rows]), 0)
    if rules.whole_wildcards:
        match_by_keys(shaped, topics, rules)
    written = 0
    for text, topic in zip(texts, topics, strict=False):
        with suppress(matcher.MatcherError):
            written += len(str(matcher.explain(text, topic, dialect, allow_inner_multi=inner)))
    return written


def _playground(value: Json) -> int:
    topics = [topic[:MAX_CHARACTERS] for topic in _texts(value, "topics")[:MAX_OWN]]
    pattern, dialect = _text(value, "pattern")[:MAX_CHARACTERS], _text(value, "dialect")
    trial = Trial(pattern, dialect, None, dialect == "lite", topics, None)
    with suppress(matcher.MatcherError):
        return len(orjson.dumps(attempt(trial, cast("Any", None))))
    return 0


def _text(value: Json, name: str) -> str:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def _integer(value: Json, name: str) -> int:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, int) and 0 <= found < 1_000 else 1


def _texts(value: Json, name: str) -> Sequence[str]:
    found = value.get(name) if isinstance(value, dict) else None
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _history(*events: events.Event | None) -> list[Any]:
    return [event and [stream_of(event), event] for event in events]


def _inquiry(ask: str, **fields: Any) -> Mapping[str, Any]:
    return {"id": "q", "ask": ask, **fields}


_ASKED: Final = events.add("a__*")
_SET: Final[Json] = {"subscriptionSet": [events.add("a__*", parent="q"), events.replace("a__*", group="h")]}
_HISTORIES: Final = (
    _history(events.WILD, _ASKED, None, events.created("a__b"), events.created("a__c", ttlMs=1_000), None,
             events.tick(5_000)),
    _history(events.created("a__b"), None, events.EXCLUSIVE, _ASKED, events.add("a__*", client="d"), None,
             events.leave("a__*", parent=""), events.drop("a__*"), events.tick(90_000)),
    _history(events.quota(2), events.created("a__b", tags="x", properties={"a": "x"}), None,
             events.add("a__*", sql="a = 'x' OR b > 3"),
             events.add("a__*", tag="x || y"), None, events.deleted("a__b")),
    [["subscriptions", _SET],
     *_history(events.add("a/+/#", dialect="mqtt"), events.add("a.", dialect="wamp", policy="prefix"),
               events.add("**__a__**"), events.created("a__b__a"), events.created("a/b/c"),
               events.created("a.b", parent="q"))],
)  # fmt: skip

TARGETS: Final = (
    Target("worker", _HISTORIES, _worker, Cost(100, 50, 4_000)),
    Target(
        "question",
        tuple(
            {"history": _HISTORIES[0], "question": question}
            for question in (
                _inquiry("explain", client="c", topic="a__b"),
                _inquiry("plan", stream="subscriptions", record=events.add("*__b")),
                _inquiry("topic", topic="a__b"),
                _inquiry("topics", pattern="a__*"),
                _inquiry("subscriptions"),
            )
        ),
        _question,
        Cost(60, 60, 4_000),
        prepare=_asked,
    ),
    Target("routing", ({"depth": 1, "entries": ["a__*", "a.b"], "topics": ["a__b"]},), _routing, Cost(30, 1, 500)),
    Target(
        "selector",
        (
            {
                "type": "SQL92",
                "text": "a = 'x' OR NOT (b > 3) AND c IN ('x', 'y')",
                "properties": {"a": "x"},
                "tags": ["x"],
            },
            {"type": "SQL92", "text": "-a BETWEEN 1 AND b AND a CONTAINS 'x'", "properties": {"a": "1", "b": "2"}},
            {"type": "TAG", "text": "a || b", "tags": ["a"]},
        ),
        _selector,
        Cost(80, 1, 4_000),
    ),
    Target(
        "patterns",
        tuple(
            {"dialect": name, "patterns": [pattern, pattern], "topics": [topic, topic]}
            for name, pattern, topic in (
                ("lite", "a__**__b__*__**", "a__b__c__b"),
                ("mqtt", "a/+/#", "a/b/c"),
                ("nats", "a.*.>", "a.b.c"),
                ("wamp", "a.*.b*", "a.b.c"),
            )
        ),
        _patterns,
        Cost(150, 60, 4_000),
    ),
    Target(
        "match",
        ({"dialect": "lite", "pattern": "a__**__b", "topics": ["a__c__b", "a"]},),
        _playground,
        Cost(80, 80, 4_000),
    ),
)
