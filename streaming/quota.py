"""How many topics a client may hold.

RocketMQ counts (client, topic) references. A client that receives everything holds none: the broker keeps no list for
it, so no quota stops it.

Of the topics that a client may hold by all other rules, it holds the first ones in order of their creation. So what it
holds is a function of what there is now: room that becomes free is taken by the next topic at once.
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from streaming.events import Reason, Source
from streaming.relation import ClientKey, Interests, Receiver, Terms, agrees, limited
from streaming.subscription import Interest
from streaming.update import Cause, Op, Problem, Update

if TYPE_CHECKING:
    from streaming.batch import Batch


def excess(batch: "Batch", key: ClientKey, wanted: Interest, terms: Terms) -> str | None:
    """Why a client may not ask for so much; None when it may.

    A request is judged by its net change over the topics that are there, so a client may always repeat what it has
    asked for, or ask for less.
    """
    share = batch.shard.share(terms.quota)
    topics = batch.state.topics
    if share is None or wanted.everything is not None or len(topics) <= share:
        return None

    def count(interest: Interest, terms: Terms) -> int:
        if interest.everything is not None:
            return 0
        found = batch.state.topics_of(interest)
        if terms.selection is None:
            return len(tuple(found))
        return sum(agrees(terms.selection, topics[topic]) for topic in found)

    after = count(wanted, terms)
    if after <= share or after <= count(batch.interest(key), batch.terms(key.group)):
        return None
    number, shards = batch.shard.number, batch.shard.routing.shard_count(batch.shard.parent)
    where = f" on shard {number} of {shards}, whose share of {terms.quota} is {share}" if shards > 1 else ""
    return (
        f"client {key.client_id!r} of group {key.group!r} would hold {after} topics, more than {share}{where}; "
        "ask for less, or raise lite.sub.client.quota of the group"
    )


def cap(batch: "Batch", updates: list[Update]) -> list[Update]:
    """The updates with what clients may not hold taken out, and what they may hold again put in."""
    state, delta = batch.state, batch.delta
    most = max(len(state.topics), len(state.topics) - len(delta.removed) + len(delta.added))
    if most <= _lowest_share(batch):
        state.held.clear()  # counts that are not kept up are not kept
        return updates
    by_client: dict[ClientKey, list[Update]] = defaultdict(list)
    for update in updates:
        by_client[update.receiver.client].append(update)
    for topic in _moved(batch):
        for receiver in state.interests.match(topic):
            by_client.setdefault(receiver.client, [])
    for key in batch.changed:
        by_client.setdefault(key, [])
    for group, _ in batch.regrouped():
        if batch.terms(group).quota != state.terms(group).quota:
            for key in batch.members(group):
                by_client.setdefault(key, [])
    capped: dict[Source, list[ClientKey]] = defaultdict(list)
    kept: list[Update] = []
    for key, own in by_client.items():
        kept += _capped(batch, key, own, capped)
    for source, keys in capped.items():
        names = ", ".join(repr(f"{key.group}/{key.client_id}") for key in keys[:5])
        more = f" and {len(keys) - 5} more" if len(keys) > 5 else ""  # noqa: PLR2004
        message = f"clients at their quota do not receive it: {names}{more}; it is picked up when room frees"
        batch.problems.append(Problem(source, Reason.QUOTA_EXCEEDED, message))
    return kept


def _lowest_share(batch: "Batch") -> int:
    quotas = {*batch.state.quotas, *(batch.terms(name).quota for name, _ in batch.regrouped())}
    return min(share for share in map(batch.shard.share, quotas) if share is not None)


def _capped(batch: "Batch", key: ClientKey, own: list[Update], capped: dict[Source, list[ClientKey]]) -> list[Update]:
    """The updates of one client; topics whose birth its quota hides from it are noted in `capped`."""
    state, delta = batch.state, batch.delta
    before, after = _share(batch, key, before=True), _share(batch, key, before=False)
    if before is None and after is None:
        state.held.pop(key, None)
        return own
    held = state.held.get(key)
    if held is None:
        held = state.held[key] = len(state.eligible(key))
    parts = any(update.receiver.part for update in own) or _has_parts(state.interest(key)) or key in batch.changed
    if not parts and before == after and before is not None and not _moved(batch):
        gained = [update for update in own if update.op is Op.ADD]
        now = held + 2 * len(gained) - len(own)
        delta.held[key] = now
        if held <= before and now <= before:
            return own
        born = {update.lite_topic: update for update in gained}
        if len(born) == len(own) and born.keys() <= delta.added.keys():  # they come last in order of creation
            room = max(0, before - held)
            ordered = [born[topic] for topic in delta.added if topic in born]
            for update in ordered[room:]:
                capped[update.source].append(key)
            return ordered[:room]
    return _recounted(batch, key, own, capped)


def _moved(batch: "Batch") -> list[str]:
    """The topics that were deleted and created again: they now come last in order of creation."""
    return [topic for topic in batch.delta.removed if topic in batch.delta.added]


def _share(batch: "Batch", key: ClientKey, *, before: bool) -> int | None:
    interest = batch.state.interest(key) if before else batch.interest(key)
    if interest.everything is not None:
        return None
    terms = batch.state.terms(key.group) if before else batch.terms(key.group)
    return batch.shard.share(terms.quota)


def _has_parts(interest: Interest) -> bool:
    return any(block.notation.per_subscription or block.notation.dialect == "mqtt" for block in interest.blocks)


def _recounted(
    batch: "Batch", key: ClientKey, own: list[Update], capped: dict[Source, list[ClientKey]]
) -> list[Update]:
    """The updates of a client whose held topics must be counted out, before and after."""
    state, delta = batch.state, batch.delta
    may = state.eligible(key)
    former = {topic: _rows(batch, key, topic) for topic in state.topics if topic in may}
    rows = dict(former)
    changes: dict[str, list[Update]] = defaultdict(list)
    for update in own:
        changes[update.lite_topic].append(update)
    for topic, updates in changes.items():
        now = dict(rows.get(topic, {}))
        for update in updates:
            if update.op is Op.ADD:
                now[update.receiver] = list(update.patterns)
            else:
                now.pop(update.receiver, None)
        rows[topic] = now
    eligible = [topic for topic in state.topics if rows.get(topic) and topic not in delta.removed]
    eligible += [topic for topic in delta.added if rows.get(topic)]
    delta.held[key] = len(eligible)
    held_before = dict.fromkeys(_first(former, _share(batch, key, before=True)))
    held_after = dict.fromkeys(_first(eligible, _share(batch, key, before=False)))
    source = own[0].source if own else _source(batch, key)
    wanted = Interests(batch.shard.inner_multi)
    wanted.add(key, batch.interest(key))
    found: list[Update] = []
    for topic in held_before:
        if topic not in held_after and not (rows[topic] == {}):
            found += [
                _said(batch, changes[topic], Op.REMOVE, row, topic, texts, source)
                for row, texts in former[topic].items()
            ]
        elif topic not in held_after:
            found += changes[topic]
    for topic in held_after:
        if topic in held_before:
            found += changes[topic]
        else:
            texts = wanted.match(topic)
            found += [_said(batch, changes[topic], Op.ADD, row, topic, texts[row], source) for row in rows[topic]]
    for topic in delta.added:
        if rows.get(topic) and topic not in held_after and topic not in held_before:
            capped[batch.topics[topic].source].append(key)
    return found


def _said(
    batch: "Batch", changes: list[Update], op: Op, row: Receiver, topic: str, patterns: list[str], source: Source
) -> Update:
    """What the other rules say of a row already, or that the quota makes the difference."""
    for update in changes:
        if update.op is op and update.receiver == row:
            return update
    cause = Cause.QUOTA_FREED if op is Op.ADD else Cause.QUOTA_EXCEEDED
    return batch.update(op, row, topic, patterns, cause, source)


def _rows(batch: "Batch", key: ClientKey, topic: str) -> dict[Receiver, list[str]]:
    """A client's rows of a stored topic before the batch."""
    state = batch.state
    found = limited(state.interests.match(topic), topic, state.topics[topic], (state.interests,), state.limits)
    return {receiver: patterns for receiver, patterns in found.items() if receiver.client == key}


def _first(topics: Iterable[str], share: int | None) -> Iterable[str]:
    return topics if share is None else islice(topics, share)


def _source(batch: "Batch", key: ClientKey) -> Source:
    """What changed a client of which the other rules say nothing: its quota, or the order of topics."""
    if key in batch.changed:
        return batch.changed[key].source
    regrouped = dict(batch.regrouped())
    return regrouped[key.group] if key.group in regrouped else batch.topics[_moved(batch)[0]].source
