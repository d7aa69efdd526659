"""Lists of the content of a shard, in pages: an answer scans a bounded number of items."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeVar

from streaming.coordinator.state import CoordinatorState
from streaming.records.model import Place, Stream
from streaming.records.subscribers import ClientKey
from streaming.state import Shard, ShardState
from streaming.state.holdings import Effort, TooWide, is_beyond
from streaming.state.topic_table import since
from streaming.worker.inquiry.entries import held
from streaming.worker.inquiry.facts import client_facts, group_facts
from streaming.worker.inquiry.model import (
    BindingFacts,
    ClientFacts,
    EventPlace,
    GroupFacts,
    LeaseFacts,
    Overview,
    Page,
    SubscriberFacts,
    SubscriptionFacts,
    TopicDetails,
    TopicFacts,
    topic_facts,
)
from streaming.worker.inquiry.names import accepting
from streaming.worker.inquiry.questions import Question

K = TypeVar("K")

SCANNED: Final = 100_000
"""Number of items that an answer scans, in about 0.1 s. Each 100 characters count as one more item."""

PAGE_CHARACTERS: Final = 500_000
"""Length of the items in an answer; the first is always included."""

_UNIT: Final = 100
"""Number of characters that count as one item."""

_SHOWN_SUBSCRIBERS: Final = 100
"""Number of subscribers of one topic that are shown."""


def topics(state: ShardState, question: Question) -> Page[TopicFacts]:
    """Return a page of the topics of a shard, in order of creation."""

    def length(name: str) -> int:
        metadata = state.topics[name]
        return len(name) + len(metadata.tags or "") + _characters(metadata.properties)

    page = _page(
        since(state.topics, question.cursor),
        question,
        accepting(question.pattern, question.dialect),
        length,
        total=len(state.topics),
        before=question.cursor,
    )
    return Page([topic_facts(name, state.topics[name]) for name in page.items], page.cursor, page.total)


def clients(state: ShardState, question: Question) -> Page[ClientFacts]:
    """Return a page of the clients of a shard, in order of their names."""
    page = _page(
        sorted(state.clients),
        question,
        _accepts_client(question),
        lambda key: sum(map(len, key)),
        total=len(state.clients),
    )
    found = (client_facts(state, key) for key in page.items)
    return Page([each for each in found if each is not None], page.cursor, page.total)


def groups(state: ShardState, question: Question) -> Page[GroupFacts]:
    """Return a page of the groups that have an event or a client on a shard."""
    counts = Counter(key.group for key in state.clients.present)
    names = dict.fromkeys([*state.groups, *sorted(key.group for key in state.clients)])
    accepts = accepting(question.pattern, question.dialect)

    def length(name: str) -> int:
        selector = state.policy(name).selector
        return len(name) + _characters(state.group(name).attributes) + len("" if selector is None else selector.text)

    page = _page(
        names, question, lambda name: question.group in (None, name) and accepts(name), length, total=len(names)
    )
    return Page([group_facts(state, name, counts[name]) for name in page.items], page.cursor, page.total)


def subscriptions(state: ShardState, question: Question) -> Page[SubscriptionFacts]:
    """Return a page of the entries of clients, in order of their names; `cursor` and `total` count entries.

    The pattern of the question must equal or match an entry.
    """
    accepts, wanted = accepting(question.pattern, question.dialect), _accepts_client(question, pattern=False)
    chosen = sorted((key, client) for key, client in state.clients.present.items() if wanted(key))
    found = {key: client.subscription(state.group(key.group).mode) for key, client in chosen}
    counts = {key: (each.everything is not None) + sum(len(block.entries) for block in each.blocks)
              for key, each in found.items()}  # fmt: skip
    before, total, keys = 0, sum(counts.values()), list[ClientKey]()
    for key, count in counts.items():
        if keys or before + count > question.cursor:
            keys.append(key)
        else:
            before += count

    def entries() -> Iterator[SubscriptionFacts]:
        for key in keys:
            if found[key].everything is not None:
                yield SubscriptionFacts(*key, None, None, None, found[key].live, None)
            for text, notation, place in held(found[key].blocks, state.group(key.group).mode):
                dialect, policy = (None, None) if notation is None else notation[:2]
                yield SubscriptionFacts(*key, text, dialect, policy, found[key].live, place)

    def length(entry: SubscriptionFacts) -> int:
        return len(entry.group) + len(entry.client) + len(entry.entry or "")

    return _page(entries(), question, lambda each: accepts(each.entry or ""), length, total=total, before=before)


def topic(state: ShardState, shard: Shard, name: str) -> TopicDetails:
    """Return a topic with its subscribers; quotas are considered for the shown subscribers only."""
    if name not in state.topics:
        return TopicDetails(None, (), 0)
    found = state.subscribers(name)
    shown: list[SubscriberFacts] = []
    beyond, characters, effort = 0, 0, Effort()
    for row, texts in islice(found.items(), _SHOWN_SUBSCRIBERS):
        characters += sum(map(len, (*row, *texts)))
        if shown and characters > PAGE_CHARACTERS:
            break
        try:
            if is_beyond(state, row.client, state.quota_share(row.client, shard.client_share), name, effort):
                beyond += 1
                continue
        except TooWide:
            break
        shown.append(SubscriberFacts(*row, tuple(texts)))
    return TopicDetails(topic_facts(name, state.topics[name]), tuple(shown), len(found) - beyond)


def _page(
    things: Iterable[K],
    question: Question,
    accepts: Callable[[K], bool],
    length_of: Callable[[K], int],
    *,
    total: int,
    before: int = 0,
    bounded: bool = True,
) -> Page[K]:
    """Return the accepted items from the cursor on, up to the limits.

    A former page had `before` items that `things` lacks. The lengths are in characters. Unless `bounded`, any number of
    items is scanned.
    """
    found: list[K] = []
    cursor, characters, work = question.cursor, 0, 0
    for thing in islice(things, question.cursor - before, None):
        length = length_of(thing)
        is_full = len(found) == question.limit or (found and characters + length > PAGE_CHARACTERS)
        if is_full or (bounded and work >= SCANNED):
            break
        cursor += 1
        work += 1 + length // _UNIT
        if accepts(thing):
            found.append(thing)
            characters += length
    return Page(found, cursor if cursor < total else None, total)


def _characters(pairs: Mapping[str, str]) -> int:
    return sum(len(key) + len(value) for key, value in pairs.items())


def _accepts_client(question: Question, *, pattern: bool = True) -> Callable[[Any], bool]:
    accepts = accepting(question.pattern, question.dialect) if pattern else lambda _: True
    group, client = question.group, question.client
    return lambda key: group in (None, key.group) and client in (None, key.client_id) and accepts(key.client_id)


def overview(state: CoordinatorState, question: Question, client_timeout_ms: int) -> Overview:
    """Return the state of the group and the client of a question in a bucket."""
    group, client = question.group, question.client
    bindings = _page(
        state.bindings.items(),
        question,
        lambda item: group in (None, item[0]),
        lambda item: len(item[0]) + len(item[1].parent),
        total=len(state.bindings),
        bounded=False,
    )
    leases = _page(
        state.leases.items(),
        question,
        lambda item: group in (None, item[0].group) and client in (None, item[0].client_id),
        lambda item: sum(map(len, (*item[0], *item[1].parents))),
        total=len(state.leases),
        bounded=False,
    )
    return Overview(
        tuple(
            BindingFacts(name, bound.parent, _event_place(Stream.GROUPS, bound.place)) for name, bound in bindings.items
        ),
        tuple(
            LeaseFacts(*key, parents, _event_place(Stream.SUBSCRIPTIONS, place), place.timestamp)
            for key, (parents, place, _) in leases.items
        ),
        state.clock,
        client_timeout_ms,
        min([each for each in (bindings.cursor, leases.cursor) if each is not None], default=None),
    )


def _event_place(stream: Stream, place: Place) -> EventPlace:
    return EventPlace(stream, place.partition, place.offset, place.entry)
