"""The state of a large shard as a snapshot that all workers of a machine share, and back.

Topics and clients in session are in arrays. All else is decoded: groups, selectors, alarms, backfills, notes, clients
in no session, and the counts of quotas. If few clients have changed since the former snapshot, the arrays of clients
stay as they are, and the changed ones are decoded as well.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain
from typing import Any, Final, NamedTuple

import msgpack
import numpy as np

from matcher.batch.postings import Postings
from matcher.batch.segments import MAX_POSITIONS
from matcher.dialects import DEFAULT, get_dialect
from matcher.index.texts import Spelling
from streaming.records.model import NO_METADATA
from streaming.records.subscribers import ClientKey
from streaming.state.client import Client, Interest, LastRequest
from streaming.state.client_table import (
    NAMES,
    ClientTable,
    Patterns,
    SettledClients,
    SettledInterests,
    text_of,
    with_versions,
    without_versions,
)
from streaming.state.codec import client_fields, client_of, replay, state_fields, topic_fields, topics_of
from streaming.state.group import interest_of
from streaming.state.interests import allows_inner_multi, holders_of, names_of
from streaming.state.settled import Arrays, TextTable
from streaming.state.shard_state import ShardState
from streaming.state.topic_table import StoredTopics, TopicTable, described, settled
from streaming.storage.snapshots import Content

_PARTS: Final = ("texts", "bounds", "hashed")
_POSTINGS: Final = {"rows": "<u4", "bounds": "<u4", "counts": "|u1"}
_MAX_BYTES: Final = (1 << 32) - 1

_FEW_TOPICS: Final = 10_000
"""Number of topics from which they stay in a table. Fewer are decoded, as look-ups in a dict are ten times faster."""

_NEW_TOPICS: Final = 2_048
"""Number of decoded topics for which a snapshot pays, although its journal has hardly grown."""

_CLIENTS, _REQUESTS = 3, 4  # places in a delta as plain values

_CHANGED_SHARE: Final = 1 / 4
"""Share of the clients that may have changed when a snapshot takes over the arrays of clients of the former one."""


class _Others(NamedTuple):
    """Content that is not in arrays, as plain values.

    Attributes:
        topics: topics with metadata.
        postings: dialects that topics have postings of, each with the number of their `rows`.
        state: all that a delta has, without topics and settled clients.
        held: counts of quotas by client; None if topics are not counted.
        patterns: of each dialect with settled patterns: its name, and their number by outline.
        unsettled: rows of clients whose interests are not settled, because they have none, or cannot be.
        changes: what is not settled any more, as `_Changes`.
    """

    topics: Sequence[Any]
    postings: Sequence[tuple[str, int]]
    state: Sequence[Any]
    held: Sequence[tuple[Any, int | None]] | None
    patterns: Sequence[tuple[str, Sequence[tuple[bytes, int]]]]
    unsettled: Sequence[int]
    changes: tuple[Sequence[int], Sequence[int], Sequence[int]]


class _Changes(NamedTuple):
    """Rows of clients that have changed since their arrays were written.

    Attributes:
        gone: those that are not settled any more.
        without_request: those whose last requests are not settled.
        dropped: those whose interests are not settled any more.
    """

    gone: Sequence[int] = ()
    without_request: Sequence[int] = ()
    dropped: Sequence[int] = ()


def has_new_topics(state: ShardState) -> bool:
    """Return True if many topics are decoded that a snapshot would put into a table."""
    topics = state.topics
    new = topics.recent if isinstance(topics, TopicTable) else topics
    return len(topics) >= _FEW_TOPICS and len(new) >= _NEW_TOPICS


def snapshot_content(state: ShardState) -> Content | None:
    """Return the content of a snapshot; None if there is too much for the arrays."""
    dialects = state.interests.dialects or {DEFAULT}  # for the first pattern
    former = state.settled and state.settled.clients.table.secret
    topics = settled(state.topics, () if len(state.topics) < _FEW_TOPICS else sorted(dialects), former)
    if topics is None:
        return None
    secret = topics.names["secret"]
    clients = _unchanged(state) or _columns(state, secret.tobytes())
    if clients is None:
        return None
    known = {name: each for name, each in described(state.topics).items() if each is not NO_METADATA}
    others = _Others(
        topic_fields(known),
        [(dialect, len(each["rows"])) for dialect, each in topics.postings.items()],
        state_fields(state, {}, clients.clients, clients.requests),
        _held_counts(state),
        clients.patterns,
        clients.unsettled,
        clients.changes,
    )
    table = {f"topic_{part}": topics.names[part] for part in _PARTS}
    postings = {
        f"posting_{part}": np.concatenate([np.zeros(0, number), *(each[part] for each in topics.postings.values())])
        for part, number in _POSTINGS.items()
    }
    return Content({"secret": secret, **table, **clients.arrays, **postings}, others)


def _held_counts(state: ShardState) -> list[tuple[ClientKey, int | None]] | None:
    """Return the counts of quotas, without those of clients that are gone; None if topics are not counted."""
    if state.counts is None:
        return None
    present, keeps = state.clients.present, bool(state.backfills)  # which may hold topics of clients that are gone
    counts = state.counts.by_client.items()
    return [(key, count) for key, count in counts if keeps or count is not None or key in present]


class _Clients(NamedTuple):
    """Clients of a shard for a snapshot.

    Attributes:
        arrays: those of settled clients.
        patterns, unsettled, changes: as in `_Others`.
        clients: the other clients.
        requests: last requests that are not settled.
    """

    arrays: Arrays
    patterns: Sequence[Any]
    unsettled: Sequence[int]
    changes: _Changes
    clients: Iterable[tuple[ClientKey, Client]]
    requests: Iterable[tuple[ClientKey, LastRequest]]


def _unchanged(state: ShardState) -> _Clients | None:
    """Return the clients of the former snapshot, with the changes since then; None if these are many."""
    if state.settled is None:
        return None
    known = state.settled
    clients, requests, dropped = known.clients, known.requests, known.interests.dropped()
    changes = clients.recent, clients.gone, requests.recent, dropped
    if max(map(len, changes)) > _CHANGED_SHARE * len(clients.table):
        return None
    decoded = [*clients.recent.items(), *state.clients.absent()]
    asked = {**dict(state.last_requests.absent()), **requests.recent}
    for key, _ in decoded:  # a delta has a client and its last request together
        if key not in asked and key in requests:
            asked[key] = requests[key]
    rows = _Changes(sorted(clients.gone), sorted(requests.gone), dropped)
    return _Clients(known.arrays, known.patterns, known.unsettled, rows, decoded, asked.items())


def _columns(state: ShardState, secret: bytes) -> _Clients | None:
    """Return all clients in session in arrays; None if they are too many."""
    present, requests = dict(state.clients.present.items()), dict(state.last_requests.present.items())
    entries = _Entries()
    values, without_request, held = list[bytes](), list[int](), dict[int, list[_HeldEntries]]()
    for row, (key, client) in enumerate(present.items()):
        request, interest = requests.pop(key, None), interest_of(state.group(key.group), client)
        value = msgpack.packb((*map(entries.numbered, client_fields(client)), request))
        values.append(with_versions(client, value))
        if request is None:
            without_request.append(row)
        held[row] = _held(key, interest)
    empty = TextTable.empty(secret)
    tables = {"client": empty.replaced((), map(text_of, present)), "entry": empty.replaced((), entries)}
    bounds = np.array(list(accumulate(map(len, values), initial=0)), np.int64)
    if bounds[-1] > _MAX_BYTES:
        return None
    arrays: dict[str, Any] = {}
    for name, table in tables.items():
        if table is None:
            return None
        arrays.update((f"{name}_{part}", table[part]) for part in _PARTS)
    unsettled = _unsettled(held, inner_multi=state.inner_multi)
    interests, patterns = _interests({row: held[row] for row in held if row not in unsettled}, entries, secret)
    return _Clients(
        {
            **arrays,
            "values": np.frombuffer(b"".join(values), np.uint8),
            "value_bounds": bounds.astype("<u4"),
            **interests,
        },
        patterns,
        sorted(unsettled),
        _Changes(without_request=without_request),
        state.clients.absent(),
        chain(requests.items(), state.last_requests.absent()),
    )


class _Entries(dict[str, int]):
    """Rows of the entries of all clients."""

    def numbered(self, subscription: Any) -> Any:
        """Return the fields of a subscription with the rows of its entries."""
        if subscription is None:
            return None
        live, version, blocks, *everything = subscription
        numbered = [(*rest, [self.setdefault(text, len(self)) for text in texts]) for *rest, texts in blocks]
        return live, version, numbered, *everything


class _HeldEntries(NamedTuple):
    """Entries that a client holds by one request.

    Attributes:
        dialect: of patterns; blank for names.
        texts: the patterns or names.
        order: of the request.
        is_plain: True for entries without a match policy and without a part of their own.
    """

    dialect: str
    texts: Sequence[str]
    order: float
    is_plain: bool = True


def _held(key: ClientKey, interest: Interest) -> list[_HeldEntries]:
    """Return all entries of a client; receive-all counts as one that is not plain."""
    patterns = (
        _HeldEntries(dialect, texts, order, is_plain=policy is None and not subscriber.part)
        for dialect, policy, texts, (subscriber, order) in holders_of(key, interest)
    )
    names = (_HeldEntries("", texts, order) for texts, (_, order) in names_of(key, interest))
    everything = [] if interest.everything is None else [_HeldEntries("", (), 0, is_plain=False)]
    return [*patterns, *names, *everything]


def _unsettled(held: Mapping[int, list[_HeldEntries]], *, inner_multi: bool) -> set[int]:
    """Return the rows of clients with no entry, an entry that is not plain, or a pattern that is not in arrays.

    These are patterns that are not spelled, and long ones, which have no key.
    """
    unsettled = {row for row, every in held.items() if not every or not all(each.is_plain for each in every)}
    by_dialect: dict[str, list[tuple[int, str]]] = {}
    for row in held.keys() - unsettled:
        for each in held[row]:
            if each.dialect:
                by_dialect.setdefault(each.dialect, []).extend((row, text) for text in each.texts)
    for dialect, patterns in by_dialect.items():
        spelling = Spelling(get_dialect(dialect), allow_inner_multi=allows_inner_multi(dialect, inner_multi))
        outlines = spelling.outlines([text for _, text in patterns])
        spelling.add(Counter(outlines))
        separator = get_dialect(dialect).separator
        for (row, text), outline in zip(patterns, outlines, strict=True):
            if outline not in spelling or text.count(separator) >= MAX_POSITIONS:
                unsettled.add(row)
    return unsettled


def _interests(
    held: Mapping[int, list[_HeldEntries]], entries: Mapping[str, int], secret: bytes
) -> tuple[dict[str, Any], list[Any]]:
    """Return the arrays of interests by the rows of clients, and the patterns of each dialect as in `_Others`."""
    blocks = [(row, each) for row, every in held.items() for each in every]
    texts: dict[str, dict[str, None]] = {}
    for _, each in blocks:
        if each.dialect:
            texts.setdefault(each.dialect, {}).update(dict.fromkeys(each.texts))
    kinds = {"": NAMES, **{dialect: kind for kind, dialect in enumerate(texts, 1)}}
    patterns = list[Any]()
    keys: list[Arrays] = [{"keys": np.zeros(0, "<u8"), "shapes": np.zeros(0, "|u1")}]
    for dialect, own in texts.items():
        outlines, arrays = _keys(dialect, list(own), entries, secret)
        patterns.append((dialect, outlines))
        keys.append(arrays)
    rows = np.array([entries[text] for _, each in blocks for text in each.texts], np.int64)
    numbers = np.repeat(np.arange(len(blocks)), np.array([len(each.texts) for _, each in blocks], np.int64))
    return {
        "holder_bounds": np.bincount(rows + 1, minlength=len(entries) + 1).cumsum().astype("<u4"),
        "holders": numbers[np.argsort(rows, kind="stable")].astype("<u4"),
        "block_clients": np.array([row for row, _ in blocks], "<u4"),
        "block_orders": np.array([each.order for _, each in blocks], "<f8"),
        "block_kinds": np.array([kinds[each.dialect] for _, each in blocks], "|u1"),
        **{f"pattern_{part}": np.concatenate([each[part] for each in keys]) for part in keys[0]},
    }, patterns


def _keys(
    dialect: str, texts: list[str], entries: Mapping[str, int], secret: bytes
) -> tuple[list[tuple[bytes, int]], Arrays]:
    """Return the number of patterns by outline, and the arrays of their keys."""
    outlines = Spelling(get_dialect(dialect)).outlines(texts)
    counts = Counter(outlines)
    places = {outline: place for place, outline in enumerate(counts)}
    rows = np.array([entries[text] for text in texts], np.int64)
    numbers = np.array([places[outline] for outline in outlines], np.int64)
    return list(counts.items()), Patterns(dialect, counts, secret).keys.filled(texts, rows, numbers)


def settle(state: ShardState, content: Content) -> None:
    """Give a state the arrays of a snapshot of itself."""
    others, (topics, clients) = _Others(*content.others), _tables(content)
    changed = [ClientKey(*key) for key, *_ in others.state[_CLIENTS]]
    asked = [*changed, *(ClientKey(*key) for key, _ in others.state[_REQUESTS])]
    former, requests = state.clients.present, state.last_requests.present
    clients.clients.update((key, former[key]) for key in changed if key in former)
    clients.requests.update((key, requests[key]) for key in asked if key in requests)
    state.settle(_stored(topics, state.topics), clients)
    state.index(clients)


def restore(state: ShardState, content: Content) -> None:
    """Give an empty state the content of a snapshot."""
    others, (topics, clients) = _Others(*content.others), _tables(content)
    state.settle(_stored(topics, state.topics), clients)
    replay(state, [others.state])
    if others.held is not None:
        state.counts = state.new_counts({ClientKey(*key): count for key, count in others.held})
    state.index(clients)


def _tables(content: Content) -> tuple[TopicTable, SettledClients]:
    arrays, others = content.arrays, _Others(*content.others)
    topics, clients, entries = (
        TextTable({"secret": arrays["secret"], **{part: arrays[f"{name}_{part}"] for part in _PARTS}})
        for name in ("topic", "client", "entry")
    )
    keys, patterns = {part: arrays[f"pattern_{part}"] for part in ("keys", "shapes")}, list[Patterns]()
    for dialect, outlines in others.patterns:
        count = sum(each for _, each in outlines)
        own = {part: array[:count] for part, array in keys.items()}
        patterns.append(Patterns(dialect, dict(outlines), arrays["secret"].tobytes(), own))
        keys = {part: array[count:] for part, array in keys.items()}
    values = arrays["values"].data, arrays["value_bounds"].data
    changes = _Changes(*others.changes)
    settled = SettledClients(
        ClientTable(clients, *values, partial(_client, entries), changes.gone),
        ClientTable(clients, *values, _last_request, changes.without_request),
        SettledInterests(clients, entries, arrays, patterns, changes.dropped),
        {name: array for name, array in arrays.items() if not name.startswith(("secret", "topic_", "posting_"))},
        others.patterns,
        others.unsettled,
    )
    return TopicTable(topics, topics_of(others.topics), _postings(arrays, others.postings)), settled


def _stored(table: TopicTable, known: StoredTopics) -> StoredTopics:
    """Return the table, or a dict if it has few topics; a known dict has the same topics."""
    if len(table) >= _FEW_TOPICS:
        return table
    return known if known and not isinstance(known, TopicTable) else dict(table.items())


def _postings(arrays: Arrays, sizes: Sequence[tuple[str, int]]) -> dict[str, Postings]:
    found, rows, secret = dict[str, Postings](), arrays["posting_rows"], arrays["secret"].tobytes()
    for number, (dialect, size) in enumerate(sizes):
        own = {part: np.split(arrays[f"posting_{part}"], len(sizes))[number] for part in ("bounds", "counts")}
        found[dialect] = Postings({"rows": rows[:size], **own}, get_dialect(dialect), secret)
        rows = rows[size:]
    return found


def _client(entries: TextTable, data: memoryview) -> Client:
    literal, wildcard, _ = msgpack.unpackb(without_versions(data), use_list=False)
    return client_of(_with_texts(literal, entries), wildcard and _with_texts(wildcard, entries))


def _with_texts(subscription: Any, entries: TextTable) -> Any:
    """Return the fields of a subscription with its entries."""
    live, version, blocks, *everything = subscription
    return live, version, [(*rest, tuple(entries[row] for row in rows)) for *rest, rows in blocks], *everything


def _last_request(data: memoryview) -> LastRequest:
    _, _, request = msgpack.unpackb(without_versions(data), use_list=False)
    return LastRequest(*request)
