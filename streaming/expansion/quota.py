"""Quotas: the number of topics that a client may hold.

RocketMQ counts (client, topic) references. A client that receives everything has none, because the broker keeps no list
for it. So no quota applies to it.

Of the topics that a client may hold by all other rules, it holds the first ones (`streaming.state.holdings`). So the
next topic takes up free room at once.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import filterfalse
from math import inf

from streaming.expansion.bulk import BulkUpdates
from streaming.expansion.compare import Announcer, Beyond, GroupComparison
from streaming.expansion.micro_batch import MicroBatch
from streaming.records.model import Reason, Source
from streaming.records.subscribers import ClientKey, Matches, SubscriberKey
from streaming.records.updates import Cause, Op, Problem, Update
from streaming.state.client import NOTHING
from streaming.state.counts import BEYOND
from streaming.state.frames import Accepted, Frame, GroupRows
from streaming.state.holdings import within
from streaming.state.interests import MQTT

_SHOWN_CLIENTS = 5
"""Number of clients that a dead letter names."""


def capped_updates(
    batch: MicroBatch,
    announcer: Announcer,
    updates: Iterable[Update],
    bulk: BulkUpdates,
    beyond: Beyond,
) -> Iterator[Update]:
    """Yield the updates that quotas permit, also of topics with free room again.

    Updates of clients without a quota go through one by one, since there may be any number. Updates of bulk changes
    stay where they are, except for clients that may not hold all of them. The change of clients in `beyond` on stored
    topics is not in `updates`; it is complete when these are read.
    """
    rows: dict[SubscriberKey, list[Update] | None] = {}
    for update in updates:
        subscriber = update.subscriber
        if subscriber not in rows:
            rows[subscriber] = None if batch.view.quota_shares(subscriber.client) == (None, None) else []
        own = rows[subscriber]
        if own is None:
            yield update
        else:
            own.append(update)
    cap = _Cap(batch, announcer, bulk)
    for key, own in _by_client(batch, rows, bulk).items():
        yield from cap.updates(key, own, beyond.pop(key, None))  # a comparison keeps an index
    cap.report()


def _by_client(
    batch: MicroBatch, rows: Mapping[SubscriberKey, list[Update] | None], bulk: BulkUpdates
) -> dict[ClientKey, list[Update]]:
    """Return the updates of each client, and empty lists for other clients whose topics may differ."""
    found: dict[ClientKey, list[Update]] = {}
    for subscriber, own in rows.items():
        key = subscriber.client
        if own is not None:
            found[key] = [*found[key], *own] if key in found else own
    matching = (batch.state.interests.match(topic) for topic in batch.topics.recreated())
    others = [subscriber.client for matches in matching for subscriber in matches]
    others += [*batch.changed, *bulk.growth]
    for group, _ in batch.view.regrouped():
        if batch.view.group(group).quota != batch.state.group(group).quota:
            others += batch.view.clients_of(group)
    for key in others:
        found.setdefault(key, [])
    return found


class _Cap:
    """The quotas of all clients in one micro-batch."""

    def __init__(self, batch: MicroBatch, announcer: Announcer, bulk: BulkUpdates) -> None:
        self._batch = batch
        self._announcer = announcer
        self._bulk = bulk
        self._recreated = batch.topics.recreated()
        self._refused: dict[Source, list[ClientKey]] = defaultdict(list)
        self._later: dict[str, _Later] = {}

    def updates(self, key: ClientKey, own: list[Update], comparison: GroupComparison | None) -> list[Update]:
        """Return the updates of one client, without updates of bulk changes if it may hold all of them.

        With a comparison, `own` lacks its change on stored topics. New topics that its quota keeps from it are noted
        for `report`.
        """
        batch, state, delta = self._batch, self._batch.state, self._batch.delta
        before, after = batch.view.quota_shares(key)
        if before is None and after is None:
            return own
        if comparison is None and self._is_counted(key, own, before):  # its topics can be counted by its updates
            # A count is kept up to date only while there is a quota; without one, the client had no topic here.
            held = 0 if before is None else state.held(key, batch.shard.client_share)
            adds = [update for update in own if update.op is Op.ADD]
            now = held + 2 * len(adds) - len(own) + self._bulk.growth[key]
            if (before is None or held <= before) and (after is None or now <= after):
                delta.held[key] = int(now)
                return own
            spelled = self._bulk.spell_out(key)
            adds += [update for update in spelled if update.op is Op.ADD]
            own = [*own, *spelled]
            gained = {update.lite_topic: update for update in adds}
            stays = before == after and key not in batch.changed and not self._recreated
            # Gained topics come last in order of creation.
            if before is not None and stays and len(gained) == len(own) and gained.keys() <= delta.added.keys():
                ordered = [gained[topic] for topic in sorted(gained, key=self._places.__getitem__)]
                delta.held[key] = _count(now, after)
                room = 0 if held > before else before - int(held)
                for update in ordered[room:]:
                    self._refused[update.source].append(key)
                return ordered[:room]
        if comparison is not None and key.group not in self._later:
            self._later[key.group] = _Later(batch, key.group)
        left = None if comparison is None else (comparison, self._later[key.group])
        recount = _Recount(batch, self._announcer, key, [*own, *self._bulk.spell_out(key)], left)
        delta.held[key] = _count(recount.count, after)
        for topic in delta.added:
            if recount.refuses(topic):
                self._refused[batch.topics.source(topic)].append(key)
        return recount.updates()

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self._batch.delta.added)}

    def report(self) -> None:
        """Add a problem for each new topic that clients at their quota do not receive."""
        for source, clients in self._refused.items():
            keys = sorted(clients)  # a repeated micro-batch repeats the message
            names = ", ".join(repr(f"{key.group}/{key.client_id}") for key in keys[:_SHOWN_CLIENTS])
            more = f" and {len(keys) - _SHOWN_CLIENTS} more" if len(keys) > _SHOWN_CLIENTS else ""
            message = f"clients at their quota do not receive it: {names}{more}; it is picked up when room frees"
            self._batch.problems.append(Problem(source, Reason.QUOTA_EXCEEDED, message))

    def _is_counted(self, key: ClientKey, own: list[Update], before: int | None) -> bool:
        """Return True if each update of a client is one topic that it gains or loses."""
        state, view = self._batch.state, self._batch.view
        if before is None and (state.interest(key) != NOTHING or state.backfills_of(key.group)):
            return False  # its topics were never counted
        if key in self._batch.changed or self._recreated:
            blocks = (*state.interest(key).blocks, *view.interest(key).blocks)
            notations = [block.notation for block in blocks]
            return not any(notation.per_subscription or notation.dialect == MQTT for notation in notations)
        return len({update.lite_topic for update in own}) == len(own)


def _count(topics: float, share: int | None) -> int:
    """Return a number of topics as a state keeps it, the same whether or not it was counted beyond the quota."""
    return BEYOND if share is not None and topics > share else int(topics)


class _Later:
    """Rows of the clients of a group after the micro-batch."""

    def __init__(self, batch: MicroBatch, group: str) -> None:
        self._batch = batch
        self._group = group
        self._policy = batch.view.policy(group)
        topics = batch.state.topics
        self._topics: Iterable[str] = Accepted(topics, self._policy) if self._policy.selector is not None else topics
        self._everyone = self._frame(list(batch.view.clients_of(group))) if self._policy.exclusive else None
        self._new: dict[str, Matches] = {}

    def of(self, key: ClientKey, most: int | None) -> tuple[dict[str, Matches], dict[str, Matches]]:
        """Return the rows of a client on the first stored topics that have some, at most `most`, and on new topics."""
        batch, (frame, rows) = self._batch, self._everyone or self._frame([key])
        first = rows.first(
            key,
            filterfalse(batch.delta.removed.__contains__, self._topics),
            lambda topic: frame.subscribers(topic, batch.state.topics[topic]),
            lambda: batch.state.topics_of(batch.view.interest(key)),
            most,
        )
        new = self._new or {topic: frame.subscribers(topic, each) for topic, each in batch.delta.added.items()}
        if self._everyone is not None:
            self._new = new
        return first, {topic: own for topic, matches in new.items() if (own := rows.of(key, matches))}

    def _frame(self, keys: Collection[ClientKey]) -> tuple[Frame, GroupRows]:
        state, interests = self._batch.state, {key: self._batch.view.interest(key) for key in keys}
        return Frame(self._group, interests, self._policy, state.new_interests), GroupRows(keys, len(state.topics))


class _Recount:
    """One client whose topics must be counted one by one, as far as its quota reaches.

    `before` and `after` have its first rows by topic by all rules but the quota, in order of creation; `after` also
    those of all new topics. The count is infinity if there are more topics than its quota. `left` yields its other
    updates, on stored topics, and its rows after them.
    """

    def __init__(
        self,
        batch: MicroBatch,
        announcer: Announcer,
        key: ClientKey,
        own: list[Update],
        left: tuple[GroupComparison, _Later] | None,
    ) -> None:
        (before, after), recreated = batch.view.quota_shares(key), batch.topics.recreated()
        self._batch = batch
        self._announcer = announcer
        self._key = key
        self._wanted = batch.state.new_interests()
        self._wanted.add(key, batch.view.interest(key))
        if left is None:
            moved = len(recreated) + sum(update.op is Op.REMOVE for update in own)
            most = None if before is None or after is None else max(before, after) + moved + 1
            self.before = batch.state.rows(key, most, recreated)
            self.after = self._changed(own)
            is_cut = most is not None and len(self.before) >= most
        else:
            most = None if after is None else after + 1
            comparison, later = left
            first, new = later.of(key, most)
            self.before = batch.state.rows(key, before, recreated)
            self.after = {**first, **new}
            is_cut = len(first) == most
        self.count = inf if is_cut else len(self.after)
        self._held, self._holds = within(self.before, before), within(self.after, after)
        if left is not None:
            both = (topic for topic in {**self._held, **self._holds} if topic in batch.state.topics)
            own = [*own, *comparison.of(key, filter(self._stays, both))]
        self._own = {(update.op, update.subscriber, update.lite_topic): update for update in own}

    def _changed(self, own: list[Update]) -> dict[str, Matches]:
        """Return the rows that updates make of the rows before the micro-batch."""
        rows = {topic: dict(matches) for topic, matches in self.before.items()}
        stored = False
        for update in own:
            if update.op is Op.ADD:
                rows.setdefault(update.lite_topic, {})[update.subscriber] = list(update.patterns)
                stored = stored or update.lite_topic not in self._batch.delta.added
            elif update.lite_topic in rows:
                rows[update.lite_topic].pop(update.subscriber, None)
        state = self._batch.state
        order = filter(self._stays, state.order.in_order(rows, state.topics) if stored else self.before)
        return {topic: rows[topic] for topic in (*order, *self._batch.delta.added) if rows.get(topic)}

    def _stays(self, topic: str) -> bool:
        return topic not in self._batch.delta.removed

    def refuses(self, topic: str) -> bool:
        """Return True if the quota keeps a new topic from the client."""
        return topic in self.after and topic not in self._holds and topic not in self._held

    def updates(self) -> list[Update]:
        """Return the updates that take the client from the topics that it held to those that it holds."""
        held, holds = self._held, self._holds
        found: list[Update] = []
        for topic in {**held, **holds}:
            was = self.before[topic] if topic in held else {}
            now = self.after[topic] if topic in holds else {}
            found += [self._update(Op.REMOVE, row, topic, was[row]) for row in was if row not in now]
            fresh = [row for row in now if row not in was]
            # A topic that a backfill has not reached may match only what the client wanted before.
            texts = {**now, **self._wanted.match(topic)} if fresh else now
            found += [self._update(Op.ADD, row, topic, texts[row]) for row in fresh]
        return found

    def _update(self, op: Op, row: SubscriberKey, topic: str, patterns: list[str]) -> Update:
        """Return the update that other rules make, or one of the quota."""
        known = self._own.get((op, row, topic))
        if known is not None:
            return known
        cause = Cause.QUOTA_FREED if op is Op.ADD else Cause.QUOTA_EXCEEDED
        return self._announcer.update(op, row, topic, patterns, cause=cause, source=self._source())

    def _source(self) -> Source:
        """Return the event behind a change by the quota: of another update, a request, the quota, or a topic."""
        batch = self._batch
        if self._own:
            return min(update.source for update in self._own.values())
        if self._key in batch.changed:
            return batch.changed[self._key].source
        regrouped = dict(batch.view.regrouped())
        if self._key.group in regrouped:
            return regrouped[self._key.group]
        return batch.topics.source(batch.topics.recreated()[0])
