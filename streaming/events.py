"""Input records: from JSON bytes to checked events, or to the reason why not."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from matcher.dialects import DIALECTS
from matcher.errors import MatcherError
from matcher.selectors import compile as compile_selector
from streaming.errors import Rejected

MAX_NAME_BYTES = 16_384
"""Longest name, in bytes of JSON: an update repeats names up to ten times and must stay below Kafka's 1 MB."""

MAX_TTL_MS = 30 * 24 * 3_600_000
"""Longest life of a topic that RocketMQ allows."""

DEADLINE_STEP_MS = 10_000
"""Topics whose lives end within one such step end together: a shard is woken once for all of them."""

MAX_DETAILS = 65_536
"""Most characters of a topic's tags and properties: they are kept as long as the topic lives."""

LMQ_PREFIX = "%LMQ%$"
BIND_TOPIC = "lite.bind.topic"
WILDCARD = "lite.sub.wildcard"
MODEL = "lite.sub.model"
QUOTA = "lite.sub.client.quota"
RESET_EXCLUSIVE = "lite.sub.reset.offset.exclusive"
RESET_UNSUBSCRIBE = "lite.sub.reset.offset.unsubscribe"

DEFAULT_QUOTA = 2_000
"""How many topics a client may hold when its group does not say (RocketMQ's default)."""

UNLIMITED = -1
"""The quota that limits nothing."""

POLICIES = ("exact", "prefix", "wildcard")
"""Match policies of dialect `wamp`."""

_INT64 = 1 << 63

_SHORT = MAX_NAME_BYTES // 6
"""JSON writes a character in six bytes at most, so a name of no more characters than this is short enough."""


class Stream(StrEnum):
    """The input streams, in the order in which one micro-batch is read: attributes, sets, topics, time."""

    GROUPS = "groups"
    SUBSCRIPTIONS = "subscriptions"
    TOPICS = "topics"
    CLOCK = "clock"


class Reason(StrEnum):
    """Why an entry became a dead letter."""

    NOT_JSON = "not-json"
    WRONG_TYPE = "wrong-type"
    MISSING_FIELD = "missing-field"
    BLANK_NAME = "blank-name"
    NAME_TOO_LONG = "name-too-long"
    OUT_OF_RANGE = "out-of-range"
    UNKNOWN_EVENT = "unknown-event"
    UNKNOWN_ACTION = "unknown-action"
    BAD_LMQ_NAME = "bad-lmq-name"
    INVALID_PATTERN = "invalid-pattern"
    INVALID_SELECTOR = "invalid-selector"
    UNKNOWN_DIALECT = "unknown-dialect"
    GROUP_NOT_PLACED = "group-not-placed"
    GROUP_BOUND_ELSEWHERE = "group-bound-elsewhere"
    QUOTA_EXCEEDED = "quota-exceeded"
    NOT_ROUTABLE = "not-routable"


class Action(StrEnum):
    """What a subscription request does (RocketMQ `LiteSubscriptionAction`)."""

    PARTIAL_ADD = "PARTIAL_ADD"
    PARTIAL_REMOVE = "PARTIAL_REMOVE"
    COMPLETE_ADD = "COMPLETE_ADD"
    COMPLETE_REMOVE = "COMPLETE_REMOVE"


class Place(NamedTuple):
    """Where an entry stands in its stream, and its record's timestamp in milliseconds."""

    partition: int
    offset: int
    timestamp: int
    entry: int = 0

    @property
    def position(self) -> int:
        """Offset and entry in one number: later entries of a partition have a higher one."""
        return self.offset << _ENTRY_BITS | min(self.entry, (1 << _ENTRY_BITS) - 1)


_ENTRY_BITS = 10
"""Entries beyond the 1,024th of one record count as one; that matters only between those of one client."""


class Source(NamedTuple):
    """Where an entry came from: coordinates in Kafka, and its record's timestamp in milliseconds."""

    topic: str
    partition: int
    offset: int
    entry: int
    timestamp: int

    @property
    def place(self) -> Place:
        """Where that is in its stream."""
        return Place(self.partition, self.offset, self.timestamp, self.entry)

    def at(self, place: Place) -> "Source":
        """Another place of the same stream."""
        return Source(self.topic, place.partition, place.offset, place.entry, place.timestamp)


class Facts(NamedTuple):
    """What a topic's creation says about it besides its name.

    Attributes:
        tags: the tag, for TAG selectors.
        properties: for SQL92 and other selectors.
        deadline: when the topic ends by itself, in milliseconds since the epoch, rounded up to `DEADLINE_STEP_MS`.
    """

    tags: str | None = None
    properties: Mapping[str, str] = {}
    deadline: int | None = None


PLAIN = Facts()
"""What nearly all topics are: a name and nothing else."""


class TopicEvent(NamedTuple):
    """A lite topic was created or deleted.

    Attributes:
        timestamp: when, in milliseconds since the epoch; None: when the record was written.
        ttl_ms: how long the topic lives from then on.
    """

    parent: str
    lite_topic: str
    created: bool
    tags: str | None = None
    properties: Mapping[str, str] | None = None
    timestamp: int | None = None
    ttl_ms: int | None = None

    def facts(self, recorded: int) -> Facts:
        """What the shard keeps; `recorded` is the record's own timestamp."""
        if self.tags is None and not self.properties and self.ttl_ms is None:
            return PLAIN
        if self.ttl_ms is None:
            return Facts(self.tags, self.properties or {})
        end = (recorded if self.timestamp is None else self.timestamp) + self.ttl_ms
        return Facts(self.tags, self.properties or {}, -(-end // DEADLINE_STEP_MS) * DEADLINE_STEP_MS)


class Notation(NamedTuple):
    """How the entries of a request are written and delivered.

    Attributes:
        dialect: the pattern language.
        policy: the match policy, in dialects that have such; None: as the text says.
        per_subscription: each entry is a row of its own (WAMP), instead of all of a client's entries together.
    """

    dialect: str = "lite"
    policy: str | None = None
    per_subscription: bool = False


LITE = Notation()


class Selection(NamedTuple):
    """A selector as it is written: its kind (TAG, SQL92, or one of the user's own) and its text."""

    kind: str
    text: str


class SubscriptionRequest(NamedTuple):
    """One entry of RocketMQ's `LiteSubscriptionCtlRequestBody`; `version` None means unversioned.

    Attributes:
        parent: the parent topic; blank in a COMPLETE_REMOVE that ends the client on all of its parents.
        selection: the selector of the group from now on; None leaves it.
        as_of: set on a COMPLETE_REMOVE that the job writes itself: it ends only what the client had asked for when
            the record at this place was read.
        expired: the client did not ask for too long.
    """

    parent: str
    group: str
    client_id: str
    action: Action
    entries: tuple[str, ...]
    version: int | None = None
    offset_option: Mapping[str, Any] | None = None
    notation: Notation = LITE
    selection: Selection | None = None
    as_of: Place | None = None
    expired: bool = False


class GroupEvent(NamedTuple):
    """The attributes of a group from now on; empty ones delete them.

    `superseded_by` is set on events that the job writes itself, to tell a parent that the group left it or is bound to
    another one (`bound_to`): the place of the event that said so.
    """

    group: str
    attributes: Mapping[str, str]
    parent: str | None
    superseded_by: Place | None = None
    bound_to: str | None = None


class Tick(NamedTuple):
    """It is this late, in milliseconds since the epoch."""

    time: int


class Alarm(NamedTuple):
    """A shard wants to be woken at a time; the job writes these itself."""

    parent: str
    shard: int
    time: int


class Wake(NamedTuple):
    """A shard is told how late it is; the job writes these itself."""

    parent: str
    shard: int
    time: int


def parse_topic_event(payload: bytes | None) -> TopicEvent:
    """Reads a topic event, named by `parentTopic` and `liteTopic` or by `lmqName`.

    Raises:
        Rejected: the payload is not a valid topic event.
    """
    record = _object(payload)
    event = _text(record, "event")
    if event not in ("CREATED", "DELETED"):
        raise Rejected(Reason.UNKNOWN_EVENT, f"event is {_show(event)}; it must be CREATED or DELETED")
    lmq_name = record.get("lmqName")
    if lmq_name is not None:
        parent, lite_topic = parse_lmq_name(_name(record, "lmqName"))
        for field, value in (("parentTopic", parent), ("liteTopic", lite_topic)):
            if record.get(field) not in (None, value):
                raise Rejected(Reason.BAD_LMQ_NAME, f"lmqName and {field} name different topics; leave one of them out")
    else:
        parent, lite_topic = _name(record, "parentTopic"), _name(record, "liteTopic")
    timestamp = _integer(record, "timestamp")
    if record.keys() <= _PLAIN_FIELDS:
        return TopicEvent(parent, lite_topic, event == "CREATED")
    return TopicEvent(parent, lite_topic, event == "CREATED", *_details(record), timestamp, _ttl(record))


_PLAIN_FIELDS = frozenset({"event", "parentTopic", "liteTopic", "lmqName", "timestamp"})
"""The fields that nearly all topic events have, and no others."""


def _details(record: dict[str, Any]) -> tuple[str | None, dict[str, str] | None]:
    tags = _text(record, "tags") if record.get("tags") is not None else None
    properties = record.get("properties")
    if properties is not None and not (
        isinstance(properties, dict) and all(isinstance(value, str) for value in properties.values())
    ):
        raise Rejected(Reason.WRONG_TYPE, "properties must be an object whose values are strings")
    size = len(tags or "") + sum(len(key) + len(value) for key, value in (properties or {}).items())
    if size > MAX_DETAILS:
        raise Rejected(
            Reason.OUT_OF_RANGE, f"tags and properties have {size:,} characters; at most {MAX_DETAILS:,} are kept"
        )
    return tags, properties


def _ttl(record: dict[str, Any]) -> int | None:
    return _integer(record, "ttlMs", low=1, high=MAX_TTL_MS)


def parse_lmq_name(name: str) -> tuple[str, str]:
    """Splits `%LMQ%$<parent>$<child>` at the first `$` behind the prefix (RocketMQ `LiteUtil`).

    Raises:
        Rejected: the name has another form.
    """
    parent, separator, child = name.removeprefix(LMQ_PREFIX).partition("$")
    if not name.startswith(LMQ_PREFIX) or not separator or not parent.strip() or not child.strip():
        raise Rejected(Reason.BAD_LMQ_NAME, f"lmqName is {_show(name)}; it must be %LMQ%$<parent>$<lite topic>")
    return parent, child


def lmq_name(parent: str, lite_topic: str) -> str:
    """The name of a lite topic's queue in the broker."""
    return f"{LMQ_PREFIX}{parent}${lite_topic}"


def parse_subscription(payload: bytes | None) -> SubscriptionRequest:
    """Reads one entry of a subscription record.

    The entries of its set are returned as they are: whether they are names or patterns depends on the group.

    Raises:
        Rejected: the payload is not a valid entry.
    """
    record = _object(payload)
    if "subscriptionSet" in record:
        raise Rejected(Reason.WRONG_TYPE, "subscriptionSet must be an array of objects, at least one")
    action_text = _text(record, "action")
    if action_text not in Action.__members__:
        raise Rejected(
            Reason.UNKNOWN_ACTION, f"action is {_show(action_text)}; it must be one of {', '.join(Action.__members__)}"
        )
    action = Action(action_text)
    client_id, group = _name(record, "clientId"), _name(record, "group")
    everywhere = action is Action.COMPLETE_REMOVE and _is_blank(record.get("topic"))
    parent = "" if everywhere else _name(record, "topic")
    entries = record.get("liteTopicSet")
    if entries is None and action is Action.COMPLETE_REMOVE:
        entries = []
    if entries is None:
        raise Rejected(
            Reason.MISSING_FIELD, "liteTopicSet is missing; in a wildcard group [] subscribes to every topic"
        )
    if not (isinstance(entries, list) and all(isinstance(entry, str) for entry in entries)):
        raise Rejected(Reason.WRONG_TYPE, "liteTopicSet must be an array of strings")
    return SubscriptionRequest(
        parent,
        group,
        client_id,
        action,
        tuple(dict.fromkeys(entries)),
        _integer(record, "version"),
        _offset_option(record),
        _notation(record),
        _selection(record),
        _place(record, "asOf"),
        record.get("expired") is True,
    )


def _notation(record: dict[str, Any]) -> Notation:
    dialect = record.get("dialect")
    if dialect is None:
        dialect = "lite"
    elif not isinstance(dialect, str) or dialect not in DIALECTS:
        raise Rejected(Reason.UNKNOWN_DIALECT, f"dialect is {_show(dialect)}; it must be one of {', '.join(DIALECTS)}")
    policy = record.get("policy")
    if policy is not None and (dialect != "wamp" or policy not in POLICIES):
        raise Rejected(
            Reason.OUT_OF_RANGE, f"policy is {_show(policy)}; dialect wamp has {', '.join(POLICIES)}, the others none"
        )
    delivery = record.get("delivery")
    if delivery not in (None, "per-client", "per-subscription"):
        raise Rejected(Reason.OUT_OF_RANGE, f"delivery is {_show(delivery)}; it must be per-client or per-subscription")
    per_subscription = dialect == "wamp" if delivery is None else delivery == "per-subscription"
    notation = Notation(dialect, policy, per_subscription)
    return LITE if notation == LITE else notation


def _selection(record: dict[str, Any]) -> Selection | None:
    selector = record.get("selector")
    if selector is None:
        return None
    if not isinstance(selector, dict):
        raise Rejected(Reason.WRONG_TYPE, f"selector must be an object, not {_kind(selector)}")
    selection = Selection(_text(selector, "type", "selector."), _text(selector, "expression", "selector."))
    if len(selection.text) > MAX_DETAILS:
        raise Rejected(Reason.OUT_OF_RANGE, f"selector.expression is longer than {MAX_DETAILS:,} characters")
    try:
        compile_selector(*selection)
    except (MatcherError, ValueError) as error:  # a user's own kind may raise any ValueError
        raise Rejected(Reason.INVALID_SELECTOR, str(error)) from None
    return selection


def _place(record: dict[str, Any], field: str) -> Place | None:
    value = record.get(field)
    if value is None:
        return None
    if not (isinstance(value, list) and [type(number) for number in value] in ([int] * 3, [int] * 4)):
        raise Rejected(Reason.WRONG_TYPE, f"{field} must be [partition, offset, timestamp, entry]")
    return Place(*value)


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def parse_group_event(payload: bytes | None) -> GroupEvent:
    """Reads a group event.

    Raises:
        Rejected: the payload is not a valid group event; attributes without `lite.bind.topic` cannot be placed.
    """
    record = _object(payload)
    group = _name(record, "group")
    raw = record.get("attributes")
    if raw is None:
        raise Rejected(Reason.MISSING_FIELD, "attributes is missing; {} deletes the attributes of the group")
    if not isinstance(raw, dict):
        raise Rejected(Reason.WRONG_TYPE, f"attributes must be an object, not {_kind(raw)}")
    attributes = {key: _attribute(key, value) for key, value in raw.items()}
    if attributes and not attributes.get(BIND_TOPIC, "").strip():
        raise Rejected(
            Reason.GROUP_NOT_PLACED, f"the attributes lack {BIND_TOPIC}, the parent topic on which the group acts"
        )
    if attributes:
        _check_attributes(attributes)
        return GroupEvent(group, attributes, _checked_name(BIND_TOPIC, attributes[BIND_TOPIC]))
    parent = _name(record, "parentTopic") if record.get("parentTopic") is not None else None
    bound_to = _name(record, "boundTo") if record.get("boundTo") is not None else None
    return GroupEvent(group, attributes, parent, _place(record, "supersededBy"), bound_to)


def parse_clock(payload: bytes | None) -> Tick | Alarm | Wake:
    """Reads a record of the clock stream, which the job writes itself: `{"tick"}`, `{"alarm"}` or `{"wake"}`.

    Raises:
        Rejected: the payload is none of them.
    """
    record = _object(payload)
    if record.get("tick") is not None:
        return Tick(_required_integer(record, "tick"))
    kind = Alarm if record.get("alarm") is not None else Wake
    time = _required_integer(record, "alarm" if kind is Alarm else "wake")
    return kind(_name(record, "parentTopic"), _required_integer(record, "shard"), time)


def _check_attributes(attributes: Mapping[str, str]) -> None:
    model = attributes.get(MODEL, "Shared")
    if model.lower() not in ("shared", "exclusive"):
        raise Rejected(Reason.OUT_OF_RANGE, f"{MODEL} is {_show(model)}; it must be Shared or Exclusive")
    quota = attributes.get(QUOTA, str(UNLIMITED))
    if re.fullmatch(r"-1|[0-9]{1,18}", quota) is None:
        raise Rejected(
            Reason.OUT_OF_RANGE, f"{QUOTA} is {_show(quota)}; it must be a whole number, {UNLIMITED} for none"
        )


def _attribute(key: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) and key != BIND_TOPIC:
        return str(value)
    raise Rejected(Reason.WRONG_TYPE, f"attribute {_show(key)} must be a string, not {_kind(value)}")


def check_name(what: str, text: str) -> str | None:
    """Says why `text` cannot be the name of a topic, client or group; None when it can."""
    if not text.strip():
        return f"{what} is blank"
    if len(text) > _SHORT and len(orjson.dumps(text)) - 2 > MAX_NAME_BYTES:
        return f"{what} is longer than {MAX_NAME_BYTES:,} bytes"
    return None


def _checked_name(field: str, text: str) -> str:
    problem = check_name(field, text)
    if problem is not None:
        raise Rejected(Reason.NAME_TOO_LONG if text.strip() else Reason.BLANK_NAME, problem)
    return text


def _name(record: dict[str, Any], field: str) -> str:
    value = record.get(field)
    if type(value) is str and len(value) <= _SHORT and value.strip():
        return value  # nearly always
    return _checked_name(field, _text(record, field))


def _text(record: dict[str, Any], field: str, label: str = "") -> str:
    value = record.get(field)
    if isinstance(value, str):
        return value
    if value is None:
        raise Rejected(Reason.MISSING_FIELD, f"{label}{field} is missing")
    raise Rejected(Reason.WRONG_TYPE, f"{label}{field} must be a string, not {_kind(value)}")


def _integer(
    record: dict[str, Any], field: str, low: int = -_INT64, high: int = _INT64 - 1, label: str = ""
) -> int | None:
    value = record.get(field)
    if value is None:
        return None
    if type(value) is float and abs(value) >= _INT64:
        raise Rejected(Reason.OUT_OF_RANGE, f"{label}{field} is too large; it must be from {low} to {high}")
    if type(value) is not int:
        raise Rejected(Reason.WRONG_TYPE, f"{label}{field} must be a whole number, not {_kind(value)}")
    if not low <= value <= high:
        raise Rejected(Reason.OUT_OF_RANGE, f"{label}{field} is {value}; it must be from {low} to {high}")
    return value


def _required_integer(record: dict[str, Any], field: str) -> int:
    value = _integer(record, field)
    if value is None:
        raise Rejected(Reason.MISSING_FIELD, f"{field} is missing")
    return value


def _offset_option(record: dict[str, Any]) -> Mapping[str, Any] | None:
    option = record.get("offsetOption")
    if option is None:
        return None
    if not isinstance(option, dict):
        raise Rejected(Reason.WRONG_TYPE, f"offsetOption must be an object, not {_kind(option)}")
    kind = _text(option, "type", "offsetOption.")
    if kind not in ("POLICY", "OFFSET", "TAIL_N", "TIMESTAMP"):
        raise Rejected(
            Reason.OUT_OF_RANGE, f"offsetOption.type is {_show(kind)}; it must be POLICY, OFFSET, TAIL_N or TIMESTAMP"
        )
    return {"type": kind, "value": _integer(option, "value", label="offsetOption.")}


def _object(payload: bytes | None) -> dict[str, Any]:
    if payload is None:
        raise Rejected(Reason.NOT_JSON, "the record has no value")
    try:
        record = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise Rejected(Reason.NOT_JSON, f"the value is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise Rejected(Reason.WRONG_TYPE, f"the value must be a JSON object, not {_kind(record)}")
    return record


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {bool: "a boolean", str: "a string", list: "an array", dict: "an object", float: "a fraction"}
    return kinds.get(type(value), "a number")


def _show(value: Any, limit: int = 80) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= limit else text[:limit] + "..."
