"""Ends of clients by the coordinator, applied to a shard.

The coordinator ends a client on every parent when it leaves, or when its lease expires. The record of it arrives later;
meanwhile the client may have sent requests, which were applied as if its session went on. The record repeats them, and
they are applied anew, to a client that has ended.
"""

from collections.abc import Iterator
from typing import NamedTuple

from streaming.events.model import Place, SubscriptionRequest
from streaming.expansion.admission import is_refused
from streaming.expansion.view import ShardView
from streaming.subscription.client import Client, Ignored, Mode, Subscription
from streaming.subscription.requests import advance, ended, ended_by_former_release
from streaming.subscription.subscribers import ClientKey


class EndStep(NamedTuple):
    """One step of an end: the end itself, or a request that is applied anew.

    Attributes:
        place: of the request, or of the one that ended the client.
        client: subscriptions after it.
        stale: modes under which the request is stale after the end.
        applied: modes under which it counts after the end.
    """

    place: Place
    request: SubscriptionRequest
    client: Client
    stale: tuple[Mode, ...] = ()
    applied: tuple[Mode, ...] = ()


def is_superseded(view: ShardView, key: ClientKey, request: SubscriptionRequest) -> bool:
    """Tell whether the client has asked again since the record was written; a longer one follows then."""
    last, through = view.last_request(key), request.through
    return (
        last is not None
        and through is not None
        and last.partition == through.partition
        and last.position > through.position
    )


def end_steps(view: ShardView, key: ClientKey, request: SubscriptionRequest, as_of: Place) -> Iterator[EndStep]:
    """Yield the steps of an end that is not superseded.

    Args:
        view: the shard; not changed meanwhile.
        key: the client.
        request: the record of the coordinator.
        as_of: its place of that name.
    """
    client = view.client(key)
    subscriptions = {mode: client.subscription(mode) for mode in Mode}
    if request.ends is None:
        last = view.last_request(key)
        former = {m: ended_by_former_release(subscriptions[m], request, as_of, last, m) for m in Mode}
        yield EndStep(as_of, request, _client(former))
        return
    ends = {mode: request.ends[mode] for mode in Mode if mode in request.ends}
    for mode, end in list(ends.items()):
        after = ended(subscriptions[mode], end, [each for at, each in request.later if _is_after(at, end.place)])
        if after is None:
            del ends[mode]
        elif not request.continues:
            subscriptions[mode] = after
    yield EndStep(as_of, request, _client(subscriptions))
    in_force = view.group(key.group).mode
    for place, later in request.later:
        if later.forgets:
            subscriptions.update(dict.fromkeys(ends, Subscription()))
            yield EndStep(place, later, _client(subscriptions))
            continue
        order = _order_at(view, key, place)
        outcomes = {
            mode: advance(subscriptions[mode], later, view.shard.rules(mode), order, place)
            for mode, end in ends.items()
            if _is_after(place, end.place)
        }
        if in_force in outcomes and is_refused(view, key, later, outcomes[in_force], subscriptions[in_force]):
            continue
        subscriptions.update((mode, outcome.subscription) for mode, outcome in outcomes.items())
        stale = tuple(mode for mode, outcome in outcomes.items() if outcome.ignored is Ignored.STALE_VERSION)
        applied = tuple(mode for mode, outcome in outcomes.items() if mode not in stale and not outcome.refused)
        yield EndStep(place, later, _client(subscriptions), stale, applied)


def _client(subscriptions: dict[Mode, Subscription]) -> Client:
    return Client.of(subscriptions[Mode.LITERAL], subscriptions[Mode.WILDCARD])


def _is_after(later: Place, place: Place) -> bool:
    return later.partition == place.partition and later.position > place.position


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
