"""Answers as plain values, as a worker sends them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

from matcher.explain import Step
from streaming.records.model import ENTRY_BITS, Stream, TopicMetadata

T = TypeVar("T")


class PairVerdict(StrEnum):
    """Deciding fact about a client and a topic, in the order in which the rules apply."""

    RECEIVED = "received"
    CLIENT_UNKNOWN = "client-unknown"
    NOT_IN_SESSION = "not-in-session"
    BOUND_ELSEWHERE = "bound-elsewhere"
    NO_MATCH = "no-match"
    TOPIC_UNKNOWN = "topic-unknown"
    SELECTOR = "selector"
    EXCLUSIVE = "exclusive"
    UNDER_WAY = "under-way"
    QUOTA = "quota"


@dataclass(frozen=True, slots=True)
class EventPlace:
    """Place in Kafka of an event.

    Attributes:
        stream: its input stream; its Kafka topic, once a worker has answered.
        entry: position of a request in its record.
    """

    stream: str
    partition: int
    offset: int
    entry: int = 0

    def __str__(self) -> str:
        entry = f"#{self.entry}" if self.entry else ""
        return f"{self.stream}[{self.partition}]@{self.offset}{entry}"


@dataclass(frozen=True, slots=True)
class EntryVerdict:
    """An entry of a client's set, compared with a topic.

    Attributes:
        dialect: how it is read; None for a name.
        reason: why, by segment.
        steps: segment by segment; none for a name.
    """

    entry: str
    dialect: str | None
    policy: str | None
    matches: bool
    reason: str
    steps: tuple[Step, ...] = ()
    place: EventPlace | None = None


@dataclass(frozen=True, slots=True)
class Hint:
    """A likely mistake, and the fix."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class RowFacts:
    """A row that the client has: the part of its subscription, and the entries that match (none: it asks for all)."""

    part: str
    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """State of a group on a shard.

    Attributes:
        attributes: in force; empty without a known event.
        mode: meaning of the entries of its clients: names (literal) or patterns (wildcard).
        quota: number of topics that a client may hold; negative for any number.
        selector: kind and text of the selector in force.
        bound_to: other parent that it is bound to.
    """

    group: str
    attributes: Mapping[str, str]
    mode: str
    exclusive: bool
    quota: int
    selector: tuple[str, str] | None = None
    bound_to: str | None = None
    place: EventPlace | None = None
    clients: int | None = None


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """State of a client on a shard.

    Attributes:
        entries: number of its entries that can match a topic of the shard.
    """

    group: str
    client: str
    live: bool
    entries: int
    everything: bool
    version: int | None = None
    place: EventPlace | None = None


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A lite topic; it expires at its deadline, in milliseconds since the epoch; None for never."""

    topic: str
    tags: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    deadline: int | None = None


@dataclass(frozen=True, slots=True)
class QuotaFacts:
    """Quota of a client, and the share of it that counts on one shard."""

    quota: int
    share: int


@dataclass(frozen=True, slots=True)
class PairFacts:
    """Reason why a client receives a topic or not, from the state of its shard.

    Attributes:
        decided_by: event behind it; None if the state contains none.
        entries: entries that match; if none does, the nearest.
        holder: client of the exclusive group that holds the topic.
    """

    parent: str
    topic: str
    group: str
    client: str
    verdict: PairVerdict
    reason: str
    decided_by: EventPlace | None
    topic_facts: TopicFacts | None
    group_facts: GroupFacts
    client_facts: ClientFacts | None
    rows: tuple[RowFacts, ...] = ()
    entries: tuple[EntryVerdict, ...] = ()
    holder: str | None = None
    quota: QuotaFacts | None = None
    hints: tuple[Hint, ...] = ()

    @property
    def received(self) -> bool:
        """True if the client receives the topic."""
        return self.verdict is PairVerdict.RECEIVED


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Part of a list.

    Attributes:
        cursor: place from which the list continues; None at its end.
        total: number of all items, before the pattern is applied.
    """

    items: Sequence[T]
    cursor: int | None
    total: int


@dataclass(frozen=True, slots=True)
class SubscriptionFacts:
    """An entry of a client's set.

    Attributes:
        entry: name or pattern; None for every topic of the parent.
    """

    group: str
    client: str
    entry: str | None
    dialect: str | None
    policy: str | None
    live: bool
    place: EventPlace | None


@dataclass(frozen=True, slots=True)
class SubscriberFacts:
    """A subscriber of a topic: a client, or the part of it that is delivered by itself."""

    group: str
    client: str
    part: str
    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicDetails:
    """A topic with its subscribers.

    Attributes:
        count: number of all subscribers; quotas are considered for the shown subscribers only.
    """

    topic: TopicFacts | None
    subscribers: tuple[SubscriberFacts, ...]
    count: int


@dataclass(frozen=True, slots=True)
class BindingFacts:
    """Binding of a group to its parent, by the event at a place."""

    group: str
    parent: str
    place: EventPlace


@dataclass(frozen=True, slots=True)
class LeaseFacts:
    """A client, over all parents on which it may be in session, and the time of its last request in ms."""

    group: str
    client: str
    parents: tuple[str, ...]
    place: EventPlace
    last_request: int


@dataclass(frozen=True, slots=True)
class Overview:
    """Groups and clients of one bucket that a question is about, up to its limit.

    Attributes:
        clock: time of the last tick, in milliseconds since the epoch.
        client_timeout_ms: time without requests after which a client is ended; 0 for never.
        cursor: place from which both lists continue; None at their end.
    """

    bindings: tuple[BindingFacts, ...]
    leases: tuple[LeaseFacts, ...]
    clock: int
    client_timeout_ms: int
    cursor: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedUpdate:
    """An update that a planned event would cause."""

    op: str
    parent: str
    topic: str
    group: str
    client: str
    cause: str
    part: str = ""


@dataclass(frozen=True, slots=True)
class PlannedProblem:
    """A dead letter, or an ignored entry, that a planned event would cause."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PlannedEffect:
    """Effect of a planned event on one key.

    Attributes:
        echoes: records that the coordinator would write to the inputs, each with its stream.
        cursor: place from which counting continues; None if everything is counted.
        wide: group and id of the clients for which it continues.
        complete: False if there are more updates than were counted.
    """

    adds: int = 0
    removes: int = 0
    shown: tuple[PlannedUpdate, ...] = ()
    problems: tuple[PlannedProblem, ...] = ()
    ignored: tuple[str, ...] = ()
    echoes: tuple[tuple[str, dict[str, Any]], ...] = ()
    cursor: int | None = None
    wide: tuple[tuple[str, str], ...] = ()
    complete: bool = True


def request_place(partition: int, position: int) -> EventPlace:
    """Return the place of a request, from its position in the subscription stream."""
    return EventPlace(Stream.SUBSCRIPTIONS, partition, *divmod(position, 1 << ENTRY_BITS))


def topic_facts(name: str, metadata: TopicMetadata) -> TopicFacts:
    """Return a topic with its metadata."""
    return TopicFacts(name, metadata.tags, metadata.properties, metadata.deadline)
