"""Values of rows: the patterns and the version of an ADD, compared with the state and the inputs.

An ADD has the entries that match at its time. A client may change its set later without an update of the row, so an
ADD that differs from the state is correct if it agrees with the client's set after any of its requests.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from streaming.operations.verify.findings import RowName
from streaming.operations.verify.ledger import LedgerRow, Table
from streaming.operations.verify.replay import Rules
from streaming.records.model import Source, Stream, lmq_name
from streaming.records.subscribers import SHARE, ClientKey, SubscriberKey
from streaming.records.updates import Op
from streaming.records.writing import digest_number, event_id, patterns_json
from streaming.state import ShardState
from streaming.state.client import NOTHING, Client, Mode
from streaming.state.group import interest
from streaming.storage.journal import Key
from streaming.worker.rows import STREAMS, InputRow

CONTRADICTORY: Final = 0
"""Value of an ADD that contradicts its own key, its source, or the format of updates."""

_SUBSCRIPTIONS: Final = STREAMS.index(Stream.SUBSCRIPTIONS)


class ClientName(NamedTuple):
    """A client on a parent."""

    parent: str
    group: str
    client_id: str


def name_of(key: bytes) -> RowName:
    """Return the row of an update key."""
    return RowName(*orjson.loads(key))


@lru_cache(maxsize=65_536)
def value_of(patterns: tuple[str, ...], version: int | None) -> int:
    """Return the digest of the sorted patterns and the version of an ADD; never `CONTRADICTORY`."""
    return digest_number(patterns_json(patterns) + orjson.dumps(version)) or 1


def stated(rules: Rules, key: Key, state: ShardState) -> Iterator[tuple[bytes, int]]:
    """Yield each row of a shard with the value of an ADD written now."""
    for update, subscriber, texts in rules.held(key, state):
        version = state.clients[subscriber.client].subscription(state.group(subscriber.group).mode).version
        yield update, value_of(tuple(sorted(set(texts))), version)


def announced(row: RowName, value: bytes) -> int:
    """Return the value of an ADD, or `CONTRADICTORY`."""
    try:
        update = orjson.loads(value)
        place = update["source"]
        source = Source(place["topic"], place["partition"], place["offset"], place["entry"], 0)
        is_share = row.part.startswith(SHARE)
        share, slash, topic_filter = row.part.removeprefix(SHARE).partition("/")
        names = {
            "op": Op.ADD,
            "parentTopic": row.parent,
            "group": row.group,
            "clientId": row.client_id,
            "liteTopic": row.lite_topic,
            "lmqName": lmq_name(row.parent, row.lite_topic),
            "share": share if is_share else None,
            "filter": topic_filter if is_share and slash else None,
            "subscription": None if is_share else row.part or None,
            "eventId": event_id(row.parent, SubscriberKey(*row[1:3], row.part), Op.ADD, row.lite_topic, source),
        }
        patterns, version = update["patterns"], update["version"]
        is_right = all(update.get(name) == wanted for name, wanted in names.items())
        has_types = type(version) in (int, type(None)) and all(type(each) is str for each in patterns)
        return value_of(tuple(patterns), version) if is_right and has_types else CONTRADICTORY
    except (KeyError, TypeError, ValueError, AttributeError):
        return CONTRADICTORY


class RequestLog(Table):
    """Requests of some clients."""

    def __init__(self, file: Path, clients: Collection[ClientName]) -> None:
        super().__init__(file)
        self._clients = clients
        self._table.execute(
            "CREATE TABLE requests (parent, clientgroup, client, limits, part, place, entry, time, payload)"
        )
        self._table.execute("CREATE INDEX of_client ON requests (parent, clientgroup, client)")

    def note(self, parent: str, limits: int, rows: Iterable[InputRow]) -> None:
        """Note the requests of the clients among the input rows of one shard of a parent."""
        if not self._clients:
            return
        requests = sorted(row for row in rows if row.stream == _SUBSCRIPTIONS)
        named = ((self._client(parent, row.payload), row) for row in requests)
        self._write(
            "INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(*client, limits, *row[1:]) for client, row in named if client is not None],
        )

    def _client(self, parent: str, payload: bytes | None) -> ClientName | None:
        try:
            request = orjson.loads(payload or b"")
            name = ClientName(parent, request["group"], request["clientId"])
            is_wanted = name in self._clients
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return None
        return name if is_wanted else None

    def of(self, client: ClientName) -> Iterator[tuple[int, InputRow]]:
        """Yield the requests of a client in their order, each with the number of its limits."""
        found = self._table.execute(
            "SELECT limits, part, place, entry, time, payload FROM requests "
            "WHERE parent = ? AND clientgroup = ? AND client = ? ORDER BY rowid",
            client,
        )
        for limits, *row in found:
            yield limits, InputRow(_SUBSCRIPTIONS, *row)


def unexplained(rules: Rules, log: RequestLog, rows: Iterable[LedgerRow]) -> Iterator[LedgerRow]:
    """Yield the rows, given in order of their keys, whose value no state of their client explains."""
    for client, several in groupby(rows, lambda row: ClientName(*name_of(row.key)[:3])):
        by_shard: dict[int, list[tuple[LedgerRow, RowName]]] = defaultdict(list)
        for row in several:
            name = name_of(row.key)
            by_shard[rules.routing.shard_of(client.parent, name.lite_topic)].append((row, name))
        for number, those in by_shard.items():
            possible = _possible(rules, log, client, number, {name.lite_topic for _, name in those})
            yield from (row for row, name in those if row.said not in possible[name.lite_topic, name.part])


def _possible(
    rules: Rules, log: RequestLog, client: ClientName, number: int, topics: Collection[str]
) -> Mapping[tuple[str, str], set[int]]:
    """Return the values that the rows of a client on some topics may have, by topic and part."""
    found: dict[tuple[str, str], set[int]] = defaultdict(set)
    state = ShardState(inner_multi=rules.inner_multi)
    key, seen = ClientKey(client.group, client.client_id), set[Any]()
    for limits, row in log.of(client):
        rules.under(limits).apply(state, (client.parent, number), [row])
        held = state.clients.get(key)
        if held is None:
            continue
        for mode in Mode:
            live, version, entries, everything = held.subscription(mode).content
            content = mode, live, version, frozenset(entries), everything
            if content not in seen:
                seen.add(content)
                for place, value in _values(state, key, held, mode, topics):
                    found[place].add(value)
    return found


def _values(
    state: ShardState, key: ClientKey, client: Client, mode: Mode, topics: Iterable[str]
) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield topic and part of each row that a client has in a group of this mode, with the value of its ADD."""
    wanted, version = interest(client, mode), client.subscription(mode).version
    if wanted == NOTHING:
        return
    index = state.new_interests()
    index.add(key, wanted)
    for topic in topics:
        for subscriber, texts in index.match(topic).items():
            yield (topic, subscriber.part), value_of(tuple(sorted(set(texts))), version)
