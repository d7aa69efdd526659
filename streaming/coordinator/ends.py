"""Ends of clients on their parents, followed until the job has read back what it wrote of them.

A client leaves all of its parents by one request, or falls silent; only the coordinator knows on which parents. It
writes an end to each of them, which a shard reads some micro-batches later. Meanwhile the client may have asked again.
So the record repeats the client's requests and ends since then, and a shard works them off anew. What comes before the
record was read back makes the coordinator write a longer one, which says again all that the shorter one says.
"""

from collections.abc import Iterator, Mapping

from streaming.coordinator.records import client_end
from streaming.coordinator.state import (
    NO_VERSIONS,
    ClientLease,
    CoordinatorDelta,
    CoordinatorState,
    PendingEnd,
    PendingKey,
    Versions,
)
from streaming.events.model import Action, End, Place, SubscriptionRequest
from streaming.state import Shard
from streaming.subscription.client import Mode, Subscription
from streaming.subscription.requests import RequestRules, advance
from streaming.subscription.subscribers import ClientKey
from streaming.updates.records import KafkaRecord


class PendingEnds:
    """Pending ends of one bucket in a micro-batch.

    Args:
        state: the bucket before the micro-batch; not changed.
        delta: takes the changes.
        inner_multi: `**` may stand inside a pattern.
    """

    def __init__(self, state: CoordinatorState, delta: CoordinatorDelta, *, inner_multi: bool) -> None:
        self._state = state
        self._delta = delta
        self._rules = {mode: _rules(mode, inner_multi=inner_multi) for mode in Mode}
        self._changed: dict[PendingKey, None] = {}

    def end(
        self, key: ClientKey, lease: ClientLease, as_of: Place, *, version: int | None = None, expired: bool = False
    ) -> ClientLease | None:
        """End a client on all of its parents; return what is left of its lease.

        Args:
            key: the client.
            lease: its lease.
            as_of: place of the request that ends it, or of its last one before its lease expired.
            version: version of that request.
            expired: its lease has expired.
        """
        kept: list[str] = []
        versions: dict[str, Versions] = {}
        for parent in {**dict.fromkeys(lease.parents), **lease.versions}:
            known = lease.versions.get(parent, NO_VERSIONS)
            ends = {mode: End(as_of, version, known.of(mode)) for mode in Mode}
            if parent in lease.parents and any(end.is_stale for end in ends.values()):
                kept.append(parent)
            pending = self._pending((key, parent))
            if pending is None:
                self._store((key, parent), PendingEnd(as_of, expired, ends))
            else:
                again = SubscriptionRequest(parent, *key, Action.COMPLETE_REMOVE, (), version, expired=expired)
                self._follow_end(key, pending, ends, as_of, again)
            versions[parent] = Versions(*(_newer(version, known.of(mode)) for mode in (Mode.LITERAL, Mode.WILDCARD)))
        if version is None and not lease.versions:
            versions = {}
        return ClientLease(tuple(kept), as_of, versions) if kept or versions else None

    def forget(self, key: ClientKey, lease: ClientLease) -> None:
        """Let the versions of a client that is in no session count no more."""
        forgets = End(lease.place, forgets=True)
        for parent in lease.versions:
            pending = self._pending((key, parent))
            if pending is None:
                self._store((key, parent), PendingEnd(lease.place, expired=False, ends=dict.fromkeys(Mode, forgets)))
            else:
                forgotten = SubscriptionRequest(parent, *key, Action.COMPLETE_REMOVE, (), forgets=True)
                self._follow_end(key, pending, dict.fromkeys(Mode, forgets), lease.place, forgotten)

    def follow(self, key: ClientKey, request: SubscriptionRequest, place: Place) -> None:
        """Add a request to the pending end of its client on its parent, if there is one."""
        pending = self._pending((key, request.parent))
        if pending is not None:
            self._store((key, request.parent), pending._replace(later=(*pending.later, (place, request))))

    def confirm(self, key: ClientKey, request: SubscriptionRequest) -> None:
        """Forget a pending end whose record was read back, unless a longer record is under way."""
        pending = self._pending((key, request.parent))
        if pending is None or pending.through != request.through:
            return
        if request.later_count in (None, len(pending.later)):  # a former release did not count
            self._delta.pending[key, request.parent] = None

    def versions(self, former: Versions, request: SubscriptionRequest, place: Place) -> Versions:
        """Return the versions of a client on a parent after a request with a version."""

        def after(mode: Mode) -> int | None:
            subscription = Subscription(version=former.of(mode))
            return advance(subscription, request, self._rules[mode], 0, place).subscription.version

        return Versions(after(Mode.LITERAL), after(Mode.WILDCARD))

    def records(self) -> Iterator[KafkaRecord]:
        """Yield the records of new and prolonged ends."""
        for key, parent in self._changed:
            pending = self._pending((key, parent))
            if pending is not None:
                yield from client_end(key, parent, pending)

    def _follow_end(
        self, key: ClientKey, pending: PendingEnd, ends: Mapping[Mode, End], place: Place, again: SubscriptionRequest
    ) -> None:
        """Add a further end to a pending one; under modes in which that one is stale it takes its place."""
        in_force = {mode: ends[mode] if end.is_stale else end for mode, end in pending.ends.items()}
        self._store((key, again.parent), pending._replace(ends=in_force, later=(*pending.later, (place, again))))

    def _pending(self, key: PendingKey) -> PendingEnd | None:
        pending = self._delta.pending
        return pending[key] if key in pending else self._state.pending.get(key)

    def _store(self, key: PendingKey, pending: PendingEnd) -> None:
        self._delta.pending[key] = pending
        self._changed[key] = None


def _rules(mode: Mode, *, inner_multi: bool) -> RequestRules:
    """Return the rules of a shard that keeps no entry."""
    return Shard("", inner_multi=inner_multi).rules(mode)._replace(relevant=lambda *_: False)


def _newer(version: int | None, known: int | None) -> int | None:
    if version is None or known is None:
        return known if version is None else version
    return max(version, known)
