"""Attribution of updates: the event that a micro-batch names, compared with single events.

The definition: read each event of a micro-batch in a separate micro-batch, in the order in which a micro-batch reads
them. If a pair of subscriber and topic exists only before or only after all of them, its update has the cause, source,
offset option and reset of the last event that changed the pair.
"""

import os
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

import pytest

from streaming.records.columns import Event
from streaming.records.model import (
    DEFAULT_QUOTA,
    QUOTA,
    RESET_EXCLUSIVE,
    RESET_UNSUBSCRIBE,
    WILDCARD,
    GroupEvent,
    Source,
    SubscriptionRequest,
    TopicEvent,
)
from streaming.records.subscribers import SubscriberKey
from streaming.records.updates import Cause, Op, Update
from streaming.state import Shard, ShardState
from streaming.tuning import Tuning
from tests.support.events import (
    DELETED,
    MQTT,
    NATS,
    add,
    attributes,
    created,
    deleted,
    drop,
    leave,
    parsed,
    replace,
    told,
    wake,
)
from tests.support.events import Event as InputEvent
from tests.support.states import decode, encode
from tests.support.story import expanded

HISTORIES = int(os.environ.get("REEXPAND_ATTRIBUTION_HISTORIES", "240"))
"""Random histories of each profile."""

TOPICS = ["a", "b", "a__b", "a__a"]
ENTRIES = ["*", "**", "a", "b", "a__*", "*__b", "a__b", "a*"]
PROFILES: dict[str, dict[str, bool]] = {
    "plain": {},
    "exclusive": {"exclusive": True},
    "selectors": {"selectors": True},
    "exclusive and selectors": {"exclusive": True, "selectors": True},
    "notations": {"notations": True, "exclusive": True},
    "quotas": {"quotas": True, "exclusive": True},
    "capped quotas": {"quotas": True, "capped": True, "selectors": True},
    "topics": {"topics": True, "exclusive": True},
}


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


def together(state: ShardState, events: Sequence[Sourced], shard: Shard) -> dict[Pair, Attribution]:
    """Read the events as one micro-batch, and return the attributions."""
    return net(expanded(state, events, shard).updates)


def one_by_one(state: ShardState, events: Sequence[Sourced], shard: Shard) -> dict[Pair, Attribution]:
    """Read each event as a separate micro-batch, and return the combined attributions."""
    made = decode(encode(state), inner_multi=shard.inner_multi)
    updates: list[Update] = []
    for event in events:
        found = expanded(made, [event], shard)
        updates += found.updates
        made.apply(found.delta)
    return net(updates)


def differences(
    state: ShardState, events: Iterable[Sourced], shard: Shard
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
    found, wanted = together(state, ordered, shard), one_by_one(state, ordered, shard)
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


class Writer:
    """Random events of one group on one parent."""

    def __init__(self, random: Random, **profile: bool) -> None:
        self._random = random
        self._profile = profile
        self._offset = 0
        self._asked: dict[str, list[tuple[int, InputEvent]]] = {}

    def events(self, count: int) -> list[Sourced]:
        return [self._sourced(self._event()) for _ in range(count)]

    def topics(self) -> list[Sourced]:
        return [self._sourced(self._created(topic)) for topic in TOPICS]

    def _sourced(self, event: InputEvent) -> Sourced:
        self._offset += 1
        if "action" in event and "asOf" not in event:
            self._asked.setdefault(event["clientId"], []).append((self._offset, event))
        return Source("s", 0, self._offset, 0, 1_000 + self._offset), parsed(event)

    def _event(self) -> InputEvent:
        kind = self._random.random()
        if kind < 0.2:
            return self._group()
        if kind < 0.3:
            return self._end()
        if kind < 0.45 and self._profile.get("topics"):
            topic = self._random.choice(TOPICS)
            return self._random.choice([wake(1_000 + self._offset), deleted(topic), *[self._created(topic)] * 2])
        return self._request()

    def _group(self) -> InputEvent:
        if self._random.random() < 0.1:
            return DELETED
        flags = [WILDCARD] * (self._random.random() < 0.7)
        model = "Exclusive" if self._profile.get("exclusive") and self._random.random() < 0.6 else ...
        quota = self._random.choice([1, 2, 3, -1]) if self._profile.get("quotas") else ...
        resets = self._random.choice([[], [RESET_EXCLUSIVE], [RESET_UNSUBSCRIBE]])
        return attributes(*flags, *resets, model=model, quota=quota)

    def _end(self) -> InputEvent:
        client = self._random.choice("cd")
        asked = self._asked.get(client, [])
        place = self._random.choice([0, *(offset for offset, _ in asked), self._offset])
        end = told(place, *((offset, each) for offset, each in asked if offset > place), client=client)
        return {**end, "expired": self._random.random() < 0.5}

    def _created(self, topic: str) -> InputEvent:
        ttl = self._random.choice([None, None, 5]) if self._profile.get("topics") else None
        return created(topic, tags=self._random.choice("xy"), ttlMs=ttl)

    def _request(self) -> InputEvent:
        fields: dict[str, Any] = {"client": self._random.choice("ccd")}
        if self._random.random() < 0.4:
            fields["offsetOption"] = {"type": "TAIL_N", "value": self._offset}
        if self._random.random() < 0.2:
            fields["version"] = self._random.randint(1, 3)
        if self._profile.get("selectors") and self._random.random() < 0.4:
            fields["tag"] = self._random.choice(["x", "y", "*", "z"])
        if self._profile.get("notations") and self._random.random() < 0.4:
            notation = self._random.choice([MQTT, NATS._replace(per_subscription=True)])
            fields["notation"] = notation
        entries = self._random.sample(ENTRIES, self._random.choice([0, 1, 1, 1, 2, 3]))
        make = self._random.choice([replace, add, add, add, drop, drop, leave])
        return make(**fields) if make is leave else make(*entries, **fields)


@pytest.mark.rule("cause")
@pytest.mark.parametrize("name", PROFILES)
def test_each_update_names_the_event_that_decided(name: str) -> None:
    """The exceptions are those of `differences`."""
    profile = PROFILES[name]
    compared = 0
    for seed in range(HISTORIES):
        random = Random(f"{name} {seed}")
        writer, shard = Writer(random, **profile), Shard("p", cap_requests=bool(profile.get("capped")))
        state = ShardState()
        state.apply(expanded(state, [*writer.events(0), *writer.topics()], shard).delta)
        for _ in range(6):
            events = in_reading_order(writer.events(random.randint(1, 5)))
            assert differences(state, events, shard) == {}, (seed, events)
            found = expanded(state, events, shard)
            compared += len(found.updates)
            state.apply(found.delta)
    assert compared > HISTORIES


def test_a_backfill_names_the_event_as_if_it_were_carried_out_at_once() -> None:
    tuning, compared = Tuning(backfill_topics=1), 0
    for seed in range(HISTORIES):
        random = Random(f"backfill {seed}")
        writer, shard, state = Writer(random, exclusive=True, selectors=True), Shard("p"), ShardState()
        state.apply(expanded(state, writer.topics(), shard).delta)
        for _ in range(8):
            events = in_reading_order(writer.events(1))
            wanted, updates = together(state, events, shard), []
            while events or state.backfills:
                found = expanded(state, events, shard, tuning)
                state.apply(found.delta)
                updates += found.updates
                events = []
            assert net(updates) == wanted, (seed, events)
            compared += len(updates)
    assert compared > HISTORIES
