"""Ends of clients on their parents, followed until the job has read back their records.

A client leaves all of its parents by one request, or its lease expires; only the coordinator has the list of parents.
It writes an end to each of them, which a shard reads some micro-batches later. Meanwhile the client may ask again.
So the record repeats the client's requests and ends since then, and a shard applies them again. Requests that arrive
before the record was read back are written in records that continue it, so each request is written once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from streaming.coordinator.leases import ClientLease
from streaming.coordinator.records import MAX_LATER_BYTES, client_end
from streaming.coordinator.state import CoordinatorDelta, CoordinatorState, PendingEnd, PendingKey
from streaming.records.model import Action, End, Place, SubscriptionRequest
from streaming.records.subscribers import ClientKey
from streaming.records.writing import KafkaRecord
from streaming.state import Shard
from streaming.state.client import Mode, RequestRules, Subscription, advance
from streaming.state.notes import NO_VERSIONS, Versions


@dataclass(slots=True)
class _News:
    """Additions of a micro-batch to the end of a client on a parent.

    Attributes:
        former: the end before; None if it begins.
        ends: its beginning under each mode; None if it continues.
        later: further requests and ends of the client, each with its place.
    """

    former: PendingEnd | None
    ends: Mapping[str, End] | None
    later: list[tuple[Place, SubscriptionRequest]] = field(default_factory=list)


class PendingEnds:
    """Pending ends of one bucket in a micro-batch.

    Args:
        state: the bucket before the micro-batch; not changed.
        delta: takes the changes.
        inner_multi: `**` is allowed inside a pattern.
        max_later_bytes: size in bytes of the requests in one record.
    """

    def __init__(
        self,
        state: CoordinatorState,
        delta: CoordinatorDelta,
        *,
        inner_multi: bool,
        max_later_bytes: int = MAX_LATER_BYTES,
    ) -> None:
        self._state = state
        self._delta = delta
        self._max_later_bytes = max_later_bytes
        self._inner_multi = inner_multi
        self._news: dict[PendingKey, _News] = {}

    def end(
        self, key: ClientKey, lease: ClientLease, as_of: Place, *, version: int | None = None, expired: bool = False
    ) -> ClientLease | None:
        """End a client on all of its parents; return the rest of its lease.

        Args:
            key: the client.
            lease: its lease.
            as_of: place of the request that ends it, or of its last request before its lease expired.
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
            self._end_on(parent, key, ends, as_of, version=version, expired=expired)
            versions[parent] = Versions(*(_newer(version, known.of(mode)) for mode in (Mode.LITERAL, Mode.WILDCARD)))
        if version is None and not lease.versions:
            versions = {}
        return ClientLease(tuple(kept), as_of, versions) if kept or versions else None

    def forget(self, key: ClientKey, lease: ClientLease) -> None:
        """Drop the versions of a client that is in no session."""
        ends = dict.fromkeys(Mode, End(lease.place, forgets=True))
        for parent in lease.versions:
            self._end_on(parent, key, ends, lease.place, forgets=True)

    def follow(self, key: ClientKey, request: SubscriptionRequest, place: Place) -> None:
        """Add a request to the pending end of its client on its parent, if there is one."""
        pending = self._pending((key, request.parent))
        if pending is not None:
            self._continue((key, request.parent), pending, request, place)

    def confirm(self, key: ClientKey, request: SubscriptionRequest) -> None:
        """Remove a pending end whose records were all read back."""
        at = key, request.parent
        pending = self._pending(at)
        if pending is None or pending.through != request.through:
            return
        if request.later_count in (None, pending.later_count):  # a former release did not count
            self._delta.pending[at] = None

    def versions(self, former: Versions, request: SubscriptionRequest, place: Place) -> Versions:
        """Return the versions of a client on a parent after a request with a version."""

        def after(mode: Mode) -> int | None:
            subscription = Subscription(version=former.of(mode))
            return advance(subscription, request, rules(mode), 0, place).subscription.version

        def rules(mode: Mode) -> RequestRules:
            shard = Shard("", inner_multi=self._inner_multi)
            return shard.rules(mode)._replace(relevant=lambda *_: False)  # no entry is kept

        return Versions(after(Mode.LITERAL), after(Mode.WILDCARD))

    def records(self) -> Iterator[KafkaRecord]:
        """Yield the records of new ends, and those that continue others."""
        for (key, parent), news in self._news.items():
            pending = self._pending((key, parent))
            if pending is not None:
                yield from client_end(
                    key,
                    parent,
                    pending,
                    former=news.former,
                    ends=news.ends,
                    later=news.later,
                    max_bytes=self._max_later_bytes,
                )

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
        at, pending = (key, parent), self._pending((key, parent))
        named = {str(mode): end for mode, end in ends.items()}
        if pending is None:
            self._delta.pending[at] = PendingEnd(place, expired, forgets, place)
            self._news[at] = _News(None, named)
            return
        again = SubscriptionRequest(parent, *key, Action.COMPLETE_REMOVE, (), version)
        self._continue(at, pending, again._replace(expired=expired, forgets=forgets, ends=named), place)

    def _continue(self, at: PendingKey, pending: PendingEnd, request: SubscriptionRequest, place: Place) -> None:
        self._news.setdefault(at, _News(pending, None)).later.append((place, request))
        self._delta.pending[at] = pending._replace(through=place, later_count=pending.later_count + 1)

    def _pending(self, key: PendingKey) -> PendingEnd | None:
        pending = self._delta.pending
        return pending[key] if key in pending else self._state.pending.get(key)


def _newer(version: int | None, known: int | None) -> int | None:
    if version is None or known is None:
        return known if version is None else version
    return max(version, known)
