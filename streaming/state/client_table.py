"""The clients of a large shard, and their interests, in arrays that all workers of a machine share."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from struct import Struct
from sys import intern
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from matcher.batch.pattern_keys import PatternKeys
from matcher.batch.segments import ranges
from matcher.batch.shapes import shape_of
from matcher.dialects import get_dialect
from matcher.index.texts import Spelling
from streaming.records.columns import Hits, Interners, compacted
from streaming.records.subscribers import ClientKey, SubscriberKey
from streaming.state.client import Client, LastRequest, Mode
from streaming.state.settled import Arrays, Settled, TextTable

V = TypeVar("V")

Holder = tuple[SubscriberKey, float]
"""Subscriber with an entry, and the order of the entry."""

NAMES: Final = 0
"""Kind of the entries that are names; patterns have the number of their dialect, from 1 on."""

_SUBSCRIBER_BYTES: Final = 250
"""Estimated memory of the key of a subscriber, with its texts."""


def text_of(key: ClientKey) -> str:
    """Return the text of a client in a table."""
    return f"{len(key.group)}:{key.group}{key.client_id}"


def key_of(text: str) -> ClientKey:
    """Return the client of a text in a table."""
    size, _, names = text.partition(":")
    return ClientKey(intern(names[: int(size)]), names[int(size) :])


class ClientTable(Settled[ClientKey, V], Generic[V]):
    """Values by client.

    Args:
        table: texts of the settled clients.
        values: the values, one after the other.
        bounds: start of each value, and the end of the last one.
        unpack: returns a value, given its bytes.
        gone: rows of clients without a value.
    """

    def __init__(
        self,
        table: TextTable,
        values: memoryview,
        bounds: memoryview,
        unpack: Callable[[memoryview], V],
        gone: Iterable[int] = (),
    ) -> None:
        super().__init__(table, gone)
        self._values = values
        self._bounds = bounds
        self._unpack = unpack

    @property
    def value_bytes(self) -> int:
        """Bytes of all values."""
        return len(self._values)

    _text = staticmethod(text_of)

    @staticmethod
    def _keys(texts: list[str]) -> list[ClientKey]:
        return list(map(key_of, texts))

    def _value(self, key: ClientKey, row: int) -> V:  # noqa: ARG002 - see Settled
        return self._unpack(self._at(row))

    def packed(self, key: ClientKey) -> memoryview | None:
        """Return the bytes of a value; None if it is not settled."""
        row = self._row(key)
        return None if row is None else self._at(row)

    def _at(self, row: int) -> memoryview:
        return self._values[self._bounds[row] : self._bounds[row + 1]]


class Patterns:
    """Settled patterns of one dialect.

    Attributes:
        dialect: its name.
        spelling: their forms.
        keys: rows of the entries by topic.

    Args:
        dialect: as above.
        outlines: number of patterns by outline; the shapes are numbered in this order.
        secret: key of the hashes.
        arrays: those of `PatternKeys`; none for `keys` without patterns.
    """

    def __init__(
        self, dialect: str, outlines: Mapping[bytes, int], secret: bytes, arrays: Arrays | None = None
    ) -> None:
        rules = get_dialect(dialect)
        self.dialect = dialect
        self.spelling = Spelling(rules)
        self.spelling.add(outlines)
        shapes = [shape for each in map(self.spelling.example, outlines) if each and (shape := shape_of(each))]
        empty = PatternKeys.empty(shapes, rules, secret)
        self.keys = empty if arrays is None else PatternKeys(arrays, shapes, rules, secret)


class SettledInterests:
    """Interests of settled clients by entry.

        holder_bounds   by entry: start of its holders, and the end of the last ones
        holders         numbers of blocks, by entry
        block_clients   by block: row of its client
        block_orders    ... the order of its entries
        block_kinds     ... the kind of its entries

    A client whose interest has changed is no longer in force here.

    Attributes:
        has_names: True if some entries are names.

    Args:
        clients: texts of the clients.
        entries: the entries.
        arrays: as above.
        patterns: by kind, from 1 on.
        dropped: rows of clients that are not in force.
    """

    def __init__(
        self,
        clients: TextTable,
        entries: TextTable,
        arrays: Arrays,
        patterns: Sequence[Patterns],
        dropped: Sequence[int] = (),
    ) -> None:
        self._arrays = arrays
        self._patterns = patterns
        self._clients = clients
        self._entries = entries
        self._bounds, self._holders = arrays["holder_bounds"].data, arrays["holders"].data
        self._owners, self._orders = arrays["block_clients"].data, arrays["block_orders"].data
        self._kinds = arrays["block_kinds"].data
        self.has_names = bool((arrays["block_kinds"] == NAMES).any())
        self._in_force = np.zeros(len(clients), np.uint8)
        self._in_force[arrays["block_clients"]] = 1
        self._in_force[np.array(dropped, np.int64)] = 0
        self._subscribers: dict[int, SubscriberKey] = {}  # by row, those that were asked for

    def __contains__(self, client: object) -> bool:
        row = self._clients.row(text_of(client))  # type: ignore[arg-type]
        return row is not None and bool(self._in_force[row])

    def drop(self, client: ClientKey) -> bool:
        """Forget the interest of a client; return True if there was one."""
        if client not in self:
            return False
        self._in_force[self._clients.row(text_of(client))] = 0
        return True

    def dropped(self) -> list[int]:
        """Return the rows of the clients that had an interest here and are no longer in force."""
        had = np.zeros(len(self._in_force), np.uint8)
        had[self._arrays["block_clients"]] = 1
        return np.flatnonzero(had > self._in_force).tolist()

    @property
    def dialects(self) -> list[str]:
        """Dialects of all patterns."""
        return [each.dialect for each in self._patterns]

    @property
    def memory_bytes(self) -> int:
        """Estimated memory of what was decoded."""
        return len(self._subscribers) * _SUBSCRIBER_BYTES + self._clients.memory_bytes + self._entries.memory_bytes

    def named(self, topic: str) -> list[Holder]:
        """Return the holders of a name."""
        return self._holders_of(topic, NAMES) if self.has_names else []

    def match(self, topic: str) -> list[tuple[str, Holder]]:
        """Return (pattern, holder) for each matching pattern."""
        return [
            (text, holder)
            for kind, each in enumerate(self._patterns, 1)
            for text in each.spelling.texts(topic)
            for holder in self._holders_of(text, kind)
        ]

    def hits(self, topics: Sequence[str], interners: Interners, *, by_column: bool) -> Iterator[Hits]:
        """Yield the answers of `match` for all topics, found one by one or by column, in columns."""
        if not by_column:
            yield Hits.of(
                (row, interners.subscribers[subscriber], interners.texts[text])
                for row, topic in enumerate(topics)
                for text, (subscriber, _) in self.match(topic)
            )
            return
        clients, kinds = self._arrays["block_clients"], self._arrays["block_kinds"]
        for kind, each in enumerate(self._patterns, 1):
            rows, entries = each.keys.match_batch(topics, self._entries.at)
            bounds = self._arrays["holder_bounds"]
            owners, places = ranges(bounds[entries].astype(np.int64), bounds[entries + 1].astype(np.int64))
            blocks = self._arrays["holders"][places]
            kept = (kinds[blocks] == kind) & self._in_force[clients[blocks]].astype(bool)
            owners, blocks = owners[kept], blocks[kept]
            yield Hits(
                rows[owners],
                _numbers(clients[blocks], lambda row: interners.subscribers[self._subscriber(row)]),
                _numbers(entries[owners], lambda row: interners.texts[self._entries[row]]),
            )

    def _holders_of(self, text: str, kind: int) -> list[Holder]:
        row = self._entries.row(text)
        found: list[Holder] = []
        for block in self._holders[self._bounds[row] : self._bounds[row + 1]] if row is not None else ():
            client = self._owners[block]
            if self._kinds[block] == kind and self._in_force[client]:
                found.append((self._subscriber(client), self._orders[block]))
        return found

    def _subscriber(self, client: int) -> SubscriberKey:
        found = self._subscribers.get(client)
        if found is None:
            found = self._subscribers[client] = SubscriberKey(*key_of(self._clients[client]))
        return found


def _numbers(rows: npt.NDArray[Any], number: Callable[[int], int]) -> npt.NDArray[Any]:
    """Return the numbers of rows, each different row numbered once."""
    different, places = compacted(rows)
    return np.array(list(map(number, different.tolist())), np.int64)[places]


_VERSIONS: Final = Struct("<?q?q")
"""Versions of both subscriptions, each after False for None, at the beginning of a client's value."""


def with_versions(client: Client, rest: bytes) -> bytes:
    """Return a value that begins with the versions of a client."""
    versions = [(each is not None, each or 0) for each in (client.literal.version, client.wildcard.version)]
    return _VERSIONS.pack(*chain.from_iterable(versions)) + rest


def version_of(value: memoryview, mode: Mode) -> int | None:
    """Return the version of a client under a mode, given its value, which is not decoded."""
    has_literal, literal, has_wildcard, wildcard = _VERSIONS.unpack_from(value)
    known, version = (has_wildcard, wildcard) if mode is Mode.WILDCARD else (has_literal, literal)
    return version if known else None


def without_versions(value: memoryview) -> memoryview:
    """Return what follows the versions."""
    return value[_VERSIONS.size :]


class SettledClients(NamedTuple):
    """Clients of a shard in tables.

    Attributes:
        clients: subscriptions by client.
        requests: last requests by client.
        interests: interests of most clients.
        arrays: arrays of all of these.
        patterns: the patterns of these interests as in a snapshot.
        unsettled: rows of clients whose interests were not settled with these.
    """

    clients: ClientTable[Client]
    requests: ClientTable[LastRequest]
    interests: SettledInterests
    arrays: Arrays
    patterns: Sequence[Any]
    unsettled: Sequence[int]

    @property
    def unindexed(self) -> list[ClientKey]:
        """Clients in session whose interests are not settled."""
        rows = {*self.unsettled, *self.interests.dropped()}.difference(self.clients.gone)
        keys = (key_of(self.clients.table[row]) for row in sorted(rows))
        return [*keys, *(key for key in self.clients.recent if key not in self.interests)]
