"""Rules of the coordinator: the events of a micro-batch in, changes of one bucket and records for its parents out."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from streaming.coordinator.ends import PendingEnds
from streaming.coordinator.leases import ClientLease
from streaming.coordinator.records import MAX_LATER_BYTES, group_end, wake
from streaming.coordinator.state import CoordinatorDelta, CoordinatorState, GroupBinding
from streaming.records.columns import Event
from streaming.records.model import (
    VERSION_RETENTION_MS,
    Action,
    Alarm,
    GroupEvent,
    Place,
    Reason,
    Source,
    Stream,
    SubscriptionRequest,
    Tick,
)
from streaming.records.routing import COORDINATOR
from streaming.records.subscribers import ClientKey
from streaming.records.updates import Problem
from streaming.records.writing import KafkaRecord
from streaming.state.client import Ignored
from streaming.state.notes import NO_VERSIONS

HOUR_MS = 3_600_000


@dataclass(slots=True)
class CoordinatorOutcome:
    """Outcome of a micro-batch for a bucket.

    Attributes:
        delta: changes of the state.
        records: to write back, each with its input stream.
        problems: entries that become dead letters.
        ignored: number of ignored entries by reason.
        changed: the delta changes something.
    """

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
    """Follow the groups and clients of one bucket through a micro-batch; the caller applies the delta.

    Args:
        state: the bucket before the micro-batch; not changed.
        events: groups first, then the ends that the job wrote, then requests, then the time, each in offset order.
        client_timeout_ms: time without requests after which a client is unsubscribed everywhere; 0 for never.
        inner_multi: `**` is allowed inside a pattern.
        max_later_bytes: maximum size in bytes of the requests in one record of an end.
    """
    delta = CoordinatorDelta(state.clock)
    ends = PendingEnds(state, delta, inner_multi=inner_multi, max_later_bytes=max_later_bytes)
    micro_batch = _MicroBatch(state, delta, ends, client_timeout_ms)
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


class _MicroBatch:
    """One micro-batch in one bucket: differences to the state before it."""

    def __init__(
        self, state: CoordinatorState, delta: CoordinatorDelta, ends: PendingEnds, client_timeout_ms: int
    ) -> None:
        self._state = state
        self._client_timeout_ms = client_timeout_ms
        self._delta = delta
        self._alarms: dict[int, set[tuple[str, int]]] = {}
        self._wakes: set[tuple[str, int]] = set()
        self.outcome = CoordinatorOutcome(delta)
        self.ends = ends

    def apply_group_event(self, source: Source, event: GroupEvent) -> None:
        """Bind a group to its parent, or delete it, and end it on its other parents."""
        if event.superseded_by is not None:
            return  # written by the coordinator
        former = self._binding(event.group)
        place = source.place
        if event.attributes and event.parent is not None:
            others = self._parents_of(event.group) | (set() if former is None else {former.parent, *former.notified})
            others.discard(event.parent)
            for other in sorted(others):
                self._end_group(event.group, other, place, bound_to=event.parent)
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
        lease, place = self._lease(key), source.place
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
            self._end_client(key, lease, place, version=request.version)

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
                lease = self._lease(key)
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
        """Return the outcome of all events: one wake for each shard, however many of its alarms are due."""
        outcome, delta = self.outcome, self._delta
        outcome.records += ((Stream.CLOCK, wake(*shard, delta.clock)) for shard in sorted(self._wakes))
        outcome.records += ((Stream.SUBSCRIPTIONS, record) for record in self.ends.records())
        for time, shards in self._alarms.items():
            if shards or time in self._state.alarms:
                delta.alarms[time] = frozenset(shards) or None
        changes = (delta.bindings, delta.leases, delta.alarms, delta.pending)
        outcome.changed = any(changes) or delta.clock != self._state.clock
        return outcome

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

    def _binding(self, group: str) -> GroupBinding | None:
        bindings = self._delta.bindings
        return bindings[group] if group in bindings else self._state.bindings.get(group)

    def _lease(self, key: ClientKey) -> ClientLease | None:
        leases = self._delta.leases
        return leases[key] if key in leases else self._state.leases.get(key)

    def _parents_of(self, group: str) -> set[str]:
        """Return the parents on which a group's clients have sent requests."""
        counts = self._state.indexes.parents_of(group)
        for key, lease in self._delta.leases.items():
            if key.group == group:
                former = self._state.leases.get(key)
                counts.subtract(() if former is None else former.parents)
                counts.update(() if lease is None else lease.parents)
        return set(+counts)

    def _expire(self, key: ClientKey, lease: ClientLease, now: int) -> ClientLease | None:
        """End a client whose lease has expired at a time, with or without a tick; return the rest of its lease.

        A client that is in no session is forgotten later.
        """
        left: ClientLease | None = lease
        age, timeout = now - lease.place.timestamp, self._client_timeout_ms
        if timeout and lease.parents and age > timeout:
            left = self._end_client(key, lease, lease.place, expired=True)
        if left is not None and not left.parents and age > VERSION_RETENTION_MS:
            self.ends.forget(key, left)
            self._delta.leases[key] = left = None
        return left

    def _renew_lease(
        self, key: ClientKey, lease: ClientLease | None, request: SubscriptionRequest, place: Place
    ) -> None:
        parent, parents = request.parent, () if lease is None else lease.parents
        versions = {} if lease is None else dict(lease.versions)
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
        binding = self._binding(request.group)
        if binding is None or binding.parent == request.parent:
            return
        message = (
            f"group {request.group!r} is bound to {binding.parent!r}, so its clients receive nothing of "
            f"{request.parent!r}; subscribe there, or bind the group to this parent by lite.bind.topic"
        )
        self.outcome.problems.append(Problem(source, Reason.GROUP_BOUND_ELSEWHERE, message))
        if request.parent not in binding.notified:
            self._end_group(request.group, request.parent, binding.place, bound_to=binding.parent)
            notified = binding.notified | {request.parent}
            self._delta.bindings[request.group] = binding._replace(notified=notified)

    def _end_group(self, group: str, parent: str, superseded_by: Place, bound_to: str | None = None) -> None:
        self.outcome.records.append((Stream.GROUPS, group_end(group, parent, superseded_by, bound_to)))

    def _end_client(
        self, key: ClientKey, lease: ClientLease, as_of: Place, *, version: int | None = None, expired: bool = False
    ) -> ClientLease | None:
        """End a client on all of its parents; return the rest of its lease."""
        left = self.ends.end(key, lease, as_of, version=version, expired=expired)
        self._delta.leases[key] = left
        return left
