"""The shard as of this micro-batch: the stored state under the changes of the events read so far."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isinf
from typing import Any, NamedTuple

from streaming.records.model import Source
from streaming.records.subscribers import ClientKey
from streaming.records.updates import Cause, Op
from streaming.state import Group, GroupSelectors, Shard, ShardState
from streaming.state.blocks import Block, Blocks, Changes, EntryKey
from streaming.state.client import NOTHING, Client, Interest, LastRequest
from streaming.state.group import Layered, Roster
from streaming.state.notes import NO_NOTES, ClientNotes, Repeated
from streaming.state.policy import GroupPolicy, accepts, has_bitmap, is_restrictive

_KEPT = 2
"""Kept interests of a client: before and after a request, since either may count in the end."""

MOST_POLICY_STEPS = 16
"""Maximum number of group events, and of requests with another selector, that are distinguished for one group.

Each event is another selector to evaluate on each topic, or another meaning of all entries. Changes by earlier events
are attributed to the first of these.
"""


class Attribution(NamedTuple):
    """The event behind an update; `group` None stands for the attributes after the micro-batch."""

    source: Source
    cause: Cause
    option: Any = None
    group: Group | None = None


class GroupMoment(NamedTuple):
    """An event that changed a client, or the policy of its group in more than its quota.

    Attributes:
        key: client of a request, or of the end of a client; None for a group event.
        cause_add, cause_remove: of updates of that client, or of the group.
        option: offset option of a request.
        group: attributes after a group event.
        number: of the moment among all moments of the micro-batch.
        record: number of the event; the end of a client has several moments.
        client: subscriptions after it, if they changed under the mode of the group.
        policy: after it, if it changed.
    """

    source: Source
    key: ClientKey | None
    cause_add: Cause = Cause.GROUP_CHANGED
    cause_remove: Cause = Cause.GROUP_CHANGED
    option: Any = None
    group: Group | None = None
    number: int = 0
    record: int = 0
    client: Client | None = None
    policy: GroupPolicy | None = None

    def decision(self, op: Op, *, own: bool, asked_before: bool, asked_after: bool, received: bool) -> Attribution:
        """Return the attribution of an update to this event.

        Args:
            op: of the update.
            own: it follows from a change of the subscriber itself.
            asked_before: the subscriber had a matching entry before the event.
            asked_after: it has one after the event.
            received: clients of the group receive the topic after the event (REMOVE), or did before it (ADD).
        """
        policy = Cause.GROUP_CHANGED if self.key is None else Cause.SELECTOR_CHANGED
        if op is Op.REMOVE:
            refused = Cause.EVICTED if received else policy
            return Attribution(self.source, refused if asked_after else self.cause_remove, None, self.group)
        if asked_before and not received:
            return Attribution(self.source, policy)
        if own:
            return Attribution(self.source, self.cause_add, self.option)
        return Attribution(self.source, Cause.RELEASED)


@dataclass(slots=True)
class Overlay:
    """Changes of groups and clients by the events read so far.

    Attributes:
        groups: new attributes; None for a deleted group.
        selector_requests: the requests that set the selectors in force.
        requests: the changes of each client, oldest first.
        policies: the changes of each group's policy, oldest first.
        repeated: parts of ends to keep until they are applied; None for one that was.
    """

    groups: dict[str, Group | None] = field(default_factory=dict)
    selectors: dict[str, GroupSelectors] = field(default_factory=dict)
    group_events: dict[str, Source] = field(default_factory=dict)
    selector_requests: dict[str, Source] = field(default_factory=dict)
    clients: dict[ClientKey, Client] = field(default_factory=dict)
    members: dict[str, dict[ClientKey, None]] = field(default_factory=dict)
    last_requests: dict[ClientKey, LastRequest] = field(default_factory=dict)
    requests: dict[ClientKey, list[GroupMoment]] = field(default_factory=dict)
    policies: dict[str, list[GroupMoment]] = field(default_factory=dict)
    notes: dict[ClientKey, ClientNotes] = field(default_factory=dict)
    repeated: dict[tuple[ClientKey, int], Repeated | None] = field(default_factory=dict)
    steps: int = 0
    records: int = 0

    def add_policy(self, moment: GroupMoment, group: str, policy: GroupPolicy) -> None:
        """Note another policy of a group."""
        moment = moment._replace(number=self.steps, record=self.records, policy=policy)
        self.policies.setdefault(group, []).append(moment)


class TopicCounts:
    """Counts of topics by client. A count is derived from the count at a former request if possible."""

    def __init__(self, state: ShardState) -> None:
        self._state = state
        self._known: dict[ClientKey, list[_Counted]] = defaultdict(list)
        self._asked: set[ClientKey] = set()

    def count(self, key: ClientKey, wanted: Interest, policy: GroupPolicy) -> int:
        """Return the number of stored topics that match an interest and that the selector accepts."""
        if key not in self._asked:  # nearly always the only request of its client
            self._asked.add(key)
            topics, selector = self._state.topics_of(wanted), policy.selector
            if selector is None:
                return len(topics)
            return sum(accepts(selector, self._state.topics[topic]) for topic in topics)
        known = self._known[key]
        found = next((each for each in known if each.leads_to(wanted, policy)), None)
        if found is None:
            found = _Counted(self._state, wanted, policy)
        else:
            known.remove(found)
        known[:] = [found, *known[: _KEPT - 1]]
        return len(found.topics)


class _Counted:
    """Topics that match an interest, each with the number of its matching entries."""

    def __init__(self, state: ShardState, wanted: Interest, policy: GroupPolicy) -> None:
        self._state = state
        self._patterns = wanted.patterns
        self._selector = policy.selector
        self._blocks: Sequence[Block] = wanted.blocks
        self.topics: Counter[str] = Counter()
        for block in wanted.blocks:
            for entry in block.entries:
                self._add((block.notation, entry), 1)

    def leads_to(self, wanted: Interest, policy: GroupPolicy) -> bool:
        """Follow the requests from the last interest to another, or one request back; False if there are none."""
        if wanted.patterns is not self._patterns or policy.selector != self._selector:
            return False
        if wanted.blocks is not self._blocks:
            back = self._blocks.changes_since(wanted.blocks) if isinstance(self._blocks, Blocks) else None
            ahead = wanted.blocks.path_from(self._blocks) if isinstance(wanted.blocks, Blocks) else None
            if back is None and ahead is None:
                return False
            self._follow({key: (new, old) for key, (old, new) in back.items()} if back is not None else {})
            for changes in ahead or ():
                self._follow(changes)
            self._blocks = wanted.blocks
        return True

    def _follow(self, changes: Changes) -> None:
        for key, (old, new) in changes.items():
            if (old is None) is not (new is None):
                self._add(key, 1 if old is None else -1)

    def _add(self, key: EntryKey, step: int) -> None:
        notation, entry = key
        for topic in self._state.topics_of(Interest(self._patterns, (Block(0, 0, 0, notation, (entry,)),))):
            if self._selector is None or accepts(self._selector, self._state.topics[topic]):
                self.topics[topic] += step
                if not self.topics[topic]:
                    del self.topics[topic]


class ShardView(Roster):
    """Read-only view of a shard as of this micro-batch."""

    def __init__(self, state: ShardState, shard: Shard, overlay: Overlay) -> None:
        self.groups = Layered(overlay.groups, state.groups)
        self.selectors = Layered(overlay.selectors, state.selectors)
        self.clients = Layered(overlay.clients, state.clients)
        self.settled, self.changed = state.settled, overlay.clients
        self.state = state
        self.shard = shard
        self._overlay = overlay

    @cached_property
    def counts(self) -> TopicCounts:
        """Topics that clients ask for."""
        return TopicCounts(self.state)

    def request_steps(self, key: ClientKey) -> Sequence[GroupMoment]:
        """Return the changes of a client, oldest first."""
        return self._overlay.requests.get(key, ())

    def policy_steps(self, group: str) -> Sequence[GroupMoment]:
        """Return the changes of a group's policy, oldest first; of very many only the last ones."""
        steps = self._overlay.policies.get(group, ())
        if len(steps) <= MOST_POLICY_STEPS:
            return steps
        by_event = [step for step in steps if step.key is None][-MOST_POLICY_STEPS:]
        by_request = [step for step in steps if step.key is not None][-MOST_POLICY_STEPS:]
        return [*by_event, *by_request]  # as they are read

    def policies(self, group: str) -> list[GroupPolicy]:
        """Return the policies of a group before the micro-batch, and after each of its changes."""
        return [
            self.state.policy(group),
            *(each.policy for each in self.policy_steps(group) if each.policy is not None),
        ]

    def restrictive_policies(self) -> Mapping[str, GroupPolicy]:
        """Return the policies of the groups in which a matching client may not receive a topic."""
        return self._changed(self.state.restrictive_policies, is_restrictive)

    def bitmap_policies(self) -> Mapping[str, GroupPolicy]:
        """Return the policies of the groups that take part in the bitmaps of topics."""
        return self._changed(self.state.bitmap_policies, has_bitmap)

    @cached_property
    def lowest_share(self) -> int:
        """Number of topics that no quota before or after the micro-batch is below, once all groups are read."""
        before = self.state.lowest_share(self.shard.share)
        if not (self._overlay.groups or self._overlay.selectors):
            return before
        shares = (self.shard.share(self.group(name).quota) for name, _ in self.regrouped())
        return min([before, *(share for share in shares if share is not None)])

    def _changed(
        self, stored: Mapping[str, GroupPolicy], is_wanted: Callable[[GroupPolicy], bool]
    ) -> Mapping[str, GroupPolicy]:
        names = {**self._overlay.groups, **self._overlay.selectors}
        if not names:
            return stored
        policies = dict(stored)
        for name in names:
            policy = self.policy(name)
            if is_wanted(policy):
                policies[name] = policy
            else:
                policies.pop(name, None)
        return policies

    def last_request(self, key: ClientKey) -> LastRequest | None:
        """Return the place of a client's last request."""
        return self._overlay.last_requests.get(key) or self.state.last_requests.get(key)

    def notes(self, key: ClientKey) -> ClientNotes:
        """Return the notes about a client."""
        return self._overlay.notes.get(key) or self.state.notes.get(key) or NO_NOTES

    def repeated(self, key: ClientKey, number: int) -> Repeated | None:
        """Return a part of a client's end that was read and not yet applied."""
        at = key, number
        return self._overlay.repeated[at] if at in self._overlay.repeated else self.state.repeated.get(at)

    def exceeds_quota(self, key: ClientKey) -> bool | None:
        """Return True if other rules allow a client more topics than its quota; None if they must be counted."""
        if key in self._overlay.clients or self.regroups(key.group) or self.reselects(key.group):
            return None
        if self.state.backfills_of(key.group):
            return None
        return None if self.policy(key.group).exclusive else isinf(self.state.held(key, self.shard.client_share))

    def clients_of(self, group: str) -> Iterator[ClientKey]:
        """Yield the clients of a group that are in session before or after the micro-batch."""
        stored = self.state.clients_of(group)
        yield from stored
        yield from (key for key in self._overlay.members.get(group, ()) if key not in stored)

    def is_present(self, group: str) -> bool:
        """Return True if a group has attributes here, or a client with an interest."""
        if self.groups.get(group) is not None:
            return True
        return any(self.interest(key) != NOTHING for key in self.clients_of(group))

    def quota_shares(self, key: ClientKey) -> tuple[int | None, int | None]:
        """Return the share of a client's quota before and after the micro-batch; None for no limit."""
        before = self.state.quota_share(key, self.shard.client_share)
        if key not in self._overlay.clients and not self.regroups(key.group):
            return before, before  # nearly always
        return before, self.shard.client_share(self.group(key.group), self.interest(key))

    def regroups(self, name: str) -> bool:
        """Return True if an event of the micro-batch set a group's attributes."""
        return name in self._overlay.groups

    def reselects(self, name: str) -> bool:
        """Return True if a request of the micro-batch changed a group's selector."""
        if name not in self._overlay.selectors:
            return False
        return self.group_selectors(name).in_force != self.state.group_selectors(name).in_force

    def regrouped(self) -> Iterator[tuple[str, Source]]:
        """Yield the groups with new attributes or selectors, each with the last event behind them."""
        events = self._overlay.group_events
        yield from events.items()
        yield from ((name, source) for name, source in self._overlay.selector_requests.items() if name not in events)

    def policy_changed(self, name: str, *ignored: str) -> bool:
        """Return True if a group's policy differs in another field than the quota and the `ignored` ones."""
        left_out: dict[str, Any] = dict.fromkeys(("quota", *ignored))
        return self.policy(name)._replace(**left_out) != self.state.policy(name)._replace(**left_out)

    def policy_change(self, name: str) -> tuple[Source, Cause]:
        """Return the event and the cause behind a group's other policy."""
        if self.regroups(name) and self.policy_changed(name, "selector"):
            return self._overlay.group_events[name], Cause.GROUP_CHANGED
        return self._overlay.selector_requests[name], Cause.SELECTOR_CHANGED
