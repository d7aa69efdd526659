"""The events of one micro-batch applied to a shard: they end in a delta, and in the clients and topics it concerns."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from streaming.expansion.admission import WITHIN_QUOTA, admission
from streaming.expansion.ends import EndStep, former_release_step, is_superseded, parts_due
from streaming.expansion.group_log import GroupLog, counted_modes
from streaming.expansion.topics import TopicChanges
from streaming.expansion.view import GroupMoment, Overlay, ShardView
from streaming.records.columns import Event, TopicEventColumns
from streaming.records.model import Action, GroupEvent, Place, Reason, Source, SubscriptionRequest, TopicEvent, entry_of
from streaming.records.subscribers import ClientKey
from streaming.records.updates import Cause, Problem
from streaming.state import Group, GroupSelectors, Shard, ShardDelta, ShardState
from streaming.state.client import (
    ABSENT,
    Client,
    Ignored,
    Interest,
    LastRequest,
    Mode,
    RequestOutcome,
    Subscription,
    advance,
)
from streaming.state.group import NO_SELECTORS, Selection
from streaming.state.notes import MAX_NOTES, ClientNotes
from streaming.state.policy import GroupPolicy
from streaming.tuning import Tuning

_SHOWN_ENTRIES = 5
"""Number of invalid entries that a dead letter quotes."""


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
        view: the shard after the events.
        changed: clients whose interest, or whose group's policy, differs.
        policies: restrictive policies after the events.
        delta: changes to apply; quotas and backfills complete it.
        problems: entries for dead letters; quotas complete it.
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
    """Apply the events of a micro-batch, in the order of `expand`, to a view."""
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
        overlay.clients.update(
            (key, client.settled) for key, client in overlay.clients.items()
        )  # as a state keeps them
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
        repeated={at: each for at, each in overlay.repeated.items() if each is not None or at in view.state.repeated},
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


def _last_requests(
    state: ShardState, overlay: Overlay, clients: dict[ClientKey, Client | None]
) -> dict[ClientKey, LastRequest | None]:
    stored: dict[ClientKey, LastRequest | None] = {
        key: last
        for key, last in overlay.last_requests.items()
        if (clients[key] if key in clients else state.clients.get(key)) is not None
    }
    for key, client in clients.items():
        if key not in stored:
            stored[key] = None if client is None else state.last_requests.get(key)
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
            yield key, InterestChange(before, after, last.source, last.cause_add, last.cause_remove, last.option)
        else:
            source, cause = view.policy_change(key.group)
            yield key, InterestChange(before, after, source, cause, cause)


def read_group_event(
    view: ShardView, overlay: Overlay, ignored: Counter[Ignored], source: Source, event: GroupEvent
) -> None:
    """Apply new attributes of a group, or its binding to another parent."""
    current, cause = view.groups.get(event.group), event.superseded_by
    reason: Ignored | None = None
    if cause is not None:
        # The cause is the event that bound the group elsewhere, not this echo of it.
        source = source.at(cause)
        newer = current is not None and current.partition == cause.partition and current.offset >= cause.offset
        gone = current is None and event.bound_to is None
        reason = Ignored.GROUP_SUPERSEDED if newer or gone else None
    elif not event.attributes and (current is None or current.bound_to is not None):
        reason = Ignored.GROUP_UNKNOWN  # here
    if reason is not None:
        if view.shard.is_first:
            ignored[reason] += 1
        return
    # Equal attributes are stored as well, because their place decides which events they supersede.
    known = event.attributes or event.bound_to is not None
    group = Group(dict(event.attributes), source.partition, source.offset, event.bound_to) if known else None
    former = view.policy(event.group)
    overlay.groups[event.group] = group
    overlay.group_events[event.group] = source
    policy = view.policy(event.group)
    if policy.terms != former.terms:
        overlay.steps += 1
        overlay.records += 1
        overlay.add_policy(GroupMoment(source, None, group=view.group(event.group)), event.group, policy)


class RequestReader:
    """Reads subscription requests in both modes, because the attributes that decide the mode may come later."""

    def __init__(self, view: ShardView, overlay: Overlay, problems: list[Problem], ignored: Counter[Ignored]) -> None:
        self._view = view
        self._overlay = overlay
        self._problems = problems
        self._ignored = ignored
        self.latest_order = view.state.latest_order
        self._read: dict[ClientKey, tuple[Client, Client]] = {}
        self._logs: dict[str, GroupLog] = {}
        self._rules = view.shard.rules_by_mode()
        self._has_quotas = len(view.state.topics) > view.lowest_share

    def read(self, source: Source, request: SubscriptionRequest) -> None:
        """Apply a request, or the end of a client as of an earlier place."""
        key = ClientKey(request.group, request.client_id)
        self._overlay.records += 1
        if request.as_of is not None:
            self._end(key, source, request, request.as_of)
            return
        self.latest_order += 1
        self._overlay.steps += 1
        former, place = self._former(key), source.place
        before = dict(zip(Mode, former, strict=True))
        mode = self._view.mode(key.group)
        outcomes = {
            each: advance(before[each], request, rules, self.latest_order, place) for each, rules in self._rules.items()
        }
        judged = WITHIN_QUOTA
        if self._has_quotas:
            judged = admission(self._view, key, request, outcomes[mode], before[mode])
        if self._has_quotas or self._view.state.repeated or key.group in self._logs:  # else no log has requests
            self._log(key.group).add(place, request, former, outcomes, order=self.latest_order, admitted=judged)
        beyond = judged.excess
        is_refused = beyond is not None and self._view.shard.refuses_requests
        if beyond is not None:
            reason = Reason.QUOTA_EXCEEDED if is_refused else Reason.QUOTA_CAPPED
            self._problems.append(Problem(source, reason, beyond))
        if is_refused:
            outcomes = {each: RequestOutcome(subscription, refused=True) for each, subscription in before.items()}
        elif self._view.shard.is_first:  # every shard of the parent sees the request
            self._report(source, outcomes[mode], before[mode])
        self._remember(key, request.action, place, outcomes, former)
        literal, wildcard = outcomes[Mode.LITERAL].subscription, outcomes[Mode.WILDCARD].subscription
        self._select(source, request, outcomes)
        self._store(source, mode, request, former, Client.of(literal, wildcard))

    def _former(self, key: ClientKey) -> Client:
        """Return a client before a request, prepared for further ones if it is not its first."""
        client = stored = self._view.client(key)
        known = self._read.get(key)
        if known is not None and known[0] is stored:
            client = stored.editable if known[1] is stored else known[1]
        self._read[key] = stored, client
        return client

    def _log(self, group: str) -> GroupLog:
        if group not in self._logs:
            self._logs[group] = GroupLog(self._view, self._overlay, group)
        return self._logs[group]

    def _end(self, key: ClientKey, source: Source, request: SubscriptionRequest, as_of: Place) -> None:
        """Apply the end that the coordinator decided: of the client's requests up to a place."""
        mode = self._view.mode(key.group)
        former = self._view.client(key).subscription(mode)
        for step in self._end_steps(key, request, as_of):
            at = source if step.request.expired else source.at(step.place)
            self._overlay.steps += 1
            self._store(at, mode, step.request, self._view.client(step.key), step.client)
            selectors = self._view.group_selectors(key.group)
            self._reselect(step.key, selectors, step.reselected(selectors), at)
            if step.excess is not None:  # a dead letter, or one that is taken back
                entry = entry_of(step.request)
                self._problems.append(Problem(source.at(step.place), Reason.QUOTA_EXCEEDED, step.excess, entry))
        later = self._view.client(key).subscription(mode)
        if self._view.shard.is_first and (later is former or later.content == former.content):
            ignored = Ignored.ASKED_AGAIN if former.live else Ignored.NO_SUBSCRIPTION
            self._ignored[Ignored.STALE_VERSION if former.outdates(request.version) else ignored] += 1

    def _end_steps(self, key: ClientKey, request: SubscriptionRequest, as_of: Place) -> Sequence[EndStep]:
        view = self._view
        if request.ends is None and not request.continues:
            return () if is_superseded(view, key, request) else (former_release_step(view, key, request, as_of),)
        due = parts_due(view, self._overlay, key, request, as_of)
        if not due:
            return ()
        log = self._log(key.group)
        steps = log.end(key, due)
        # After a change of the number of shards, this shard has not counted the repeated requests.
        self.latest_order = max(self.latest_order, int(log.latest_order))
        return steps

    def _report(self, source: Source, outcome: RequestOutcome, former: Subscription) -> None:
        if outcome.invalid:
            quoted = "; ".join(outcome.invalid[:_SHOWN_ENTRIES])
            more = len(outcome.invalid) - _SHOWN_ENTRIES
            effect = "the request is refused, since no entry is valid" if outcome.refused else "left out"
            message = f"{effect}: {quoted}" + (f"; and {more} more" if more > 0 else "")
            self._problems.append(Problem(source, Reason.INVALID_PATTERN, message))
        if outcome.ignored is not None:
            self._ignored[outcome.ignored] += 1
        elif former == outcome.subscription and not outcome.refused:
            self._ignored[Ignored.UNCHANGED] += 1

    def _remember(
        self, key: ClientKey, action: Action, place: Place, outcomes: dict[Mode, RequestOutcome], former: Client
    ) -> None:
        last, position = self._view.last_request(key), place.position

        def began(mode: Mode, subscription: Subscription) -> tuple[int, float]:
            begins = action is Action.COMPLETE_ADD or (action is Action.PARTIAL_ADD and not subscription.live)
            if begins and outcomes[mode].applied:
                return position, self.latest_order
            return last.began(mode) if last is not None and last.partition == place.partition else (-1, 0)

        (literal, literal_order), (wildcard, wildcard_order) = map(began, Mode, former)
        self._overlay.last_requests[key] = LastRequest(
            place.partition, position, literal, wildcard, literal_order, wildcard_order
        )

    def _select(self, source: Source, request: SubscriptionRequest, outcomes: dict[Mode, RequestOutcome]) -> None:
        if request.selector is None or request.action is Action.COMPLETE_REMOVE:
            return
        former = self._view.group_selectors(request.group)
        modes = counted_modes(outcomes)
        if not modes:
            return
        selection = Selection(source.partition, source.place.position, request.selector, modes)
        can_be_stale = request.version is not None or bool(self._log(request.group))
        selectors = former.after(selection, can_be_stale=can_be_stale)
        self._reselect(ClientKey(request.group, request.client_id), former, selectors, source)
        replaced = former != NO_SELECTORS and former.in_force != selectors.in_force
        if replaced and self._view.shard.is_first:
            self._ignored[Ignored.SELECTOR_REPLACED] += 1

    def _reselect(self, key: ClientKey, former: GroupSelectors, selectors: GroupSelectors, source: Source) -> None:
        if selectors == former:
            return
        group, policy = key.group, self._view.policy(key.group)
        self._overlay.selectors[group] = selectors
        if former.is_settled and selectors.is_settled and selectors.in_force == former.in_force:
            return  # a repeated selector decides nothing now
        if selectors.in_force != former.in_force or group not in self._overlay.selector_requests:
            self._overlay.selector_requests[group] = source
        renewed = self._view.policy(group)
        if renewed.terms != policy.terms:
            self._overlay.add_policy(GroupMoment(source, key), group, renewed)

    def _store(self, source: Source, mode: Mode, request: SubscriptionRequest, former: Client, client: Client) -> None:
        """Store a client after a request under the mode of its group."""
        if client == former:
            return
        key = ClientKey(request.group, request.client_id)
        self._overlay.clients[key] = client
        self._overlay.members.setdefault(key.group, {})[key] = None
        if client[mode is Mode.WILDCARD] != former[mode is Mode.WILDCARD]:
            cause = Cause.LEASE_EXPIRED if request.expired else Cause.UNSUBSCRIBED
            numbers = self._overlay.steps, self._overlay.records
            moment = GroupMoment(source, key, Cause.SUBSCRIBED, cause, request.offset_option, None, *numbers, client)
            self._overlay.requests.setdefault(key, []).append(moment)
