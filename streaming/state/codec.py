"""The state of a shard as plain values in a journal, and back."""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from sys import intern
from typing import Any

from matcher.dialects.mqtt import is_malformed_share
from streaming.records.model import (
    LITE,
    NO_METADATA,
    Action,
    End,
    Notation,
    Place,
    SelectorSpec,
    Source,
    SubscriptionRequest,
    TopicMetadata,
)
from streaming.records.subscribers import ClientKey
from streaming.records.updates import Cause
from streaming.state.blocks import Block
from streaming.state.client import Client, Interest, LastRequest, Mode, Subscription
from streaming.state.delta import Backfill, Former, PolicyEvent, ShardDelta
from streaming.state.group import Group, GroupSelectors, Selection
from streaming.state.interests import MQTT
from streaming.state.notes import ClientNotes, Judged, Repeated
from streaming.state.policy import GroupPolicy
from streaming.state.shard_state import ShardState
from streaming.storage.journal import Journal

_TOPICS_PER_COUNT = 8
"""Changed topics per client from which on its count is written: 30 bytes, against 2 us per topic to count."""

_NOTES_FIELDS = len(ClientNotes._fields)
"""Fields of notes; a former release wrote more."""

_REQUEST_FIELDS = SubscriptionRequest._fields.index("later")
"""Fields of an end or a repeated request; only requests that forget versions have more."""


def append(journal: Journal, state: ShardState, delta: ShardDelta) -> Journal:
    """Return the journal with one more change.

    Args:
        journal: of the state before the delta.
        state: after the delta was applied.
        delta: the change.
    """
    if not (state.topics or state):
        return journal.cleared()
    growth = sum(map(len, delta.added)) - sum(map(len, delta.removed))

    def whole() -> list[Any]:
        return state_fields(state, state.topics, state.clients.items(), state.last_requests.items())

    return journal.append(_delta_fields(delta), whole, growth)


def replay(state: ShardState, changes: Iterable[Any]) -> None:
    """Apply the changes of a journal to an empty state, or to the state that they follow."""
    for removed, added, groups, clients, requests, selectors, alarms, backfills, held, *later in changes:
        order = later[0] if later else 0  # former releases wrote less
        notes, repeated = later[1:] or ((), ())
        keys = [ClientKey(intern(group), client_id) for (group, client_id), _, _ in clients]
        state.replay(
            ShardDelta(
                dict.fromkeys(removed),
                topics_of(added),
                {name: None if group is None else Group(*group) for name, group in groups},
                {
                    key: None if fields is None else client_of(*fields)
                    for key, (_, fields, _) in zip(keys, clients, strict=True)
                },
                {
                    key: None if place is None else LastRequest(*place)
                    for key, place in (
                        *((key, place) for key, (_, _, place) in zip(keys, clients, strict=True)),
                        *((ClientKey(*key), place) for key, place in requests),
                    )
                },
                {name: None if both is None else _selectors(*both) for name, both in selectors},
                dict(alarms),
                {ClientKey(*key): None if fields is None else _backfill(key[1], *fields) for key, fields in backfills},
                {ClientKey(*key): count for key, count in held},
                order,
                {ClientKey(*key): None if each is None else ClientNotes(*each[:_NOTES_FIELDS]) for key, each in notes},
                {
                    (ClientKey(*key), number): None if each is None else _repeated(*each)
                    for (key, number), each in repeated
                },
            )
        )


def state_fields(
    state: ShardState,
    topics: Mapping[str, TopicMetadata],
    clients: Iterable[tuple[ClientKey, Client]],
    requests: Iterable[tuple[ClientKey, LastRequest]],
) -> list[Any]:
    """Return the state, with these topics, clients and last requests, as a single change of an empty state.

    Clients are in order of their names: their order in the state depends on the snapshots that a worker has read.
    """
    return _delta_fields(
        ShardDelta(
            {},
            dict(topics.items()),
            dict(state.groups),
            dict(sorted(clients, key=itemgetter(0))),
            dict(sorted(requests, key=itemgetter(0))),
            dict(state.selectors),
            dict(state.alarms),
            dict(state.backfills),
            latest_order=state.latest_order,
            notes=dict(state.notes),
            repeated=dict(state.repeated),
        )
    )


def _delta_fields(delta: ShardDelta) -> list[Any]:
    changed_topics = len(delta.added) + len(delta.removed)
    return [
        list(delta.removed),
        topic_fields(delta.added),
        list(delta.groups.items()),
        [
            (key, client and client_fields(client), delta.last_requests.get(key))
            for key, client in delta.clients.items()
        ],
        [(key, place) for key, place in delta.last_requests.items() if key not in delta.clients],
        [(name, both and _selector_fields(both)) for name, both in delta.selectors.items()],
        list(delta.alarms.items()),
        [(key, backfill and _backfill_fields(backfill)) for key, backfill in delta.backfills.items()],
        list(delta.held.items()) if _TOPICS_PER_COUNT * len(delta.held) < changed_topics else [],
        delta.latest_order,
        *((list(delta.notes.items()), _repeated_fields(delta)) if delta.notes or delta.repeated else ()),
    ]


def _repeated_fields(delta: ShardDelta) -> list[Any]:
    return [
        (at, each and (each.place, _request_fields(each.request), each.judged and _judged_fields(each.judged)))
        for at, each in delta.repeated.items()
    ]


def _repeated(place: tuple[int, ...], request: tuple[Any, ...], judged: tuple[Any, ...] | None = None) -> Repeated:
    return Repeated(Place(*place), _request(*request), None if judged is None else _judged(*judged))


def _request_fields(request: SubscriptionRequest) -> tuple[Any, ...]:
    short = request._replace(notation=None, as_of=None) if request.notation is LITE else request._replace(as_of=None)  # type: ignore[arg-type]
    return short if request.forgets else short[:_REQUEST_FIELDS]


def _request(*fields: Any) -> SubscriptionRequest:
    values = dict(zip(SubscriptionRequest._fields, fields, strict=False))
    notation, selector, ends = values["notation"], values["selector"], values["ends"]
    values["action"] = Action(values["action"])
    values["notation"] = LITE if notation is None else Notation(*notation)
    values["selector"] = selector and SelectorSpec(*selector)
    values["ends"] = ends and {mode: End(Place(*place), *rest) for mode, (place, *rest) in ends.items()}
    return SubscriptionRequest(**values)


def _judged_fields(judged: Judged) -> tuple[Any, ...]:
    former, selectors = judged.former, judged.selectors
    return (*judged[:3], former and client_fields(former), selectors and _selector_fields(selectors))


def _judged(
    order: float,
    is_contested: bool,  # noqa: FBT001 - a field as it was written
    is_refused: bool,  # noqa: FBT001
    former: tuple[Any, Any] | None,
    selectors: tuple[Any, ...] | None,
) -> Judged:
    base = None if selectors is None else _selectors(*selectors)
    return Judged(order, is_contested, is_refused, former and client_of(*former), base)


def topic_fields(topics: Mapping[str, TopicMetadata]) -> list[str | tuple[Any, ...]]:
    """Return topics as plain values."""
    if set(map(id, topics.values())) <= {id(NO_METADATA)}:  # nearly always, and there may be many
        return list(topics)
    return [name if metadata is NO_METADATA else (name, *metadata) for name, metadata in topics.items()]


def topics_of(fields: Sequence[Any]) -> dict[str, TopicMetadata]:
    """Return the topics of `topic_fields`."""
    if set(map(type, fields)) <= {str}:
        return dict.fromkeys(fields, NO_METADATA)
    return dict(
        (topic, NO_METADATA) if isinstance(topic, str) else (topic[0], TopicMetadata(*topic[1:])) for topic in fields
    )


def _selector_fields(selectors: GroupSelectors) -> tuple[Any, ...]:
    return selectors if selectors.settled_at >= 0 or selectors.unsettled else selectors[:2]


def _selectors(
    literal: tuple[str, str] | None,
    wildcard: tuple[str, str] | None,
    unsettled: Iterable[tuple[Any, ...]] = (),
    settled_at: int = -1,
) -> GroupSelectors:
    return GroupSelectors(
        literal and SelectorSpec(*literal),
        wildcard and SelectorSpec(*wildcard),
        tuple(
            Selection(partition, position, SelectorSpec(*selector), tuple(map(Mode, modes)))
            for partition, position, selector, modes in unsettled
        ),
        settled_at,
    )


def client_fields(client: Client) -> tuple[Any, Any]:
    """Return a client as plain values: both subscriptions, or the same one once."""
    literal = _subscription_fields(client.literal)
    return literal, None if client.wildcard is client.literal else _subscription_fields(client.wildcard)


def client_of(literal: tuple[Any, ...], wildcard: tuple[Any, ...] | None) -> Client:
    """Return the client of `client_fields`."""
    shared = _subscription(*literal)
    return Client(shared, shared if wildcard is None else _subscription(*wildcard))


def _subscription_fields(subscription: Subscription) -> tuple[Any, ...]:
    live, version, blocks, *everything = subscription
    return live, version, _block_fields(blocks), *everything


def _subscription(
    live: bool,  # noqa: FBT001 - a field as it was written
    version: int | None,
    blocks: Iterable[tuple[Any, ...]],
    *everything: Any,
) -> Subscription:
    return Subscription(live, version, tuple(map(_block, blocks)), *everything)


def _block_fields(blocks: Iterable[Block]) -> list[Any]:
    return [block._replace(notation=None) if block.notation is LITE else block for block in blocks]  # type: ignore[arg-type]


def _block(fields: tuple[Any, ...]) -> Block:
    order, partition, position, notation, entries = fields
    if notation is None:
        return Block(order, partition, position, LITE, entries)
    if notation[0] == MQTT:  # an earlier release accepted malformed shares
        entries = tuple(entry for entry in entries if not is_malformed_share(entry))
    return Block(order, partition, position, Notation(*notation), entries)


def _backfill_fields(backfill: Backfill) -> tuple[Any, ...]:
    clients = [(name, _interest_fields(each.interest), *each[1:]) for name, each in backfill.clients.items()]
    return clients, *backfill[1:]


def _backfill(client_id: str, clients: Any, first: str, last: str, *rest: Any) -> Backfill:
    if len(rest) > len(Backfill._fields) - 3:  # a former release wrote the backfill of one client
        source, _, cause, option = rest
        return Backfill({client_id: _former(clients, source, cause, option)}, first, last)
    policy, event = rest
    return Backfill(
        {name: _former(*fields) for name, *fields in clients},
        first,
        last,
        policy and _policy(*policy),
        event and PolicyEvent(Source(*event[0]), event[1]),
    )


def _former(interest: tuple[Any, ...], source: tuple[Any, ...], cause: str, option: Any) -> Former:
    patterns, blocks, everything = interest
    return Former(Interest(patterns, tuple(map(_block, blocks)), everything), Source(*source), Cause(cause), option)


def _policy(mode: str, elsewhere: Any, exclusive: Any, selector: tuple[str, str] | None, quota: int) -> GroupPolicy:
    return GroupPolicy(Mode(mode), elsewhere, exclusive, selector and SelectorSpec(*selector), quota)


def _interest_fields(interest: Interest) -> tuple[Any, ...]:
    patterns, blocks, everything = interest
    return patterns, _block_fields(blocks), everything
