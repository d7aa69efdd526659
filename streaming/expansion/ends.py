"""Ends of clients by the coordinator, applied to a shard.

The coordinator ends a client on every parent when it leaves, or when its lease expires. The record of it arrives later;
meanwhile the client may have sent requests, which were applied as if its session went on. The record and those that
continue it repeat the requests, and they are applied anew, to a client that has ended. A shard keeps these parts until
it has read one that goes up to the last request of the client, and applies them together.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from streaming.events.model import Action, Place, SelectorSpec, SubscriptionRequest
from streaming.events.subscription_requests import parse_repeated
from streaming.expansion.admission import admission
from streaming.expansion.view import Overlay, ShardView
from streaming.state.notes import ClientNotes, EndId, QuotaVerdict, Repeated, Versions
from streaming.subscription.client import Client, Ignored, Mode, Subscription
from streaming.subscription.requests import RequestOutcome, advance, ended, ended_by_former_release
from streaming.subscription.subscribers import ClientKey


class EndStep(NamedTuple):
    """One step of an end: the end itself, or a request that is applied anew.

    Attributes:
        place: of the request, or of the one that ended the client.
        client: subscriptions after it.
        stale: modes under which the request does not count after the end.
        applied: modes under which it counts after the end.
        verdict: the new verdict about it; None for none.
        excess: reason why a quota refuses the request, which was not refused before; blank if it is no longer refused.
    """

    place: Place
    request: SubscriptionRequest
    client: Client
    stale: tuple[Mode, ...] = ()
    applied: tuple[Mode, ...] = ()
    verdict: QuotaVerdict | None = None
    excess: str | None = None


def is_superseded(view: ShardView, key: ClientKey, request: SubscriptionRequest) -> bool:
    """Tell whether the client has asked again since the record was written; another one follows then."""
    last, through = view.last_request(key), request.through
    return (
        last is not None
        and through is not None
        and last.partition == through.partition
        and last.position > through.position
    )


def former_release_step(view: ShardView, key: ClientKey, request: SubscriptionRequest, as_of: Place) -> EndStep:
    """Return the step of an end that a former release wrote without the client's later requests."""
    client, last = view.client(key), view.last_request(key)
    former = {m: ended_by_former_release(client.subscription(m), request, as_of, last, m) for m in Mode}
    return EndStep(as_of, request, _client(former))


def parts_due(
    view: ShardView, overlay: Overlay, key: ClientKey, request: SubscriptionRequest, as_of: Place
) -> Sequence[Repeated]:
    """Take a record of an end, and return the parts that are due: the end and the requests that it repeats.

    A record that was read before adds nothing.

    Args:
        view: the shard.
        overlay: takes what is to be kept.
        key: the client.
        request: the record of the coordinator.
        as_of: its place of that name.
    """
    notes, end = view.notes(key), _end_id(request, as_of)
    if notes.partition != as_of.partition:
        notes = ClientNotes(as_of.partition)
    if end < notes.end:
        return ()
    parts = list(request.later) if request.continues else [(as_of, _without_later(request)), *request.later]
    read = len(request.later) if request.later_count is None else request.later_count
    first = read + 1 - len(parts)
    if end > notes.end or (first > notes.read and request.piece is None):
        _forget_parts(overlay, key, notes)
        notes = notes._replace(end=end, read=first, applied=first, pieces=())
    notes, parts = _with_piece(notes, request, parts[max(0, notes.read - first) :], read)
    for number, part in enumerate(parts, notes.read):
        overlay.repeated[key, number] = part
    notes = notes._replace(read=notes.read + len(parts))
    due: Sequence[Repeated] = ()
    if not (is_superseded(view, key, request) or _lacks_parts(request)):
        kept = (view.repeated(key, number) for number in range(notes.applied, notes.read))
        due = [part for part in kept if part is not None]
        _forget_parts(overlay, key, notes)
        notes = notes._replace(applied=notes.read)
    overlay.notes[key] = notes
    return due


def end_steps(view: ShardView, key: ClientKey, parts: Sequence[Repeated]) -> Iterator[EndStep]:
    """Yield the steps of parts of an end that are due.

    Args:
        view: the shard; not changed meanwhile.
        key: the client.
        parts: the end and the requests that it repeats, or those that follow what was applied before.
    """
    replay = _Replay(view, key, parts)
    for number, (place, request) in enumerate(parts):
        yield from replay.step(number, place, request)


class _Replay:
    """Replay of a client's requests after its end."""

    def __init__(self, view: ShardView, key: ClientKey, parts: Sequence[Repeated]) -> None:
        self._view = view
        self._key = key
        self._parts = parts
        self._notes = view.notes(key)
        self._mode = view.group(key.group).mode
        client = view.client(key)
        self._subscriptions = {mode: client.subscription(mode) for mode in Mode}
        # What continues an end that was applied begins with an end, unless a former release wrote it.
        self._since: dict[Mode, Place | None] = {} if parts[0][1].ends else dict.fromkeys(Mode)
        self._has_fewer = True  # entries than if the session had gone on
        self._forgets = False  # so requests count that were stale as long as the session went on
        self._lifted: tuple[SelectorSpec | None, SelectorSpec] | None = None

    def step(self, number: int, place: Place, request: SubscriptionRequest) -> Iterator[EndStep]:
        """Apply the end, or a request anew; yield nothing as long as no end is in force."""
        in_force = dict(self._since)
        self._end(number, request)
        if not self._since:
            return
        if request.forgets:
            self._forgets = True
            self._subscriptions.update(dict.fromkeys(in_force, Subscription()))
            verdict = self._noted(place)._replace(versions=None) if self._notes.verdicts else None
            yield EndStep(place, request, self._client, verdict=verdict)
            return
        outcomes = {
            mode: self._advance(mode, request, place) for mode, since in in_force.items() if _is_after(place, since)
        }
        yield self._judged(place, request, outcomes)

    @property
    def _client(self) -> Client:
        return _client(self._subscriptions)

    def _end(self, number: int, request: SubscriptionRequest) -> None:
        """End the client under each mode under which no end is in force yet, and under which this one is not stale."""
        if request.ends is None:
            return
        since = [later for _, later in self._parts[number + 1 :]]
        for mode in Mode:
            end = request.ends.get(mode)
            if end is None or mode in self._since:
                continue
            known = end._replace(known=self._notes.known(end, mode))
            after = ended(self._subscriptions[mode], known, since)
            if after is not None:
                self._subscriptions[mode] = after
                self._since[mode] = end.place
                self._forgets |= end.forgets

    def _advance(self, mode: Mode, request: SubscriptionRequest, place: Place) -> RequestOutcome:
        order = _order_at(self._view, self._key, place)
        return advance(self._subscriptions[mode], request, self._view.shard.rules(mode), order, place)

    def _judged(self, place: Place, request: SubscriptionRequest, outcomes: dict[Mode, RequestOutcome]) -> EndStep:
        """Return the step of a request, which a quota may refuse now, or refuse no longer."""
        verdict = None if request.ends else self._notes.verdict(place)
        was_refused = verdict is not None and verdict.is_refused
        excess = self._excess(request, outcomes, verdict)
        is_refused = excess is not None if self._mode in outcomes else was_refused
        stale, applied = tuple(outcomes), tuple[Mode, ...]()
        if not is_refused:
            self._subscriptions.update((mode, outcome.subscription) for mode, outcome in outcomes.items())
            stale = tuple(mode for mode, outcome in outcomes.items() if outcome.ignored is Ignored.STALE_VERSION)
            applied = tuple(mode for mode, each in outcomes.items() if mode not in stale and not each.refused)
            self._follow_size(request, verdict, is_applied=bool(applied))
        changed = None if is_refused == was_refused else excess or ""
        judged = self._verdict(place, request, is_refused=is_refused)
        if judged is not None:
            self._notes = self._notes.judged(judged)
        return EndStep(place, request, self._client, stale, applied, judged, changed)

    def _excess(
        self, request: SubscriptionRequest, outcomes: dict[Mode, RequestOutcome], verdict: QuotaVerdict | None
    ) -> str | None:
        """Return the reason why a quota refuses a request after the end; None if it does not.

        What was within the quota as if the session had gone on is within it after the end.
        """
        is_contested = self._forgets or not self._has_fewer or (verdict is not None and verdict.is_contested)
        if self._mode not in outcomes or not self._view.shard.refuses_requests or not is_contested:
            return None
        present = self._view.policy(self._key.group)
        if verdict is not None:
            lifted = self._lifted is not None and self._lifted[0] == verdict.selector
            present = present._replace(selector=self._lifted[1] if self._lifted and lifted else verdict.selector)
        outcome, former = outcomes[self._mode], self._subscriptions[self._mode]
        return admission(self._view, self._key, request, outcome, former, present=present).excess

    def _follow_size(self, request: SubscriptionRequest, verdict: QuotaVerdict | None, *, is_applied: bool) -> None:
        if verdict is not None and verdict.is_refused:
            self._has_fewer = False
            if request.selector is not None:
                self._lifted = verdict.selector, request.selector
        elif is_applied and request.action in (Action.COMPLETE_ADD, Action.COMPLETE_REMOVE):
            self._has_fewer = True

    def _noted(self, place: Place) -> QuotaVerdict:
        return self._notes.verdict(place) or QuotaVerdict(place.position)

    def _verdict(self, place: Place, request: SubscriptionRequest, *, is_refused: bool) -> QuotaVerdict | None:
        """Return the verdict about a request, or an end, after it was applied anew."""
        former, verdict = self._notes.versions_at(place), self._noted(place)
        if request.ends is not None:
            is_refused = verdict.is_refused  # the lease of the client ended at the place of its last request
            if former is None:
                return None
        elif verdict == QuotaVerdict(place.position):
            return None
        if former is None:
            return verdict._replace(is_refused=is_refused)
        literal, wildcard = (
            self._subscriptions[mode].version if mode in self._since else former.of(mode)
            for mode in (Mode.LITERAL, Mode.WILDCARD)
        )
        return verdict._replace(is_refused=is_refused, versions=Versions(literal, wildcard))


def _with_piece(
    notes: ClientNotes, request: SubscriptionRequest, parts: list[Repeated], read: int
) -> tuple[ClientNotes, list[Repeated]]:
    """Return notes and parts with the piece of a request in a record: a part, if it is the last piece."""
    if request.piece is None or request.piece[0] != len(notes.pieces) or read < notes.read - 1:
        return notes, parts
    pieces = (*notes.pieces, request.piece[1])
    if read < notes.read:
        return notes._replace(pieces=pieces), parts
    return notes._replace(pieces=()), [parse_repeated("".join(pieces), request)]


def _lacks_parts(request: SubscriptionRequest) -> bool:
    """Tell whether other records follow that go up to the same request, as a former release wrote them."""
    return bool(request.later) and request.through is not None and request.later[-1][0] != request.through


def _forget_parts(overlay: Overlay, key: ClientKey, notes: ClientNotes) -> None:
    for number in range(notes.applied, notes.read):
        overlay.repeated[key, number] = None


def _client(subscriptions: dict[Mode, Subscription]) -> Client:
    return Client.of(subscriptions[Mode.LITERAL], subscriptions[Mode.WILDCARD])


def _end_id(request: SubscriptionRequest, as_of: Place) -> EndId:
    forgets = request.forgets or any(end.forgets for end in (request.ends or {}).values())
    return as_of.position, 2 if forgets else int(request.expired)


def _without_later(request: SubscriptionRequest) -> SubscriptionRequest:
    return request._replace(as_of=None, later=(), through=None, later_count=None, forgets=False)


def _is_after(later: Place, place: Place | None) -> bool:
    return place is None or (later.partition == place.partition and later.position > place.position)


def _order_at(view: ShardView, key: ClientKey, place: Place) -> float:
    """Return the number that a request has on the shard.

    Where no entry remembers it, it is a number between those of the requests before and after it: only the order among
    the clients of the group counts.
    """
    lower, upper = 0.0, None
    for client in view.clients_of(key.group):
        for position, order in _orders(view, client, place.partition):
            if position == place.position:
                return order
            if position < place.position:
                lower = max(lower, order)
            else:
                upper = order if upper is None else min(upper, order)
    return lower + 0.5 if upper is None else (lower + upper) / 2


def _orders(view: ShardView, key: ClientKey, partition: int) -> Iterator[tuple[int, float]]:
    """Yield the position and the number of each request of a client that something remembers."""
    client, last = view.client(key), view.last_request(key)
    for mode in Mode:
        subscription = client.subscription(mode)
        yield from ((b.position, b.order) for b in subscription.blocks if b.partition == partition)
        if last is not None and last.partition == partition:
            position, order = last.began(mode)
            if order:
                yield position, order
            if subscription.everything is not None:
                yield subscription.everything_at, subscription.everything
