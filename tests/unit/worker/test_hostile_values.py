"""Values that are made to hurt: each is one dead letter, at a cost that grows with its size only."""

import json
import time
from typing import Any

import orjson
import pytest

from streaming.config import Settings
from streaming.coordinator import COORDINATOR, UNROUTABLE, bucket_of
from streaming.errors import Rejected
from streaming.records import json_fields
from streaming.records.json_fields import MAX_DEPTH, depth, excerpt, json_object
from streaming.records.model import Reason, Stream
from streaming.records.parsing import parse_subscription
from streaming.records.routing import Routing, placed
from streaming.worker.bounds import DEFAULT_REQUEST_BYTES, REPETITION_BYTES, Bounds
from streaming.worker.rows import STREAMS, InputRow, InputRows, OutputKind, label
from streaming.worker.signature import Signer
from streaming.worker.worker import Worker, WorkerConfig
from tests.support.events import created, encoded, leave, replace, tick
from tests.support.simulator import TOPICS as NAMES
from tests.support.simulator import Record, Simulation
from tests.support.states import CLOCK, GROUPS, HOME, SUBSCRIPTIONS, TOPICS, row, work

SIGNER = Signer(b"secret")
BOUNDS = Bounds(value_bytes=1_000_000, requests=4, entries=20_000, name_bytes=16_384, ahead_ms=10_000)
TIGHT = BOUNDS._replace(value_bytes=2_000)


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def deep(field: str, levels: int) -> bytes:
    """A request with one field that nests."""
    return encoded(replace("t"))[:-1] + b',"%b":%b}' % (field.encode(), nested(levels))


def reported(key: tuple[str, int], payload: bytes, stream: int = SUBSCRIPTIONS, bounds: Bounds = BOUNDS) -> list[str]:
    worker = Worker(WorkerConfig(NAMES, signer=SIGNER, bounds=bounds))
    _, output = work(*key, [row(stream, payload)], None, worker)
    return output.reasons


# Depth.


@pytest.mark.parametrize(
    ("value", "levels"),
    [
        (b"7", 0),
        (b"[]", 1),
        (b'{"a":[{}]}', 3),
        (b'["[[[", {"]]": "}"}]', 2),
        (rb'["\"[[", "\\", [[]], "\\\"[[["]', 3),
        (b"[[],[],[]]", 2),
        (b"]]]]", 0),
    ],
)
def test_the_depth_is_that_of_the_brackets_outside_of_strings(value: bytes, levels: int) -> None:
    assert depth(value) == levels


def test_a_value_may_nest_as_deep_as_the_bound() -> None:
    assert json_object(b'{"a":%b}' % nested(MAX_DEPTH - 1))["a"]
    with pytest.raises(Rejected, match="32 levels") as error:
        json_object(b'{"a":%b}' % nested(MAX_DEPTH))
    assert error.value.reason == Reason.TOO_DEEP


def test_a_long_flat_value_is_not_deep() -> None:
    assert len(json_object(b'{"a":[%b]}' % b",".join([b"[{}]"] * 1_000))["a"]) == 1_000


@pytest.mark.parametrize("levels", [40, 254, 300, 900, 100_000])
@pytest.mark.parametrize(
    "field", ["dialect", "policy", "delivery", "action", "selector", "topic", "ends", "later", "x"]
)
def test_a_deep_request_is_one_dead_letter(field: str, levels: int) -> None:
    assert reported(HOME, deep(field, levels)) == [Reason.TOO_DEEP]
    assert reported(("p", 0), deep(field, levels)) == []


@pytest.mark.parametrize("levels", [40, 300, 900])
def test_deep_values_of_the_other_streams_are_dead_letters(levels: int) -> None:
    value = nested(levels)
    unroutable = COORDINATOR, UNROUTABLE
    assert reported(("p", 0), encoded(created())[:-1] + b',"x":%b}' % value, TOPICS) == [Reason.TOO_DEEP]
    assert reported(unroutable, b'{"attributes":{"a":%b},"group":"g"}' % value, GROUPS) == [Reason.TOO_DEEP]
    assert reported(unroutable, encoded(tick(5_000))[:-1] + b',"inquiry":{"id":%b}}' % value, CLOCK) == [
        Reason.TOO_DEEP
    ]


def test_an_entry_that_nests_deep_is_placed_like_others() -> None:
    """On its keys, where it is a dead letter; the other entries of its record count."""
    entry = b'{"action":"COMPLETE_ADD","clientId":"c","group":"g","topic":"p","x":%b}' % nested(300)
    found = placed(STREAMS[SUBSCRIPTIONS], b'{"subscriptionSet":[%b,%b]}' % (entry, encoded(replace("t"))), Routing())
    assert {(each.parent, each.entry) for each in found} == {("p", 0), ("p", 2), (COORDINATOR, 0), (COORDINATOR, 2)}
    for each in found:
        reasons = reported((each.parent, each.shard), each.payload or b"")
        assert reasons == ([Reason.TOO_DEEP] if (each.parent, each.entry) == (COORDINATOR, 0) else [])


def test_what_nests_too_deep_for_the_jvm_is_placed_as_a_whole() -> None:
    """As Spark places it: none of its entries counts."""
    value = b'{"subscriptionSet":[%b,{"x":%b}]}' % (encoded(replace("t")), nested(1_005))
    (found,) = placed(STREAMS[SUBSCRIPTIONS], value, Routing())
    assert (found.parent, found.shard, found.payload) == (COORDINATOR, UNROUTABLE, value)


# Excerpts for messages.


def test_an_excerpt_never_raises() -> None:
    too_deep: list[Any] = []
    for _ in range(300):
        too_deep = [too_deep]
    assert excerpt(too_deep) == "an array"
    assert excerpt("\ud800") == "a string"
    assert excerpt(10**5_000) == "a number"
    assert excerpt(float("nan")) == "null"


# Repeated fields.


def test_a_repeated_field_is_found_in_linear_time() -> None:
    """Each name is looked at once."""
    asked = 0

    class Name(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal asked
            asked += 1
            return str.__eq__(self, other) is True

        __hash__ = str.__hash__

    def comparisons(count: int) -> int:
        nonlocal asked
        asked = 0
        fields = [(Name(f"f{number}"), 1) for number in (*range(count), count - 1)]
        with pytest.raises(Rejected, match=f"f{count - 1}"):
            json_fields._object(fields)  # type: ignore[arg-type]
        return asked

    assert comparisons(2_000) < 3 * comparisons(1_000)


# Fields for the job alone.


def later(levels: int) -> bytes:
    """The end of a client whose repeated requests repeat requests."""
    value = [replace("t", place=[0, 1, 2])]
    for _ in range(levels - 1):
        value = [replace("t", place=[0, 1, 2], later=value)]
    return encoded(leave(asOf=[0, 1, 2], later=value))


def test_nested_repetitions_are_one_dead_letter() -> None:
    assert reported(HOME, later(2)) == [Reason.RESERVED_FIELD]
    assert reported(HOME, SIGNER.sign(later(1))) == []
    assert reported(HOME, SIGNER.sign(later(2))) == [Reason.WRONG_TYPE]
    assert reported(HOME, later(100)) == [Reason.TOO_DEEP]
    with pytest.raises(Rejected, match="later"):
        parse_subscription(later(2))


def test_fields_that_say_nothing_are_accepted() -> None:
    unset = {"asOf": None, "expired": False, "ends": None, "later": None, "through": None, "forgets": False}
    assert reported(HOME, encoded(replace("t", **unset))) == []


# Sizes.


@pytest.mark.parametrize("by", [None, Signer(b"another")])
def test_what_only_looks_signed_is_bounded_like_everything_else(by: Signer | None) -> None:
    long = encoded(replace("t", x="y" * 2_000))
    payload = by.sign(long) if by else long[:-1] + b',"sign":"' + b"0" * 32 + b'"}'
    assert reported(HOME, payload, bounds=TIGHT) == [Reason.VALUE_TOO_LARGE]
    assert reported(("p", 0), payload, bounds=TIGHT) == []


def test_what_the_job_wrote_has_no_bound() -> None:
    payload = SIGNER.sign(encoded(leave(asOf=[0, 1, 2], x="y" * 2_000)))
    assert reported(HOME, payload, bounds=TIGHT) == []


def test_a_request_is_so_short_that_the_job_can_repeat_it() -> None:
    worker = Worker(WorkerConfig(NAMES, signer=SIGNER, bounds=BOUNDS._replace(request_bytes=1_000)))
    payload = encoded(replace("t", x="y" * 1_000))
    _, output = work(*HOME, [row(SUBSCRIPTIONS, payload)], None, worker)
    assert output.reasons == [Reason.VALUE_TOO_LARGE]
    _, output = work("p", 0, [row(TOPICS, created(x="y" * 1_000))], None, worker)
    assert output.letters == []


# Questions.


def asked(*names: Any) -> list[InputRow]:
    now = int(time.time() * 1_000)
    return [
        InputRow(CLOCK, 0, number, 0, now, json.dumps(
            {"wake": 0, "parentTopic": "p", "shard": 0, "inquiry": {"id": name, "ask": "topics"}}
        ).encode())
        for number, name in enumerate(names)
    ]  # fmt: skip


def test_a_question_whose_id_is_too_long_for_an_answer_has_none() -> None:
    _, output = work("p", 0, asked("x" * 900_000, 5, None, "good", "\x00" * 256), None, WorkerConfig(NAMES))
    assert [json.loads(payload or b"")["id"] for payload in output.payloads] == ["good", "\x00" * 256]


# What goes to the driver.


def test_long_names_are_cut_on_their_way_to_the_driver() -> None:
    """Spark brings the counts of all keys to the driver, in one row."""
    parent, name = "p" * 8_000, "\u20ac" * 2_000 + "*"
    requests = [encoded(replace(name, parent=parent, group=f"{number}{name}")) for number in range(9)]
    rows = [row(SUBSCRIPTIONS, request, offset) for offset, request in enumerate(requests)]
    steps = Worker(WorkerConfig(NAMES)).work(parent, 0, InputRows.of(rows), None)
    (counts,) = [payload for output in steps for kind, _, payload in output.all_rows() if kind == OutputKind.COUNTS]
    assert len(counts) < 24_000
    found = orjson.loads(counts)["facts"][0]
    assert (len(found), found[:10]) == (128, "p" * 10)
    assert label("p" * 8_001) != found
    assert label("x" * 128) == "x" * 128


@pytest.mark.parametrize("fields", [
    {"liteTopic": 5}, {"liteTopic": True}, {"liteTopic": [[]]}, {"liteTopic": {}}, {"liteTopic": 0.5},
    {"lmqName": 7}, {"lmqName": [[]]}, {"parentTopic": []},
])  # fmt: skip
def test_a_topic_of_a_wrong_type_is_placed_somewhere(fields: dict[str, Any]) -> None:
    """On some shard of its parent, if it has one."""
    (found,) = placed(STREAMS[TOPICS], encoded(created(**fields)), Routing({"p": 3}))
    assert found.parent == (COORDINATOR if "parentTopic" in fields else "p")
    assert reported((found.parent, found.shard), found.payload or b"", TOPICS) != []


@pytest.mark.parametrize("timestamp", [-(2**63), -1, 0, 2**63 - 1])
def test_the_job_can_read_its_own_alarms(timestamp: int) -> None:
    """Also those of topics that end at the end of all time."""
    job = Simulation(now=5)
    job.run([Record(Stream.TOPICS, encoded(created(timestamp=timestamp, ttlMs=2_592_000_000)), 0, 0, 5)], crash=True)
    assert job.dead_letters == []


@pytest.mark.parametrize("letter", ["n", "\u20ac", "\x01", '"'])
def test_the_longest_request_can_be_repeated(letter: str) -> None:
    """Behind the end of its client, by a record that Kafka takes under the defaults."""
    names = {name: name[0] * 16_384 for name in ("clientId", "group", "topic")}
    key = COORDINATOR, bucket_of(names["group"])
    entries = [f"{number:05}{letter * 2_700}" for number in range(330)]
    while len(long := orjson.dumps(replace(*entries, **names))) > DEFAULT_REQUEST_BYTES:
        entries.pop()
    long = long[:-1] + b" " * (DEFAULT_REQUEST_BYTES - len(long)) + b"}"
    end = orjson.dumps(leave(**{**names, "topic": ""}))
    rows = [row(SUBSCRIPTIONS, orjson.dumps(replace("t", **names))), row(SUBSCRIPTIONS, end, entry=1)]
    rows = [each._replace(offset=number) for number, each in enumerate([*rows, row(SUBSCRIPTIONS, long)])]
    _, output = work(*key, rows, None, Worker(WorkerConfig(NAMES, signer=SIGNER, bounds=BOUNDS)))
    assert output.letters == []
    written = [len(name) + len(payload or b"") for name, payload in zip(output.keys, output.payloads, strict=True)]
    assert sum(written) > 600_000
    assert max(written) < 1_048_576 - 1_000


@pytest.mark.parametrize(
    "value", [Settings.model_fields["max_value_bytes"].default, DEFAULT_REQUEST_BYTES, 1_048_576 - REPETITION_BYTES]
)
def test_the_bounds_of_requests_and_values_are_the_same_by_default(value: int) -> None:
    assert value == 1_000_000
