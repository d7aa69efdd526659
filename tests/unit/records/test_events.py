"""Parsing and validation of the input streams."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from streaming.errors import Rejected
from streaming.records.columns import Event
from streaming.records.model import (
    BIND_TOPIC,
    DEADLINE_STEP_MS,
    LITE,
    MAX_DETAILS,
    MAX_NAME_BYTES,
    MAX_TTL_MS,
    MODEL,
    NO_METADATA,
    QUOTA,
    WILDCARD,
    Action,
    Alarm,
    GroupEvent,
    Notation,
    Place,
    Reason,
    SelectorSpec,
    SubscriptionRequest,
    Tick,
    TopicEvent,
    TopicMetadata,
    Wake,
    check_name,
    lmq_name,
)
from streaming.records.parsing import (
    PARSERS,
    key_of,
    parse_clock,
    parse_group_event,
    parse_lmq_name,
    parse_plain_topic_events,
    parse_subscription,
    parse_topic_event,
)
from tests.support import events
from tests.support.events import (
    WILD,
    add,
    created,
    deleted,
    drop,
    encoded,
    leave,
    replace,
    stream_of,
    tick,
    wake,
    wildcard,
    with_attributes,
)

Parser = Callable[[bytes | None], Event]
Payload = bytes | events.Event

INT64 = 2**63
TWICE = b'{"event":"CREATED","parentTopic":"p","liteTopic":"first","liteTopic":"last"}'
SURROGATE_PAIR = b'{"event":"CREATED","parentTopic":"p","liteTopic":"\\ud83d\\ude00"}'


def topic(name: str = "t", **fields: Any) -> TopicEvent:
    return TopicEvent("p", name, created=True)._replace(**fields)


VALID_TOPICS: list[tuple[Payload, TopicEvent]] = [
    (created(), topic()),
    (deleted(), topic(created=False)),
    (created(timestamp=-INT64), topic()),
    (created(timestamp=-INT64, ttlMs=1), topic(timestamp=-INT64, ttl_ms=1)),
    (created(ttlMs=MAX_TTL_MS), topic(ttl_ms=MAX_TTL_MS)),
    (created(timestamp=None, ttlMs=None, tags=None, properties=None), topic()),
    (created(tags="a", properties={"k": "v"}, unknown=[1]), topic(tags="a", properties={"k": "v"})),
    (created(tags="", properties={}), topic(tags="", properties={})),
    (
        created(tags="x" * (MAX_DETAILS - 3), properties={"k": "vv"}),
        topic(tags="x" * (MAX_DETAILS - 3), properties={"k": "vv"}),
    ),
    (created(" a * "), topic(" a * ")),
    (created("a\u0000b\n"), topic("a\u0000b\n")),
    (created(..., lmqName="%LMQ%$p$a$b", parent=...), topic("a$b")),
    (created(lmqName="%LMQ%$p$t"), topic()),
    (b"\n " + encoded(created()) + b"\t", topic()),
    (SURROGATE_PAIR, topic("😀")),
]


INVALID_TOPICS: list[tuple[Payload, Reason, list[str]]] = [
    (TWICE, Reason.DUPLICATE_FIELD, ['the field "liteTopic" is repeated']),
    (encoded(created("a:b"))[:-1] + b',"x":1,"x":1}', Reason.DUPLICATE_FIELD, ['"x" is repeated']),
    (encoded(created())[:-1] + b',"x":[{"y":1},{"y":[],"\\u0079":{}}]}', Reason.DUPLICATE_FIELD, ['"y" is repeated']),
    (
        b'{"event":"CREATED","parentTopic":"p","parentTopic":"p","liteTopic":"\\u003a"}',
        Reason.DUPLICATE_FIELD,
        ['"parentTopic" is repeated'],
    ),
    (created(event=...), Reason.MISSING_FIELD, ["event is missing"]),
    (created(event=None), Reason.MISSING_FIELD, ["event is missing"]),
    (created(event="created"), Reason.UNKNOWN_EVENT, ['"created"', "CREATED or DELETED"]),
    (created(event=1), Reason.WRONG_TYPE, ["event must be a string, not a number"]),
    (created(parent=...), Reason.MISSING_FIELD, ["parentTopic is missing"]),
    (created(parent="\t "), Reason.BLANK_NAME, ["parentTopic is blank"]),
    (created(parent=["p"]), Reason.WRONG_TYPE, ["parentTopic must be a string, not an array"]),
    (created(...), Reason.MISSING_FIELD, ["liteTopic is missing"]),
    (created(""), Reason.BLANK_NAME, ["liteTopic is blank"]),
    (created(False), Reason.WRONG_TYPE, ["liteTopic must be a string, not a boolean"]),
    (created({}), Reason.WRONG_TYPE, ["liteTopic must be a string, not an object"]),
    (created(lmqName=""), Reason.BLANK_NAME, ["lmqName is blank"]),
    (created(lmqName=3), Reason.WRONG_TYPE, ["lmqName must be a string"]),
    (created(lmqName="p$t"), Reason.BAD_LMQ_NAME, ['"p$t"', "%LMQ%$<parent>$<lite topic>"]),
    (created(lmqName="%LMQ%$q$t"), Reason.BAD_LMQ_NAME, ["parentTopic", "leave one of them out"]),
    (created(lmqName="%LMQ%$p$u"), Reason.BAD_LMQ_NAME, ["liteTopic", "leave one of them out"]),
    (created(timestamp="now"), Reason.WRONG_TYPE, ["timestamp must be a whole number, not a string"]),
    (created(timestamp=1.0), Reason.WRONG_TYPE, ["timestamp must be a whole number"]),
    (created(timestamp=True), Reason.WRONG_TYPE, ["timestamp must be a whole number, not a boolean"]),
    (created(timestamp=INT64), Reason.OUT_OF_RANGE, ["timestamp", str(INT64), str(INT64 - 1)]),
    (created(ttlMs=0), Reason.OUT_OF_RANGE, ["ttlMs is 0", "from 1 to"]),
    (created(ttlMs=MAX_TTL_MS + 1), Reason.OUT_OF_RANGE, ["ttlMs", str(MAX_TTL_MS)]),
    (created(tags=["a"]), Reason.WRONG_TYPE, ["tags must be a string, not an array"]),
    (created(properties=[]), Reason.WRONG_TYPE, ["properties must be an object whose values are strings"]),
    (created(properties={"k": None}), Reason.WRONG_TYPE, ["properties"]),
    (created(tags="x" * (MAX_DETAILS + 1)), Reason.OUT_OF_RANGE, ["65,537 characters", "65,536"]),
    (created(tags="x", properties={"k" * MAX_DETAILS: ""}), Reason.OUT_OF_RANGE, ["tags and properties"]),
    (created(properties={"k": "v" * MAX_DETAILS}), Reason.OUT_OF_RANGE, ["tags and properties"]),
]


PLAIN_TOPICS = [
    *map(encoded, (created("t1"), created("t2", timestamp=INT64 - 1), deleted("t1", timestamp=-INT64))),
    encoded(created(" é\n", timestamp=None)),
    b" " + encoded(created("x" * (MAX_NAME_BYTES // 6))) + b"\n",
]
READ_PLAIN = (["t1", "t2", "t1", " é\n", "x" * (MAX_NAME_BYTES // 6)], [True, True, False, True, True])


def test_plain_topic_events_are_read_together() -> None:
    assert parse_plain_topic_events(PLAIN_TOPICS, "p") == READ_PLAIN
    assert parse_plain_topic_events(PLAIN_TOPICS[:1], "p") == (["t1"], [True])
    with_colons = [encoded(created(name, parent="p:q")) for name in ("t1", "a:b::")]
    assert parse_plain_topic_events(with_colons, "p:q") == (["t1", "a:b::"], [True, True])


@pytest.mark.parametrize(
    "payload",
    [
        *(payload for payload, *_ in INVALID_TOPICS),
        *(payload for payload, event in VALID_TOPICS if event != TopicEvent("p", event.lite_topic, event.created)),
        *(created(parent="q"), created("x" * MAX_NAME_BYTES), created(event=["CREATED"])),
        *(
            b"",
            b" ",
            b"?",
            b"5",
            b"[]",
            b"{}",
            b"null",
            b'"event"',
            encoded(created()) + b"x",
            encoded(created())[:-1],
            b"\xff",
            None,
        ),
        *(encoded(created()) + b"," + encoded(created()), encoded(created()) + b"\n" + encoded(created())),
    ],
)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_with_any_other_event_among_them_they_are_not(payload: Payload | None, at: int) -> None:
    """Such an event is invalid, has further fields, or is of another parent."""
    others: list[bytes | None] = [encoded(created("t1")), encoded(created("t2"))]
    others.insert(at, payload if payload is None else encoded(payload))
    assert parse_plain_topic_events(others, "p") is None


@pytest.mark.parametrize(("payload", "event"), VALID_TOPICS)
def test_what_is_read_together_is_what_is_read_singly(payload: Payload, event: TopicEvent) -> None:
    assert parse_plain_topic_events([encoded(payload)], "p") in (None, ([event.lite_topic], [event.created]))


def test_a_blank_or_too_long_parent_is_not_read() -> None:
    for parent in (" ", "p" * MAX_NAME_BYTES):
        assert parse_plain_topic_events([encoded(created(parent=parent))], parent) is None


def test_payloads_that_are_json_only_together_are_not_read() -> None:
    """One may hold two objects while another holds none, or one may end inside a name of the next."""
    one = encoded(created("a"))
    begins, ends = encoded(created("c"))[:-2], b'd"}'
    assert json.loads(b"%b,0,%b" % (begins, ends))["liteTopic"] == "c,0,d"
    assert parse_plain_topic_events([one + b",0," + one, begins, ends], "p") is None
    assert parse_plain_topic_events([begins, ends, one + b",0," + one], "p") is None
    assert parse_plain_topic_events([begins, ends], "p") is None


DAY = 86_400_000


@pytest.mark.rule("deadline")
@pytest.mark.parametrize(
    ("event", "metadata"),
    [
        (topic(), NO_METADATA),
        (topic(timestamp=7, properties={}), NO_METADATA),
        (topic(tags="a"), TopicMetadata("a")),
        (topic(tags="", properties={"k": "v"}), TopicMetadata("", {"k": "v"})),
        (topic(ttl_ms=1), TopicMetadata(deadline=DAY + DEADLINE_STEP_MS)),
        (topic(ttl_ms=DEADLINE_STEP_MS), TopicMetadata(deadline=DAY + DEADLINE_STEP_MS)),
        (topic(ttl_ms=DEADLINE_STEP_MS + 1), TopicMetadata(deadline=DAY + 2 * DEADLINE_STEP_MS)),
        (topic(tags="a", ttl_ms=1, timestamp=0), TopicMetadata("a", {}, DEADLINE_STEP_MS)),
        (topic(ttl_ms=5, timestamp=-5), TopicMetadata(deadline=0)),
    ],
)
def test_what_a_topics_creation_says_about_it(event: TopicEvent, metadata: TopicMetadata) -> None:
    """Its lifetime begins at its own timestamp, else at that of its record, and ends at the next step."""
    assert event.metadata(DAY) == metadata
    assert (event.metadata(DAY) is NO_METADATA) is (metadata is NO_METADATA)


def test_places_of_a_partition_are_in_the_order_of_their_entries() -> None:
    """Entries of one record share its offset; the last ones of a very long record share a position."""
    places = [Place(0, 1, 9), Place(0, 1, 9, 1), Place(0, 1, 0, 1_023), Place(0, 2, 5), Place(0, 2, 5, 7)]
    assert sorted({place.position for place in places}) == [place.position for place in places]
    assert Place(0, 1, 0, 5_000).position == Place(0, 1, 0, 1_023).position


def option(**fields: Any) -> events.Event:
    return replace("t", offsetOption=fields)


def selector(kind: Any, expression: Any) -> events.Event:
    fields = {"type": kind, "expression": expression}
    return replace("t", selector={name: value for name, value in fields.items() if value is not ...})


REQUEST = SubscriptionRequest("p", "g", "c", Action.COMPLETE_ADD, ("t",), None, None)
VALID_REQUESTS: list[tuple[Payload, dict[str, Any]]] = [
    (replace("t"), {}),
    (add("t"), {"action": Action.PARTIAL_ADD}),
    (drop("t"), {"action": Action.PARTIAL_REMOVE}),
    (leave("t"), {"action": Action.COMPLETE_REMOVE}),
    (leave(liteTopicSet=...), {"action": Action.COMPLETE_REMOVE, "entries": ()}),
    (replace(), {"entries": ()}),
    (replace("b", "a", "b", "a*", ""), {"entries": ("b", "a", "a*", "")}),
    (replace("t", version=-INT64), {"version": -INT64}),
    (replace("t", version=INT64 - 1), {"version": INT64 - 1}),
    (replace("t", version=None, dialect=None, selector=None, offsetOption=None), {}),
    (replace("t", dialect="lite"), {}),
    (replace("t", dialect="lite", policy=None, delivery="per-client"), {}),
    (replace("t", dialect="mqtt"), {"notation": Notation("mqtt")}),
    (replace("t", dialect="nats", delivery="per-subscription"), {"notation": Notation("nats", None, True)}),
    (replace("t", delivery="per-subscription"), {"notation": Notation("lite", None, True)}),
    (replace("t", dialect="wamp"), {"notation": Notation("wamp", None, True)}),
    (replace("t", dialect="wamp", policy="prefix"), {"notation": Notation("wamp", "prefix", True)}),
    (
        replace("t", dialect="wamp", policy="exact", delivery="per-client"),
        {"notation": Notation("wamp", "exact", False)},
    ),
    (selector("TAG", "a || b"), {"selector": SelectorSpec("TAG", "a || b")}),
    (selector("SQL92", "region = 'eu'"), {"selector": SelectorSpec("SQL92", "region = 'eu'")}),
    (leave("t", parent=...), {"action": Action.COMPLETE_REMOVE, "parent": ""}),
    (leave("t", parent=None), {"action": Action.COMPLETE_REMOVE, "parent": ""}),
    (leave("t", parent=" \t"), {"action": Action.COMPLETE_REMOVE, "parent": ""}),
    (replace("t", asOf=[1, 2, 3]), {"as_of": Place(1, 2, 3)}),
    (replace("t", asOf=[1, 2, 3, 4]), {"as_of": Place(1, 2, 3, 4)}),
    (replace("t", asOf=None, expired=True), {"expired": True}),
    (replace("t", expired="yes"), {}),
    (option(type="OFFSET", value=7, other=1), {"offset_option": {"type": "OFFSET", "value": 7}}),
    (option(type="POLICY"), {"offset_option": {"type": "POLICY", "value": None}}),
    (option(type="TAIL_N", value=0), {"offset_option": {"type": "TAIL_N", "value": 0}}),
    (option(type="TIMESTAMP", value=-1), {"offset_option": {"type": "TIMESTAMP", "value": -1}}),
]
"""Requests, and what differs from `REQUEST`."""

VALID: dict[Parser, list[tuple[Payload, Event]]] = {
    parse_topic_event: [*VALID_TOPICS],
    parse_subscription: [(payload, REQUEST._replace(**changed)) for payload, changed in VALID_REQUESTS],
    parse_group_event: [
        (WILD, GroupEvent("g", {BIND_TOPIC: "p", WILDCARD: "true"}, "p", None)),
        (
            with_attributes({BIND_TOPIC: "p", "a": True, "b": False, "c": 5}),
            GroupEvent("g", {BIND_TOPIC: "p", "a": "true", "b": "false", "c": "5"}, "p", None),
        ),
        (
            with_attributes({BIND_TOPIC: "p", WILDCARD: "true"}, parentTopic="q"),
            GroupEvent("g", {BIND_TOPIC: "p", WILDCARD: "true"}, "p", None),
        ),
        (with_attributes({}), GroupEvent("g", {}, None, None)),
        (with_attributes({}, parentTopic="p"), GroupEvent("g", {}, "p", None)),
        (with_attributes({}, parentTopic="p", supersededBy=[1, 2, 3]), GroupEvent("g", {}, "p", Place(1, 2, 3))),
        (
            with_attributes({}, parentTopic="p", supersededBy=[1, 2, 3], boundTo="q"),
            GroupEvent("g", {}, "p", Place(1, 2, 3), "q"),
        ),
        *(
            (with_attributes({BIND_TOPIC: "p", key: value}), GroupEvent("g", {BIND_TOPIC: "p", key: str(value)}, "p"))
            for key, value in [
                (MODEL, "Shared"),
                (MODEL, "eXCLUSIVE"),
                (QUOTA, "0"),
                (QUOTA, 7),
                (QUOTA, "-1"),
                (QUOTA, "9" * 18),
            ]
        ),
    ],
    parse_clock: [
        (tick(5_000), Tick(5_000)),
        (tick(0), Tick(0)),
        ({"alarm": 7, "parentTopic": "p", "shard": 2}, Alarm("p", 2, 7)),
        (wake(7), Wake("p", 0, 7)),
    ],
}


@pytest.mark.rule("ttl-range", "default-delivery")
@pytest.mark.parametrize(
    ("parse", "payload", "event"), [(parse, *case) for parse, cases in VALID.items() for case in cases]
)
def test_valid_records(parse: Parser, payload: Payload, event: Event) -> None:
    """Unknown fields are ignored, and attributes become strings.

    Entries keep their order, without repetitions, and unchecked: the group decides if they are patterns.
    """
    parsed = parse(encoded(payload))
    assert (type(parsed), parsed) == (type(event), event)
    if isinstance(parsed, SubscriptionRequest):
        assert (parsed.notation is LITE) is (parsed.notation == LITE), "states tell the default by identity"


INVALID: dict[Parser, list[tuple[Payload, Reason, list[str]]]] = {
    parse_topic_event: INVALID_TOPICS,
    parse_subscription: [
        (replace("t", action=...), Reason.MISSING_FIELD, ["action is missing"]),
        (replace("t", action="complete_add"), Reason.UNKNOWN_ACTION, ['"complete_add"', *Action.__members__]),
        (replace("t", client=...), Reason.MISSING_FIELD, ["clientId is missing"]),
        (replace("t", client=" "), Reason.BLANK_NAME, ["clientId is blank"]),
        (replace("t", group="\n"), Reason.BLANK_NAME, ["group is blank"]),
        (replace("t", group=[]), Reason.WRONG_TYPE, ["group must be a string, not an array"]),
        (replace("t", parent=""), Reason.BLANK_NAME, ["topic is blank"]),
        (replace("t", parent=None), Reason.MISSING_FIELD, ["topic is missing"]),
        (add("t", parent=" "), Reason.BLANK_NAME, ["topic is blank"]),
        (leave(parent=7), Reason.WRONG_TYPE, ["topic must be a string"]),
        (replace("t", dialect="stomp"), Reason.UNKNOWN_DIALECT, ['dialect is "stomp"', "lite, mqtt, nats, wamp"]),
        (replace("t", dialect=["lite"]), Reason.UNKNOWN_DIALECT, ['dialect is ["lite"]']),
        (replace("t", policy="exact"), Reason.OUT_OF_RANGE, ['policy is "exact"', "lite has no match policies"]),
        (
            replace("t", dialect="wamp", policy="x"),
            Reason.OUT_OF_RANGE,
            ['policy is "x"; dialect wamp has exact, prefix, wildcard'],
        ),
        (
            replace("t", dialect="mqtt", policy="prefix"),
            Reason.OUT_OF_RANGE,
            ["policy", "dialect mqtt has no match policies"],
        ),
        (replace("t", dialect="wamp", policy="suffix"), Reason.OUT_OF_RANGE, ['policy is "suffix"']),
        (replace("t", dialect="wamp", policy=["exact"]), Reason.OUT_OF_RANGE, ["policy"]),
        (replace("t", delivery="twice"), Reason.OUT_OF_RANGE, ['"twice"', "per-client or per-subscription"]),
        (replace("t", delivery=True), Reason.OUT_OF_RANGE, ["delivery is true"]),
        (replace("t", selector="TagA"), Reason.WRONG_TYPE, ["selector must be an object, not a string"]),
        (selector(..., "a"), Reason.MISSING_FIELD, ["selector.type is missing"]),
        (selector("TAG", ...), Reason.MISSING_FIELD, ["selector.expression is missing"]),
        (selector("TAG", 3), Reason.WRONG_TYPE, ["selector.expression must be a string"]),
        (selector("SQL92", "a ="), Reason.INVALID_SELECTOR, ["a ="]),
        (selector("SQL93", "a = 1"), Reason.INVALID_SELECTOR, ["SQL93", "SQL92"]),
        (selector("TAG", "a" * (MAX_DETAILS + 1)), Reason.OUT_OF_RANGE, ["selector.expression is longer"]),
        (replace("t", asOf=7), Reason.WRONG_TYPE, ["asOf must be [partition, offset, timestamp, entry]"]),
        (replace("t", asOf=[1, 2]), Reason.WRONG_TYPE, ["asOf must be"]),
        (replace("t", asOf=[1, 2, False]), Reason.WRONG_TYPE, ["asOf must be"]),
        (replace("t", asOf=[1, 2, 3, 4, 5]), Reason.WRONG_TYPE, ["asOf must be"]),
        (replace(liteTopicSet=...), Reason.MISSING_FIELD, ["liteTopicSet is missing", "[] subscribes to every"]),
        (replace(liteTopicSet="t"), Reason.WRONG_TYPE, ["liteTopicSet must be an array of strings"]),
        (replace("t", None), Reason.WRONG_TYPE, ["liteTopicSet must be an array of strings"]),
        (replace("t", version="1"), Reason.WRONG_TYPE, ["version must be a whole number, not a string"]),
        (replace("t", version=INT64), Reason.OUT_OF_RANGE, ["version", str(INT64 - 1)]),
        (replace("t", offsetOption=7), Reason.WRONG_TYPE, ["offsetOption must be an object, not a number"]),
        (option(value=7), Reason.MISSING_FIELD, ["type is missing"]),
        (option(type="EARLIEST"), Reason.OUT_OF_RANGE, ["offsetOption.type", '"EARLIEST"', "POLICY, OFFSET, TAIL_N"]),
        (option(type="OFFSET", value="7"), Reason.WRONG_TYPE, ["value must be a whole number, not a string"]),
        (b'{"subscriptionSet":{}}', Reason.WRONG_TYPE, ["subscriptionSet must be an array of objects"]),
    ],
    parse_group_event: [
        (wildcard(group=...), Reason.MISSING_FIELD, ["group is missing"]),
        (wildcard(group=""), Reason.BLANK_NAME, ["group is blank"]),
        (with_attributes(...), Reason.MISSING_FIELD, ["attributes is missing", "{} deletes"]),
        (with_attributes([]), Reason.WRONG_TYPE, ["attributes must be an object, not an array"]),
        (with_attributes({"a": None}), Reason.WRONG_TYPE, ['attribute "a" must be a string, not null']),
        (with_attributes({"a": {}}), Reason.WRONG_TYPE, ['attribute "a" must be a string, not an object']),
        (with_attributes({WILDCARD: "true"}), Reason.GROUP_NOT_PLACED, [BIND_TOPIC, "parent topic"]),
        (with_attributes({BIND_TOPIC: " "}), Reason.GROUP_NOT_PLACED, [BIND_TOPIC]),
        (with_attributes({}, parentTopic=" "), Reason.BLANK_NAME, ["parentTopic is blank"]),
        (with_attributes({}, supersededBy=[1, 2]), Reason.WRONG_TYPE, ["[partition, offset, timestamp, entry]"]),
        (with_attributes({}, supersededBy=[1, 2, True]), Reason.WRONG_TYPE, ["supersededBy must be"]),
        (with_attributes({}, supersededBy={}), Reason.WRONG_TYPE, ["supersededBy must be"]),
        (with_attributes({}, boundTo=" "), Reason.BLANK_NAME, ["boundTo is blank"]),
        (with_attributes({BIND_TOPIC: "p", QUOTA: "7\n"}), Reason.OUT_OF_RANGE, [QUOTA, "whole number"]),
        *(
            (with_attributes({BIND_TOPIC: "p", key: value}), Reason.OUT_OF_RANGE, [key, f'"{value}"', must])
            for key, value, must in [
                (MODEL, "Sole", "Shared or Exclusive"),
                (MODEL, "", "Shared or Exclusive"),
                (QUOTA, "many", "a whole number, -1 for no limit"),
                (QUOTA, "-2", "whole number"),
                (QUOTA, "1.5", "whole number"),
                (QUOTA, 7.0, "whole number"),
                (QUOTA, "", "whole number"),
                (QUOTA, " 7", "whole number"),
                (QUOTA, "٣", "whole number"),
                (QUOTA, "9" * 19, "whole number"),
            ]
        ),
    ],
    parse_clock: [
        ({}, Reason.MISSING_FIELD, ["wake is missing"]),
        (tick("now"), Reason.WRONG_TYPE, ["tick must be a whole number, not a string"]),
        (tick(INT64), Reason.OUT_OF_RANGE, ["tick"]),
        ({"alarm": "7", "parentTopic": "p", "shard": 0}, Reason.WRONG_TYPE, ["alarm must be a whole number"]),
        ({"alarm": 7, "parentTopic": " ", "shard": 0}, Reason.BLANK_NAME, ["parentTopic is blank"]),
        ({"wake": 7, "shard": 0}, Reason.MISSING_FIELD, ["parentTopic is missing"]),
        ({"wake": 7, "parentTopic": "p"}, Reason.MISSING_FIELD, ["shard is missing"]),
        (wake(7, "p", 0.5), Reason.WRONG_TYPE, ["shard must be a whole number"]),
    ],
}


@pytest.mark.rule(
    "duplicate-fields",
    "ttl-range",
    "blank-names",
    "unknown-dialect",
    "invalid-selector",
    "invalid-attributes",
    "missing-binding",
)
@pytest.mark.parametrize(
    ("parse", "payload", "reason", "said"), [(parse, *case) for parse, cases in INVALID.items() for case in cases]
)
def test_invalid_records(parse: Parser, payload: Payload, reason: Reason, said: list[str]) -> None:
    """The message names the field, what is wrong with it and what it must be."""
    _assert_rejected(parse, payload, reason, said)


@pytest.mark.parametrize("parse", INVALID)
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
        (b"[" * 5_000 + b"]" * 5_000, Reason.TOO_DEEP, ["32 levels"]),
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
    ("event", "field"),
    [
        *((created(), field) for field in ("parentTopic", "liteTopic", "lmqName")),
        *((replace("t"), field) for field in ("clientId", "group", "topic")),
        (WILD, "group"),
    ],
)
def test_every_name_is_limited(event: events.Event, field: str) -> None:
    parse = PARSERS[stream_of(event)]
    for longest, too_long in LIMITS:
        if field != "lmqName":
            parse(encoded({**event, field: longest}))
        message = [f"{field} is longer than 16,384 bytes"]
        _assert_rejected(parse, {**event, field: too_long}, Reason.NAME_TOO_LONG, message)


def test_a_groups_topic_is_limited() -> None:
    for longest, too_long in LIMITS:
        parse_group_event(encoded(with_attributes({BIND_TOPIC: longest})))
        message = [f"{BIND_TOPIC} is longer than 16,384 bytes"]
        _assert_rejected(parse_group_event, with_attributes({BIND_TOPIC: too_long}), Reason.NAME_TOO_LONG, message)


def test_a_message_repeats_only_the_begin_of_a_long_value() -> None:
    with pytest.raises(Rejected) as rejected:
        parse_topic_event(encoded(created(event="E" * 100_000)))
    assert len(str(rejected.value)) < 200


@pytest.mark.rule("lmq-names")
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
    """The rest belongs to the lite topic, further `$` included; `lmq_name` joins both again."""
    assert parse_lmq_name(name) == (parent, child)
    assert lmq_name(parent, child) == name


@pytest.mark.rule("lmq-names")
@pytest.mark.parametrize(
    "name", ["", "t", "%LMQ%", "%LMQ%$", "%LMQ%$p", "%LMQ%$p$", "%LMQ%$$t", "%LMQ%$ $t", "%LMQ%$p$ ", "LMQ$p$t"]
)
def test_a_bad_lmq_name(name: str) -> None:
    with pytest.raises(Rejected, match=r"it must be %LMQ%\$<parent>\$<lite topic>") as rejected:
        parse_lmq_name(name)
    assert rejected.value.reason == Reason.BAD_LMQ_NAME


@pytest.mark.parametrize(
    ("event", "key"),
    [
        ({"group": "g", "topic": "p"}, "g"),
        ({"subscriptionSet": [{"group": "g"}, {"group": "h"}]}, "g"),
        ({"subscriptionSet": [], "group": "g"}, "g"),
        ({"parentTopic": "p", "liteTopic": "t"}, "p"),
        ({"lmqName": "%LMQ%$p$t"}, "p"),
        ({"lmqName": "%LMQ%$p$t", "group": "unknown field"}, "p"),
        ({"parentTopic": "p", "liteTopic": "t", "group": "unknown field"}, "p"),
        ({"parentTopic": "p", "group": "g"}, "g"),
        *(({name: wrong}, None) for name in ("group", "lmqName", "subscriptionSet") for wrong in (1, "", [3])),
        ([], None),
    ],
)
def test_the_key_of_an_event_is_its_group_or_its_parent(event: Any, key: str | None) -> None:
    assert key_of(event) == key


def _assert_rejected(parse: Parser, payload: Payload | None, reason: Reason, said: list[str]) -> None:
    with pytest.raises(Rejected) as rejected:
        parse(None if payload is None else encoded(payload))
    assert rejected.value.reason == reason
    message = str(rejected.value)
    assert [part for part in said if part not in message] == [], message
