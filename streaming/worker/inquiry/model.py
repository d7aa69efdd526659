"""Answers as plain values, as a worker sends them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


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
class SegmentStep:
    """One segment of a topic with its counterpart in a pattern; None after the end of either."""

    pattern: str | None
    topic: str | None
    fits: bool
    verdict: str


@dataclass(frozen=True, slots=True)
class EntryVerdict:
    """An entry of a client's set, compared with a topic.

    Attributes:
        entry: name or pattern.
        dialect: how it is read; None for a name.
        policy: match policy, in dialects that have policies.
        matches: True if it matches.
        reason: why, by segment.
        steps: segment by segment; none for a name.
        place: of the request that brought it.
    """

    entry: str
    dialect: str | None
    policy: str | None
    matches: bool
    reason: str
    steps: tuple[SegmentStep, ...] = ()
    place: EventPlace | None = None


@dataclass(frozen=True, slots=True)
class Hint:
    """A likely mistake, and the fix.

    Attributes:
        code: its kind, in one word.
        text: a sentence or two.
    """

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
        group: its name.
        attributes: in force; empty without a known event.
        mode: meaning of the entries of its clients: names (literal) or patterns (wildcard).
        exclusive: a topic goes to one of its clients only.
        quota: number of topics that a client may hold; negative for any number.
        selector: kind and text of the selector in force.
        bound_to: other parent that it is bound to.
        place: of the event that set the attributes.
        clients: number of its clients; None if not counted.
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
        live: it is in session.
        entries: number of its entries that can match a topic of the shard.
        everything: it asks for every topic.
        version: of its last request.
        place: of its last request; None if unknown.
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
    """A lite topic.

    Attributes:
        tags, properties: for selectors.
        deadline: time at which it expires, in milliseconds since the epoch; None for never.
    """

    topic: str
    tags: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    deadline: int | None = None


@dataclass(frozen=True, slots=True)
class QuotaFacts:
    """Quota of a client on one shard.

    Attributes:
        quota: of the group.
        share: part of it that counts on this shard.
    """

    quota: int
    share: int


@dataclass(frozen=True, slots=True)
class PairFacts:
    """Reason why a client receives a topic or not, from the state of its shard.

    Attributes:
        verdict: deciding fact.
        reason: the same as a sentence.
        decided_by: event behind it; None if the state contains none.
        topic_facts: the topic; None if it does not exist.
        group_facts: the group.
        client_facts: the client; None if unknown to the shard.
        rows: rows that the client has.
        entries: entries that match; if none does, the nearest.
        holder: client of the exclusive group that holds the topic.
        quota: the quota, if the client has one.
        hints: likely mistakes.
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
