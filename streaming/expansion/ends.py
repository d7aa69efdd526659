"""Ends of clients by the coordinator, applied to a shard (see `streaming.coordinator.rules`).

The record of an end arrives late, and repeats the client's requests, which the shard has applied as if the session went
on. It applies them again, to a client that has ended. A shard keeps these parts until it has read a part that goes up
to the last request of the client, and applies them together.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from math import floor, inf
from typing import NamedTuple

from sortedcontainers import SortedDict

from streaming.expansion.admission import admission
from streaming.expansion.view import Overlay, ShardView
from streaming.records.json_fields import parse_repeated
from streaming.records.model import Action, Place, SubscriptionRequest
from streaming.records.subscribers import ClientKey
from streaming.state import GroupSelectors
from streaming.state.client import (
    Client,
    Ignored,
    Mode,
    RequestOutcome,
    Subscription,
    advance,
    ended,
    ended_by_former_release,
)
from streaming.state.group import Selection
from streaming.state.notes import ClientNotes, EndId, Judged, Repeated
from streaming.state.policy import GroupPolicy


class EndStep(NamedTuple):
    """One step of an end: the end itself, or a request that is applied again.

    Attributes:
        stale: modes under which the request does not count after the end.
        applied: modes under which it counts after the end.
        selectors: of the group from here on; None if `stale` and `applied` decide.
        judged: the judgement by the quota, if it is to be kept.
        excess: reason why a quota refuses the request, which was not refused before; blank if it is no longer refused.
    """

    place: Place
    request: SubscriptionRequest
    client: Client
    stale: tuple[Mode, ...] = ()
    applied: tuple[Mode, ...] = ()
    selectors: GroupSelectors | None = None
    judged: Judged | None = None
    excess: str | None = None

    @property
    def key(self) -> ClientKey:
        """Key of the client."""
        return ClientKey(self.request.group, self.request.client_id)

    def reselected(self, selectors: GroupSelectors) -> GroupSelectors:
        """Return the selectors of the group, without or with the selector of the request."""
        if self.selectors is not None:
            return self.selectors
        place, request, selectors = self.place, self.request, selectors.without(self.place, self.stale)
        if request.selector is None or request.action is Action.COMPLETE_REMOVE or not self.applied:
            return selectors
        return selectors.with_earlier(Selection(place.partition, place.position, request.selector, self.applied))


def is_superseded(view: ShardView, key: ClientKey, request: SubscriptionRequest) -> bool:
    """Return True if the client has asked since the record was written: another record follows then."""
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
    """Take a record of an end, and return the parts that are due, oldest first.

    A record that was read before adds nothing.
    """
    notes, end = view.notes(key), _end_id(request, as_of)
    if notes.partition != as_of.partition:
        notes = ClientNotes(as_of.partition)
    if end < notes.end:
        return ()
    parts = list(starmap(Repeated, request.later))
    if not request.continues:
        own = request._replace(as_of=None, later=(), through=None, later_count=None, forgets=False)
        parts.insert(0, Repeated(as_of, own))
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


class EndReplay:
    """Replay of a client's requests after its end; the view is not changed meanwhile.

    The parts are the end and the requests that it repeats, or the parts after the applied parts. `policy` is the policy
    of the group at that time; `in_doubt`: a quota may have refused some of the requests.
    """

    def __init__(
        self,
        view: ShardView,
        orders: "Orders",
        key: ClientKey,
        client: Client,
        parts: Sequence[Repeated],
        *,
        policy: GroupPolicy,
        in_doubt: bool,
    ) -> None:
        self._view = view
        self._orders = orders
        self._key = key
        self._parts = parts
        self._policy = policy
        self._in_doubt = in_doubt
        self._mode = policy.mode
        self._subscriptions: dict[Mode, Subscription] = {}
        self._set(client)
        # The continuation of an applied end begins with an end, unless a former release wrote it.
        self._since: dict[Mode, Place | None] = {} if parts and parts[0].request.ends else dict.fromkeys(Mode)
        self._has_fewer = True  # entries than if the session had gone on
        self._is_kept = False  # the judgement of the requests that follow

    @property
    def client(self) -> Client:
        """The client after the steps so far."""
        return _client(self._subscriptions)

    def steps(self) -> Iterator[EndStep]:
        """Apply the end, and the requests again. Yield no step as long as no end is in force."""
        for number, part in enumerate(self._parts):
            in_force = dict(self._since)
            self._end(number, part.request)
            if not self._since:
                continue
            if part.request.forgets:
                self._subscriptions.update(dict.fromkeys(in_force, Subscription()))
                self._set(self.client)
                yield EndStep(part.place, part.request, self.client)
            else:
                yield self._applied(part, [mode for mode, since in in_force.items() if _is_after(part.place, since)])

    def _end(self, number: int, request: SubscriptionRequest) -> None:
        """End the client under each mode in which no end is in force yet and this end is not stale."""
        if request.ends is None or len(self._since) == len(Mode):
            return
        since = [part.request for part in self._parts[number + 1 :]]
        for mode in Mode:
            end = request.ends.get(mode)
            if end is None or mode in self._since:
                continue
            after = ended(self._subscriptions[mode], end, since)
            if after is not None:
                self._subscriptions[mode] = after
                self._since[mode] = end.place
        self._set(self.client)

    def _set(self, client: Client) -> None:
        """Set the subscriptions. Equal ones are one object: a request is applied to both at once."""
        client = client.editable
        self._subscriptions = {mode: client.subscription(mode) for mode in Mode}

    def _applied(self, part: Repeated, modes: Sequence[Mode]) -> EndStep:
        """Apply a request under the modes under which an end is in force.

        A request within the quota of a continued session is within it after the end, unless a request that took
        something away no longer counts.
        """
        place, request = part.place, part.request
        order, former = self._orders.at(place), self.client
        rules = self._view.shard.rules
        outcomes = {mode: advance(self._subscriptions[mode], request, rules(mode), order, place) for mode in modes}
        judged = self._judged(request, outcomes, order, former)
        if judged is not None and judged[1] is not None:
            return EndStep(place, request, former, tuple(outcomes), judged=judged[0], excess=judged[1])
        self._subscriptions.update((mode, outcome.subscription) for mode, outcome in outcomes.items())
        self._set(self.client)
        stale = tuple(mode for mode, outcome in outcomes.items() if outcome.ignored is Ignored.STALE_VERSION)
        applied = tuple(mode for mode, each in outcomes.items() if mode not in stale and not each.refused)
        if request.action is not Action.PARTIAL_ADD and self._mode in stale:
            self._has_fewer = False
        elif request.action in (Action.COMPLETE_ADD, Action.COMPLETE_REMOVE) and self._mode in applied:
            self._has_fewer = True
        return EndStep(place, request, self.client, stale, applied, judged=judged and judged[0])

    def _judged(
        self, request: SubscriptionRequest, outcomes: Mapping[Mode, RequestOutcome], order: float, former: Client
    ) -> tuple[Judged, str | None] | None:
        """Return the judgement by the quota, and the reason of a refusal; None if there is no doubt."""
        if request.ends is not None or self._mode not in outcomes or not self._view.shard.refuses_requests:
            return None
        if self._has_fewer and not (self._is_kept or self._in_doubt):
            return None
        outcome, before = outcomes[self._mode], self._subscriptions[self._mode]
        found = admission(self._view, self._key, request, outcome, before, present=self._policy)
        self._is_kept |= found.is_contested
        if not self._is_kept:
            return None
        return Judged(order, found.is_contested, found.excess is not None, former.settled), found.excess


def _with_piece(
    notes: ClientNotes, request: SubscriptionRequest, parts: list[Repeated], read: int
) -> tuple[ClientNotes, list[Repeated]]:
    """Return notes and parts with the piece of a request in a record: a part, if it is the last piece."""
    if request.piece is None or request.piece[0] != len(notes.pieces) or read < notes.read - 1:
        return notes, parts
    pieces = (*notes.pieces, request.piece[1])
    if read < notes.read:
        return notes._replace(pieces=pieces), parts
    return notes._replace(pieces=()), [Repeated(*parse_repeated("".join(pieces), request))]


def _lacks_parts(request: SubscriptionRequest) -> bool:
    """Return True if other records follow that go up to the same request, as a former release wrote them."""
    return bool(request.later) and request.through is not None and request.later[-1][0] != request.through


def _forget_parts(overlay: Overlay, key: ClientKey, notes: ClientNotes) -> None:
    for number in range(notes.applied, notes.read):
        overlay.repeated[key, number] = None


def _client(subscriptions: dict[Mode, Subscription]) -> Client:
    return Client.of(subscriptions[Mode.LITERAL], subscriptions[Mode.WILDCARD])


def _end_id(request: SubscriptionRequest, as_of: Place) -> EndId:
    forgets = request.forgets or any(end.forgets for end in (request.ends or {}).values())
    return as_of.position, 2 if forgets else int(request.expired)


def _is_after(later: Place, place: Place | None) -> bool:
    return place is None or (later.partition == place.partition and later.position > place.position)


class Orders:
    """Numbers of the requests of a group on the shard, by place.

    Attributes:
        latest: the highest number that `at` has returned.
    """

    def __init__(self, view: ShardView, group: str) -> None:
        self.latest = 0.0
        self._by_partition: dict[int, SortedDict[int, float]] = defaultdict(SortedDict)
        for key in view.clients_of(group):
            for partition, position, order in _orders(view, key):
                self._by_partition[partition][position] = order

    def add(self, place: Place, order: float) -> None:
        """Add the number of a request."""
        self._by_partition[place.partition][place.position] = order

    def at(self, place: Place) -> float:
        """Return the number of a request.

        If it is not stored, it is between the numbers of the requests before and after it: only the order among the
        clients of the group counts. The next whole number is preferred, because many halves would become equal.
        """
        known, position = self._by_partition[place.partition], place.position
        found: float | None = known.get(position)
        if found is None:
            after = known.bisect_left(position)
            lower = known.peekitem(after - 1)[1] if after else 0.0
            upper = known.peekitem(after)[1] if after < len(known) else inf
            found = floor(lower) + 1.0
            if found >= upper:
                found = (lower + upper) / 2
            known[position] = found
        self.latest = max(self.latest, found)
        return found


def _orders(view: ShardView, key: ClientKey) -> Iterator[tuple[int, int, float]]:
    """Yield partition, position and number of each request of a client whose number is stored."""
    client, last = view.client(key), view.last_request(key)
    for mode in Mode:
        subscription = client.subscription(mode)
        yield from ((block.partition, block.position, block.order) for block in subscription.blocks)
        if last is not None:
            position, order = last.began(mode)
            if order:
                yield last.partition, position, order
            if subscription.everything is not None:
                yield last.partition, subscription.everything_at, subscription.everything
