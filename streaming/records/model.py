"""Input events after validation, and the limits that they keep to."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

MAX_NAME_BYTES = 16_384
"""Maximum length of a name in bytes of JSON: an update repeats names up to ten times and must fit into Kafka's 1 MB."""

MAX_TTL_MS = 30 * 24 * 3_600_000
"""Maximum lifetime of a topic in milliseconds, as in RocketMQ."""

DEADLINE_STEP_MS = 10_000
"""Step in milliseconds to which deadlines are rounded up: a shard is woken once for many topics."""

_LAST_DEADLINE = ((1 << 63) - 1) // DEADLINE_STEP_MS * DEADLINE_STEP_MS
"""Last deadline that the record of an alarm can have."""

VERSION_RETENTION_MS = 7 * 24 * 3_600_000
"""Time in milliseconds since the last request of a client in no session, after which its versions are forgotten."""

MAX_AHEAD_MS = 10_000
"""Maximum time in milliseconds by which a tick or a wake may be ahead of its record's timestamp."""

MAX_DETAILS = 65_536
"""Maximum number of characters in a topic's tags and properties, which are stored as long as the topic lives."""

LMQ_PREFIX = "%LMQ%$"
BIND_TOPIC = "lite.bind.topic"
WILDCARD = "lite.sub.wildcard"
MODEL = "lite.sub.model"
QUOTA = "lite.sub.client.quota"
RESET_EXCLUSIVE = "lite.sub.reset.offset.exclusive"
RESET_UNSUBSCRIBE = "lite.sub.reset.offset.unsubscribe"

DEFAULT_QUOTA = 2_000
"""Number of topics that a client may hold if its group has no quota attribute (RocketMQ's default)."""

UNLIMITED = -1
"""Quota without a limit."""

SHORT_NAME = MAX_NAME_BYTES // 6
"""Number of characters up to which every name is short enough: JSON takes at most six bytes for a character."""


class Stream(StrEnum):
    """Input streams, in the order in which a micro-batch reads them: attributes, subscriptions, topics, time."""

    GROUPS = "groups"
    SUBSCRIPTIONS = "subscriptions"
    TOPICS = "topics"
    CLOCK = "clock"


class Reason(StrEnum):
    """Reason for a dead letter."""

    NOT_JSON = "not-json"
    TOO_DEEP = "too-deep"
    WRONG_TYPE = "wrong-type"
    MISSING_FIELD = "missing-field"
    DUPLICATE_FIELD = "duplicate-field"
    RESERVED_FIELD = "reserved-field"
    BLANK_NAME = "blank-name"
    NAME_TOO_LONG = "name-too-long"
    OUT_OF_RANGE = "out-of-range"
    VALUE_TOO_LARGE = "value-too-large"
    UNKNOWN_EVENT = "unknown-event"
    UNKNOWN_ACTION = "unknown-action"
    BAD_LMQ_NAME = "bad-lmq-name"
    INVALID_PATTERN = "invalid-pattern"
    INVALID_SELECTOR = "invalid-selector"
    UNKNOWN_DIALECT = "unknown-dialect"
    GROUP_NOT_PLACED = "group-not-placed"
    GROUP_BOUND_ELSEWHERE = "group-bound-elsewhere"
    QUOTA_EXCEEDED = "quota-exceeded"
    QUOTA_CAPPED = "quota-capped"
    NOT_ROUTABLE = "not-routable"
    NOT_APPLICABLE = "not-applicable"
    AHEAD_OF_TIME = "ahead-of-time"
    QUARANTINED = "quarantined"


class Action(StrEnum):
    """Action of a subscription request (RocketMQ `LiteSubscriptionAction`)."""

    PARTIAL_ADD = "PARTIAL_ADD"
    PARTIAL_REMOVE = "PARTIAL_REMOVE"
    COMPLETE_ADD = "COMPLETE_ADD"
    COMPLETE_REMOVE = "COMPLETE_REMOVE"


class Place(NamedTuple):
    """Place of an entry in its stream, with its record's timestamp in milliseconds."""

    partition: int
    offset: int
    timestamp: int
    entry: int = 0

    @property
    def position(self) -> int:
        """Offset and entry as one number, which grows along a partition."""
        return self.offset << ENTRY_BITS | min(self.entry, (1 << ENTRY_BITS) - 1)


ENTRY_BITS = 10
"""Number of bits for the entry in a position; it bounds the requests of a record (`max_requests`)."""


class Source(NamedTuple):
    """Source of an entry: its coordinates in Kafka, and its record's timestamp in milliseconds."""

    topic: str
    partition: int
    offset: int
    entry: int
    timestamp: int

    @property
    def place(self) -> Place:
        """Place in the stream."""
        return Place(self.partition, self.offset, self.timestamp, self.entry)

    def at(self, place: Place) -> "Source":
        """Return the source at another place of the same stream."""
        return Source(self.topic, place.partition, place.offset, place.entry, place.timestamp)


class TopicMetadata(NamedTuple):
    """Metadata of a topic, from its creation event.

    The deadline is in milliseconds since the epoch, rounded up to `DEADLINE_STEP_MS`.
    """

    tags: str | None = None
    properties: Mapping[str, str] = {}
    deadline: int | None = None


NO_METADATA = TopicMetadata()
"""Metadata of a topic with nothing but a name, as nearly all topics are."""


class TopicEvent(NamedTuple):
    """Creation or deletion of a lite topic.

    Attributes:
        timestamp: time of the event, in milliseconds since the epoch; None for the time of the record.
        ttl_ms: lifetime of the topic since then, in milliseconds; None for no end.
    """

    parent: str
    lite_topic: str
    created: bool
    tags: str | None = None
    properties: Mapping[str, str] | None = None
    timestamp: int | None = None
    ttl_ms: int | None = None

    def metadata(self, recorded: int) -> TopicMetadata:
        """Return the metadata to store; `recorded` is the record's time in ms."""
        if self.tags is None and not self.properties and self.ttl_ms is None:
            return NO_METADATA
        if self.ttl_ms is None:
            return TopicMetadata(self.tags, self.properties or {})
        end = (recorded if self.timestamp is None else self.timestamp) + self.ttl_ms
        deadline = min(-(-end // DEADLINE_STEP_MS) * DEADLINE_STEP_MS, _LAST_DEADLINE)
        return TopicMetadata(self.tags, self.properties or {}, deadline)


class Notation(NamedTuple):
    """Notation and delivery of a request's entries.

    Attributes:
        policy: the match policy, in dialects that have policies; None leaves it to the text of the entry.
        per_subscription: each entry is delivered as its own subscription (WAMP), instead of all entries of a client
            together.
    """

    dialect: str = "lite"
    policy: str | None = None
    per_subscription: bool = False


LITE = Notation()


class SelectorSpec(NamedTuple):
    """Selector before compilation: its kind (TAG, SQL92, or a user-defined one) and its text."""

    kind: str
    text: str


class SubscriptionRequest(NamedTuple):
    """One entry of RocketMQ's `LiteSubscriptionCtlRequestBody`.

    Attributes:
        parent: the parent topic; blank in a COMPLETE_REMOVE that ends the client on all of its parents.
        selector: the selector of the group from now on; None keeps the former selector.
        as_of: set by the job on the COMPLETE_REMOVE requests that it writes: only subscriptions requested up to this
            place end.
        ends: set by the job with `as_of`: how the client ended under each mode, by the name of the mode; None in
            requests that a former release wrote.
        later: the client's requests and ends on this parent since then, each with its place, oldest first.
        through: place of the last request that is known up to this record.
        continues: True if `later` continues a former record.
        later_count: length of `later`, including the records that it continues; None in records that a former release
            wrote.
        piece: number and text of a piece of the next request of `later`, which is too long for one record.
    """

    parent: str
    group: str
    client_id: str
    action: Action
    entries: tuple[str, ...]
    version: int | None = None
    offset_option: Mapping[str, Any] | None = None
    notation: Notation = LITE
    selector: SelectorSpec | None = None
    as_of: Place | None = None
    expired: bool = False
    ends: "Mapping[str, End] | None" = None
    later: "tuple[tuple[Place, SubscriptionRequest], ...]" = ()
    through: Place | None = None
    continues: bool = False
    later_count: int | None = None
    forgets: bool = False
    piece: tuple[int, str] | None = None


class End(NamedTuple):
    """End of a client on one parent under one mode.

    Attributes:
        place: place of the request that ended the client, or of its last request before its lease expired.
        version: version of that request; None for none, and for a lease.
        known: version of the client before it, if no quota refused a request.
    """

    place: Place
    version: int | None = None
    known: int | None = None
    forgets: bool = False

    @property
    def is_stale(self) -> bool:
        """True if the client had sent a newer version before."""
        return self.version is not None and self.known is not None and self.version < self.known


class GroupEvent(NamedTuple):
    """Attributes of a group from now on.

    Attributes:
        attributes: empty to delete all attributes of the group.
        parent: the parent topic that the group is bound to, or deleted on; None for a deletion wherever it is bound.
        superseded_by: set by the job on the events with which it ends a group on a parent: the place of the event that
            deleted the group, or bound it elsewhere.
        bound_to: the other parent in that case.
    """

    group: str
    attributes: Mapping[str, str]
    parent: str | None
    superseded_by: Place | None = None
    bound_to: str | None = None


class Tick(NamedTuple):
    """Time of the clock stream, in milliseconds since the epoch; a tick without a time may carry a question."""

    time: int
    inquiry: dict[str, Any] | None = None


class Alarm(NamedTuple):
    """Request of a shard to be woken at a time; written by the job."""

    parent: str
    shard: int
    time: int


class Wake(NamedTuple):
    """Wake-up of a shard, with the time, or with a question and without a time; written by the job."""

    parent: str
    shard: int
    time: int
    inquiry: dict[str, Any] | None = None


SingleEvent = TopicEvent | SubscriptionRequest | GroupEvent | Tick | Alarm | Wake
"""Valid entry of an input stream."""


def lmq_name(parent: str, lite_topic: str) -> str:
    """Return the name of a lite topic's queue in the broker."""
    return f"{LMQ_PREFIX}{parent}${lite_topic}"


def check_name(label: str, text: str) -> str | None:
    """Return why `text` cannot be a name, starting with `label`; None if it can."""
    if not text.strip():
        return f"{label} is blank"
    if len(text) > SHORT_NAME and len(orjson.dumps(text)) - 2 > MAX_NAME_BYTES:
        return f"{label} is longer than {MAX_NAME_BYTES:,} bytes"
    return None


def repeated_fields(place: Place, request: SubscriptionRequest) -> dict[str, Any]:
    """Return the fields of a request that a shard needs to apply it again."""
    ends = None if request.ends is None else ends_fields(request.ends)
    return without_none({
        **_own_fields(request), "ends": ends, "expired": request.expired or None, "forgets": request.forgets or None,
        "place": list(place),
    })  # fmt: skip


def entry_of(request: SubscriptionRequest) -> bytes:
    """Return a request as the entry of a subscription record."""
    names = {"clientId": request.client_id, "group": request.group, "topic": request.parent}
    return orjson.dumps(without_none({**names, **_own_fields(request)}))


def ends_fields(ends: Mapping[str, End]) -> dict[str, Any]:
    """Return the fields of an end under each mode."""
    return {
        str(mode): without_none({**end._asdict(), "place": list(end.place), "forgets": end.forgets or None})
        for mode, end in ends.items()
    }


def without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def _own_fields(request: SubscriptionRequest) -> dict[str, Any]:
    dialect, policy, per_subscription = request.notation
    return {
        "action": request.action,
        "liteTopicSet": request.entries,
        "version": request.version,
        "offsetOption": request.offset_option,
        "selector": request.selector and {"type": request.selector.kind, "expression": request.selector.text},
        "dialect": dialect,
        "policy": policy,
        "delivery": "per-subscription" if per_subscription else "per-client",
    }
