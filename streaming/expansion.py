"""The heart: how a micro-batch of events changes who receives which topic on one shard.

`expand` is a pure function of the state and the events. It compares the relation before and after the whole batch, so
that each (client, topic) pair is judged once, whatever happened to it in between:

- topics that are new are matched against the patterns (lazy), topics that are gone as well;
- clients whose set changed are expanded over the topics that were there before and still are (eager).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache, partial
from typing import Any, NamedTuple

from matcher import InvalidPattern, validate
from streaming.events import GroupEvent, Reason, Source, SubscriptionRequest, TopicEvent, check_name
from streaming.routing import Routing
from streaming.state import ClientKey, Delta, Group, Interests, ShardState
from streaming.subscription import (
    ABSENT,
    NOTHING,
    Client,
    Ignored,
    Interest,
    Mode,
    advance,
    interest,
    literal_problem,
)

Event = TopicEvent | SubscriptionRequest | GroupEvent


class Op(StrEnum):
    """What an update does to the relation."""

    ADD = "ADD"
    REMOVE = "REMOVE"


class Cause(StrEnum):
    """Why the relation changed. TOPIC_CREATED is the lazy path, SUBSCRIBED the eager one."""

    TOPIC_CREATED = "TOPIC_CREATED"
    TOPIC_DELETED = "TOPIC_DELETED"
    SUBSCRIBED = "SUBSCRIBED"
    UNSUBSCRIBED = "UNSUBSCRIBED"
    GROUP_CHANGED = "GROUP_CHANGED"


class Update(NamedTuple):
    """One change of the relation.

    Attributes:
        patterns: the client's entries that match the topic, before a REMOVE and after an ADD, sorted, so that a
            repeated batch repeats them; none for receive-all.
        version: of the client's last applied request.
        source: the event that caused it.
        offset_option: where the client wants to start, when the request that caused an ADD said so.
    """

    op: Op
    client: ClientKey
    lite_topic: str
    patterns: tuple[str, ...]
    cause: Cause
    version: int | None
    source: Source
    offset_option: Any = None


class Problem(NamedTuple):
    """A part of an entry that cannot be applied; becomes a dead letter."""

    source: Source
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Shard:
    """Where a piece of the relation lives, and the rules that it follows."""

    parent: str
    number: int = 0
    routing: Routing = field(default_factory=Routing)
    inner_multi: bool = False

    def relevant(self, entry: str) -> bool:
        """Whether a name or pattern can touch a topic of this shard."""
        return self.routing.may_touch(self.parent, entry, self.number)

    def problem(self, mode: Mode) -> Callable[[str], str | None]:
        """What says why an entry is invalid in a group of that mode."""
        return partial(_pattern_problem, inner_multi=self.inner_multi) if mode is Mode.WILDCARD else literal_problem


@dataclass(frozen=True, slots=True)
class Expansion:
    """What a micro-batch does to a shard."""

    delta: Delta
    updates: list[Update]
    problems: list[Problem]
    ignored: Counter[Ignored]


def expand(state: ShardState, events: Iterable[tuple[Source, Event]], shard: Shard) -> Expansion:
    """Computes what a micro-batch changes; the caller applies the delta.

    Args:
        state: the shard before the batch; not changed, but its indexes may get built.
        events: the batch's valid events, groups first, then subscriptions, then topics, each in offset order.
        shard: where this is.

    Returns:
        The delta, the updates (at most one a client and topic), the problems and the counts of ignored entries.
    """
    batch = _Batch(state, shard)
    for source, event in events:
        if isinstance(event, TopicEvent):
            batch.topic(source, event)
        elif isinstance(event, SubscriptionRequest):
            batch.request(source, event)
        else:
            batch.group(source, event)
    changed = dict(batch.changed_interests())
    delta = Delta(
        [topic for topic, (exists, _) in batch.topics.items() if exists and topic not in state.topics],
        dict.fromkeys(topic for topic, (exists, _) in batch.topics.items() if not exists and topic in state.topics),
        {name: group for name, (group, _) in batch.groups.items()},
        batch.stored_clients(),
    )
    updates = [*_born_and_gone(batch, delta, changed), *_resubscribed(batch, delta, changed)]
    return Expansion(delta, updates, batch.problems, batch.ignored)


class _Changed(NamedTuple):
    """A client whose interest differs after the batch, and what made it so."""

    before: Interest
    after: Interest
    source: Source
    cause_add: Cause
    cause_remove: Cause
    offset_option: Any


class _Batch:
    """The state as it is after the events read so far, kept as differences."""

    def __init__(self, state: ShardState, shard: Shard) -> None:
        self.state = state
        self.shard = shard
        self.topics: dict[str, tuple[bool, Source]] = {}
        self.groups: dict[str, tuple[Group | None, Source]] = {}
        self.clients: dict[ClientKey, Client] = {}
        self.requests: dict[ClientKey, tuple[Source, SubscriptionRequest]] = {}
        self.problems: list[Problem] = []
        self.ignored: Counter[Ignored] = Counter()

    def mode(self, name: str) -> Mode:
        """The reading in force after the events so far."""
        if name not in self.groups:
            return self.state.mode(name)
        group = self.groups[name][0]
        return Mode.LITERAL if group is None else group.mode

    def client(self, key: ClientKey) -> Client:
        """A client after the events so far."""
        return self.clients.get(key) or self.state.clients.get(key) or Client()

    def version(self, key: ClientKey) -> int | None:
        """The version of a client's last applied request."""
        return self.client(key).view(self.mode(key.group)).version

    def topic(self, source: Source, event: TopicEvent) -> None:
        name = event.lite_topic
        known = self.topics.get(name)
        exists = name in self.state.topics if known is None else known[0]
        if exists == event.created:
            self.ignored[Ignored.TOPIC_EXISTS if exists else Ignored.TOPIC_UNKNOWN] += 1
        else:
            self.topics[name] = (event.created, source)

    def group(self, source: Source, event: GroupEvent) -> None:
        ignored: Ignored | None = None
        current = self.groups[event.group][0] if event.group in self.groups else self.state.groups.get(event.group)
        group = Group(dict(event.attributes), source.partition, source.offset) if event.attributes else None
        if event.superseded_by is not None:
            # What happened is the event that moved the group, not this echo of it.
            partition, offset, timestamp = event.superseded_by
            source = Source(source.topic, partition, offset, 0, timestamp)
            left = current is None or (current.partition == partition and current.offset >= offset)
            ignored = Ignored.GROUP_SUPERSEDED if left else None
        elif current is None and group is None:
            ignored = Ignored.GROUP_UNKNOWN
        if ignored is None:
            # Equal attributes are stored as well: what a later event supersedes depends on where they stand.
            self.groups[event.group] = (group, source)
        elif self.shard.number == 0:
            self.ignored[ignored] += 1

    def request(self, source: Source, request: SubscriptionRequest) -> None:
        key = ClientKey(request.group, request.client_id)
        former = self.client(key)
        mode = self.mode(request.group)
        changes = {
            reading: advance(former.view(reading), request, reading, self.shard.problem(reading), self.shard.relevant)
            for reading in Mode
        }
        change = changes[mode]
        # Every shard of the parent sees the request; one of them speaks of it.
        if self.shard.number == 0:
            self._report(source, change.invalid, refused=change.refused)
            if change.ignored is not None:
                self.ignored[change.ignored] += 1
            elif change.view == former.view(mode) and not change.refused:
                self.ignored[Ignored.UNCHANGED] += 1
        literal, wildcard = changes[Mode.LITERAL].view, changes[Mode.WILDCARD].view
        client = Client(literal, literal if wildcard == literal else wildcard)
        if client != former:
            self.clients[key] = client
        if change.view != former.view(mode):
            self.requests[key] = (source, request)

    def _report(self, source: Source, invalid: tuple[str, ...], *, refused: bool) -> None:
        if not invalid:
            return
        shown = "; ".join(invalid[:5]) + (f"; and {len(invalid) - 5} more" if len(invalid) > 5 else "")  # noqa: PLR2004
        what = "the request is refused, since no entry is valid" if refused else "left out"
        self.problems.append(Problem(source, Reason.INVALID_PATTERN, f"{what}: {shown}"))

    def stored_clients(self) -> dict[ClientKey, Client | None]:
        """The clients to store; None for those that leave nothing to remember."""
        forgotten = {ABSENT}
        return {
            key: None if {client.literal, client.wildcard} == forgotten else client
            for key, client in self.clients.items()
        }

    def changed_interests(self) -> Iterator[tuple[ClientKey, _Changed]]:
        """The clients that receive something else after the batch than before it."""
        regrouped = {name for name in self.groups if self.mode(name) is not self.state.mode(name)}
        keys = dict.fromkeys(self.clients)
        if regrouped:
            keys.update(dict.fromkeys(key for key in self.state.clients if key.group in regrouped))
        for key in keys:
            before = self.state.interest(key)
            after = interest(self.client(key), self.mode(key.group))
            if before == after:
                continue
            if key in self.requests:
                source, request = self.requests[key]
                yield key, _Changed(before, after, source, Cause.SUBSCRIBED, Cause.UNSUBSCRIBED, request.offset_option)
            else:
                source = self.groups[key.group][1]
                yield key, _Changed(before, after, source, Cause.GROUP_CHANGED, Cause.GROUP_CHANGED, None)


def _born_and_gone(batch: _Batch, delta: Delta, changed: dict[ClientKey, _Changed]) -> Iterator[Update]:
    """Topics that exist on one side of the batch only: all who receive them there."""
    if not (delta.added or delta.removed):
        return
    interests = batch.state.interests
    renewed = Interests(batch.shard.inner_multi)
    for key, change in changed.items():
        renewed.add(key, change.after)
    versions: dict[ClientKey, int | None] = {}

    def updates(op: Op, topic: str, receivers: dict[ClientKey, list[str]], cause: Cause) -> list[Update]:
        source = batch.topics[topic][1]
        found = []
        for key, patterns in receivers.items():
            if len(patterns) > 1:
                patterns.sort()
            if key not in versions:
                versions[key] = batch.version(key)
            found.append(Update(op, key, topic, tuple(patterns), cause, versions[key], source))
        return found

    for topic in delta.removed:
        yield from updates(Op.REMOVE, topic, interests.match(topic), Cause.TOPIC_DELETED)
    for topic in delta.added:
        receivers = interests.match(topic)
        if changed:
            receivers = {key: found for key, found in receivers.items() if key not in changed}
            receivers.update(renewed.match(topic))
        yield from updates(Op.ADD, topic, receivers, Cause.TOPIC_CREATED)


def _resubscribed(batch: _Batch, delta: Delta, changed: dict[ClientKey, _Changed]) -> Iterator[Update]:
    """Clients whose interest changed: what that means for the topics that stay."""
    for key, change in changed.items():
        version = batch.version(key)
        gained, lost = _without(change.after, change.before), _without(change.before, change.after)
        for wanted, other, op in ((gained, change.before, Op.ADD), (lost, change.after, Op.REMOVE)):
            topics = [topic for topic in _topics(batch.state, wanted) if topic not in delta.removed]
            if not topics:
                continue
            kept = _matcher(key, other, batch.shard)
            moved = _matcher(key, wanted, batch.shard)
            cause = change.cause_add if op is Op.ADD else change.cause_remove
            option = change.offset_option if op is Op.ADD else None
            for topic in topics:
                if key not in kept.match(topic):
                    found = moved.match(topic)[key]
                    yield Update(op, key, topic, tuple(sorted(found)), cause, version, change.source, option)


def _without(wanted: Interest, other: Interest) -> Interest:
    """The part of an interest that another one does not literally have."""
    if wanted.patterns != other.patterns:
        return wanted
    if other.everything:
        return NOTHING
    had = set(other.entries)
    return wanted._replace(entries=tuple(entry for entry in wanted.entries if entry not in had))


def _topics(state: ShardState, wanted: Interest) -> Iterable[str]:
    """The stored topics of an interest, each once."""
    if wanted.everything:
        return state.topics
    if not wanted.patterns:
        return [name for name in wanted.entries if name in state.topics]
    return dict.fromkeys(topic for entry in wanted.entries for topic in state.topic_index.expand(entry))


def _matcher(key: ClientKey, wanted: Interest, shard: Shard) -> Interests:
    index = Interests(shard.inner_multi)
    index.add(key, wanted)
    return index


@lru_cache(maxsize=65_536)
def _pattern_problem(entry: str, *, inner_multi: bool) -> str | None:
    """Why a pattern is invalid; None when it is not."""
    problem = check_name("a pattern", entry)
    if problem is not None:
        return problem
    try:
        validate(entry, allow_inner_multi=inner_multi)
    except InvalidPattern as error:
        return str(error)
    return None
