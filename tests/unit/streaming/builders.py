"""Events in few words, and a shard to which they happen."""

import json
from typing import Any, NamedTuple

from streaming.batch import Event
from streaming.events import BIND_TOPIC, WILDCARD, Action, GroupEvent, Source, SubscriptionRequest, TopicEvent
from streaming.expansion import Expansion, expand
from streaming.shard import Shard
from streaming.state import ShardState, decode, encode
from streaming.subscription import Ignored
from streaming.update import Update

STREAM_NAMES: dict[type[Event], str] = {
    GroupEvent: "groups",
    SubscriptionRequest: "subscriptions",
    TopicEvent: "topics",
}

WILD = GroupEvent("g", {BIND_TOPIC: "p", WILDCARD: "true"}, "p")
LITERAL = GroupEvent("g", {BIND_TOPIC: "p"}, "p")
DELETED = GroupEvent("g", {}, "p")


def topic_json(**changes: Any) -> bytes:
    """A valid topic event as bytes, with changes; `...` leaves a field out."""
    return _json({"event": "CREATED", "parentTopic": "p", "liteTopic": "t"}, changes)


def request_json(**changes: Any) -> bytes:
    """A valid subscription entry as bytes, with changes; `...` leaves a field out."""
    base = {"action": "COMPLETE_ADD", "clientId": "c", "group": "g", "topic": "p", "liteTopicSet": ["t"]}
    return _json(base, changes)


def group_json(**changes: Any) -> bytes:
    """A valid group event as bytes, with changes; `...` leaves a field out."""
    return _json({"group": "g", "attributes": {BIND_TOPIC: "p", WILDCARD: "true"}}, changes)


def created(lite_topic: str) -> TopicEvent:
    """The creation of a topic of parent `p`."""
    return TopicEvent("p", lite_topic, created=True)


def deleted(lite_topic: str) -> TopicEvent:
    """The deletion of a topic of parent `p`."""
    return TopicEvent("p", lite_topic, created=False)


def request(
    action: Action,
    *entries: str,
    client: str = "c",
    group: str = "g",
    version: int | None = None,
    option: dict[str, Any] | None = None,
) -> SubscriptionRequest:
    """A request of a client on parent `p`."""
    return SubscriptionRequest("p", group, client, action, entries, version, option)


def replace(*entries: str, **fields: Any) -> SubscriptionRequest:
    """A COMPLETE_ADD."""
    return request(Action.COMPLETE_ADD, *entries, **fields)


def add(*entries: str, **fields: Any) -> SubscriptionRequest:
    """A PARTIAL_ADD."""
    return request(Action.PARTIAL_ADD, *entries, **fields)


def drop(*entries: str, **fields: Any) -> SubscriptionRequest:
    """A PARTIAL_REMOVE."""
    return request(Action.PARTIAL_REMOVE, *entries, **fields)


def leave(**fields: Any) -> SubscriptionRequest:
    """A COMPLETE_REMOVE."""
    return request(Action.COMPLETE_REMOVE, **fields)


class Said(NamedTuple):
    """An update in few words."""

    op: str
    client: str
    topic: str
    patterns: tuple[str, ...]
    cause: str


class Story:
    """A shard through several micro-batches, checked after each: `expand` is pure, and its delta is complete."""

    def __init__(self, *first: Event, shard: Shard | None = None) -> None:
        self.shard = shard or Shard("p")
        self.state = ShardState(self.shard.inner_multi)
        self.offset = 0
        self.expansion: Expansion
        self.then(*first)

    def then(self, *events: Event) -> set[Said]:
        """One micro-batch; offsets go on counting. Returns the updates, which must be different from each other."""
        sourced = [(self._source(event), event) for event in events]
        before = encode(self.state)
        self.expansion = expand(self.state, sourced, self.shard)
        assert encode(self.state) == before, "expand changed the state"
        self.state.apply(self.expansion.delta)
        rebuilt = decode(before)
        rebuilt.apply(self.expansion.delta)
        assert rebuilt == self.state, "the delta depends on the indexes"
        said = {
            Said(update.op, update.receiver.client_id, update.lite_topic, update.patterns, update.cause)
            for update in self.expansion.updates
        }
        keys = {(update.receiver, update.lite_topic) for update in self.expansion.updates}
        assert len(keys) == len(self.expansion.updates), "two updates of one client and topic"
        return said

    @property
    def only_update(self) -> Update:
        """The one update of the last batch."""
        (update,) = self.expansion.updates
        return update

    @property
    def ignored(self) -> dict[Ignored, int]:
        """The counts of the last batch."""
        return dict(self.expansion.ignored)

    def _source(self, event: Event) -> Source:
        self.offset += 1
        return Source(STREAM_NAMES[type(event)], 0, self.offset, 0, 1_000 + self.offset)


def _json(base: dict[str, Any], changes: dict[str, Any]) -> bytes:
    return json.dumps({key: value for key, value in {**base, **changes}.items() if value is not ...}).encode()
