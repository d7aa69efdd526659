"""The events of one micro-batch applied to a shard: they end in a delta, and in the clients and topics it concerns."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from streaming.expansion.readers import RequestReader, read_group_event
from streaming.expansion.topics import TopicChanges
from streaming.expansion.view import Overlay, ShardView
from streaming.records.columns import Event, TopicEventColumns
from streaming.records.model import GroupEvent, Source, SubscriptionRequest, TopicEvent
from streaming.records.subscribers import ClientKey
from streaming.records.updates import Cause, Problem
from streaming.state import Shard, ShardDelta, ShardState
from streaming.state.client import ABSENT, Client, Ignored, Interest, LastRequest
from streaming.state.notes import MAX_NOTES, ClientNotes, Repeated
from streaming.state.policy import GroupPolicy
from streaming.tuning import Tuning


class InterestChange(NamedTuple):
    """A client with another interest, or with another policy of its group, and the event behind it."""

    before: Interest
    after: Interest
    source: Source
    cause_add: Cause
    cause_remove: Cause
    offset_option: Any = None

    def differences(self, *, ordered: bool) -> tuple[Interest, Interest]:
        """Return the parts of both interests that can make a difference; `ordered` as in `Interest.without`."""
        if self.before.patterns != self.after.patterns:
            return self.before, self.after
        return self.after.without(self.before, ordered=ordered), self.before.without(self.after, ordered=ordered)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A shard before and after the events of one micro-batch.

    Attributes:
        state: the shard before the events.
        shard: place of the shard.
        view: the shard after the events.
        topics: changed topics.
        changed: clients whose interest, or whose group's policy, differs.
        policies: restrictive policies after the events.
        delta: changes to apply; quotas and backfills complete it.
        problems: entries for dead letters; quotas complete it.
        ignored: number of ignored entries by reason.
        tuning: sizes and thresholds.
    """

    state: ShardState
    shard: Shard
    view: ShardView
    topics: TopicChanges
    changed: dict[ClientKey, InterestChange]
    policies: Mapping[str, GroupPolicy]
    delta: ShardDelta
    problems: list[Problem]
    ignored: Counter[Ignored]
    tuning: Tuning


def apply_events(state: ShardState, events: Iterable[tuple[Source, Event]], shard: Shard, tuning: Tuning) -> MicroBatch:
    """Apply the events of a micro-batch to a view of a shard.

    Args:
        state: the shard before the events; not changed.
        events: groups first, then subscriptions, topics, and the time, in offset order.
        shard: its place.
        tuning: sizes and thresholds.
    """
    overlay = Overlay()
    view = ShardView(state, shard, overlay)
    problems: list[Problem] = []
    ignored: Counter[Ignored] = Counter()
    requests: RequestReader | None = None
    topics = TopicChanges(state, ignored, tuning.columnar_min_topics)
    wakes: list[tuple[Source, int]] = []
    for source, event in events:
        if isinstance(event, TopicEvent):
            topics.read(source, event)
        elif isinstance(event, TopicEventColumns):
            # All requests and group events are read: these are the policies after the micro-batch.
            topics.read_columns(event, in_bulk=_is_unrestricted(view))
        elif isinstance(event, SubscriptionRequest):
            requests = requests or RequestReader(view, overlay, problems, ignored)
            requests.read(source, event)
        elif isinstance(event, GroupEvent):
            read_group_event(view, overlay, ignored, source, event)
        else:
            wakes.append((source, event.time))
    now = topics.expire(wakes, in_bulk=_is_unrestricted(view)) if wakes else None
    if overlay.clients:
        overlay.settle()
    latest_order = state.latest_order if requests is None else requests.latest_order
    delta = _delta(view, overlay, topics, now, latest_order)
    changed: dict[ClientKey, InterestChange] = {}
    if overlay.clients or overlay.groups or overlay.selectors:
        changed.update(_interest_changes(view, overlay))
    policies = view.restrictive_policies()
    return MicroBatch(state, shard, view, topics, changed, policies, delta, problems, ignored, tuning)


def _is_unrestricted(view: ShardView) -> bool:
    """Return True if every matching client receives a topic, so topics can be evaluated by column."""
    return view.state.is_unrestricted and not view.restrictive_policies()


def _delta(view: ShardView, overlay: Overlay, topics: TopicChanges, now: int | None, latest_order: int) -> ShardDelta:
    removed, added = topics.outcome() if topics.single or topics.bulks else ({}, {})
    stored_alarms = view.state.alarms
    deadlines = sorted({metadata.deadline for metadata in added.values() if metadata.deadline is not None})
    alarms: dict[int, bool | None] = {time: True for time in deadlines if time not in stored_alarms}
    if now is not None:
        alarms.update(dict.fromkeys(view.state.alarms_due(now)))
    # A client without anything left to remember is deleted, with the place of its last request.
    clients: dict[ClientKey, Client | None] = {
        key: None if client.literal == client.wildcard == ABSENT else client for key, client in overlay.clients.items()
    }
    return ShardDelta(
        removed,
        added,
        overlay.groups,
        clients,
        _last_requests(view.state, overlay, clients),
        dict(overlay.selectors),
        alarms,
        latest_order=latest_order,
        notes=_notes(view.state, overlay),
        repeated=_repeated(view.state, overlay),
    )


def _notes(state: ShardState, overlay: Overlay) -> dict[ClientKey, ClientNotes | None]:
    """Return the new notes, and None for the oldest ones that go for them."""
    notes: dict[ClientKey, ClientNotes | None] = {
        key: each for key, each in overlay.notes.items() if each != state.notes.get(key)
    }
    surplus = len(state.notes) + sum(key not in state.notes for key in notes) - MAX_NOTES
    if surplus > 0:
        oldest = islice((key for key, each in state.notes.items() if key not in notes and each.is_complete), surplus)
        notes.update(dict.fromkeys(oldest))
    return notes


def _repeated(state: ShardState, overlay: Overlay) -> dict[tuple[ClientKey, int], Repeated | None]:
    return {at: part for at, part in overlay.repeated.items() if part is not None or at in state.repeated}


def _last_requests(
    state: ShardState, overlay: Overlay, clients: dict[ClientKey, Client | None]
) -> dict[ClientKey, LastRequest | None]:
    stored: dict[ClientKey, LastRequest | None] = {
        key: last
        for key, last in overlay.last_requests.items()
        if (clients[key] if key in clients else state.clients.get(key)) is not None
    }
    for key, client in clients.items():
        stored.setdefault(key, None if client is None else state.last_requests.get(key))
    return stored


def _interest_changes(view: ShardView, overlay: Overlay) -> Iterator[tuple[ClientKey, InterestChange]]:
    regrouped: dict[str, None] = {}
    if overlay.groups or overlay.selectors:
        regrouped.update(dict.fromkeys(name for name, _ in view.regrouped() if view.policy_changed(name)))
    keys = dict.fromkeys(overlay.clients)
    for group in regrouped:
        keys.update(dict.fromkeys(view.clients_of(group)))
    for key in keys:
        before, after = view.state.interest(key), view.interest(key)
        if before == after and key.group not in regrouped:
            continue
        requests = overlay.requests.get(key, ())
        if requests and before != after:
            last = requests[-1]
            cause = Cause.LEASE_EXPIRED if last.request.expired else Cause.UNSUBSCRIBED
            option = last.request.offset_option
            yield key, InterestChange(before, after, last.source, Cause.SUBSCRIBED, cause, option)
        else:
            source, cause = view.policy_change(key.group)
            yield key, InterestChange(before, after, source, cause, cause)
