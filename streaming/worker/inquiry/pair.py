"""Verdict about one client and one topic of a shard, with its reason.

The relation itself is not computed here: the rows come from `ShardState.subscribers` and the quota, as in the job's
updates. If there is no row, the rules are checked one by one until one gives the reason.
"""

from collections.abc import Container, Iterable, Iterator
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from streaming.printable import counted
from streaming.records.model import Notation
from streaming.records.subscribers import ClientKey, Matches, SubscriberKey
from streaming.state import Group, Shard, ShardState
from streaming.state.blocks import Block
from streaming.state.client import NOTHING, Interest, Mode
from streaming.state.frames import former_interest
from streaming.state.holdings import Effort, is_beyond
from streaming.state.interests import pattern_of
from streaming.state.policy import accepts
from streaming.worker.inquiry.entries import (
    affordable,
    held,
    mistakes,
    nearest,
    refused,
    short,
    spellings,
)
from streaming.worker.inquiry.facts import client_facts, group_facts
from streaming.worker.inquiry.model import (
    EntryVerdict,
    EventPlace,
    Hint,
    PairFacts,
    PairVerdict,
    QuotaFacts,
    RowFacts,
    request_place,
    topic_facts,
)
from streaming.worker.inquiry.names import NEAREST

_SHOWN_ENTRIES = 20
"""Number of matching entries that are shown."""

_SHOWN_GROUPS = 5
"""Number of other groups that a hint names."""


class _Finding(NamedTuple):
    verdict: PairVerdict
    reason: str
    decided_by: EventPlace | None = None


class _Pair:
    def __init__(self, state: ShardState, shard: Shard, key: ClientKey, topic: str) -> None:
        self._state = state
        self._shard = shard
        self._key = key
        self._topic = topic
        self._group: Group = state.group(key.group)
        self._exists = topic in state.topics
        everybody = state.interests.match(topic)
        self._asks = _own(everybody, key)
        announced = state.subscribers(topic, everybody) if self._exists else {}
        self._rows = _own(announced, key)
        self._rivals = {row: texts for row, texts in announced.items() if row.group == key.group and row.client != key}

    def facts(self) -> PairFacts:
        quota = self._quota()
        finding = self._received(quota) if self._rows else self._missing()
        holder = next((row.client_id for row in self._rivals), None) if self._group.is_exclusive else None
        state, key = self._state, self._key
        return PairFacts(
            self._shard.parent,
            self._topic,
            key.group,
            key.client_id,
            finding.verdict,
            finding.reason,
            finding.decided_by,
            topic_facts(self._topic, state.topics[self._topic]) if self._exists else None,
            group_facts(state, key.group),
            client_facts(state, key),
            tuple(RowFacts(row.part, tuple(texts)) for row, texts in self._rows.items())
            if finding.verdict is PairVerdict.RECEIVED
            else (),
            tuple(self._entries()),
            holder,
            quota,
            tuple(self._hints(finding.verdict)),
        )

    def _received(self, quota: QuotaFacts | None) -> _Finding:
        """Return the finding about a client with rows by all rules but the quota."""
        if quota is not None and is_beyond(self._state, self._key, quota.share, self._topic, Effort()):
            where = f" on shard {self._shard.number} of {self._shard.count}" if self._shard.count > 1 else ""
            share = counted(quota.share, "topic")
            reason = f"the client may hold {share}{where}, and holds as many that are older than this one"
            return _Finding(PairVerdict.QUOTA, reason, self._group_place())
        texts = sorted({text for row in self._rows.values() for text in row})
        if not texts:
            return _Finding(
                PairVerdict.RECEIVED, "the client asks for every topic of the parent", self._newest(self._asks)
            )
        shown = ", ".join(map(short, texts[:NEAREST]))
        left = len(texts) - NEAREST
        more = f" and {counted(left, 'more entry', 'more entries')}" if left > 0 else ""
        verb = "match" if len(texts) > 1 else "matches"
        return _Finding(PairVerdict.RECEIVED, f"{shown}{more} {verb} it", self._newest(self._asks))

    def _missing(self) -> _Finding:
        """Return the finding about a client without rows: the first rule that takes the topic away."""
        state, key, group = self._state, self._key, self._group
        client = state.clients.get(key)
        if client is None:
            return _Finding(
                PairVerdict.CLIENT_UNKNOWN,
                f"the group {key.group!r} has no client {key.client_id!r} on {self._shard.parent!r}: "
                "it has not asked for anything here, or was unsubscribed",
            )
        subscription = client.subscription(group.mode)
        last = state.last_requests.get(key)
        asked_at = None if last is None or last.position < 0 else request_place(last.partition, last.position)
        if group.bound_to is not None:
            return _Finding(
                PairVerdict.BOUND_ELSEWHERE,
                f"the group {key.group!r} is bound to {group.bound_to!r}, so its clients receive nothing of "
                f"{self._shard.parent!r}",
                self._group_place(),
            )
        if not subscription.live:
            reason = "the client is in no session: it was unsubscribed, or its lease has expired"
            return _Finding(PairVerdict.NOT_IN_SESSION, reason, asked_at)
        if not self._asks:
            return self._no_match(asked_at)
        if not self._exists:
            names = sorted({text for texts in self._asks.values() for text in texts})
            shown = f"; {names[0]!r} will match it as soon as it is created" if names else ""
            reason = f"the parent {self._shard.parent!r} has no topic {self._topic!r} now{shown}"
            return _Finding(PairVerdict.TOPIC_UNKNOWN, reason)
        return self._restricted()

    def _no_match(self, asked_at: EventPlace | None) -> _Finding:
        wanted = self._state.interest(self._key)
        count = sum(len(block.entries) for block in wanted.blocks)
        kind = "name" if self._group.mode is Mode.LITERAL else "pattern"
        if not count:
            where = " that can match a topic of its shard" if self._shard.count > 1 else ""
            return _Finding(PairVerdict.NO_MATCH, f"the client has no {kind}{where} in its set", asked_at)
        if count == 1:
            (entry,) = held(wanted.blocks, self._group.mode)
            verdict = entry.verdict(self._topic, inner_multi=self._shard.inner_multi)
            return _Finding(
                PairVerdict.NO_MATCH, f"its {kind} {short(entry.text)} does not match: {verdict.reason}", asked_at
            )
        return _Finding(PairVerdict.NO_MATCH, f"none of its {count:,} {kind}s matches", asked_at)

    def _restricted(self) -> _Finding:
        """Return the finding about a client that asks for a topic, which the policy of its group takes away."""
        state, key = self._state, self._key
        policy, metadata = state.policy(key.group), state.topics[self._topic]
        if policy.selector is not None and not accepts(policy.selector, metadata):
            properties = ", ".join(f"{name}={value!r}" for name, value in sorted(metadata.properties.items()))
            is_tag = policy.selector.kind == "TAG"
            found = f"tags {metadata.tags!r}" if is_tag else f"properties {properties or '(none)'}"
            reason = (
                f"the {policy.selector.kind} selector {policy.selector.text!r} of the group does not agree with its "
                f"{found}"
            )
            return _Finding(PairVerdict.SELECTOR, reason, self._selector_place())
        if policy.exclusive and self._rivals:
            holder = next(iter(self._rivals))
            reason = (
                f"the group is exclusive, and the client {holder.client_id!r} holds the topic: "
                "its matching entry is newer"
            )
            return _Finding(
                PairVerdict.EXCLUSIVE, reason, self._newest(_own(state.interests.match(self._topic), holder.client))
            )
        return _Finding(
            PairVerdict.UNDER_WAY,
            "the client asks for it since a moment ago; a change of many topics is carried out over several "
            "micro-batches, and this topic is still to come",
            self._newest(self._asks) if state.backfills_of(key.group) else None,
        )

    def _quota(self) -> QuotaFacts | None:
        """Return the quota of the client, if it may take a topic away."""
        share = self._state.quota_share(self._key, self._shard.client_share)
        return None if share is None or len(self._state.topics) <= share else QuotaFacts(self._group.quota, share)

    def _interest(self) -> Interest:
        """Return the interest in force for the topic: the former one while a change is under way."""
        state, key = self._state, self._key
        backfills = state.backfills_of(key.group) if self._exists else {}
        return former_interest(state, key, [e for at, e in backfills.items() if self._topic in state.remaining(at)])

    def _entries(self) -> list[EntryVerdict]:
        wanted, topic, inner_multi = self._interest(), self._topic, self._shard.inner_multi
        texts = {text for texts in (self._rows or self._asks).values() for text in texts}
        if texts:
            return list(islice(self._matching(wanted.blocks, texts), _SHOWN_ENTRIES))
        if self._rows or self._asks or wanted == NOTHING:
            return []
        near = affordable(nearest(held(wanted.blocks, self._group.mode), topic, NEAREST), topic)
        return [each.verdict(topic, inner_multi=inner_multi) for each in near]

    def _matching(self, blocks: Iterable[Block], texts: Container[str]) -> Iterator[EntryVerdict]:
        """Yield the entries with some texts that match the topic; the same text may not match in another dialect."""
        named = (each for each in held(blocks, self._group.mode) if _pattern(each.text, each.notation) in texts)
        for each in affordable(named, self._topic):
            verdict = each.verdict(self._topic, inner_multi=self._shard.inner_multi)
            if verdict.matches:
                yield verdict

    def _newest(self, asks: Matches) -> EventPlace | None:
        """Return the place of the newest request with a matching entry, given the matches of one client."""
        if not asks:
            return None
        owner = next(iter(asks)).client
        wanted, last = self._state.interest(owner), self._state.last_requests.get(owner)
        if wanted.everything is None:
            newest_first = sorted(wanted.blocks, key=attrgetter("order"), reverse=True)
            found = self._matching(newest_first, {text for texts in asks.values() for text in texts})
            return next((verdict.place for verdict in found), None)
        client = self._state.clients.get(owner)
        at = -1 if client is None else client.subscription(self._group.mode).everything_at
        return None if at < 0 or last is None else request_place(last.partition, at)

    def _group_place(self) -> EventPlace | None:
        return group_facts(self._state, self._key.group).place

    def _selector_place(self) -> EventPlace | None:
        selectors = self._state.group_selectors(self._key.group)
        for selection in reversed(selectors.unsettled):
            if self._group.mode in selection.modes:
                return request_place(selection.partition, selection.position)
        return None

    def _hints(self, verdict: PairVerdict) -> list[Hint]:
        state, key = self._state, self._key
        client = state.clients.get(key)
        others = [] if client is None else refused(client, self._group, self._topic)
        if verdict is PairVerdict.NO_MATCH and client is not None:
            found = mistakes(client, self._group, key.group, self._shard, self._topic)
            return list({hint.code: hint for hint in (*others, *found)}.values())
        if verdict in (PairVerdict.CLIENT_UNKNOWN, PairVerdict.NOT_IN_SESSION):
            return [*others, *self._other_clients()]
        if verdict is PairVerdict.TOPIC_UNKNOWN:
            names = [name for name in spellings(self._topic) if name in state.topics]
            return [Hint("topic-spelling", f"there is a topic {names[0]!r}: is that meant?")] if names else []
        if verdict is PairVerdict.QUOTA:
            text = "ask for less, or raise lite.sub.client.quota of the group; -1 is no limit"
            return [Hint("quota", text)]
        return []

    def _other_clients(self) -> list[Hint]:
        """Return hints at clients of the same id in other groups, and at ids that differ in case."""
        group, client_id = self._key
        same, alike = [], []
        for other in self._state.clients.present:
            if other == self._key:
                continue
            if other.client_id == client_id:
                same.append(other.group)
            elif other.group == group and other.client_id.casefold() == client_id.casefold():
                alike.append(other.client_id)
        hints = []
        if same:
            shown = ", ".join(map(repr, sorted(same)[:_SHOWN_GROUPS]))
            hints.append(Hint("other-group", f"a client {client_id!r} is in the group {shown} of this parent"))
        if alike:
            hints.append(Hint("client-spelling", f"the group has a client {alike[0]!r}: is that meant?"))
        return hints


def explain_pair(state: ShardState, shard: Shard, key: ClientKey, topic: str) -> PairFacts:
    """Return why a client does or does not receive a topic of a shard. The state may build its indexes."""
    return _Pair(state, shard, key, topic).facts()


def _pattern(text: str, notation: Notation | None) -> str:
    return text if notation is None else pattern_of(text, notation)


def _own(matches: Matches, key: ClientKey) -> dict[SubscriberKey, list[str]]:
    return {row: texts for row, texts in matches.items() if row.client == key}
