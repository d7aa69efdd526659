"""Input records: whatever bytes come, an event that holds what it promises, or a rejection that can be written."""

import json
from collections.abc import Callable
from typing import Any, Final

import orjson

from streaming.errors import Rejected
from streaming.records.model import (
    BIND_TOPIC,
    MODEL,
    QUOTA,
    WILDCARD,
    Alarm,
    GroupEvent,
    Reason,
    Source,
    SubscriptionRequest,
    Tick,
    TopicEvent,
    Wake,
    check_name,
)
from streaming.records.parsing import (
    parse_clock,
    parse_group_event,
    parse_plain_topic_events,
    parse_subscription,
    parse_topic_event,
)
from streaming.records.writing import dead_letter
from tests.fuzz.draw import Draw

Event = TopicEvent | SubscriptionRequest | GroupEvent | Tick | Alarm | Wake

_PARSERS: Final[tuple[Callable[[bytes | None], Event], ...]] = (
    parse_topic_event,
    parse_subscription,
    parse_group_event,
    parse_clock,
)
_FIELDS: Final = (
    ("event", "parentTopic", "liteTopic", "lmqName", "timestamp", "ttlMs", "tags", "properties"),
    ("action", "clientId", "group", "topic", "liteTopicSet", "version", "offsetOption", "dialect", "policy", "delivery",
     "selector", "asOf", "expired", "subscriptionSet"),
    ("group", "attributes", "parentTopic", "boundTo", "supersededBy"),
    ("tick", "alarm", "wake", "parentTopic", "shard"),
)  # fmt: skip
_WORDS: Final = (
    *("a", "CREATED", "DELETED", "COMPLETE_ADD", "PARTIAL_ADD", "PARTIAL_REMOVE", "COMPLETE_REMOVE", "wamp", "%LMQ%$"),
    *(
        "$",
        " ",
        "b",
        "POLICY",
        "OFFSET",
        "TAIL_N",
        "type",
        "value",
        BIND_TOPIC,
        WILDCARD,
        MODEL,
        QUOTA,
        "é",
        "\0",
        "\\",
    ),
)
_NUMBERS: Final = (b"0", b"-1", b"9223372036854775807", b"9223372036854775808", b"1e400", b"1.5", b"-0.0", b"1e5")
_JSON: Final = (
    *('{"', '":', ',"', '"', "}", "{", "[", "]", ",", ":", "null", "true", "1", "-", "1e999", "9223372036854775808"),
    *("a", "\\ud800", "\\", "\\u0000", " ", *(field for fields in _FIELDS for field in fields), *_WORDS[1:7]),
)
_PLAIN: Final = b'{"event":"CREATED","parentTopic":"p","liteTopic":"a"}'
_MAX_RECORD: Final = 1_000_000  # what Kafka takes unless told otherwise


def events(data: bytes) -> None:
    draw = Draw(data)
    kind = draw.number(4)
    payload = (_record, _record, _text, _bytes)[draw.number(4)](draw, kind)
    try:
        event = _PARSERS[kind](payload)
    except Rejected as error:
        assert kind or parse_plain_topic_events([_PLAIN, payload], "p") is None
        assert error.reason in set(Reason)
        letter = dead_letter(Source("t", 0, 0, 0, 0), error.reason, str(error), payload)
        assert letter.value is not None
        assert len(letter.value) < _MAX_RECORD
        assert orjson.loads(letter.value)["message"] == str(error)
        assert len(str(error)) < 1_000  # it repeats a part of the payload
    else:
        _check(event)
        if isinstance(event, TopicEvent):
            concat = parse_plain_topic_events([_PLAIN, payload], "p")
            assert concat in (None, (["a", event.lite_topic], [True, event.created]))
            assert concat is None or event == TopicEvent("p", event.lite_topic, event.created)


def _check(event: Event) -> None:
    names: list[str | None] = []
    if isinstance(event, TopicEvent):
        names = [event.parent, event.lite_topic]
        event.metadata(0)
    elif isinstance(event, GroupEvent):
        names = [event.group, event.parent, event.bound_to]
        assert not event.attributes or event.parent == event.attributes[BIND_TOPIC]
        assert all(isinstance(value, str) for value in event.attributes.values())
        assert event.superseded_by is None or not event.attributes
    elif isinstance(event, SubscriptionRequest):
        names = [event.parent or None, event.group, event.client_id]
        assert event.parent or event.action == "COMPLETE_REMOVE"
        assert all(isinstance(entry, str) for entry in event.entries)
        assert len(set(event.entries)) == len(event.entries)
        assert event.version is None or -(1 << 63) <= event.version < 1 << 63
    elif not isinstance(event, Tick):
        names = [event.parent]
    assert not any(check_name("a name", name) for name in names if name is not None)
    json.dumps(event._asdict(), ensure_ascii=False).encode()


def _record(draw: Draw, kind: int) -> bytes:
    """Return an object that has some of the fields, with values of any kind."""
    parts = []
    for field in _FIELDS[kind]:
        value = _value(draw, field)
        if value is not None:
            parts.append(orjson.dumps(field) + b":" + value)
    return b"{" + b",".join(parts) + b"}"


def _value(draw: Draw, field: str) -> bytes | None:
    """Return a value of any kind as JSON, or none at all."""
    kinds: tuple[Callable[[], bytes | None], ...] = (
        lambda: _string(draw),
        lambda: None,
        lambda: draw.pick(_NUMBERS),
        lambda: b"[" + b",".join(_string(draw) for _ in range(draw.number(4))) + b"]",
        lambda: b"[" + b",".join(draw.pick(_NUMBERS) for _ in range(draw.number(5))) + b"]",
        lambda: b"{" + b",".join(_string(draw) + b":" + _string(draw) for _ in range(draw.number(4))) + b"}",
        lambda: draw.pick(
            (b"null", b"true", b"false", b"{}", b"[]", b'""', b"[[]]", b'{"type":"OFFSET","value":null}')
        ),
        lambda: _fitting(draw, field),
        lambda: _fitting(draw, field),
        lambda: _fitting(draw, field),
    )
    return draw.pick(kinds)()


def _fitting(draw: Draw, field: str) -> bytes:
    """Return a value that the field takes, mostly."""
    choices: dict[str, Any] = {
        "event": ("CREATED", "DELETED"),
        "action": ("PARTIAL_ADD", "PARTIAL_REMOVE", "COMPLETE_ADD", "COMPLETE_REMOVE"),
        "liteTopicSet": (["a", "a__*"], [], ["a", "a"]),
        "attributes": (
            *(
                {BIND_TOPIC: "p"},
                {},
                {BIND_TOPIC: "p", WILDCARD: True, "x": 1.5},
                {BIND_TOPIC: "p", MODEL: "exclusive"},
            ),
            *({BIND_TOPIC: "p", QUOTA: quota} for quota in (5, -1, -2, "٤", "1" * 19)),
        ),
        "supersededBy": ([0, 1, 2], [0, 1], [0, 1, 2, 3]),
        "asOf": ([0, 1, 2, 3], None),
        "expired": (True, False),
        "offsetOption": ({"type": "TAIL_N", "value": 3}, {"type": "POLICY"}),
        "selector": (
            {
                "type": draw.pick(("TAG", "SQL92", draw.text(_WORDS))),
                "expression": draw.text(("a", "||", "=", "1", "(")),
            },
            {"type": "TAG", "expression": "*"},
        ),
        "properties": ({"a": "b"}, {}),
        "dialect": ("lite", "wamp"),
        "policy": (None, "prefix"),
        "delivery": ("per-client", "per-subscription"),
        "lmqName": ("%LMQ%$p$t", "%LMQ%$p$", "%LMQ%$$"),
        "timestamp": (0, 1 << 62),
        "ttlMs": (1, 0),
        "version": (0, -(1 << 63)),
        "tick": (0, None),
        "alarm": (0, None),
        "wake": (0, None),
        "shard": (0, None),
    }
    return json.dumps(draw.pick(choices.get(field, ("a", "p")))).encode()


def _string(draw: Draw) -> bytes:
    """Return a string as JSON; where it cannot be one, as bytes that claim to be."""
    return b'"' + draw.text(_WORDS).encode(errors="surrogatepass").replace(b'"', b'\\"') + b'"'


def _text(draw: Draw, _: int) -> bytes:
    return draw.text(_JSON).encode(errors="surrogatepass")


def _bytes(draw: Draw, _: int) -> bytes | None:
    return draw.rest() or None
