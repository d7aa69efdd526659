"""Invalid records, each with the reason of its dead letter."""

import json
from functools import partial
from typing import Any

from streaming.records.model import BIND_TOPIC, MAX_NAME_BYTES, MODEL, QUOTA, WILDCARD, Reason, Stream
from tests.support.events import created, replace

request = partial(replace, "t", group="literal")
"""A valid request of a literal group, with changes."""

HUGE = "x" * (MAX_NAME_BYTES + 1)
POISON: list[tuple[Stream, Any, Reason]] = [
    (Stream.TOPICS, b"not json", Reason.NOT_JSON),
    (Stream.TOPICS, b"", Reason.NOT_JSON),
    (Stream.TOPICS, b"\n", Reason.NOT_JSON),
    (Stream.TOPICS, b"\xff\xfe\x00", Reason.NOT_JSON),
    (Stream.TOPICS, b'{"event":"CREATED","parentTopic":"p","liteTopic":"tail"} {}', Reason.NOT_JSON),
    (Stream.TOPICS, b'"text"', Reason.WRONG_TYPE),
    (Stream.TOPICS, b"[]", Reason.WRONG_TYPE),
    (Stream.TOPICS, b"null", Reason.WRONG_TYPE),
    (Stream.TOPICS, None, Reason.NOT_JSON),
    (Stream.TOPICS, created(5), Reason.WRONG_TYPE),
    (Stream.TOPICS, created({"a": 1}), Reason.WRONG_TYPE),
    (Stream.TOPICS, created(None), Reason.MISSING_FIELD),
    (Stream.TOPICS, created(" "), Reason.BLANK_NAME),
    (Stream.TOPICS, created("t1", parent=""), Reason.BLANK_NAME),
    (Stream.TOPICS, created("t1", event="RENAMED"), Reason.UNKNOWN_EVENT),
    (Stream.TOPICS, created("t1", ttlMs="soon"), Reason.WRONG_TYPE),
    (Stream.TOPICS, created("t1", ttlMs=0), Reason.OUT_OF_RANGE),
    (Stream.TOPICS, created("t1", properties={"a": 1}), Reason.WRONG_TYPE),
    (Stream.TOPICS, created(HUGE), Reason.NAME_TOO_LONG),
    (Stream.TOPICS, created("y" * 900_000), Reason.NAME_TOO_LONG),
    (Stream.TOPICS, {"event": "CREATED", "lmqName": "p$t"}, Reason.BAD_LMQ_NAME),
    (Stream.TOPICS, created("t1", lmqName="%LMQ%$p$t2"), Reason.BAD_LMQ_NAME),
    (Stream.SUBSCRIPTIONS, b"{", Reason.NOT_JSON),
    (Stream.SUBSCRIPTIONS, None, Reason.NOT_JSON),
    (Stream.SUBSCRIPTIONS, b"\xc3\x28", Reason.NOT_JSON),
    (Stream.SUBSCRIPTIONS, {"subscriptionSet": "all"}, Reason.WRONG_TYPE),
    (Stream.SUBSCRIPTIONS, {"subscriptionSet": [7]}, Reason.WRONG_TYPE),
    (Stream.SUBSCRIPTIONS, json.dumps(request(liteTopicSet=["tail"])).encode() + b"{}", Reason.NOT_JSON),
    (Stream.SUBSCRIPTIONS, request(action="SUBSCRIBE"), Reason.UNKNOWN_ACTION),
    (Stream.SUBSCRIPTIONS, request(action=...), Reason.MISSING_FIELD),
    (Stream.SUBSCRIPTIONS, request(client=" "), Reason.BLANK_NAME),
    (Stream.SUBSCRIPTIONS, request(client=7), Reason.WRONG_TYPE),
    (Stream.SUBSCRIPTIONS, request(group=""), Reason.BLANK_NAME),
    (Stream.SUBSCRIPTIONS, request(parent=""), Reason.BLANK_NAME),
    (Stream.SUBSCRIPTIONS, request(parent=...), Reason.MISSING_FIELD),
    (Stream.SUBSCRIPTIONS, request(liteTopicSet=...), Reason.MISSING_FIELD),
    (Stream.SUBSCRIPTIONS, request(liteTopicSet="t"), Reason.WRONG_TYPE),
    (Stream.SUBSCRIPTIONS, request(liteTopicSet=["t", 5]), Reason.WRONG_TYPE),
    (Stream.SUBSCRIPTIONS, request(version="new"), Reason.WRONG_TYPE),
    (Stream.SUBSCRIPTIONS, request(version=True), Reason.WRONG_TYPE),
    (Stream.SUBSCRIPTIONS, request(offsetOption={"type": "NOW"}), Reason.OUT_OF_RANGE),
    (Stream.SUBSCRIPTIONS, request(dialect="amqp"), Reason.UNKNOWN_DIALECT),
    (Stream.SUBSCRIPTIONS, request(dialect=["mqtt"]), Reason.UNKNOWN_DIALECT),
    (Stream.SUBSCRIPTIONS, request(dialect="mqtt", policy="prefix"), Reason.OUT_OF_RANGE),
    (Stream.SUBSCRIPTIONS, request(delivery="twice"), Reason.OUT_OF_RANGE),
    (Stream.SUBSCRIPTIONS, request(selector="TagA"), Reason.WRONG_TYPE),
    (Stream.SUBSCRIPTIONS, request(selector={"type": "SQL92", "expression": "a >"}), Reason.INVALID_SELECTOR),
    (Stream.SUBSCRIPTIONS, request(selector={"type": "XPATH", "expression": "//a"}), Reason.INVALID_SELECTOR),
    (Stream.SUBSCRIPTIONS, request(action="COMPLETE_REMOVE", parent="", group=7), Reason.WRONG_TYPE),
    (Stream.SUBSCRIPTIONS, request(group="wild", parent="q", liteTopicSet=["*"]), Reason.GROUP_BOUND_ELSEWHERE),
    (Stream.SUBSCRIPTIONS, request(group="wild", dialect="mqtt", liteTopicSet=["+/#/c"]), Reason.INVALID_PATTERN),
    (Stream.SUBSCRIPTIONS, request(group="wild", client="w2", liteTopicSet=["a*"]), Reason.INVALID_PATTERN),
    (Stream.GROUPS, b"nope", Reason.NOT_JSON),
    (Stream.GROUPS, None, Reason.NOT_JSON),
    (Stream.GROUPS, {"group": "g"}, Reason.MISSING_FIELD),
    (Stream.GROUPS, {"group": "g", "attributes": "none"}, Reason.WRONG_TYPE),
    (Stream.GROUPS, {"group": "g", "attributes": {WILDCARD: "true"}}, Reason.GROUP_NOT_PLACED),
    (Stream.GROUPS, {"group": " ", "attributes": {BIND_TOPIC: "p"}}, Reason.BLANK_NAME),
    (Stream.GROUPS, {"group": "g", "attributes": {BIND_TOPIC: "p", MODEL: "Single"}}, Reason.OUT_OF_RANGE),
    (Stream.GROUPS, {"group": "g", "attributes": {BIND_TOPIC: "p", QUOTA: "many"}}, Reason.OUT_OF_RANGE),
    (Stream.CLOCK, b"late", Reason.NOT_JSON),
    (Stream.CLOCK, {"tick": "now"}, Reason.WRONG_TYPE),
    (Stream.CLOCK, {"wake": 5, "parentTopic": "p"}, Reason.MISSING_FIELD),
]
