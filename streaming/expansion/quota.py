"""How many topics a client may hold.

RocketMQ counts (client, topic) references. A client that receives everything holds none: the broker keeps no list for
it, so no quota stops it.

Of the topics that a client may hold by all other rules, it holds the first ones in order of their creation. So what it
holds is a function of what there is now: room that becomes free is taken by the next topic at once.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from streaming.events.model import Reason, Source
from streaming.state.state import share_in
from streaming.subscription.client import NOTHING, Interest
from streaming.subscription.interests import MQTT, Interests
from streaming.subscription.policy import GroupPolicy, accepts
from streaming.subscription.subscribers import ClientKey, SubscriberKey
from streaming.updates.model import Cause, Op, Problem, Update

if TYPE_CHECKING:
    from streaming.expansion.batch import Batch
    from streaming.expansion.bulk import BulkUpdates


def excess(batch: "Batch", key: ClientKey, wanted: Interest, policy: GroupPolicy) -> str | None:
    """Why a client may not ask for so much; None when it may.

    A request is judged by its net change over the topics that are there, so a client may always repeat what it has
    asked for, or ask for less.
    """
    share = batch.shard.share(policy.quota)
    topics = batch.state.topics
    if share is None or wanted.everything is not None or len(topics) <= share:
        return None
    current, now = batch.interest(key), batch.policy(key.group)
    comparable = current.everything is None and wanted.patterns == current.patterns and policy.selector == now.selector
    if comparable and not any(batch.state.topics_of(wanted.without(current, ordered=False))):
        return None  # nearly always: nothing that is there comes to it

    def count(interest: Interest, policy: GroupPolicy) -> int:
        if interest.everything is not None:
            return 0
        found = batch.state.topics_of(interest)
        if policy.selector is None:
            return len(tuple(found))
        return sum(accepts(policy.selector, topics[topic]) for topic in found)

    after = count(wanted, policy)
    if after <= share or after <= count(current, now):
        return None
    number, shards = batch.shard.number, batch.shard.routing.shard_count(batch.shard.parent)
    where = f" on shard {number} of {shards}, whose share of {policy.quota} is {share}" if shards > 1 else ""
    return (
        f"client {key.client_id!r} of group {key.group!r} would hold {after} topics, more than {share}{where}; "
        "ask for less, or raise lite.sub.client.quota of the group"
    )


def cap(batch: "Batch", updates: Iterable[Update], bulks: "BulkUpdates") -> Iterator[Update]:
    """The updates with what clients may not hold taken out, and what they may hold again put in.

    Those of clients that no quota concerns go through one by one, since there may be any number. Those of crowds stay
    where they are, but for clients that may not hold them all.
    """
    state, delta = batch.state, batch.delta
    most = max(len(state.topics), len(state.topics) - len(delta.removed) + len(delta.added))
    if most <= _lowest_share(batch):
        state.drop_held()
        yield from updates
        return
    rows: dict[SubscriberKey, list[Update] | None] = {}
    for update in updates:
        subscriber = update.subscriber
        if subscriber not in rows:
            rows[subscriber] = None if shares(batch, subscriber.client) == (None, None) else []
        own = rows[subscriber]
        if own is None:
            yield update
        else:
            own.append(update)
    capped: dict[Source, list[ClientKey]] = defaultdict(list)
    for key, own in _by_client(batch, rows, bulks).items():
        yield from _capped(batch, key, own, bulks, capped)
    for source, clients in capped.items():
        keys = sorted(clients)  # a repeated batch says the same
        names = ", ".join(repr(f"{key.group}/{key.client_id}") for key in keys[:5])
        more = f" and {len(keys) - 5} more" if len(keys) > 5 else ""  # noqa: PLR2004
        message = f"clients at their quota do not receive it: {names}{more}; it is picked up when room frees"
        batch.problems.append(Problem(source, Reason.QUOTA_EXCEEDED, message))


def _lowest_share(batch: "Batch") -> int:
    quotas = {*batch.state.quotas, *(batch.group_of(name).quota for name, _ in batch.regrouped())}
    return min(share for share in map(batch.shard.share, quotas) if share is not None)


def _by_client(
    batch: "Batch", rows: Mapping[SubscriberKey, list[Update] | None], bulks: "BulkUpdates"
) -> dict[ClientKey, list[Update]]:
    """The updates of each client, and the clients that may hold others without any."""
    found: dict[ClientKey, list[Update]] = {}
    for subscriber, own in rows.items():
        key = subscriber.client
        if own is not None:
            found[key] = [*found[key], *own] if key in found else own
    others = [subscriber.client for topic in batch.moved for subscriber in batch.state.interests.match(topic)]
    others += [*batch.changed, *bulks.clients]
    for group, _ in batch.regrouped():
        if batch.group_of(group).quota != batch.state.group(group).quota:
            others += batch.members(group)
    for key in others:
        found.setdefault(key, [])
    return found


def _capped(
    batch: "Batch",
    key: ClientKey,
    own: list[Update],
    bulks: "BulkUpdates",
    capped: dict[Source, list[ClientKey]],
) -> list[Update]:
    """The updates of one client but those of crowds, where it may hold all.

    Topics whose birth its quota hides from it are noted in `capped`.
    """
    state, delta = batch.state, batch.delta
    before, after = shares(batch, key)
    if before is None and after is None:
        return own
    if _is_counted(batch, key, own, before):  # its topics can be counted by its updates
        held = state.held(key)
        adds = [update for update in own if update.op is Op.ADD]
        now = delta.held[key] = held + 2 * len(adds) - len(own) + bulks.change(key)
        if (before is None or held <= before) and (after is None or now <= after):
            return own
        spelled = bulks.spell_out(key)
        adds += [update for update in spelled if update.op is Op.ADD]
        own = [*own, *spelled]
        gained = {update.lite_topic: update for update in adds}
        stays = before == after and key not in batch.changed and not batch.moved
        # What it gained comes last in order of creation.
        if before is not None and stays and len(gained) == len(own) and gained.keys() <= delta.added.keys():
            ordered = [gained[topic] for topic in delta.added if topic in gained]
            room = max(0, before - held)
            for update in ordered[room:]:
                capped[update.source].append(key)
            return ordered[:room]
    recount = _Recount(batch, key, [*own, *bulks.spell_out(key)])
    delta.held[key] = len(recount.after)
    return recount.updates(before, after, capped)


def _is_counted(batch: "Batch", key: ClientKey, own: list[Update], before: int | None) -> bool:
    """Whether each update of a client stands for a topic that it holds or gives up, and nobody else's does."""
    if before is None and batch.state.interest(key) != NOTHING:
        return False  # nobody has counted what it holds
    if key in batch.changed or batch.moved:
        was, will = batch.state.interest(key), batch.interest(key)
        notations = [block.notation for wanted in (was, will) for block in wanted.blocks]
        return not any(notation.per_subscription or notation.dialect == MQTT for notation in notations)
    return len({update.lite_topic for update in own}) == len(own)


def shares(batch: "Batch", key: ClientKey) -> tuple[int | None, int | None]:
    """How much a client may hold before and after the batch; None for anything."""
    share = batch.shard.share
    before = batch.state.share(key, share)
    if key not in batch.changed and not batch.regroups(key.group):
        return before, before  # nearly always
    return before, share_in(batch.group_of(key.group), batch.interest(key), share)


class _Recount:
    """One client whose held topics must be counted out.

    Attributes:
        before: its rows by topic before the batch by all rules but the quota, in order of creation.
        after: the same after it.
    """

    def __init__(self, batch: "Batch", key: ClientKey, own: list[Update]) -> None:
        self._batch = batch
        self._key = key
        self._own = {(update.op, update.subscriber, update.lite_topic): update for update in own}
        self.before = batch.state.rows(key)
        rows = {topic: dict(found) for topic, found in self.before.items()}
        for update in own:
            if update.op is Op.ADD:
                rows.setdefault(update.lite_topic, {})[update.subscriber] = list(update.patterns)
            else:
                rows[update.lite_topic].pop(update.subscriber, None)
        self._wanted = Interests(batch.shard.inner_multi)
        self._wanted.add(key, batch.interest(key))
        stay = (topic for topic in batch.state.topics if topic not in batch.delta.removed)
        self.after = {topic: rows[topic] for topic in (*stay, *batch.delta.added) if rows.get(topic)}

    def updates(self, before: int | None, after: int | None, capped: dict[Source, list[ClientKey]]) -> list[Update]:
        """The updates between holding the first so many topics and holding the first so many."""
        held, holds = dict.fromkeys(islice(self.before, before)), dict.fromkeys(islice(self.after, after))
        for topic in self._batch.delta.added:
            if topic in self.after and topic not in holds and topic not in held:
                capped[self._batch.source(topic)].append(self._key)
        found: list[Update] = []
        for topic in {**held, **holds}:
            was = self.before[topic] if topic in held else {}
            now = self.after[topic] if topic in holds else {}
            found += [self._said(Op.REMOVE, row, topic, was[row]) for row in was if row not in now]
            fresh = [row for row in now if row not in was]
            texts = self._wanted.match(topic) if fresh else {}
            found += [self._said(Op.ADD, row, topic, texts[row]) for row in fresh]
        return found

    def _said(self, op: Op, row: SubscriberKey, topic: str, patterns: list[str]) -> Update:
        """What the other rules say of a row already, or that the quota makes the difference."""
        said = self._own.get((op, row, topic))
        if said is not None:
            return said
        cause = Cause.QUOTA_FREED if op is Op.ADD else Cause.QUOTA_EXCEEDED
        return self._batch.update(op, row, topic, patterns, cause=cause, source=self._source())

    def _source(self) -> Source:
        """What made the difference: another update, the client's request, the quota, or the order of topics."""
        batch = self._batch
        if self._own:
            return min(update.source for update in self._own.values())
        if self._key in batch.changed:
            return batch.changed[self._key].source
        regrouped = dict(batch.regrouped())
        if self._key.group in regrouped:
            return regrouped[self._key.group]
        return batch.topics[batch.moved[0]].source
