"""What the JVM makes of records: the same rows as the simulator's, and one reporter for each bad entry."""

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows

from streaming import coordinator
from streaming.config import Settings, load
from streaming.records.model import BIND_TOPIC, MAX_AHEAD_MS, MAX_NAME_BYTES, WILDCARD, Reason, Source, Stream
from streaming.records.routing import Routing, placed
from streaming.records.updates import Op
from streaming.records.writing import MAX_ORIGINAL_BYTES, SEPARATOR, TABLE_END, Tables, UpdateWriter
from streaming.spark.route import BEGINNING_BYTES, PIECE_BYTES, longest_value, route
from streaming.worker.bounds import bounds_of
from streaming.worker.quarantine import partition_of
from streaming.worker.rows import STREAMS, InputRow, InputRows, OutputKind, joined
from streaming.worker.signature import Signer
from streaming.worker.worker import WorkerConfig
from tests.support.events import encoded, replace
from tests.support.histories import history
from tests.support.mutations import VICTIMS, is_json
from tests.support.poison import HUGE, POISON
from tests.support.sharded import PARTITION_OF_SHARD
from tests.support.simulator import NUMBER, Record
from tests.support.states import records as joined_records
from tests.support.states import work
from tests.support.update_columns import AWKWARD, columns_of, written

SCHEMA = "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, value BINARY"
TIMESTAMP_MS = 1_700_000_000_123
ROUTINGS = [
    Routing(),
    Routing({"p": 3}, 0),
    Routing({"p": 3, "q": 2}, 1),
    Routing({"p": 5, "q": 2, "other": 7}, 2),
]
ROUTING_IDS = [f"{len(routing.shards)} sharded, depth {routing.depth}" for routing in ROUTINGS]
SIGNER = Signer(b"secret")
DEEP = b"[" * 1_005 + b"]" * 1_005
"""JSON that nests too deep for the JVM's parser."""
LONG_NUMBER = b"0." + b"1" * 1_500
"""A number that is too long for the JVM's parser, and not for Python's."""
LONG_NAME = "x" * (MAX_NAME_BYTES + 1)
REQUEST = encoded(replace("t"))
SET = json.dumps({"subscriptionSet": [replace("t")]}).encode()
LOOKS_SIGNED = b',"sign":"' + b"0" * 32 + b'"}'
LIMIT: int = Settings.model_fields["max_value_bytes"].default
AWKWARD_TOPICS = [
    "a", "a__b", "a___b", "a____b", "a_____b", "__a", "___a", "____", "__", "_", "a_", "a__", "a__b__c", "a__b__",
    "é__ü", "😀", "😀__😀__x", "a\u0000b", "a\nb__c", "\r\n__x", 'a"b', "a\\b__c", "$", "a$b", ".*__x", "x" * 3_000,
    "  __ ", "\ufffd__x",
]  # fmt: skip

Key = tuple[str, int]
Placed = tuple[int, int, int, str, int, int, Any]


def settings_of(routing: Routing) -> Settings:
    return load(
        {
            "bootstrap_servers": "unused:1",
            "checkpoint": "/unused",
            "shards": routing.shards,
            "route_depth": routing.depth,
        }
    )


def frame(spark: SparkSession, records: Iterable[Record]) -> DataFrame:
    names = dict(zip(STREAMS, settings_of(Routing()).inputs, strict=True))
    written_at = datetime.fromtimestamp(TIMESTAMP_MS / 1_000, UTC)
    rows = [(names[each.stream], each.partition, each.offset, written_at, each.value) for each in records]
    return spark.createDataFrame(rows, SCHEMA)


def rows_by_key(spark: SparkSession, records: Iterable[Record], routing: Routing) -> dict[Key, list[InputRow]]:
    """What the job's Python function gets."""
    found: dict[Key, list[tuple[InputRow, int]]] = defaultdict(list)
    for each in route(frame(spark, records), settings_of(routing)).collect():
        payload = None if each.payload is None else bytes(each.payload)
        assert len(payload or b"") <= PIECE_BYTES
        row = InputRow(each.stream, each.partition, each.offset, each.entry, each.timestamp, payload)
        found[each.parent, each.shard].append((row, each.piece))
    return {key: whole_rows(rows) for key, rows in found.items()}


def whole_rows(rows: list[tuple[InputRow, int]]) -> list[InputRow]:
    """Rows of one key, none of them a piece; they come in any order."""
    Random(len(rows)).shuffle(rows)
    whole = joined(InputRows.of(row for row, _ in rows), np.array([piece for _, piece in rows]))
    return list(itertools.starmap(InputRow, whole.by_row()))


def by_jvm(spark: SparkSession, records: Iterable[Record], routing: Routing) -> Counter[Placed]:
    return Counter(
        (row.stream, row.partition, row.offset, *key, row.entry, row.payload)
        for key, rows in rows_by_key(spark, records, routing).items()
        for row in rows
    )


def by_simulator(records: Iterable[Record], routing: Routing) -> Counter[Placed]:
    return Counter(
        (NUMBER[record.stream], record.partition, record.offset, parent, shard, entry, payload)
        for record in records
        for parent, shard, entry, payload in placed(record.stream, record.value, routing)
    )


def numbered(values: Sequence[tuple[Stream, Any]]) -> list[Record]:
    return [
        Record(stream, json.dumps(value, ensure_ascii=False).encode() if isinstance(value, dict) else value, 0, offset)
        for offset, (stream, value) in enumerate(values)
    ]


@pytest.mark.rule("set-or-request")
@pytest.mark.parametrize("routing", ROUTINGS, ids=ROUTING_IDS)
def test_random_histories_are_routed_as_the_simulator_does(spark: SparkSession, routing: Routing) -> None:
    """So what the property tests show of the simulator holds for the job."""
    records = history(Random(7), 400)
    expected = by_simulator(records, routing)
    assert by_jvm(spark, records, routing) == expected
    assert len({(key[3], key[4]) for key in expected}) > 3, "too few keys to show anything"


@pytest.mark.rule("lmq-names")
@pytest.mark.parametrize("routing", ROUTINGS, ids=ROUTING_IDS)
def test_awkward_names_are_routed_to_the_shard_that_python_knows(spark: SparkSession, routing: Routing) -> None:
    """Topics by both of their names, and groups by the bucket of theirs."""
    values: list[tuple[Stream, Any]] = []
    for name in AWKWARD_TOPICS:
        for parent in ("p", "q", "é😀", name.replace("$", "")):
            if parent.strip():
                values.append((Stream.TOPICS, {"event": "CREATED", "parentTopic": parent, "liteTopic": name}))
                values.append((Stream.TOPICS, {"event": "CREATED", "lmqName": f"%LMQ%${parent}${name}"}))
                values.append((Stream.SUBSCRIPTIONS, {"subscriptionSet": [replace("t", parent=parent, client=name)]}))
                values.append((Stream.GROUPS, {"group": name, "attributes": {BIND_TOPIC: parent}}))
        values.append((Stream.GROUPS, {"group": name, "attributes": {}}))
    records = numbered(values)
    assert by_jvm(spark, records, routing) == by_simulator(records, routing)


@pytest.mark.parametrize("routing", ROUTINGS, ids=ROUTING_IDS)
def test_fields_that_place_other_streams_place_nothing_here(spark: SparkSession, routing: Routing) -> None:
    """Whatever is in them: one parser reads the fields of all streams."""
    good: list[tuple[Stream, dict[str, Any]]] = [
        (Stream.TOPICS, {"event": "CREATED", "parentTopic": "p", "liteTopic": "a__b"}),
        (Stream.TOPICS, {"event": "CREATED", "lmqName": "%LMQ%$p$a__b"}),
        (Stream.SUBSCRIPTIONS, {"subscriptionSet": [replace("t"), replace("t", parent="q")]}),
        (Stream.SUBSCRIPTIONS, replace("t")),
        (Stream.GROUPS, {"group": "g", "attributes": {BIND_TOPIC: "p"}}),
        (Stream.GROUPS, {"group": "g", "parentTopic": "p", "attributes": {}}),
        (Stream.CLOCK, {"tick": 5}),
        (Stream.CLOCK, {"alarm": 5, "parentTopic": "p"}),
        (Stream.CLOCK, {"wake": 5, "parentTopic": "p", "shard": 0}),
    ]
    fields = {
        Stream.TOPICS: ("parentTopic", "liteTopic", "lmqName"),
        Stream.SUBSCRIPTIONS: ("subscriptionSet",),
        Stream.GROUPS: ("group", "attributes", "parentTopic"),
        Stream.CLOCK: ("tick", "alarm", "wake", "parentTopic", "shard"),
    }
    strange: list[Any] = [
        None,
        True,
        0.5,
        -1,
        2**63,
        2**70,
        "",
        "x",
        "5",
        [],
        [1],
        [[{}]],
        {},
        {"a": {"b": 1}},
        {BIND_TOPIC: []},
    ]
    every = {name for names in fields.values() for name in names}
    values: list[tuple[Stream, Any]] = [
        (stream, {**before, **value, **behind})
        for stream, value in good
        for name in sorted(every.difference(fields[stream]))
        if not (stream is Stream.SUBSCRIPTIONS and name == "group")
        for foreign in strange
        for before, behind in (({name: foreign}, {}), ({}, {name: foreign}))
    ]
    records = numbered(values)
    assert by_jvm(spark, records, routing) == by_simulator(records, routing)


STRANGE = [
    None, True, 0, -0.0, 5, 2**31, -(2**63), 2**63, 1e300,
    "", " ", "\u00a0\u2003", "\u0085\u001c", "x\u00a0", "p", "q", "5", "a__*", 'q"\\', "😀__é",
    "%LMQ%$p", "%LMQ%$p$", "%LMQ%$$a__b", "%XMQ%$p$a__b", [], [None], ["x", {}], {}, {BIND_TOPIC: "q"},
]  # fmt: skip
NAMES = ["parentTopic", "liteTopic", "lmqName", "topic", "group", "attributes", "tick", "alarm", "wake", "shard", "x"]


def varied(random: Random, value: Any) -> str:
    """JSON with a value's content in any order, with some parts changed, repeated, escaped, or among blanks."""
    if random.random() < 0.08:
        value = random.choice(STRANGE)
    blank = random.choice(["", "", " ", "\r\n\t"])
    if isinstance(value, dict):
        fields = [*value.items()]
        if random.random() < 0.2:
            fields.append((random.choice(NAMES), random.choice(STRANGE)))
        if fields and random.random() < 0.1:
            fields.append((random.choice(fields)[0], random.choice(STRANGE)))
        random.shuffle(fields)
        parts = [f"{text(random, name)}{blank}:{blank}{varied(random, each)}" for name, each in fields]
        return blank + "{" + f"{blank},{blank}".join(parts) + blank + "}" + blank
    if isinstance(value, list):
        several = value * random.choice([1, 1, 1, 2]) + [None] * random.choice([0, 0, 0, 1, 3])
        return blank + "[" + ",".join(varied(random, each) for each in several) + blank + "]" + blank
    return blank + (text(random, value) if isinstance(value, str) else json.dumps(value)) + blank


def text(random: Random, value: str) -> str:
    """JSON of a text, which sometimes escapes each character."""
    if random.random() < 0.9:
        return json.dumps(value, ensure_ascii=random.random() < 0.5)
    units = value.encode("utf-16-be").hex(" ", 2).split()
    return '"' + "".join(f"\\u{unit}" for unit in units) + '"'


@pytest.mark.rule("isolation-of-entries")
@pytest.mark.parametrize("routing", ROUTINGS, ids=ROUTING_IDS)
def test_varied_records_are_placed_where_python_places_them(spark: SparkSession, routing: Routing) -> None:
    """Even if fields are missing, repeated, of other types, or with blanks and escapes that few writers use."""
    random = Random(7)
    victims = random.choices(VICTIMS, k=20_000)
    values = [(stream, varied(random, record).replace("victim", "p").encode()) for stream, record in victims]
    records = numbered([(stream, value) for stream, value in values if is_json(value)])
    assert by_jvm(spark, records, routing) == by_simulator(records, routing)


@pytest.mark.rule("set-or-request")
def test_rows_carry_the_place_and_time_of_their_record(spark: SparkSession) -> None:
    """And entries their place in it, with no byte changed where the record has one entry."""
    single = b'{ "topic" : "p", "clientId": "\\u00e9" }'
    records = [
        Record(
            Stream.SUBSCRIPTIONS,
            json.dumps({"subscriptionSet": [replace("t"), replace("t", parent="q")]}).encode(),
            4,
            2**40,
        ),
        Record(Stream.SUBSCRIPTIONS, single, 5, 6),
    ]
    found = rows_by_key(spark, records, Routing())
    assert [row[:5] for row in found["p", 0] if row.partition == 4] == [(1, 4, 2**40, 0, TIMESTAMP_MS)]
    assert [row[:5] for row in found["q", 0]] == [(1, 4, 2**40, 2, TIMESTAMP_MS)]
    assert [row for row in found["p", 0] if row.partition == 5] == [InputRow(1, 5, 6, 0, TIMESTAMP_MS, single)]


def test_an_entry_keeps_what_it_says(spark: SparkSession) -> None:
    """The JVM cuts it out of its set, without a change of any byte."""
    entry = replace(
        "z",
        "a",
        "é",
        "😀",
        'quote"',
        "back\\slash",
        "line\nbreak",
        "\u0001",
        "\u2028",
        "/",
        version=2**63 - 1,
        offsetOption={"type": "OFFSET", "value": -(2**63)},
        further={"float": 0.1, "large": 2**70, "null": None, "list": [[], {}], "": True},
    )
    texts = [json.dumps(entry, ensure_ascii=is_ascii).encode() for is_ascii in (True, False)]
    value = b'{"subscriptionSet": [%b]}' % b" ,\n".join([*texts, b'"text"', b"-0.5E+7", b" { } ", b"true"])
    found = rows_by_key(spark, numbered([(Stream.SUBSCRIPTIONS, value)]), Routing())
    assert [row.payload for row in found["p", 0]] == texts
    assert [row.payload for row in found[coordinator.COORDINATOR, coordinator.bucket_of(entry["group"])]] == texts
    assert [row.payload for row in found[coordinator.COORDINATOR, coordinator.UNROUTABLE]] == [
        b'"text"', b"-0.5E+7", b"{ }", b"true",
    ]  # fmt: skip


# Bad entries beyond those of the other test's table.
FURTHER_POISON: list[tuple[Stream, Any, Reason]] = [
    (Stream.TOPICS, b'{"event":"CREATED","parentTopic":"p","liteTopic":"\\ud800"}', Reason.NOT_JSON),
    (Stream.TOPICS, b'{"event":"CREATED","parentTopic":"\\ud800","liteTopic":"t"}', Reason.NOT_JSON),
    (Stream.TOPICS, b'\xef\xbb\xbf{"event":"CREATED","parentTopic":"p","liteTopic":"t"}', Reason.NOT_JSON),
    (Stream.TOPICS, b"{'event':'CREATED','parentTopic':'p','liteTopic':'t'}", Reason.NOT_JSON),
    (Stream.TOPICS, b"[" * 1_100 + b"]" * 1_100, Reason.TOO_DEEP),
    (Stream.TOPICS, {"event": "CREATED", "parentTopic": 5, "liteTopic": "t"}, Reason.WRONG_TYPE),
    (Stream.TOPICS, {"event": "CREATED", "parentTopic": "  ", "liteTopic": "t"}, Reason.BLANK_NAME),
    (Stream.SUBSCRIPTIONS, REQUEST + b",", Reason.NOT_JSON),
    (Stream.SUBSCRIPTIONS, REQUEST + b",{}", Reason.NOT_JSON),
    (Stream.SUBSCRIPTIONS, REQUEST + b",null", Reason.NOT_JSON),
    (Stream.SUBSCRIPTIONS, b"null," + REQUEST, Reason.NOT_JSON),
    (Stream.SUBSCRIPTIONS, b"null", Reason.WRONG_TYPE),
    (Stream.SUBSCRIPTIONS, SET + b",{}", Reason.NOT_JSON),
    (Stream.SUBSCRIPTIONS, b'{"subscriptionSet":[' + REQUEST[:-1] + b',"x":"\xff"}]}', Reason.NOT_JSON),
    (Stream.SUBSCRIPTIONS, b"{}]", Reason.NOT_JSON),
    (Stream.SUBSCRIPTIONS, REQUEST + b"],[", Reason.NOT_JSON),
    (Stream.SUBSCRIPTIONS, REQUEST + b",null],[", Reason.NOT_JSON),
    *(
        (
            Stream.SUBSCRIPTIONS,
            json.dumps({"subscriptionSet": [replace("t"), replace("t")]}).encode() + behind,
            Reason.NOT_JSON,
        )
        for behind in (b",null],[", b',{"tick":0}],[', b',{}],["')
    ),
    *((stream, text, Reason.NOT_JSON) for stream in Stream for text in (b"", b"]", b"],[", b" ] ")),
    (Stream.SUBSCRIPTIONS, b"7", Reason.WRONG_TYPE),
    (Stream.SUBSCRIPTIONS, b"[]", Reason.WRONG_TYPE),
    (Stream.SUBSCRIPTIONS, {"subscriptionSet": None, "topic": "p"}, Reason.WRONG_TYPE),
    (Stream.SUBSCRIPTIONS, {"subscriptionSet": {}}, Reason.WRONG_TYPE),
    (Stream.SUBSCRIPTIONS, {"subscriptionSet": [None]}, Reason.WRONG_TYPE),
    (Stream.SUBSCRIPTIONS, {"subscriptionSet": [[1]]}, Reason.WRONG_TYPE),
    (Stream.SUBSCRIPTIONS, {"subscriptionSet": [{}]}, Reason.MISSING_FIELD),
    (Stream.SUBSCRIPTIONS, replace("t", parent=5), Reason.WRONG_TYPE),
    (Stream.SUBSCRIPTIONS, replace("t", parent=" "), Reason.BLANK_NAME),
    (Stream.SUBSCRIPTIONS, {"subscriptionSet": [replace("t", version=2**63)]}, Reason.OUT_OF_RANGE),
    (Stream.SUBSCRIPTIONS, b'{"topic":"q",' + REQUEST[1:], Reason.DUPLICATE_FIELD),
    (Stream.SUBSCRIPTIONS, REQUEST[:-1] + b',"topic":"q"}', Reason.DUPLICATE_FIELD),
    (Stream.SUBSCRIPTIONS, REQUEST[:-1] + b',"group":"h"}', Reason.DUPLICATE_FIELD),
    (Stream.SUBSCRIPTIONS, REQUEST[:-1] + b',"gro\\u0075p":"h"}', Reason.DUPLICATE_FIELD),
    (Stream.SUBSCRIPTIONS, SET[:-2] + b',{"topic":"p","topic":"p","group":"g"}]}', Reason.DUPLICATE_FIELD),
    (Stream.SUBSCRIPTIONS, b'{"subscriptionSet":[],' + SET[1:], Reason.DUPLICATE_FIELD),
    (Stream.SUBSCRIPTIONS, SET[:-1] + b',"subscriptionSet":[]}', Reason.DUPLICATE_FIELD),
    (Stream.TOPICS, b'{"event":"CREATED","parentTopic":"p","liteTopic":"t","liteTopic":"u"}', Reason.DUPLICATE_FIELD),
    (Stream.TOPICS, b'{"event":"CREATED","parentTopic":"q","parentTopic":"p","liteTopic":"t"}', Reason.DUPLICATE_FIELD),
    (Stream.TOPICS, b'{"event":"CREATED","parentTopic":"p","liteTopic":"t","x":{"y":1,"y":1}}', Reason.DUPLICATE_FIELD),
    (Stream.GROUPS, b'{"group":"h","group":"g","attributes":{"lite.bind.topic":"p"}}', Reason.DUPLICATE_FIELD),
    (
        Stream.GROUPS,
        b'{"group":"g","attributes":{"lite.bind.topic":"q","lite.bind.topic":"p"}}',
        Reason.DUPLICATE_FIELD,
    ),
    (Stream.CLOCK, b'{"tick":1,"tick":1}', Reason.DUPLICATE_FIELD),
    (Stream.CLOCK, b'{"alarm":1,"parentTopic":"p","shard":0,"shard":0}', Reason.DUPLICATE_FIELD),
    (Stream.SUBSCRIPTIONS, REQUEST[:-1] + b',"x":' + DEEP + b"}", Reason.TOO_DEEP),
    *(
        (Stream.SUBSCRIPTIONS, REQUEST[:-1] + b',"%b":%b}' % (field, DEEP[705:-705]), reason)
        for field, reason in ((b"dialect", Reason.TOO_DEEP), (b"later", Reason.TOO_DEEP), (b"x", Reason.TOO_DEEP))
    ),
    (Stream.SUBSCRIPTIONS, b'{"subscriptionSet":[%b,"later":%b}]}' % (REQUEST[:-1], DEEP[705:-705]), Reason.TOO_DEEP),
    (Stream.SUBSCRIPTIONS, REQUEST[:-1] + b',"x":' + LONG_NUMBER + b"}", Reason.NOT_ROUTABLE),
    (Stream.SUBSCRIPTIONS, {"subscriptionSet": [None] * 1_024, "pad": "x" * 900_000}, Reason.WRONG_TYPE),
    (Stream.SUBSCRIPTIONS, replace("t", parent=LONG_NAME), Reason.NAME_TOO_LONG),
    (Stream.SUBSCRIPTIONS, {"subscriptionSet": [replace("t", parent=LONG_NAME)]}, Reason.NAME_TOO_LONG),
    (Stream.TOPICS, {"event": "CREATED", "parentTopic": LONG_NAME, "liteTopic": "t"}, Reason.NAME_TOO_LONG),
    (Stream.TOPICS, {"event": "CREATED", "lmqName": f"%LMQ%${LONG_NAME}$t"}, Reason.NAME_TOO_LONG),
    (Stream.GROUPS, {"group": "g", "attributes": {BIND_TOPIC: LONG_NAME}}, Reason.NAME_TOO_LONG),
    (Stream.CLOCK, {"wake": 5, "parentTopic": LONG_NAME, "shard": 0}, Reason.NAME_TOO_LONG),
    *(
        (stream, {**value, "pad": "x" * PIECE_BYTES}, Reason.NAME_TOO_LONG)
        for stream, value in (
            (Stream.SUBSCRIPTIONS, replace("t", parent=LONG_NAME)),
            (Stream.SUBSCRIPTIONS, {"subscriptionSet": [replace("t", parent=LONG_NAME)]}),
            (Stream.TOPICS, {"event": "CREATED", "parentTopic": LONG_NAME, "liteTopic": "t"}),
            (Stream.GROUPS, {"group": "g", "attributes": {BIND_TOPIC: LONG_NAME}}),
            (Stream.CLOCK, {"wake": 5, "parentTopic": LONG_NAME, "shard": 0}),
        )
    ),
    *(
        (stream, json.dumps({**value, "pad": "x" * LIMIT}).encode()[:-1] + LOOKS_SIGNED, Reason.VALUE_TOO_LARGE)
        for stream, value in (
            (Stream.SUBSCRIPTIONS, replace("t")),
            (Stream.SUBSCRIPTIONS, replace("t", asOf=[0, 0, 0])),
            (Stream.SUBSCRIPTIONS, {"subscriptionSet": [replace("t")] * 3}),
            (Stream.GROUPS, {"group": "g", "attributes": {BIND_TOPIC: "p"}}),
            (Stream.TOPICS, {"event": "CREATED", "parentTopic": "p", "liteTopic": "t"}),
            (Stream.CLOCK, {"tick": 1}),
        )
    ),
    *((stream, b'{"x":"' + b"y" * LIMIT + b'"}', Reason.VALUE_TOO_LARGE) for stream in Stream),
    (Stream.TOPICS, b"\xff" * (LIMIT + 1), Reason.VALUE_TOO_LARGE),
    (Stream.TOPICS, b"x" * LIMIT, Reason.NOT_JSON),
    (Stream.SUBSCRIPTIONS, b"x" * LIMIT + SIGNER.sign(b"{}"), Reason.VALUE_TOO_LARGE),
    (Stream.SUBSCRIPTIONS, {"subscriptionSet": [replace("t")] * 1_025}, Reason.OUT_OF_RANGE),
    (Stream.SUBSCRIPTIONS, replace(*[str(number) for number in range(20_001)]), Reason.OUT_OF_RANGE),
    (Stream.SUBSCRIPTIONS, replace("a", HUGE), Reason.NAME_TOO_LONG),
    (Stream.SUBSCRIPTIONS, replace("t", asOf=[0, 0, 0]), Reason.RESERVED_FIELD),
    (Stream.SUBSCRIPTIONS, {"subscriptionSet": [replace("t", expired=True)]}, Reason.RESERVED_FIELD),
    (Stream.GROUPS, {"group": "g", "attributes": {}, "parentTopic": "p", "boundTo": "q"}, Reason.RESERVED_FIELD),
    (Stream.CLOCK, b'{"tick":5,"x":NaN}', Reason.NOT_JSON),
    (Stream.CLOCK, b'{"tick":5,"x":-Infinity}', Reason.NOT_JSON),
    (Stream.CLOCK, b'{"tick":5,"x":"\\ud800"}', Reason.NOT_JSON),
    (Stream.CLOCK, {"tick": TIMESTAMP_MS + MAX_AHEAD_MS + 1}, Reason.AHEAD_OF_TIME),
    (Stream.CLOCK, {"wake": TIMESTAMP_MS + MAX_AHEAD_MS + 1, "parentTopic": "p", "shard": 0}, Reason.AHEAD_OF_TIME),
    (Stream.GROUPS, b'{"group":"g","attributes":{"lite.bind.topic":"p"},"x":"\\ud800"}', Reason.NOT_JSON),
    (Stream.GROUPS, b'{"group":"g","attributes":{"lite.bind.topic":"p"}} {}', Reason.NOT_JSON),
    (Stream.GROUPS, {"group": 5, "attributes": {BIND_TOPIC: "p"}}, Reason.WRONG_TYPE),
    (Stream.GROUPS, {"group": "g", "attributes": {BIND_TOPIC: " "}}, Reason.GROUP_NOT_PLACED),
    (Stream.GROUPS, {"group": "g", "attributes": {BIND_TOPIC: ""}}, Reason.GROUP_NOT_PLACED),
    (Stream.GROUPS, {"group": "g", "attributes": {}, "parentTopic": ""}, Reason.BLANK_NAME),
    (Stream.GROUPS, {"group": "g", "attributes": {BIND_TOPIC: None}}, Reason.WRONG_TYPE),
    (Stream.GROUPS, {"group": "g", "attributes": {}, "parentTopic": ["p"]}, Reason.WRONG_TYPE),
]


@pytest.mark.rule("isolation-of-entries", "bounds", "time-ahead")
@pytest.mark.parametrize("routing", ROUTINGS, ids=ROUTING_IDS)
def test_exactly_one_key_reports_a_bad_entry(spark: SparkSession, routing: Routing) -> None:
    """Whatever the JVM makes of it, with the reason that Python's parser knows."""
    wild = {"group": "wild", "attributes": {BIND_TOPIC: "p", WILDCARD: "true"}}
    table = [*POISON, *FURTHER_POISON]
    records = numbered([(Stream.GROUPS, wild), *((stream, value) for stream, value, _ in table)])
    letters = dead_letters(spark, records, routing)
    assert letters == {offset: [reason] for offset, (_, _, reason) in enumerate(table, 1)}


@pytest.mark.parametrize(
    ("stream", "value", "times"),
    [
        (Stream.SUBSCRIPTIONS, {"subscriptionSet": [None] * 1_024, "pad": "x" * 900_000}, 1),
        (Stream.SUBSCRIPTIONS, {"subscriptionSet": [None] * 900_000}, 1),
        (Stream.SUBSCRIPTIONS, replace("t", parent="x" * 900_000), 1),
        (Stream.TOPICS, {"event": "CREATED", "parentTopic": "x" * 900_000, "liteTopic": "t"}, 1),
        (Stream.SUBSCRIPTIONS, replace("t", pad="x" * 900_000), 4),
        (Stream.SUBSCRIPTIONS, {"subscriptionSet": [replace("t", pad="x" * 1_000)] * 900}, 4),
        (Stream.GROUPS, {"group": "g", "attributes": {BIND_TOPIC: "p"}, "pad": "x" * 900_000}, 4),
        (Stream.CLOCK, {"tick": 1, "pad": "x" * 900_000}, coordinator.BUCKETS),
    ],
)
def test_nothing_multiplies_a_record(spark: SparkSession, stream: Stream, value: dict[str, Any], times: int) -> None:
    """It comes to each of its keys once: the coordinator's, and those of the three shards of its parent."""
    (record,) = numbered([(stream, value)])
    rows = route(frame(spark, [record]), settings_of(Routing({"p": 3}))).collect()
    size = sum(len(row.parent) + len(row.payload) for row in rows)
    assert size <= times * len(record.value or b"") + len(rows)  # the parent's name is in each row, too


@pytest.mark.rule("bounds")
def test_a_long_record_comes_to_many_shards_one_by_one(spark: SparkSession) -> None:
    """All of its rows together have more than Java's memory."""
    (record,) = numbered([(Stream.SUBSCRIPTIONS, replace("t", x="y" * 900_000))])
    rows = route(frame(spark, [record]), settings_of(Routing({"p": 2_500})))
    ((shards, size),) = rows.agg(F.count_distinct("parent", "shard"), F.sum(F.length("payload"))).collect()
    assert (shards, size) == (2_501, 2_501 * len(record.value or b""))


@pytest.mark.rule("bounds")
def test_what_is_long_comes_whole(spark: SparkSession) -> None:
    """In pieces that Python joins: single requests and those of a set, on all of their keys, to the byte."""
    single = encoded(replace("t", x="é" * 100_000))
    entries = [replace("t", client=f"c{number}", x="ab" * (PIECE_BYTES // 2 + number)) for number in range(-30, 3, 3)]
    records = numbered([(Stream.SUBSCRIPTIONS, single), (Stream.SUBSCRIPTIONS, {"subscriptionSet": entries})])
    found = rows_by_key(spark, records, Routing({"p": 2}))
    assert len(found) == 3
    for rows in found.values():
        (row,) = [row for row in rows if row.offset == 0]
        assert row.payload == single
        assert [json.loads(row.payload or b"") for row in rows if row.offset == 1] == entries


@pytest.mark.rule("bounds", "large-record")
def test_the_dead_letter_of_what_is_too_large_has_its_size_and_its_beginning(spark: SparkSession) -> None:
    value = b'{"x":"' + b"y" * LIMIT
    ((_, _, letter),) = worked(spark, [Record(Stream.GROUPS, value, 2, 7)], Routing())
    found = json.loads(letter)
    assert (found["originalBytes"], found["truncated"]) == (len(value), True)
    assert 60_000 < len(found["original"]) < MAX_ORIGINAL_BYTES
    assert value.startswith(found["original"].encode())
    assert found["source"] == Source(settings_of(Routing()).group_events, 2, 7, 0, TIMESTAMP_MS)._asdict()
    assert found["message"] == f"the value has {len(value):,} bytes; at most {LIMIT:,} are allowed (max_value_bytes)"


def test_a_value_that_the_source_has_cut_is_placed_as_the_whole_one(spark: SparkSession) -> None:
    settings = settings_of(Routing({"p": 3}))
    longest = longest_value(settings)
    sizes = (0, 10, LIMIT, LIMIT + 1, longest, longest + 1, 2 * longest)
    values = [b"x" * (size - len(end)) + end for size in sizes for end in (b"", LOOKS_SIGNED)]
    whole = frame(spark, numbered([(stream, value) for stream in Stream for value in [None, *values]]))
    size = F.coalesce(F.length("value"), F.lit(0))
    beginning = F.when(size > longest, F.substring("value", 1, BEGINNING_BYTES)).otherwise(F.col("value"))
    cut = whole.withColumn("size", size).withColumn("value", beginning)
    assert sorted(map(tuple, route(cut, settings).collect()), key=repr) == sorted(
        map(tuple, route(whole, settings).collect()), key=repr
    )


@pytest.mark.rule("isolation-of-entries")
def test_any_pieces_of_json_are_reported_once(spark: SparkSession) -> None:
    """Whatever stands before and behind them; none stops the query."""
    event = '{"event":"CREATED","parentTopic":"p","liteTopic":"t"}'
    group = json.dumps({"group": "g", "attributes": {BIND_TOPIC: "p"}})
    whole = [json.dumps(replace("t")), json.dumps({"subscriptionSet": [replace("t")]}), event, group, '{"tick":1}']
    pieces = ["[", "]", "{", "}", ",", ":", '"', "null", "1", '"tick":', '{"tick":', "\\", " ", "//", *whole]
    random = Random(1)
    texts = {"".join(random.choices(pieces, k=random.randint(1, 6))).encode() for _ in range(1_500)}
    broken = [text for text in sorted(texts) if not is_json(text)]
    records = numbered([(stream, text) for text in broken for stream in Stream])
    letters = dead_letters(spark, records, Routing({"p": 3}, 1))
    assert letters == {record.offset: [Reason.NOT_JSON] for record in records}


@pytest.mark.rule("blank-names")
@pytest.mark.parametrize("routing", ROUTINGS, ids=ROUTING_IDS)
def test_good_entries_beside_bad_ones_are_applied(spark: SparkSession, routing: Routing) -> None:
    entries = [
        replace("t", client=""),
        None,
        replace("t", client="one"),
        replace("t", parent=""),
        replace("t", client="two"),
        {},
    ]
    records = numbered(
        [
            (Stream.SUBSCRIPTIONS, {"subscriptionSet": entries}),
            (Stream.TOPICS, {"event": "CREATED", "parentTopic": "p", "liteTopic": "t"}),
        ]
    )
    outputs = worked(spark, records, routing)
    added = [json.loads(key)[2] for kind, key, _ in outputs if kind == OutputKind.ADD]
    assert sorted(added) == ["one", "two"]
    reported = [json.loads(value)["source"]["entry"] for kind, _, value in outputs if kind == OutputKind.DEAD_LETTER]
    assert sorted(reported) == [0, 1, 3, 5]


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\n" + TABLE_END), max_size=9).map(str.encode)


@st.composite
def tables(draw: st.DrawFn) -> Tables:
    """Tables of any texts, also empty ones, with records of any topics, subscribers and patterns in any order."""
    topics, subscribers, patterns = (draw(st.integers(1, 4)) for _ in range(3))
    sizes = {"middle": 1, "end": 1, "patterns": patterns, **dict.fromkeys(Tables._fields[:4], topics)}
    texts = {
        name: b"\n".join(draw(st.lists(TEXTS, min_size=size, max_size=size)))
        for name in Tables._fields[:-1]
        for size in (sizes.get(name, subscribers),)
    }
    numbers = draw(st.lists(st.integers(0, topics * subscribers * (patterns + 1) - 1), min_size=1, max_size=9))
    return Tables(**texts, records=b"\n".join(b"%d" % number for number in numbers))


def joined_by_sink(spark: SparkSession, start: bytes, row: bytes) -> list[tuple[bytes, bytes | None]]:
    """Return keys and values as the sink joins them."""
    jvm: Any = spark._jvm
    found, records = [], jvm.reexpand.Tables(start, row)
    while records.next():
        found.append((records.key(), records.value()))
    return found


@pytest.mark.rule("by-column")
@settings_of_hypothesis(deadline=None)
@given(start=TEXTS, row=tables().map(SEPARATOR.join))
def test_the_sink_joins_tables_as_they_are_defined(spark: SparkSession, start: bytes, row: bytes) -> None:
    assert joined_by_sink(spark, start, row) == [(start + key, value) for key, value in joined_records(row)]


@pytest.mark.rule("by-column")
@pytest.mark.parametrize("op", Op)
def test_updates_by_column_become_the_records_that_python_writes(spark: SparkSession, op: Op) -> None:
    """To the byte and in order; a REMOVE is followed by its tombstone."""
    topics = [*AWKWARD, *AWKWARD_TOPICS]
    said = [(at, at % 4, tuple(topics[at % 5 : at % 7])) for at in (*range(len(topics)), 0, 7, 7)]
    columns, one_by_one = columns_of(said, topics, op)
    assert joined_by_sink(spark, b"", SEPARATOR.join(Tables.of(UpdateWriter("p$é"), columns))) == written(one_by_one)
    singly = [(b"k", b"v"), (b"l", None), (b"c\n\x1e", b'{"wake": 0}')]
    assert [
        record
        for key, value in singly
        for record in joined_by_sink(spark, key, SEPARATOR.join(Tables.singly([b""], [value])))
    ] == singly
    several = [(b"k", b"v"), (b"l", None), (b"m", b"w")]
    assert joined_by_sink(spark, b"", SEPARATOR.join(Tables.singly(*zip(*several, strict=True)))) == several


def test_keys_are_where_spark_puts_them(spark: SparkSession) -> None:
    """A hash partitioning of Spark is the remainder of this function."""
    parents = ["", "p", "ab", "abc", "orders", "Größe", "日本語のトピック", "x" * 100]
    keys = spark.createDataFrame(
        [(parent, number) for parent in parents for number in (-2, 0, 1, 17)], "parent STRING, shard INT"
    )
    for count in (1, 2, 8, 37):
        rows = keys.select("parent", "shard", F.pmod(F.hash("parent", "shard"), F.lit(count))).collect()
        assert {(parent, number): partition_of(parent, number, count) for parent, number, _ in rows} == {
            (parent, number): found for parent, number, found in rows
        }


def test_shards_are_placed_where_the_test_of_the_cluster_says(spark: SparkSession) -> None:
    shards = spark.range(len(PARTITION_OF_SHARD)).select(F.lit("p").alias("parent"), F.col("id").cast("int"))
    placed = shards.repartition(2, "parent", "id").select("id", F.spark_partition_id()).sort("id").collect()
    assert tuple(partition for _, partition in placed) == PARTITION_OF_SHARD


def worked(spark: SparkSession, records: Iterable[Record], routing: Routing) -> list[tuple[str, bytes, bytes]]:
    chosen = settings_of(routing)
    settings = WorkerConfig(chosen.inputs, routing, bounds=bounds_of(chosen), signer=SIGNER)
    found: list[tuple[str, bytes, bytes]] = []
    for (parent, shard), rows in rows_by_key(spark, records, routing).items():
        assert parent or coordinator.OVERSIZE <= shard < coordinator.BUCKETS
        _, output = work(parent, shard, rows, None, settings)
        found += [
            (kind, key or b"", value or b"")
            for kind, key, value in zip(output.kinds, output.keys, output.payloads, strict=True)
        ]
    return found


def dead_letters(spark: SparkSession, records: Iterable[Record], routing: Routing) -> dict[int, list[str]]:
    found: dict[int, list[str]] = defaultdict(list)
    for kind, _, value in worked(spark, records, routing):
        if kind == OutputKind.DEAD_LETTER:
            letter = json.loads(value)
            found[letter["source"]["offset"]].append(letter["reason"])
    return dict(found)
