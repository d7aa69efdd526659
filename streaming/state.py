"""What one shard remembers between micro-batches, and how that is written."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from matcher import PatternIndex, TopicIndex
from streaming import codec
from streaming.events import WILDCARD
from streaming.subscription import NOTHING, Client, Interest, Mode, View, interest

K = TypeVar("K")
V = TypeVar("V")


class ClientKey(NamedTuple):
    """A client of a group."""

    group: str
    client_id: str


class Group(NamedTuple):
    """Attributes in force, and where the event stands that set them."""

    attributes: dict[str, str]
    partition: int
    offset: int

    @property
    def mode(self) -> Mode:
        """How the entries of its clients are read."""
        return Mode.WILDCARD if WILDCARD in self.attributes else Mode.LITERAL


@dataclass(frozen=True, slots=True)
class Delta:
    """What a micro-batch changes in a shard.

    Attributes:
        added: topics that were not there before.
        removed: topics that were.
        groups: new attributes; None for a group that has none any more.
        clients: new subscriptions; None for a client of which nothing is left to remember.
    """

    added: Iterable[str] = ()
    removed: dict[str, None] = field(default_factory=dict)
    groups: dict[str, Group | None] = field(default_factory=dict)
    clients: dict[ClientKey, Client | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.groups or self.clients)


class Interests:
    """Who receives a topic: names, patterns and receive-all clients, indexed."""

    def __init__(self, inner_multi: bool) -> None:  # noqa: FBT001 - one setting of the job
        self._patterns: PatternIndex[ClientKey] = PatternIndex("lite", allow_inner_multi=inner_multi)
        self._names: dict[str, dict[ClientKey, None]] = {}
        self._everyone: dict[ClientKey, None] = {}

    def add(self, client: ClientKey, wanted: Interest) -> None:
        """Registers what a client receives."""
        for entry in wanted.entries:
            if wanted.patterns:
                self._patterns.add(entry, client)
            else:
                self._names.setdefault(entry, {})[client] = None
        if wanted.everything:
            self._everyone[client] = None

    def remove(self, client: ClientKey, wanted: Interest) -> None:
        """Forgets what `add` registered."""
        for entry in wanted.entries:
            if wanted.patterns:
                self._patterns.remove(entry, client)
            else:
                named = self._names[entry]
                del named[client]
                if not named:
                    del self._names[entry]
        if wanted.everything:
            del self._everyone[client]

    def match(self, topic: str) -> dict[ClientKey, list[str]]:
        """The clients that receive a topic, each with the entries that say so (none for receive-all)."""
        found: dict[ClientKey, list[str]] = {client: [] for client in self._everyone}
        for client in self._names.get(topic, ()):
            found.setdefault(client, []).append(topic)
        for pattern, client in self._patterns.match_patterns(topic):
            found.setdefault(client, []).append(pattern)
        return found


class ShardState:
    """Topics, group attributes and clients of one shard, with indexes built when first needed."""

    def __init__(self, inner_multi: bool = False) -> None:  # noqa: FBT001, FBT002 - one setting of the job
        self.topics: dict[str, None] = {}
        self.groups: dict[str, Group] = {}
        self.clients: dict[ClientKey, Client] = {}
        self.inner_multi = inner_multi
        self._interests: Interests | None = None
        self._topic_index: TopicIndex | None = None

    def __bool__(self) -> bool:
        return bool(self.topics or self.groups or self.clients)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShardState):
            return NotImplemented
        return (self.topics, self.groups, self.clients) == (other.topics, other.groups, other.clients)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def mode(self, group: str) -> Mode:
        """The reading in force; literal for a group of which no event is known."""
        known = self.groups.get(group)
        return Mode.LITERAL if known is None else known.mode

    def interest(self, key: ClientKey) -> Interest:
        """What a client receives now."""
        client = self.clients.get(key)
        return NOTHING if client is None else interest(client, self.mode(key.group))

    @property
    def interests(self) -> Interests:
        """Who receives a topic."""
        if self._interests is None:
            self._interests = Interests(self.inner_multi)
            for key in self.clients:
                self._interests.add(key, self.interest(key))
        return self._interests

    @property
    def topic_index(self) -> TopicIndex:
        """The stored topics, by pattern."""
        if self._topic_index is None:
            self._topic_index = TopicIndex("lite", allow_inner_multi=self.inner_multi)
            for topic in self.topics:
                self._topic_index.add(topic)
        return self._topic_index

    def apply(self, delta: Delta) -> None:
        """Makes a micro-batch's changes, in the indexes that exist as well."""
        self.topics.update(dict.fromkeys(delta.added))
        for topic in delta.removed:
            del self.topics[topic]
        if self._topic_index is not None:
            for topic in delta.added:
                self._topic_index.add(topic)
            for topic in delta.removed:
                self._topic_index.remove(topic)
        affected = self._affected(delta) if self._interests is not None else {}
        _overlay(self.groups, delta.groups)
        _overlay(self.clients, delta.clients)
        for key, before in affected.items():
            after = self.interest(key)
            if after != before:
                self.interests.remove(key, before)
                self.interests.add(key, after)

    def _affected(self, delta: Delta) -> dict[ClientKey, Interest]:
        """The clients whose interest may change, each with what it is now."""
        keys = dict.fromkeys(delta.clients)
        if delta.groups:
            keys.update(dict.fromkeys(key for key in self.clients if key.group in delta.groups))
        return {key: self.interest(key) for key in keys}


def encode(state: ShardState) -> bytes:
    """The state as a log of one change: from nothing to all of it."""
    return codec.begin(_plain(Delta(state.topics, {}, dict(state.groups), dict(state.clients))))


def renew(data: bytes | None, state: ShardState, delta: Delta) -> bytes | None:
    """The bytes of a state to which the delta was applied, from those before it; None for a state of nothing."""
    if not state:
        return None
    if data is None:
        return encode(state)
    renewed = codec.append(data, _plain(delta))
    return encode(state) if codec.is_long(renewed) else renewed


def decode(data: bytes, *, inner_multi: bool = False) -> ShardState:
    """The state from bytes.

    Raises:
        StateCorrupted: the bytes are not those that were written.
        StateFormatUnknown: another release wrote them.
    """
    state = ShardState(inner_multi)
    catch_up(state, data, None)
    return state


def catch_up(state: ShardState, data: bytes, after: codec.Position | None) -> None:
    """Brings a state that was decoded up to a position to the end of the bytes.

    Raises:
        StateCorrupted: the bytes are not those that were written.
        StateFormatUnknown: another release wrote them.
    """
    for added, removed, groups, clients in codec.read(data, after):
        state.apply(
            Delta(
                added,
                dict.fromkeys(removed),
                {name: None if group is None else Group(*group) for name, group in groups},
                {ClientKey(*key): None if views is None else _client(*views) for key, views in clients},
            )
        )


def _plain(delta: Delta) -> list[Any]:
    return [
        list(delta.added),
        list(delta.removed),
        list(delta.groups.items()),
        [(key, client and _views(client)) for key, client in delta.clients.items()],
    ]


def _views(client: Client) -> tuple[View, View | None]:
    return client.literal, None if client.wildcard is client.literal else client.wildcard


def _client(literal: tuple[Any, ...], wildcard: tuple[Any, ...] | None) -> Client:
    shared = View(*literal)
    return Client(shared, shared if wildcard is None else View(*wildcard))


def _overlay(target: dict[K, V], changes: dict[K, V | None]) -> None:
    for key, value in changes.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = value
