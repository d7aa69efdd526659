"""What concerns a group or a client on all parents: which parent a group is bound to, when a client asked last.

Such things live under keys of their own, the homes, beside the shards. A home never reaches into a shard: it writes an
ordinary record for each parent concerned back to an input stream, which says of which event it is the consequence. So
a replay gives the same, and a record that comes twice, or late, does no harm.
"""

import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from streaming.events.columns import Event
from streaming.events.model import Action, Alarm, GroupEvent, Place, Reason, Source, Stream, SubscriptionRequest, Tick
from streaming.storage.journal import Journal, overlay
from streaming.subscription.client import Ignored
from streaming.subscription.subscribers import ClientKey
from streaming.updates.model import Problem
from streaming.updates.records import Record

COORDINATOR = ""
"""The parent under which homes are kept; no topic has a blank parent."""

BUCKETS = 16
"""Over how many keys groups, clients and alarms are spread."""

UNROUTABLE = -1
"""The number of the key that gets what the JVM cannot place."""


class GroupBinding(NamedTuple):
    """The parent of a group, where that was said, and the parents that were told it is not theirs."""

    parent: str
    place: Place
    told: frozenset[str] = frozenset()


class ClientLease(NamedTuple):
    """The parents on which a client has asked for something, and where it asked last."""

    parents: tuple[str, ...]
    place: Place


@dataclass(slots=True)
class CoordinatorState:
    """The groups, clients and alarms of one bucket.

    Attributes:
        alarms: shards to wake at a time, in milliseconds since the epoch.
        clock: how late it is, by the last tick.
    """

    groups: dict[str, GroupBinding] = field(default_factory=dict)
    members: dict[ClientKey, ClientLease] = field(default_factory=dict)
    alarms: dict[int, frozenset[tuple[str, int]]] = field(default_factory=dict)
    clock: int = 0

    def __bool__(self) -> bool:
        return bool(self.groups or self.members or self.alarms or self.clock)

    def apply(self, delta: "Delta") -> None:
        """Makes a micro-batch's changes."""
        overlay(self.groups, delta.groups)
        overlay(self.members, delta.members)
        overlay(self.alarms, delta.alarms)
        self.clock = delta.clock


@dataclass(slots=True)
class Delta:
    """What a micro-batch changes in a home; None for what is forgotten."""

    clock: int
    groups: dict[str, GroupBinding | None] = field(default_factory=dict)
    members: dict[ClientKey, ClientLease | None] = field(default_factory=dict)
    alarms: dict[int, frozenset[tuple[str, int]] | None] = field(default_factory=dict)


@dataclass(slots=True)
class CoordinatorOutcome:
    """What a micro-batch means for the parents.

    Attributes:
        records: to write back, by input stream.
    """

    delta: Delta
    records: list[tuple[Stream, Record]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    ignored: Counter[Ignored] = field(default_factory=Counter)
    changed: bool = False


def follow(
    home: CoordinatorState, events: Iterable[tuple[Source, Event]], client_timeout_ms: int = 0
) -> CoordinatorOutcome:
    """Follows the groups and clients of one bucket through a micro-batch; the caller applies the delta.

    Args:
        home: the bucket before the batch; not changed.
        events: groups first, then requests, then the time, each in offset order.
        client_timeout_ms: after how long a client that does not ask is ended; 0 for never.
    """
    batch = _Batch(home, client_timeout_ms)
    for source, event in events:
        if isinstance(event, GroupEvent):
            batch.group(source, event)
        elif isinstance(event, SubscriptionRequest):
            batch.request(source, event)
        elif isinstance(event, Tick):
            batch.tick(event)
        elif isinstance(event, Alarm):
            batch.alarm(event)
    done = batch.done
    done.changed = bool(done.delta.groups or done.delta.members or done.delta.alarms) or done.delta.clock != home.clock
    return done


class _Batch:
    """A micro-batch in a home: differences to what was there."""

    def __init__(self, home: CoordinatorState, client_timeout_ms: int) -> None:
        self._home = home
        self._timeout = client_timeout_ms
        self.done = CoordinatorOutcome(Delta(home.clock))

    def group(self, source: Source, event: GroupEvent) -> None:
        if event.superseded_by is not None:
            return  # the echo of what this function wrote
        former = self._bound(event.group)
        place = source.place
        if event.attributes and event.parent is not None:
            others = self._parents_of(event.group) | (set() if former is None else {former.parent, *former.told})
            others.discard(event.parent)
            for other in sorted(others):
                self._leave(event.group, other, place, bound_to=event.parent)
            self.done.delta.groups[event.group] = GroupBinding(event.parent, place, frozenset(others))
        elif former is not None and event.parent in (None, former.parent):
            # The event reaches the parent that it names by itself, but what that was told before may still follow it.
            told = {*former.told, former.parent} - (set() if former.told else {event.parent})
            for other in sorted(told):
                self._leave(event.group, other, place)
            self.done.delta.groups[event.group] = None
        elif event.parent is None:
            self.done.ignored[Ignored.GROUP_UNKNOWN] += 1

    def request(self, source: Source, request: SubscriptionRequest) -> None:
        key = ClientKey(request.group, request.client_id)
        member = self._member(key)
        place = source.place
        if request.as_of is not None:
            return  # the echo of what this function wrote
        if request.parent == COORDINATOR:
            if member is None:
                self.done.ignored[Ignored.NO_SUBSCRIPTION] += 1
            else:
                self._end(key, member, place, version=request.version)
        else:
            self._asked(key, member, request, place)
            if request.action is not Action.COMPLETE_REMOVE:
                self._check_bound(source, request)

    def tick(self, event: Tick) -> None:
        delta = self.done.delta
        delta.clock = max(delta.clock, event.time)
        for time, shards in {**self._home.alarms, **delta.alarms}.items():
            if time <= delta.clock and shards is not None:
                for parent, shard in sorted(shards):
                    self._wake(parent, shard)
                delta.alarms[time] = None
        if not self._timeout:
            return
        for key in {**self._home.members, **delta.members}:
            member = self._member(key)
            if member is not None and member.place.timestamp < delta.clock - self._timeout:
                self._end(key, member, member.place, expired=True)

    def alarm(self, event: Alarm) -> None:
        delta = self.done.delta
        if event.time <= delta.clock:
            self._wake(event.parent, event.shard)
        else:
            waiting = delta.alarms.get(event.time) or self._home.alarms.get(event.time) or frozenset()
            delta.alarms[event.time] = waiting | {(event.parent, event.shard)}

    def _bound(self, group: str) -> GroupBinding | None:
        groups = self.done.delta.groups
        return groups[group] if group in groups else self._home.groups.get(group)

    def _member(self, key: ClientKey) -> ClientLease | None:
        members = self.done.delta.members
        return members[key] if key in members else self._home.members.get(key)

    def _parents_of(self, group: str) -> set[str]:
        """The parents on which a group's clients have asked for something."""
        keys = (key for key in {**self._home.members, **self.done.delta.members} if key.group == group)
        return {parent for member in map(self._member, keys) if member is not None for parent in member.parents}

    def _asked(self, key: ClientKey, member: ClientLease | None, request: SubscriptionRequest, place: Place) -> None:
        parents = () if member is None else member.parents
        if request.action is Action.COMPLETE_REMOVE:
            # With a version the shard may find it stale, and goes on.
            left = parents if request.version is not None else tuple(p for p in parents if p != request.parent)
        else:
            left = parents if request.parent in parents else (*parents, request.parent)
        if member is not None and left == parents and not self._timeout:
            return  # when it asked counts only where clients are ended for not asking
        renewed = ClientLease(left, place) if left else None
        if renewed != member:
            self.done.delta.members[key] = renewed

    def _check_bound(self, source: Source, request: SubscriptionRequest) -> None:
        bound = self._bound(request.group)
        if bound is None or bound.parent == request.parent:
            return
        message = (
            f"group {request.group!r} is bound to {bound.parent!r}, so its clients receive nothing of "
            f"{request.parent!r}; ask there, or bind the group to this parent by lite.bind.topic"
        )
        self.done.problems.append(Problem(source, Reason.GROUP_BOUND_ELSEWHERE, message))
        if request.parent not in bound.told:
            self._leave(request.group, request.parent, bound.place, bound_to=bound.parent)
            self.done.delta.groups[request.group] = bound._replace(told=bound.told | {request.parent})

    def _leave(self, group: str, parent: str, place: Place, bound_to: str | None = None) -> None:
        event = {"group": group, "attributes": {}, "parentTopic": parent, "supersededBy": list(place[:3])}
        if bound_to is not None:
            event["boundTo"] = bound_to
        self._write(Stream.GROUPS, group, event)

    def _end(
        self, key: ClientKey, member: ClientLease, as_of: Place, *, version: int | None = None, expired: bool = False
    ) -> None:
        """Ends a client on all of its parents; where it asks again from now on, it is known again.

        With a version a parent may find the end stale, and goes on.
        """
        self.done.delta.members[key] = None if version is None else ClientLease(member.parents, as_of)
        for parent in member.parents:
            entry: dict[str, Any] = {
                "action": Action.COMPLETE_REMOVE,
                "clientId": key.client_id,
                "group": key.group,
                "topic": parent,
                "asOf": list(as_of),
            }
            if version is not None:
                entry["version"] = version
            if expired:
                entry["expired"] = True
            self._write(Stream.SUBSCRIPTIONS, key.group, entry)

    def _wake(self, parent: str, shard: int) -> None:
        self.done.records.append((Stream.CLOCK, wake(parent, shard, self.done.delta.clock)))

    def _write(self, stream: Stream, key: str, value: dict[str, Any]) -> None:
        self.done.records.append((stream, Record(key.encode(), orjson.dumps(value))))


def alarm(parent: str, shard: int, time: int) -> Record:
    """What a shard writes to the clock stream to be woken."""
    return Record(parent.encode(), orjson.dumps({"alarm": time, "parentTopic": parent, "shard": shard}))


def wake(parent: str, shard: int, time: int) -> Record:
    """What a shard is told when it is that late."""
    return Record(parent.encode(), orjson.dumps({"wake": time, "parentTopic": parent, "shard": shard}))


def bucket_of(name: str) -> int:
    """The bucket of a group and its clients, or of a parent's alarms, as `streaming.spark.job` computes it."""
    return zlib.crc32(name.encode()) % BUCKETS


def renew(journal: Journal, home: CoordinatorState, delta: Delta) -> Journal:
    """The journal of a home to which the delta was applied, from the one before it."""
    return journal.append(_plain(delta), lambda: _whole(home)) if home else journal.cleared()


def catch_up(home: CoordinatorState, changes: Iterable[Any]) -> None:
    """Makes the changes of a journal, from nothing or from where the home was."""
    for clock, groups, members, alarms in changes:
        home.apply(
            Delta(
                clock,
                {
                    name: None if bound is None else GroupBinding(bound[0], Place(*bound[1]), frozenset(bound[2]))
                    for name, bound in groups
                },
                {
                    ClientKey(*key): None if member is None else ClientLease(member[0], Place(*member[1]))
                    for key, member in members
                },
                {time: None if shards is None else frozenset(shards) for time, shards in alarms},
            )
        )


def _whole(home: CoordinatorState) -> list[Any]:
    return _plain(Delta(home.clock, dict(home.groups), dict(home.members), dict(home.alarms)))


def _plain(delta: Delta) -> list[Any]:
    return [
        delta.clock,
        [(name, bound and (bound.parent, bound.place, sorted(bound.told))) for name, bound in delta.groups.items()],
        list(delta.members.items()),
        [(time, shards if shards is None else sorted(shards)) for time, shards in delta.alarms.items()],
    ]
