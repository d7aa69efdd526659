"""Rules of the coordinator: the events of a micro-batch in, changes of one bucket and records for its parents out.

Only the coordinator has the list of a client's parents. It writes an end to each of them when the client leaves or its
lease expires. A shard reads it some micro-batches later, so it repeats the client's requests and ends since then. Until
it was read back, further requests are written in records that continue it.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from streaming.coordinator.records import MAX_LATER_BYTES, EndNews, client_end, group_end, wake
from streaming.coordinator.state import (
    ClientLease,
    CoordinatorDelta,
    CoordinatorState,
    GroupBinding,
    PendingEnd,
    PendingKey,
)
from streaming.records.columns import Event
from streaming.records.model import (
    VERSION_RETENTION_MS,
    Action,
    Alarm,
    End,
    GroupEvent,
    Place,
    Reason,
    Source,
    Stream,
    SubscriptionRequest,
    Tick,
)
from streaming.records.record import KafkaRecord
from streaming.records.routing import COORDINATOR
from streaming.records.subscribers import ClientKey
from streaming.records.updates import Problem
from streaming.state import Shard
from streaming.state.client import Ignored, Mode, Subscription, advance
from streaming.state.notes import NO_VERSIONS, Versions

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

HOUR_MS = 3_600_000


@dataclass(slots=True)
class CoordinatorOutcome:
    """Outcome of a micro-batch for a bucket: its delta, records for input streams, problems, ignored entries."""

    delta: CoordinatorDelta
    records: list[tuple[Stream, KafkaRecord]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    ignored: Counter[Ignored] = field(default_factory=Counter)
    changed: bool = False


def follow(
    state: CoordinatorState,
    events: Iterable[tuple[Source, Event]],
    client_timeout_ms: int = 0,
    *,
    inner_multi: bool = False,
    max_later_bytes: int = MAX_LATER_BYTES,
) -> CoordinatorOutcome:
    """Follow groups and clients of a bucket; the caller applies the delta.

    Args:
        state: the bucket before the micro-batch; not changed.
        events: groups first, then the ends that the job wrote, then requests, then the time, each in offset order.
        client_timeout_ms: time without requests after which a client is unsubscribed everywhere; 0 for never.
        inner_multi: `**` is allowed inside a pattern.
        max_later_bytes: maximum size in bytes of the requests in one record of an end.
    """
    outcome = CoordinatorOutcome(CoordinatorDelta(state.clock))
    ends = PendingEnds(state, outcome.delta, inner_multi, max_later_bytes)
    micro_batch = _MicroBatch(state, outcome, ends, client_timeout_ms)
    for source, event in events:
        if isinstance(event, GroupEvent):
            micro_batch.apply_group_event(source, event)
        elif isinstance(event, SubscriptionRequest):
            micro_batch.apply_request(source, event)
        elif isinstance(event, Tick):
            micro_batch.apply_tick(event)
        elif isinstance(event, Alarm):
            micro_batch.apply_alarm(event)
    return micro_batch.finish()


@dataclass
class _MicroBatch:
    """One micro-batch in one bucket: differences to the state before it."""

    _state: CoordinatorState
    outcome: CoordinatorOutcome
    ends: "PendingEnds"
    _client_timeout_ms: int
    _alarms: dict[int, set[tuple[str, int]]] = field(default_factory=dict)
    _wakes: set[tuple[str, int]] = field(default_factory=set)
    _group_ends: dict[tuple[str, str], tuple[Place, str | None]] = field(default_factory=dict)

    @property
    def _delta(self) -> CoordinatorDelta:
        return self.outcome.delta

    def apply_group_event(self, source: Source, event: GroupEvent) -> None:
        """Bind a group to its parent, or delete it, and end it on its other parents."""
        if event.superseded_by is not None:
            return  # written by the coordinator
        former = _current(self._delta.bindings, self._state.bindings, event.group)
        place = source.place
        if event.attributes and event.parent is not None:
            others = self._state.indexes.parents_of(event.group, self._delta.leases)
            others |= set() if former is None else {former.parent, *former.notified}
            others.discard(event.parent)
            for other in sorted(others):
                self._end_group(event.group, other, place, event.parent)
            self._delta.bindings[event.group] = GroupBinding(event.parent, place, frozenset(others))
        elif former is not None and event.parent in (None, former.parent):
            # The parent named in the event reads it itself. But after a move an end written earlier may reach that
            # parent later than this event, so it is notified like the others.
            ended_on = {*former.notified, former.parent} - (set() if former.notified else {event.parent})
            for other in sorted(ended_on):
                self._end_group(event.group, other, place)
            self._delta.bindings[event.group] = None
        elif event.parent is None:
            self.outcome.ignored[Ignored.GROUP_UNKNOWN] += 1

    def apply_request(self, source: Source, request: SubscriptionRequest) -> None:
        """Renew the lease of a client, or end the client on all of its parents if the request names none."""
        key = ClientKey(request.group, request.client_id)
        if request.as_of is not None:  # written by the coordinator
            self.ends.confirm(key, request)
            return
        lease, place = _current(self._delta.leases, self._state.leases, key), source.place
        if lease is not None:
            lease = self._expire(key, lease, place.timestamp)
        if request.parent != COORDINATOR:
            self.ends.follow(key, request, place)
            self._renew_lease(key, lease, request, place)
            if request.action is not Action.COMPLETE_REMOVE:
                self._check_binding(source, request)
        elif lease is None:
            self.outcome.ignored[Ignored.NO_SUBSCRIPTION] += 1
        else:
            self.ends.end(key, lease, place, version=request.version)

    def apply_tick(self, event: Tick) -> None:
        """Advance the clock, wake the shards whose alarms are due, and end the clients whose leases have expired."""
        delta = self._delta
        delta.clock = max(delta.clock, event.time)
        new = (time for time in self._alarms if time <= delta.clock)
        for time in {*self._state.alarms_until(delta.clock), *new}:
            self._wakes.update(self._shards_at(time))
            self._alarms[time] = set()
        # Versions of clients without a session are removed once an hour.
        if self._client_timeout_ms or delta.clock // HOUR_MS > self._state.clock // HOUR_MS:
            for key in self._silent(delta.clock):
                lease = _current(delta.leases, self._state.leases, key)
                if lease is not None:
                    self._expire(key, lease, delta.clock)

    def apply_alarm(self, event: Alarm) -> None:
        """Remember an alarm, or wake the shard at once if its time has passed."""
        delta = self._delta
        if event.time <= delta.clock:
            self._wakes.add((event.parent, event.shard))
        else:
            self._shards_at(event.time).add((event.parent, event.shard))

    def finish(self) -> CoordinatorOutcome:
        """Return the outcome of all events: one end of a group per parent, and one wake for each shard."""
        outcome, delta = self.outcome, self._delta
        ends = self._group_ends.items()
        outcome.records += ((Stream.GROUPS, group_end(*both, place, bound_to)) for both, (place, bound_to) in ends)
        outcome.records += ((Stream.CLOCK, wake(*shard, delta.clock)) for shard in sorted(self._wakes))
        outcome.records += ((Stream.SUBSCRIPTIONS, record) for record in self.ends.records())
        for time, shards in self._alarms.items():
            if shards or time in self._state.alarms:
                delta.alarms[time] = frozenset(shards) or None
        changes = (delta.bindings, delta.leases, delta.alarms, delta.pending)
        outcome.changed = any(changes) or delta.clock != self._state.clock
        return outcome

    def _end_group(self, group: str, parent: str, superseded_by: Place, bound_to: str | None = None) -> None:
        """End a group on a parent, which needs to know the last event only."""
        self._group_ends[group, parent] = superseded_by, bound_to

    def _shards_at(self, time: int) -> set[tuple[str, int]]:
        """Return the shards to wake at a time, to be changed."""
        if time not in self._alarms:
            self._alarms[time] = set(self._state.alarms.get(time, ()))
        return self._alarms[time]

    def _silent(self, now: int) -> list[ClientKey]:
        """Return the clients that a time may end or forget, including clients of this micro-batch."""
        indexes, delta = self._state.indexes, self._delta
        found = {*delta.leases, *indexes.silent_since(now - VERSION_RETENTION_MS, present=False)}
        if self._client_timeout_ms:
            found.update(indexes.silent_since(now - self._client_timeout_ms, present=True))
        return sorted(found)

    def _expire(self, key: ClientKey, lease: ClientLease, now: int) -> ClientLease | None:
        """End a client whose lease has expired at a time, with or without a tick; return the rest of its lease.

        A client that is in no session is forgotten later.
        """
        left: ClientLease | None = lease
        age, timeout = now - lease.place.timestamp, self._client_timeout_ms
        if timeout and lease.parents and age > timeout:
            left = self.ends.end(key, lease, lease.place, expired=True)
        if left is not None and not left.parents and age > VERSION_RETENTION_MS:
            self.ends.forget(key, left)
            self._delta.leases[key] = left = None
        return left

    def _renew_lease(
        self, key: ClientKey, lease: ClientLease | None, request: SubscriptionRequest, place: Place
    ) -> None:
        former = ClientLease((), place) if lease is None else lease
        parent, parents, versions = request.parent, former.parents, dict(former.versions)
        is_stale = request.version is not None and any(
            known is not None and request.version < known for known in versions.get(parent, NO_VERSIONS)
        )
        if request.version is not None:
            versions[parent] = self.ends.versions(versions.get(parent, NO_VERSIONS), request, place)
        elif versions:  # a client with versions is remembered wherever it was
            versions.setdefault(parent, NO_VERSIONS)
        if request.action is not Action.COMPLETE_REMOVE:
            renewed_parents = parents if parent in parents else (*parents, parent)
        elif is_stale:
            renewed_parents = parents
        else:
            renewed_parents = tuple(each for each in parents if each != parent)
        renewed = ClientLease(renewed_parents, place, versions) if renewed_parents or versions else None
        if renewed != lease:
            self._delta.leases[key] = renewed

    def _check_binding(self, source: Source, request: SubscriptionRequest) -> None:
        """Report a request on a parent that its group is not bound to, and end the group there once."""
        binding = _current(self._delta.bindings, self._state.bindings, request.group)
        if binding is None or binding.parent == request.parent:
            return
        message = (
            f"group {request.group!r} is bound to {binding.parent!r}, so its clients receive nothing of "
            f"{request.parent!r}; subscribe there, or bind the group to this parent by lite.bind.topic"
        )
        self.outcome.problems.append(Problem(source, Reason.GROUP_BOUND_ELSEWHERE, message))
        if request.parent not in binding.notified:
            self._end_group(request.group, request.parent, binding.place, binding.parent)
            notified = binding.notified | {request.parent}
            self._delta.bindings[request.group] = binding._replace(notified=notified)


@dataclass
class PendingEnds:
    """Pending ends of one bucket in a micro-batch; the delta takes the changes."""

    _state: CoordinatorState
    _delta: CoordinatorDelta
    _inner_multi: bool
    _max_later_bytes: int
    _news: dict[PendingKey, EndNews] = field(default_factory=dict)

    def end(
        self, key: ClientKey, lease: ClientLease, as_of: Place, *, version: int | None = None, expired: bool = False
    ) -> ClientLease | None:
        """End a client on all of its parents; return the rest of its lease.

        Place and version are of the request that ends it, or of its last request before its lease expired.
        """
        kept: list[str] = []
        versions: dict[str, Versions] = {}
        for parent in {**dict.fromkeys(lease.parents), **lease.versions}:
            known = lease.versions.get(parent, NO_VERSIONS)
            ends = {mode: End(as_of, version, known.of(mode)) for mode in Mode}
            if parent in lease.parents and any(end.is_stale for end in ends.values()):
                kept.append(parent)
            self._end_on(parent, key, ends, as_of, version=version, expired=expired)
            versions[parent] = Versions(*(_newer(version, known.of(mode)) for mode in (Mode.LITERAL, Mode.WILDCARD)))
        if version is None and not lease.versions:
            versions = {}
        left = ClientLease(tuple(kept), as_of, versions) if kept or versions else None
        self._delta.leases[key] = left
        return left

    def forget(self, key: ClientKey, lease: ClientLease) -> None:
        """Drop the versions of a client that is in no session."""
        ends = dict.fromkeys(Mode, End(lease.place, forgets=True))
        for parent in lease.versions:
            self._end_on(parent, key, ends, lease.place, forgets=True)

    def follow(self, key: ClientKey, request: SubscriptionRequest, place: Place) -> None:
        """Add a request to the pending end of its client on its parent, if there is one."""
        at = key, request.parent
        if pending := self._pending(at):
            self._continue(at, pending, request, place)

    def confirm(self, key: ClientKey, request: SubscriptionRequest) -> None:
        """Remove a pending end whose records were all read back."""
        at = key, request.parent
        pending = self._pending(at)
        # A former release did not count.
        if pending and pending.through == request.through and request.later_count in (None, pending.later_count):
            self._delta.pending[at] = None

    def versions(self, former: Versions, request: SubscriptionRequest, place: Place) -> Versions:
        """Return the versions of a client on a parent after a request with a version."""

        def after(mode: Mode) -> int | None:
            shard = Shard("", inner_multi=self._inner_multi)
            rules = shard.rules(mode)._replace(relevant=lambda *_: False)  # no entry is kept
            return advance(Subscription(version=former.of(mode)), request, rules, 0, place).subscription.version

        return Versions(after(Mode.LITERAL), after(Mode.WILDCARD))

    def records(self) -> Iterator[KafkaRecord]:
        """Yield the records of new ends, and those that continue others."""
        for (key, parent), news in self._news.items():
            if pending := self._pending((key, parent)):
                yield from client_end(key, parent, pending, news, self._max_later_bytes)

    def _pending(self, at: PendingKey) -> PendingEnd | None:
        return _current(self._delta.pending, self._state.pending, at)

    def _end_on(
        self,
        parent: str,
        key: ClientKey,
        ends: Mapping[Mode, End],
        place: Place,
        *,
        version: int | None = None,
        expired: bool = False,
        forgets: bool = False,
    ) -> None:
        """Begin an end, or add a further end to the pending one."""
        at = key, parent
        pending = self._pending(at)
        named = {str(mode): end for mode, end in ends.items()}
        if pending is None:
            self._delta.pending[at] = PendingEnd(place, expired, forgets, place)
            self._news[at] = EndNews(None, named)
            return
        again = SubscriptionRequest(parent, *key, Action.COMPLETE_REMOVE, (), version)
        self._continue(at, pending, again._replace(expired=expired, forgets=forgets, ends=named), place)

    def _continue(self, at: PendingKey, pending: PendingEnd, request: SubscriptionRequest, place: Place) -> None:
        self._news.setdefault(at, EndNews(pending, None)).later.append((place, request))
        self._delta.pending[at] = pending._replace(through=place, later_count=pending.later_count + 1)


def _newer(version: int | None, known: int | None) -> int | None:
    return max((each for each in (version, known) if each is not None), default=None)


def _current(changes: Mapping[K, V | None], former: Mapping[K, V], key: K) -> V | None:
    """Return a value after the changes so far; None without one."""
    return changes[key] if key in changes else former.get(key)
