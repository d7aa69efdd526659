"""Typed answers of a running job.

Each method queries the job, which answers as of its running micro-batch. No method changes the state.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, NamedTuple, Self, TypeVar
from uuid import uuid4

from pydantic import TypeAdapter

from streaming.config import Settings, load
from streaming.errors import NotPlaced, QuestionRefused
from streaming.inspect.asking import ANSWER_SECONDS, BUCKET_KEYS, Inquirer, KeyAnswer
from streaming.inspect.effects import DryRun
from streaming.inspect.following import Chosen, UpdatesFollower
from streaming.records.model import Stream
from streaming.records.routing import COORDINATOR, Routing
from streaming.storage.journal import Key
from streaming.worker.bounds import bounds_of
from streaming.worker.inquiry.model import (
    BindingFacts,
    ClientFacts,
    EventPlace,
    GroupFacts,
    Hint,
    LeaseFacts,
    Overview,
    Page,
    PairFacts,
    PairVerdict,
    PlannedEffect,
    SubscriptionFacts,
    TopicDetails,
    TopicFacts,
)
from streaming.worker.inquiry.names import NEAREST, likeness
from streaming.worker.inquiry.questions import MAX_ITEMS, Ask, Question

T = TypeVar("T")

_SHOWN: Final = 5
"""Number of names in a sentence."""


class Filter(NamedTuple):
    """Selection of items of a list by their names, or subscriptions by their entries: a pattern or a name."""

    pattern: str | None = None
    dialect: str = "lite"
    client: str | None = None
    group: str | None = None


EVERYTHING: Final = Filter()


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a client does or does not receive a topic.

    Attributes:
        lease_left_ms: time in milliseconds until the lease expires, as of the last tick; None if it never expires.
    """

    pair: PairFacts
    binding: BindingFacts | None
    lease: LeaseFacts | None
    lease_left_ms: int | None
    hints: tuple[Hint, ...]

    @property
    def received(self) -> bool:
        """True if the client receives the topic."""
        return self.pair.received

    @property
    def verdict(self) -> PairVerdict:
        """Deciding fact."""
        return self.pair.verdict

    @property
    def reason(self) -> str:
        """Deciding fact, as a sentence."""
        return self.pair.reason


class Inspector:
    """Client for queries to a running job, as a context manager. Not thread-safe.

    Args:
        settings: Kafka's addresses, or a mapping with other settings too. The environment has further settings. The
            checkpoint is ignored.
        timeout: time in seconds to wait for answers.

    All methods raise subclasses of `InspectError`: no job answers, the job refuses, or a parent is missing.
    """

    def __init__(self, settings: Settings | Mapping[str, Any] | str, timeout: float = ANSWER_SECONDS) -> None:
        if not isinstance(settings, Settings):
            given = {"bootstrap_servers": settings} if isinstance(settings, str) else settings
            settings = load({"checkpoint": "unused", **given})
        self._inquirer = Inquirer(settings, timeout)
        self._bounds = bounds_of(settings)
        self._routing: dict[str, Routing] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._inquirer.close()

    def explain(
        self,
        client: str,
        topic: str,
        *,
        parent: str | None = None,
        group: str | None = None,
        most_groups: int | None = None,
    ) -> tuple[Explanation, ...]:
        """Explain why a client does or does not receive a topic, in each of its groups.

        Args:
            client: id of the client.
            topic: name of the lite topic.
            parent: the parent topic; None for the client's only parent.
            group: group of the client; None for all of its groups.
            most_groups: maximum number of explained groups, those that receive the topic first; None for all. Each may
                take questions of its own.
        """
        question = Question("", Ask.EXPLAIN, client=client, topic=topic, group=group)
        # A guess, until the first answer brings the number of shards.
        guess = [(parent, self._shard_of(parent, topic) if parent in self._routing else 0)] if parent else []
        answers = self._ask(question, [*BUCKET_KEYS, *guess])
        known = _together([_read(Overview, answers[bucket].value) for bucket in BUCKET_KEYS])
        if parent is None:
            parent = _only_parent(known, client, group)
        key = parent, self._shard_of(parent, topic)
        pairs = _read(list[PairFacts], answers[key].value) if key in answers else self._pairs(question, [key])
        wanted = {lease.group for lease in known.leases} if group is None else {group}
        if most_groups is not None:
            pairs = sorted(pairs, key=lambda pair: not pair.received)[:most_groups]
        left = None if most_groups is None else most_groups - len(pairs)
        for name in sorted(wanted - {pair.group for pair in pairs})[:left]:
            pairs += self._pairs(replace(question, group=name), [key])
        if not pairs:
            raise NotPlaced(
                f"the job knows no client {client!r}: it has sent no request, or was unsubscribed and forgotten. "
                "Name its --group to see how that group is set up; `reexpand clients list` shows who is there, and "
                "`reexpand dlq list` what was refused"
            )
        return tuple(_explanation(self._with_other_shards(pair), known) for pair in pairs)

    def _with_other_shards(self, pair: PairFacts) -> PairFacts:
        """Add the entries of other shards to a verdict if no entry matches; each shard keeps only its own."""
        count = self._routing_of(pair.parent).shard_count(pair.parent)
        if pair.verdict is not PairVerdict.NO_MATCH or count == 1:
            return pair
        question = Question("", Ask.EXPLAIN, client=pair.client, topic=pair.topic, group=pair.group)
        own = self._shard_of(pair.parent, pair.topic)
        several = [pair, *self._pairs(question, [(pair.parent, each) for each in range(count) if each != own])]
        entries = dict.fromkeys(entry for each in several for entry in each.entries)
        nearest = sorted(entries, key=lambda entry: -likeness(entry.entry, pair.topic))[:NEAREST]
        hints = {hint.code: hint for each in reversed(several) for hint in each.hints}
        return replace(pair, entries=tuple(nearest), hints=tuple(hints.values()))

    def topics(self, parent: str, chosen: Filter = EVERYTHING, *, limit: int = 1_000) -> Iterator[Page[TopicFacts]]:
        """Yield the lite topics of a parent page by page, shard by shard in order of creation."""
        return self._pages(Page[TopicFacts], Ask.TOPICS, parent, chosen, limit, all_shards=True)

    def topics_from(
        self, parent: str, shard: int, cursor: int, *, limit: int = MAX_ITEMS
    ) -> tuple[Page[TopicFacts], tuple[int, int] | None]:
        """Return a page of the topics of a shard, and the shard and cursor of the next page; None after the last."""
        count = self._routing_of(parent).shard_count(parent)
        key, question = (parent, min(shard, count - 1)), Question("", Ask.TOPICS, cursor=cursor, limit=limit)
        page = _read(Page[TopicFacts], self._ask(question, [key])[key].value)
        if page.cursor is not None:
            return page, (shard, page.cursor)
        return page, (shard + 1, 0) if shard + 1 < count else None

    def topic_count(self, parent: str) -> int:
        """Return the number of topics of a parent."""
        keys = [(parent, shard) for shard in range(self._routing_of(parent).shard_count(parent))]
        answers = self._ask(Question("", Ask.TOPICS, limit=1), keys)
        return sum(_read(Page[TopicFacts], answer.value).total for answer in answers.values())

    def clients(self, parent: str, chosen: Filter = EVERYTHING, *, limit: int = 1_000) -> Iterator[Page[ClientFacts]]:
        """Yield the clients of a parent page by page; the pattern filters their ids."""
        return self._pages(Page[ClientFacts], Ask.CLIENTS, parent, chosen, limit)

    def groups(self, parent: str, chosen: Filter = EVERYTHING, *, limit: int = 1_000) -> Iterator[Page[GroupFacts]]:
        """Yield the groups of a parent page by page: those with a group event, and those with a client."""
        return self._pages(Page[GroupFacts], Ask.GROUPS, parent, chosen, limit)

    def subscriptions(
        self, parent: str, chosen: Filter = EVERYTHING, *, limit: int = 1_000
    ) -> Iterator[Page[SubscriptionFacts]]:
        """Yield the entries of clients page by page; an entry of several shards is repeated per shard."""
        return self._pages(Page[SubscriptionFacts], Ask.SUBSCRIPTIONS, parent, chosen, limit, all_shards=True)

    def topic(self, parent: str, name: str) -> TopicDetails:
        """Return a lite topic with its subscribers."""
        key = parent, self._shard_of(parent, name)
        return _read(TopicDetails, self._ask(Question("", Ask.TOPIC, topic=name), [key])[key].value)

    def plan(self, record: Mapping[str, Any] | bytes, stream: Stream | None = None) -> DryRun:
        """Return the effect of an event now; None infers its stream from the fields."""
        from streaming.inspect import planning  # noqa: PLC0415 - it parses as the job does, with numpy

        def ask(question: Question, keys: Collection[Key]) -> list[PlannedEffect]:
            return [_read(PlannedEffect, answer.value) for answer in self._ask(question, keys).values()]

        text = record if isinstance(record, bytes) else planning.text_of(record)
        kind = stream or planning.stream_of(json.loads(text))
        return planning.dry_run(kind, planning.read(kind, text, self._bounds), ask, self._routing_of)

    def updates_of(self, place: EventPlace, follower: UpdatesFollower) -> list[dict[str, Any]]:
        """Return the updates of an event, sent after the follower was opened, once the job has read it.

        This queries the coordinator, which answers in a micro-batch that has read all records before the question.
        """
        self.bindings("")
        return list(follower.updates(Chosen(source=place), to_end=True))

    def parents(self) -> list[str]:
        """Return the sorted names of the parent topics with a group or a client."""
        known = self._overview(Question("", Ask.CLIENTS, limit=MAX_ITEMS))
        bound = {each.parent for each in known.bindings}
        return sorted(bound | {name for each in known.leases for name in each.parents})

    def only_parent(self) -> str:
        """Return the only parent topic with a group or a client; raise `NotPlaced` if there are none or several."""
        parents = self.parents()
        if len(parents) == 1:
            return parents[0]
        shown = ", ".join(parents[:_SHOWN])
        raise NotPlaced(
            f"groups and clients are on several parent topics: name one with --parent ({shown})"
            if parents
            else "the job has no group and no client, which would name the parent topic: add --parent"
        )

    def bindings(self, group: str | None = None) -> tuple[BindingFacts, ...]:
        """Return the parents of groups."""
        return self._overview(Question("", Ask.GROUPS, group=group, limit=MAX_ITEMS)).bindings

    def leases(self, client: str | None = None, group: str | None = None) -> tuple[LeaseFacts, ...]:
        """Return the leases of clients, over all parents."""
        return self._overview(Question("", Ask.CLIENTS, client=client, group=group, limit=MAX_ITEMS)).leases

    def _pages(
        self, kind: type[Page[T]], ask: Ask, parent: str, chosen: Filter, limit: int, *, all_shards: bool = False
    ) -> Iterator[Page[T]]:
        _check_parent(parent)
        shards = self._routing_of(parent).shard_count(parent) if all_shards else 1
        for number in range(shards):
            question: Question | None = Question("", ask, limit=limit, **chosen._asdict())
            while question is not None:
                page = _read(kind, self._ask(question, [(parent, number)])[parent, number].value)
                yield page
                question = None if page.cursor is None else replace(question, cursor=page.cursor)

    def _overview(self, question: Question) -> Overview:
        """Return the whole overview. All buckets continue from the lowest cursor, so some repeat a part."""
        found: list[Overview] = []
        while True:
            answers = [_read(Overview, answer.value) for answer in self._ask(question, BUCKET_KEYS).values()]
            found += answers
            cursors = [answer.cursor for answer in answers if answer.cursor is not None]
            if not cursors:
                return _together(found)
            question = replace(question, cursor=min(cursors))

    def _ask(self, question: Question, keys: Collection[Key]) -> dict[Key, KeyAnswer]:
        """Query keys under a new id, and store the routing of the parents that answer."""
        _check_names(question, keys)
        answers = self._inquirer.ask(replace(question, id=uuid4().hex), keys)
        for (parent, _), answer in answers.items():
            if parent != COORDINATOR:
                self._routing[parent] = Routing({parent: answer.shards}, answer.depth)
        return answers

    def _pairs(self, question: Question, keys: Collection[Key]) -> list[PairFacts]:
        return [pair for each in self._ask(question, keys).values() for pair in _read(list[PairFacts], each.value)]

    def _shard_of(self, parent: str, topic: str) -> int:
        return self._routing_of(parent).shard_of(parent, topic)

    def _routing_of(self, parent: str) -> Routing:
        """Return the routing of a parent, from an answer of its first shard."""
        _check_parent(parent)
        if parent not in self._routing:
            self._ask(Question("", Ask.GROUPS, limit=1), [(parent, 0)])
        return self._routing[parent]


def _together(found: Collection[Overview]) -> Overview:
    """Return several parts of the overview as one. Items that parts repeat count once."""
    bindings = {each.group: each for part in found for each in part.bindings}
    leases = {(each.group, each.client): each for part in found for each in part.leases}
    return Overview(
        tuple(bindings.values()),
        tuple(leases.values()),
        max(each.clock for each in found),
        max(each.client_timeout_ms for each in found),
    )


def _explanation(pair: PairFacts, known: Overview) -> Explanation:
    binding = next((each for each in known.bindings if each.group == pair.group), None)
    lease = next((each for each in known.leases if (each.group, each.client) == (pair.group, pair.client)), None)
    left = None
    if lease is not None and known.client_timeout_ms:
        left = max(0, lease.last_request + known.client_timeout_ms - known.clock)
    return Explanation(pair, binding, lease, left, (*pair.hints, *_hints(pair, binding, lease)))


def _hints(pair: PairFacts, binding: BindingFacts | None, lease: LeaseFacts | None) -> Iterator[Hint]:
    absent = pair.verdict in (PairVerdict.CLIENT_UNKNOWN, PairVerdict.NOT_IN_SESSION)
    if binding is not None and binding.parent != pair.parent:
        yield Hint(
            "other-parent",
            f"the group {pair.group!r} is bound to {binding.parent!r} since {binding.place}: "
            "subscribe there, or bind it to this parent by lite.bind.topic",
        )
    elif absent and lease is not None and lease.parents and pair.parent not in lease.parents:
        shown = ", ".join(map(repr, lease.parents[:_SHOWN]))
        yield Hint("other-parent", f"the client is in session on {shown}: does its request name the right topic?")
    if absent and lease is None:
        yield Hint(
            "no-request",
            "no request of this client has come, or all were refused; `reexpand dlq list` shows what was refused",
        )


def _only_parent(known: Overview, client: str, group: str | None) -> str:
    parents = {parent for lease in known.leases for parent in lease.parents}
    if not parents and group is not None:
        parents = {binding.parent for binding in known.bindings}
    if len(parents) == 1:
        return parents.pop()
    if not parents:
        raise NotPlaced(f"the client {client!r} is in session on no parent topic: name one with --parent")
    shown = ", ".join(sorted(parents)[:_SHOWN])
    raise NotPlaced(f"the client {client!r} is in session on several parent topics: name one with --parent ({shown})")


def _check_parent(parent: str) -> None:
    """Raise `QuestionRefused` for an empty name, which is the key of the coordinator."""
    if not parent:
        raise QuestionRefused("the name of the parent topic is empty")


def _check_names(question: Question, keys: Collection[Key]) -> None:
    """Raise `QuestionRefused` if a name cannot be sent as UTF-8."""
    names = question.client, question.group, question.topic, question.pattern, *(parent for parent, _ in keys)
    for name in filter(None, names):
        try:
            name.encode()
        except UnicodeEncodeError:
            raise QuestionRefused(f"the name {name!r} is not UTF-8") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _read(kind: type[T], value: Any) -> T:
    form: Any = kind
    found: T = _adapter(form).validate_python(value)
    return found
