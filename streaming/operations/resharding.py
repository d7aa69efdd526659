"""The states of a parent topic under another routing, made of its present ones."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import TYPE_CHECKING

from streaming.records.subscribers import ClientKey
from streaming.state.client import Client, LastRequest, Mode, Subscription
from streaming.state.delta import ShardDelta
from streaming.state.group import Shard
from streaming.state.notes import Repeated
from streaming.state.shard_state import ShardState

if TYPE_CHECKING:
    from streaming.state.blocks import Block

RequestPlace = tuple[int, int]
"""Partition and position of a request in the subscription stream."""

Numbers = Mapping[RequestPlace, int]
"""Number of each request that something remembers, as `Block.order`."""


def reshard(former: Sequence[ShardState], shards: Iterable[Shard]) -> dict[int, ShardState]:
    """Return the states of a parent's shards under another routing, by number; shards without state are left out.

    A change that several micro-batches carry out counts as carried out. Topics of one shard keep their order of
    creation, after the topics of the previous shard, because no order between shards is known.
    """
    whole = _whole(former)
    renewed = {shard.number: _part(whole, shard) for shard in shards}
    return {number: state for number, state in renewed.items() if state}


def _whole(former: Sequence[ShardState]) -> ShardDelta:
    """Return all that the shards hold, as one change."""
    numbers = _numbers(former)
    is_one = len(former) == 1  # of several shards none refuses a request, so their groups have no logs
    clients = dict.fromkeys(key for state in former for key in state.clients)
    return ShardDelta(
        added={topic: metadata for state in former for topic, metadata in state.topics.items()},
        groups={name: group for state in former for name, group in state.groups.items()},
        clients={
            key: _merged_client(
                [(state.clients[key], state.last_requests.get(key)) for state in former if key in state.clients],
                numbers,
            )
            for key in clients
        },
        last_requests={
            key: _renumbered(last, numbers) for state in former for key, last in state.last_requests.items()
        },
        selectors={name: selectors for state in former for name, selectors in state.selectors.items()},
        latest_order=len(numbers),
        notes={key: notes for state in former for key, notes in state.notes.items() if key.client_id or is_one},
        repeated={
            at: _renumbered_part(each, state, numbers)
            for state in former
            for at, each in state.repeated.items()
            if at[0].client_id or is_one
        },
    )


def _numbers(former: Sequence[ShardState]) -> Numbers:
    """Return numbers for the requests, in the order of each shard.

    A shard counts the requests that it receives while it has something to keep, so shards count differently. If they
    disagree about requests in different partitions, which have no order, the positions decide.
    """
    followers: dict[RequestPlace, dict[RequestPlace, None]] = {}
    for state in former:
        orders = dict(_orders(state))
        ordered = sorted(orders, key=lambda place: (orders[place], place))
        for place in ordered:
            followers.setdefault(place, {})
        for before, after in pairwise(ordered):
            followers[after][before] = None
    try:
        places = list(TopologicalSorter(followers).static_order())
    except CycleError:
        places = sorted(followers, key=lambda place: place[::-1])
    return {place: number for number, place in enumerate(places, 1)}


def _orders(state: ShardState) -> Iterator[tuple[RequestPlace, float]]:
    """Yield place and number of each request that something in a shard remembers."""
    judged = [(part, part.judged) for part in state.repeated.values() if part.judged is not None]
    yield from (((part.place.partition, part.place.position), each.order) for part, each in judged)
    formers = [
        (ClientKey(part.request.group, part.request.client_id), each.former)
        for part, each in judged
        if each.former is not None
    ]
    for key, client in [*state.clients.items(), *formers]:
        last = state.last_requests.get(key)
        for subscription in {client.literal, client.wildcard}:
            yield from (((block.partition, block.position), block.order) for block in subscription.blocks)
            if subscription.everything is not None:
                yield _place_of_everything(subscription, last), subscription.everything
        if last is not None:
            yield from (((last.partition, position), order) for position, order in map(last.began, Mode) if order)


def _place_of_everything(subscription: Subscription, last: LastRequest | None) -> RequestPlace:
    return 0 if last is None else last.partition, subscription.everything_at


def _merged_client(parts: Sequence[tuple[Client, LastRequest | None]], numbers: Numbers) -> Client:
    literal, wildcard = (
        _merged([client.subscription(mode) for client, _ in parts], parts[0][1], numbers) for mode in Mode
    )
    return Client.of(literal, wildcard)


def _merged(parts: Sequence[Subscription], last: LastRequest | None, numbers: Numbers) -> Subscription:
    first = parts[0]
    found: dict[tuple[object, ...], tuple[Block, dict[str, None]]] = {}
    for block in (block for part in parts for block in part.blocks):
        _, entries = found.setdefault((block.partition, block.position, block.notation), (block, {}))
        entries.update(dict.fromkeys(block.entries))
    blocks = (
        block._replace(order=numbers[block.partition, block.position], entries=tuple(entries))
        for block, entries in found.values()
    )
    everything = None if first.everything is None else numbers[_place_of_everything(first, last)]
    return first._replace(blocks=tuple(sorted(blocks, key=lambda block: block.order)), everything=everything)


def _renumbered(last: LastRequest, numbers: Numbers) -> LastRequest:
    literal, wildcard = (numbers[last.partition, at] if order else 0 for at, order in map(last.began, Mode))
    return last._replace(literal_order=literal, wildcard_order=wildcard)


def _renumbered_part(part: Repeated, state: ShardState, numbers: Numbers) -> Repeated:
    """Return a part of an end as it is, or a request in the log of a group with its new number."""
    place, request, judged = part
    if judged is None:
        return part
    last = state.last_requests.get(ClientKey(request.group, request.client_id))
    former = None if judged.former is None else _merged_client([(judged.former, last)], numbers)
    return part._replace(judged=judged._replace(order=numbers[place.partition, place.position], former=former))


def _part(whole: ShardDelta, shard: Shard) -> ShardState:
    def relevant(client: Client) -> Client:
        literal = _relevant(client.literal, shard, Mode.LITERAL)
        shared = client.wildcard is client.literal
        return Client.of(literal, literal if shared else _relevant(client.wildcard, shard, Mode.WILDCARD))

    place = shard.routing.shard_of
    topics = {topic: each for topic, each in whole.added.items() if place(shard.parent, topic) == shard.number}
    deadlines = sorted({each.deadline for each in topics.values() if each.deadline is not None})
    state = ShardState(inner_multi=shard.inner_multi)
    state.apply(
        ShardDelta(
            added=topics,
            groups=whole.groups,
            clients={key: client and relevant(client) for key, client in whole.clients.items()},
            last_requests=whole.last_requests,
            selectors=whole.selectors,
            alarms=dict.fromkeys(deadlines, True),
            latest_order=whole.latest_order,
            notes=whole.notes,
            repeated=whole.repeated,
        )
    )
    return state


def _relevant(subscription: Subscription, shard: Shard, mode: Mode) -> Subscription:
    """Return a subscription without entries that cannot touch the shard."""
    relevant = shard.rules(mode).relevant
    if relevant is None:
        return subscription
    blocks = (
        block._replace(entries=tuple(entry for entry in block.entries if relevant(entry, block.notation)))
        for block in subscription.blocks
    )
    return subscription._replace(blocks=tuple(block for block in blocks if block.entries))
