"""Attribution of updates: the event that a micro-batch names, compared with single events.

The definition: read each event of a micro-batch in a separate micro-batch, in the order in which a micro-batch reads
them. If a pair of subscriber and topic exists only before or only after all of them, its update has the cause, source,
offset option and reset of the last event that changed the pair.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from streaming.records.columns import Event
from streaming.records.model import DEFAULT_QUOTA, QUOTA, GroupEvent, Source, SubscriptionRequest, TopicEvent
from streaming.records.subscribers import SubscriberKey
from streaming.records.updates import Cause, Op, Update
from streaming.state import Shard, ShardState
from streaming.tuning import DEFAULT_TUNING, Tuning
from tests.support.states import decode, encode
from tests.support.story import expanded

Pair = tuple[SubscriberKey, str]
Sourced = tuple[Source, Event]


class Attribution(NamedTuple):
    """Fields of an update that describe its event."""

    op: Op
    cause: Cause
    source: Source
    option: Any
    reset: bool


def net(updates: Iterable[Update]) -> dict[Pair, Attribution]:
    """Fold the updates of several micro-batches to the last per pair; drop pairs that are as before."""
    first: dict[Pair, Op] = {}
    last: dict[Pair, Attribution] = {}
    for update in updates:
        pair = update.subscriber, update.lite_topic
        first.setdefault(pair, update.op)
        last[pair] = Attribution(update.op, update.cause, update.source, update.offset_option, update.reset)
    return {pair: found for pair, found in last.items() if found.op is first[pair]}


def in_reading_order(events: Iterable[Sourced]) -> list[Sourced]:
    """Sort events as a worker reads them: groups, requests, topics, time, each by offset."""
    ranks: dict[type[Any], int] = {GroupEvent: 0, SubscriptionRequest: 1, TopicEvent: 2}
    return sorted(events, key=lambda each: (ranks.get(type(each[1]), 3), each[0]))


def together(
    state: ShardState, events: Sequence[Sourced], shard: Shard, tuning: Tuning = DEFAULT_TUNING
) -> dict[Pair, Attribution]:
    """Read the events as one micro-batch, and return the attributions."""
    return net(expanded(state, events, shard, tuning).updates)


def one_by_one(
    state: ShardState, events: Sequence[Sourced], shard: Shard, tuning: Tuning = DEFAULT_TUNING
) -> dict[Pair, Attribution]:
    """Read each event as a separate micro-batch, and return the combined attributions."""
    made = decode(encode(state), inner_multi=shard.inner_multi)
    updates: list[Update] = []
    for event in events:
        found = expanded(made, [event], shard, tuning)
        updates += found.updates
        made.apply(found.delta)
    return net(updates)


def differences(
    state: ShardState, events: Iterable[Sourced], shard: Shard, tuning: Tuning = DEFAULT_TUNING
) -> dict[Pair, tuple[Attribution | None, Attribution | None]]:
    """Return the pairs whose attribution differs from the definition, each with both.

    Deliberate exceptions, omitted if the pair itself changes in the same way:

    - An event of a topic is the cause of all changes of the topic in its micro-batch. A client that unsubscribes from
      a topic that the same micro-batch deletes loses it by the deletion.
    - Quotas are applied after all other rules. In a group whose quota is below the number of topics, an update has the
      last event that made a difference by all other rules, or the cause of the quota with the first event that made
      a difference to the client's topics.
    """
    ordered = in_reading_order(events)
    found, wanted = together(state, ordered, shard, tuning), one_by_one(state, ordered, shard, tuning)
    named = {event.lite_topic for _, event in ordered if isinstance(event, TopicEvent)}
    wrong: dict[Pair, tuple[Attribution | None, Attribution | None]] = {}
    for pair in {**found, **wanted}:
        ours, theirs = found.get(pair), wanted.get(pair)
        if ours == theirs:
            continue
        if ours is not None and theirs is not None and ours.op is theirs.op:
            by_topic = pair[1] in named or Cause.TOPIC_EXPIRED in (ours.cause, theirs.cause)
            if by_topic or _is_limited(state, ordered, pair[0].group):
                continue
        wrong[pair] = ours, theirs
    return wrong


def _is_limited(state: ShardState, events: Iterable[Sourced], group: str) -> bool:
    """Return True if a quota of the group is below the number of topics, before or after any event."""
    attributes = [event.attributes for _, event in events if isinstance(event, GroupEvent) and event.group == group]
    quotas = [state.group(group).quota, *(int(each.get(QUOTA, DEFAULT_QUOTA)) for each in attributes)]
    return any(0 <= quota < len(state.topics) for quota in quotas)
