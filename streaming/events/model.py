"""Input records as checked events, and what their names may be."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

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

SHORT_NAME = MAX_NAME_BYTES // 6
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


class TopicMetadata(NamedTuple):
    """What a topic's creation says about it besides its name.

    Attributes:
        tags: the tag, for TAG selectors.
        properties: for SQL92 and other selectors.
        deadline: when the topic ends by itself, in milliseconds since the epoch, rounded up to `DEADLINE_STEP_MS`.
    """

    tags: str | None = None
    properties: Mapping[str, str] = {}
    deadline: int | None = None


NO_METADATA = TopicMetadata()
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

    def metadata(self, recorded: int) -> TopicMetadata:
        """What the shard keeps; `recorded` is the record's own timestamp."""
        if self.tags is None and not self.properties and self.ttl_ms is None:
            return NO_METADATA
        if self.ttl_ms is None:
            return TopicMetadata(self.tags, self.properties or {})
        end = (recorded if self.timestamp is None else self.timestamp) + self.ttl_ms
        return TopicMetadata(self.tags, self.properties or {}, -(-end // DEADLINE_STEP_MS) * DEADLINE_STEP_MS)


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


class SelectorSpec(NamedTuple):
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
    selector: SelectorSpec | None = None
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


SingleEvent = TopicEvent | SubscriptionRequest | GroupEvent | Tick | Alarm | Wake
"""One entry of an input stream, checked."""


def lmq_name(parent: str, lite_topic: str) -> str:
    """The name of a lite topic's queue in the broker."""
    return f"{LMQ_PREFIX}{parent}${lite_topic}"


def check_name(what: str, text: str) -> str | None:
    """Says why `text` cannot be the name of a topic, client or group; None when it can."""
    if not text.strip():
        return f"{what} is blank"
    if len(text) > SHORT_NAME and len(orjson.dumps(text)) - 2 > MAX_NAME_BYTES:
        return f"{what} is longer than {MAX_NAME_BYTES:,} bytes"
    return None
