"""Parsing and validation of the three input streams."""

from collections.abc import Callable
from typing import Any

import pytest

from streaming.errors import Rejected
from streaming.events import (
    BIND_TOPIC,
    MAX_NAME_BYTES,
    MAX_TTL_MS,
    WILDCARD,
    Action,
    GroupEvent,
    Reason,
    SubscriptionRequest,
    TopicEvent,
    check_name,
    lmq_name,
    parse_group_event,
    parse_lmq_name,
    parse_subscription,
    parse_topic_event,
)
from tests.unit.streaming.builders import created, deleted, group_json, request_json, topic_json

Parser = Callable[[bytes | None], TopicEvent | SubscriptionRequest | GroupEvent]

PARSERS: list[Parser] = [parse_topic_event, parse_subscription, parse_group_event]
INT64 = 2**63
TWICE = b'{"event":"CREATED","parentTopic":"p","liteTopic":"first","liteTopic":"last"}'
SURROGATE_PAIR = b'{"event":"CREATED","parentTopic":"p","liteTopic":"\\ud83d\\ude00"}'


@pytest.mark.parametrize(
    ("payload", "event"),
    [
        (topic_json(), created("t")),
        (topic_json(event="DELETED"), deleted("t")),
        (topic_json(timestamp=-INT64, ttlMs=1), created("t")),
        (topic_json(timestamp=INT64 - 1, ttlMs=MAX_TTL_MS), created("t")),
        (topic_json(timestamp=None, ttlMs=None, tags=None, properties=None), created("t")),
        (topic_json(tags="a || b", properties={"k": "v"}, unknown=[1]), created("t")),
        (topic_json(liteTopic=" a * "), created(" a * ")),
        (topic_json(liteTopic="a\u0000b\n"), created("a\u0000b\n")),
        (topic_json(lmqName="%LMQ%$p$a$b", parentTopic=..., liteTopic=...), created("a$b")),
        (topic_json(lmqName="%LMQ%$p$t"), created("t")),
        (b"\n " + topic_json() + b"\t", created("t")),
        (TWICE, created("last")),
        (SURROGATE_PAIR, created("😀")),
    ],
)
def test_a_valid_topic_event(payload: bytes, event: TopicEvent) -> None:
    """A field that stands twice counts as it stands last; unknown fields are left alone."""
    assert parse_topic_event(payload) == event


@pytest.mark.parametrize(
    ("payload", "reason", "said"),
    [
        (topic_json(event=...), Reason.MISSING_FIELD, ["event is missing"]),
        (topic_json(event=None), Reason.MISSING_FIELD, ["event is missing"]),
        (topic_json(event="created"), Reason.UNKNOWN_EVENT, ['"created"', "CREATED or DELETED"]),
        (topic_json(event=1), Reason.WRONG_TYPE, ["event must be a string, not a number"]),
        (topic_json(parentTopic=...), Reason.MISSING_FIELD, ["parentTopic is missing"]),
        (topic_json(parentTopic="\t "), Reason.BLANK_NAME, ["parentTopic is blank"]),
        (topic_json(parentTopic=["p"]), Reason.WRONG_TYPE, ["parentTopic must be a string, not an array"]),
        (topic_json(liteTopic=...), Reason.MISSING_FIELD, ["liteTopic is missing"]),
        (topic_json(liteTopic=""), Reason.BLANK_NAME, ["liteTopic is blank"]),
        (topic_json(liteTopic=False), Reason.WRONG_TYPE, ["liteTopic must be a string, not a boolean"]),
        (topic_json(liteTopic={}), Reason.WRONG_TYPE, ["liteTopic must be a string, not an object"]),
        (topic_json(lmqName=""), Reason.BLANK_NAME, ["lmqName is blank"]),
        (topic_json(lmqName=3), Reason.WRONG_TYPE, ["lmqName must be a string"]),
        (topic_json(lmqName="p$t"), Reason.BAD_LMQ_NAME, ['"p$t"', "%LMQ%$<parent>$<lite topic>"]),
        (topic_json(lmqName="%LMQ%$q$t"), Reason.BAD_LMQ_NAME, ["parentTopic", "leave one of them out"]),
        (topic_json(lmqName="%LMQ%$p$u"), Reason.BAD_LMQ_NAME, ["liteTopic", "leave one of them out"]),
        (topic_json(timestamp="now"), Reason.WRONG_TYPE, ["timestamp must be a whole number, not a string"]),
        (topic_json(timestamp=1.0), Reason.WRONG_TYPE, ["timestamp must be a whole number"]),
        (topic_json(timestamp=True), Reason.WRONG_TYPE, ["timestamp must be a whole number, not a boolean"]),
        (topic_json(timestamp=INT64), Reason.OUT_OF_RANGE, ["timestamp", str(INT64), str(INT64 - 1)]),
        (topic_json(ttlMs=0), Reason.OUT_OF_RANGE, ["ttlMs is 0", "from 1 to"]),
        (topic_json(ttlMs=MAX_TTL_MS + 1), Reason.OUT_OF_RANGE, ["ttlMs", str(MAX_TTL_MS)]),
        (topic_json(tags=["a"]), Reason.WRONG_TYPE, ["tags must be a string, not an array"]),
        (topic_json(properties=[]), Reason.WRONG_TYPE, ["properties must be an object whose values are strings"]),
        (topic_json(properties={"k": None}), Reason.WRONG_TYPE, ["properties"]),
    ],
)
def test_an_invalid_topic_event(payload: bytes, reason: Reason, said: list[str]) -> None:
    """The message names the field, what is wrong with it and what it must be."""
    _assert_rejected(parse_topic_event, payload, reason, said)


def option(**fields: Any) -> bytes:
    return request_json(offsetOption=fields)


@pytest.mark.parametrize(
    ("payload", "changed"),
    [
        (request_json(), {}),
        (request_json(action="PARTIAL_ADD"), {"action": Action.PARTIAL_ADD}),
        (request_json(action="PARTIAL_REMOVE"), {"action": Action.PARTIAL_REMOVE}),
        (request_json(action="COMPLETE_REMOVE"), {"action": Action.COMPLETE_REMOVE}),
        (request_json(action="COMPLETE_REMOVE", liteTopicSet=...), {"action": Action.COMPLETE_REMOVE, "entries": ()}),
        (request_json(liteTopicSet=[]), {"entries": ()}),
        (request_json(liteTopicSet=["b", "a", "b", "a*", ""]), {"entries": ("b", "a", "a*", "")}),
        (request_json(version=-INT64), {"version": -INT64}),
        (request_json(version=INT64 - 1), {"version": INT64 - 1}),
        (request_json(version=None, dialect=None, selector=None, offsetOption=None), {}),
        (request_json(dialect="lite"), {}),
        (option(type="OFFSET", value=7, other=1), {"offset_option": {"type": "OFFSET", "value": 7}}),
        (option(type="POLICY"), {"offset_option": {"type": "POLICY", "value": None}}),
        (option(type="TAIL_N", value=0), {"offset_option": {"type": "TAIL_N", "value": 0}}),
        (option(type="TIMESTAMP", value=-1), {"offset_option": {"type": "TIMESTAMP", "value": -1}}),
    ],
)
def test_a_valid_subscription(payload: bytes, changed: dict[str, Any]) -> None:
    """Entries keep their order, each once, and are not judged: the group says whether they are patterns."""
    plain = SubscriptionRequest("p", "g", "c", Action.COMPLETE_ADD, ("t",), None, None)
    assert parse_subscription(payload) == plain._replace(**changed)


@pytest.mark.parametrize(
    ("payload", "reason", "said"),
    [
        (request_json(action=...), Reason.MISSING_FIELD, ["action is missing"]),
        (request_json(action="complete_add"), Reason.UNKNOWN_ACTION, ['"complete_add"', *Action.__members__]),
        (request_json(clientId=...), Reason.MISSING_FIELD, ["clientId is missing"]),
        (request_json(clientId=" "), Reason.BLANK_NAME, ["clientId is blank"]),
        (request_json(group="\n"), Reason.BLANK_NAME, ["group is blank"]),
        (request_json(group=[]), Reason.WRONG_TYPE, ["group must be a string, not an array"]),
        (request_json(topic=""), Reason.BLANK_NAME, ["topic is blank"]),
        (request_json(topic=None), Reason.MISSING_FIELD, ["topic is missing"]),
        (request_json(dialect="mqtt"), Reason.NOT_SUPPORTED, ['dialect "mqtt" is not supported']),
        (request_json(selector="TagA"), Reason.NOT_SUPPORTED, ['selector "TagA" is not supported']),
        (request_json(liteTopicSet=...), Reason.MISSING_FIELD, ["liteTopicSet is missing", "[] subscribes to every"]),
        (request_json(liteTopicSet="t"), Reason.WRONG_TYPE, ["liteTopicSet must be an array of strings"]),
        (request_json(liteTopicSet=["t", None]), Reason.WRONG_TYPE, ["liteTopicSet must be an array of strings"]),
        (request_json(version="1"), Reason.WRONG_TYPE, ["version must be a whole number, not a string"]),
        (request_json(version=INT64), Reason.OUT_OF_RANGE, ["version", str(INT64 - 1)]),
        (request_json(offsetOption=7), Reason.WRONG_TYPE, ["offsetOption must be an object, not a number"]),
        (option(value=7), Reason.MISSING_FIELD, ["type is missing"]),
        (option(type="EARLIEST"), Reason.OUT_OF_RANGE, ["offsetOption.type", '"EARLIEST"', "POLICY, OFFSET, TAIL_N"]),
        (option(type="OFFSET", value="7"), Reason.WRONG_TYPE, ["value must be a whole number, not a string"]),
        (b'{"subscriptionSet":{}}', Reason.WRONG_TYPE, ["subscriptionSet must be an array of objects"]),
    ],
)
def test_an_invalid_subscription(payload: bytes, reason: Reason, said: list[str]) -> None:
    """The message names the field, what is wrong with it and what it must be."""
    _assert_rejected(parse_subscription, payload, reason, said)


@pytest.mark.parametrize(
    ("payload", "event"),
    [
        (group_json(), GroupEvent("g", {BIND_TOPIC: "p", WILDCARD: "true"}, "p", None)),
        (
            group_json(attributes={BIND_TOPIC: "p", "a": True, "b": False, "c": 5}),
            GroupEvent("g", {BIND_TOPIC: "p", "a": "true", "b": "false", "c": "5"}, "p", None),
        ),
        (group_json(parentTopic="q"), GroupEvent("g", {BIND_TOPIC: "p", WILDCARD: "true"}, "p", None)),
        (group_json(attributes={}), GroupEvent("g", {}, None, None)),
        (group_json(attributes={}, parentTopic="p"), GroupEvent("g", {}, "p", None)),
        (group_json(attributes={}, parentTopic="p", supersededBy=[1, 2, 3]), GroupEvent("g", {}, "p", (1, 2, 3))),
    ],
)
def test_a_valid_group_event(payload: bytes, event: GroupEvent) -> None:
    """Attributes are strings, however JSON wrote them; the bound topic is the parent."""
    assert parse_group_event(payload) == event


@pytest.mark.parametrize(
    ("payload", "reason", "said"),
    [
        (group_json(group=...), Reason.MISSING_FIELD, ["group is missing"]),
        (group_json(group=""), Reason.BLANK_NAME, ["group is blank"]),
        (group_json(attributes=...), Reason.MISSING_FIELD, ["attributes is missing", "{} deletes"]),
        (group_json(attributes=[]), Reason.WRONG_TYPE, ["attributes must be an object, not an array"]),
        (group_json(attributes={"a": None}), Reason.WRONG_TYPE, ['attribute "a" must be a string, not null']),
        (group_json(attributes={"a": {}}), Reason.WRONG_TYPE, ['attribute "a" must be a string, not an object']),
        (group_json(attributes={WILDCARD: "true"}), Reason.GROUP_NOT_PLACED, [BIND_TOPIC, "parent topic"]),
        (group_json(attributes={BIND_TOPIC: " "}), Reason.GROUP_NOT_PLACED, [BIND_TOPIC]),
        (group_json(attributes={}, parentTopic=" "), Reason.BLANK_NAME, ["parentTopic is blank"]),
        (group_json(attributes={}, supersededBy=[1, 2]), Reason.WRONG_TYPE, ["[partition, offset, timestamp]"]),
        (group_json(attributes={}, supersededBy=[1, 2, True]), Reason.WRONG_TYPE, ["supersededBy must be"]),
        (group_json(attributes={}, supersededBy={}), Reason.WRONG_TYPE, ["supersededBy must be"]),
    ],
)
def test_an_invalid_group_event(payload: bytes, reason: Reason, said: list[str]) -> None:
    """The message names the field, what is wrong with it and what it must be."""
    _assert_rejected(parse_group_event, payload, reason, said)


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    ("payload", "reason", "said"),
    [
        (None, Reason.NOT_JSON, ["no value"]),
        (b"", Reason.NOT_JSON, ["not JSON", "line 1 column 1"]),
        (b"{", Reason.NOT_JSON, ["not JSON"]),
        (b"{} {}", Reason.NOT_JSON, ["not JSON"]),
        (b"{'group': 'g'}", Reason.NOT_JSON, ["not JSON"]),
        (b"\xff\xfe", Reason.NOT_JSON, ["not JSON"]),
        (b"\xef\xbb\xbf{}", Reason.NOT_JSON, ["not JSON"]),
        (b'{"event":NaN}', Reason.NOT_JSON, ["not JSON"]),
        (b'{"version":1e400}', Reason.NOT_JSON, ["not JSON", "infinity"]),
        (b'{"group":"a\nb"}', Reason.NOT_JSON, ["control character"]),
        (b'{"group":"\\ud800"}', Reason.NOT_JSON, ["surrogate"]),
        (b'{"group":"\\ude00\\ud83d"}', Reason.NOT_JSON, ["surrogate"]),
        (b"[" * 5_000 + b"]" * 5_000, Reason.NOT_JSON, ["depth limit"]),
        (b"null", Reason.WRONG_TYPE, ["must be a JSON object, not null"]),
        (b"7", Reason.WRONG_TYPE, ["must be a JSON object, not a number"]),
        (b"[{}]", Reason.WRONG_TYPE, ["must be a JSON object, not an array"]),
        (b'"{}"', Reason.WRONG_TYPE, ["must be a JSON object, not a string"]),
    ],
)
def test_what_is_no_json_object_is_rejected_by_all_parsers(
    parse: Parser, payload: bytes | None, reason: Reason, said: list[str]
) -> None:
    _assert_rejected(parse, payload, reason, said)


LIMITS = [
    ("x" * MAX_NAME_BYTES, "x" * (MAX_NAME_BYTES + 1)),
    ("é" * (MAX_NAME_BYTES // 2), "é" * (MAX_NAME_BYTES // 2) + "x"),
    ("€" * (MAX_NAME_BYTES // 3) + "x", "€" * (MAX_NAME_BYTES // 3) + "é"),
    ("😀" * (MAX_NAME_BYTES // 4), "😀" * (MAX_NAME_BYTES // 4) + "x"),
]


@pytest.mark.parametrize(("longest", "too_long"), LIMITS, ids=["1 byte", "2 bytes", "3 bytes", "4 bytes"])
def test_names_are_limited_in_bytes_of_utf_8(longest: str, too_long: str) -> None:
    assert len(too_long.encode()) == len(longest.encode()) + 1 == MAX_NAME_BYTES + 1
    assert check_name("it", longest) is None
    assert check_name("it", too_long) == "it is longer than 16,384 bytes"


@pytest.mark.parametrize(
    ("parse", "make", "field"),
    [
        (parse_topic_event, topic_json, "parentTopic"),
        (parse_topic_event, topic_json, "liteTopic"),
        (parse_topic_event, topic_json, "lmqName"),
        (parse_subscription, request_json, "clientId"),
        (parse_subscription, request_json, "group"),
        (parse_subscription, request_json, "topic"),
        (parse_group_event, group_json, "group"),
    ],
)
def test_every_name_is_limited(parse: Parser, make: Callable[..., bytes], field: str) -> None:
    for longest, too_long in LIMITS:
        if field != "lmqName":
            parse(make(**{field: longest}))
        _assert_rejected(
            parse, make(**{field: too_long}), Reason.NAME_TOO_LONG, [f"{field} is longer than 16,384 bytes"]
        )


def test_the_bound_topic_of_a_group_is_limited() -> None:
    payload = group_json(attributes={BIND_TOPIC: LIMITS[0][1]})
    _assert_rejected(parse_group_event, payload, Reason.NAME_TOO_LONG, [BIND_TOPIC])


def test_a_message_repeats_only_the_begin_of_a_long_value() -> None:
    with pytest.raises(Rejected) as rejected:
        parse_topic_event(topic_json(event="E" * 100_000))
    assert len(str(rejected.value)) < 200


@pytest.mark.parametrize(
    ("name", "parent", "child"),
    [
        ("%LMQ%$p$t", "p", "t"),
        ("%LMQ%$p$a$b", "p", "a$b"),
        ("%LMQ%$p$$", "p", "$"),
        ("%LMQ%$p$%LMQ%$q$t", "p", "%LMQ%$q$t"),
        ("%LMQ%$p$a__b", "p", "a__b"),
    ],
)
def test_an_lmq_name_is_split_at_the_first_dollar(name: str, parent: str, child: str) -> None:
    """What follows belongs to the lite topic, further `$` included; the name can be made again of both."""
    assert parse_lmq_name(name) == (parent, child)
    assert lmq_name(parent, child) == name


@pytest.mark.parametrize(
    "name", ["", "t", "%LMQ%", "%LMQ%$", "%LMQ%$p", "%LMQ%$p$", "%LMQ%$$t", "%LMQ%$ $t", "%LMQ%$p$ ", "LMQ$p$t"]
)
def test_a_bad_lmq_name(name: str) -> None:
    with pytest.raises(Rejected, match=r"it must be %LMQ%\$<parent>\$<lite topic>") as rejected:
        parse_lmq_name(name)
    assert rejected.value.reason == Reason.BAD_LMQ_NAME


def _assert_rejected(parse: Parser, payload: bytes | None, reason: Reason, said: list[str]) -> None:
    with pytest.raises(Rejected) as rejected:
        parse(payload)
    assert rejected.value.reason == reason
    message = str(rejected.value)
    assert [part for part in said if part not in message] == [], message
