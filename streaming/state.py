"""What one shard remembers between micro-batches, and its binary form.

The binary form is a header and a MessagePack body. The header's digest is both checksum and identity: a worker that
still holds the state decoded from, or encoded to, the same digest uses it as it is.
"""

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import msgpack

from matcher import PatternIndex, TopicIndex
from streaming.errors import StateCorrupted, StateFormatUnknown
from streaming.events import WILDCARD
from streaming.subscription import NOTHING, Client, Interest, Mode, View, interest

K = TypeVar("K")
V = TypeVar("V")

FORMAT = 1
_MAGIC = b"rx"
_DIGEST_BYTES = 16
_HEADER_BYTES = len(_MAGIC) + 1 + _DIGEST_BYTES


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
    """What a micro-batch changes in a shard; None stands for removal."""

    topics: dict[str, bool] = field(default_factory=dict)
    groups: dict[str, Group | None] = field(default_factory=dict)
    clients: dict[ClientKey, Client | None] = field(default_factory=dict)
    interests: dict[ClientKey, tuple[Interest, Interest]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.topics or self.groups or self.clients)


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
        for topic, exists in delta.topics.items():
            if exists:
                self.topics[topic] = None
            else:
                del self.topics[topic]
            if self._topic_index is not None:
                (self._topic_index.add if exists else self._topic_index.remove)(topic)
        _overlay(self.groups, delta.groups)
        _overlay(self.clients, delta.clients)
        if self._interests is not None:
            for key, (before, after) in delta.interests.items():
                self._interests.remove(key, before)
                self._interests.add(key, after)


def encode(state: ShardState) -> bytes:
    """The state as bytes."""
    body = [
        list(state.topics),
        [[name, *group] for name, group in state.groups.items()],
        [
            [*key, client.literal, None if client.wildcard is client.literal else client.wildcard]
            for key, client in state.clients.items()
        ],
    ]
    return seal(body)


def decode(data: bytes, *, inner_multi: bool = False) -> ShardState:
    """The state from bytes.

    Raises:
        StateCorrupted: the bytes are not those that `encode` made.
        StateFormatUnknown: another release made them.
    """
    topics, groups, clients = unseal(data)
    state = ShardState(inner_multi)
    state.topics = dict.fromkeys(topics)
    state.groups = {name: Group(attributes, partition, offset) for name, attributes, partition, offset in groups}
    state.clients = {
        ClientKey(group, client_id): _client((literal, wildcard)) for group, client_id, literal, wildcard in clients
    }
    return state


def identity(data: bytes) -> bytes:
    """What tells one encoded state from another."""
    return data[:_HEADER_BYTES]


def seal(body: Any) -> bytes:
    """A versioned, checksummed binary of plain values."""
    packed: bytes = msgpack.packb(body)
    return b"".join((_MAGIC, bytes([FORMAT]), blake2b(packed, digest_size=_DIGEST_BYTES).digest(), packed))


def unseal(data: bytes) -> Any:
    """The plain values that `seal` packed.

    Raises:
        StateCorrupted: the bytes are not those that `seal` made.
        StateFormatUnknown: another release made them.
    """
    if data[: len(_MAGIC)] != _MAGIC or len(data) < _HEADER_BYTES:
        raise StateCorrupted("a state value lacks its header; restore the checkpoint from a copy or start a new one")
    version = data[len(_MAGIC)]
    if version != FORMAT:
        raise StateFormatUnknown(
            f"a state value has format {version}, this release reads {FORMAT}; use the one that wrote it"
        )
    packed = memoryview(data)[_HEADER_BYTES:]
    if blake2b(packed, digest_size=_DIGEST_BYTES).digest() != data[_HEADER_BYTES - _DIGEST_BYTES : _HEADER_BYTES]:
        raise StateCorrupted("a state value fails its checksum; restore the checkpoint from a copy or start a new one")
    return msgpack.unpackb(packed, use_list=False)


def _client(views: tuple[Any, Any]) -> Client:
    literal, wildcard = views
    shared = View(*literal)
    return Client(shared, shared if wildcard is None else View(*wildcard))


def _overlay(target: dict[K, V], changes: dict[K, V | None]) -> None:
    for key, value in changes.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = value
