"""Requests of a client: to the job, with its patterns, and to RocketMQ, with its lite topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from matcher import validate
from streaming.errors import ConfigInvalid
from streaming.records.model import BIND_TOPIC, WILDCARD, Action

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class OffsetOption(NamedTuple):
    """Start position of a client in topics that exist when it subscribes.

    RocketMQ 5.5.0 also accepts the type TIMESTAMP but ignores it, so this class has no such option.

    Attributes:
        type: POLICY, OFFSET or TAIL_N.
        value: for POLICY 0 (the group's offset), 1 (the first message) or 2 (the next message).
    """

    type: str
    value: int

    @classmethod
    def last(cls) -> OffsetOption:
        """Continue at the group's offset, like no option."""
        return cls("POLICY", 0)

    @classmethod
    def min(cls) -> OffsetOption:
        """Start at the first message of a topic."""
        return cls("POLICY", 1)

    @classmethod
    def max(cls) -> OffsetOption:
        """Start at the next message of a topic."""
        return cls("POLICY", 2)

    @classmethod
    def at(cls, offset: int) -> OffsetOption:
        """Start at an offset."""
        return cls("OFFSET", offset)

    @classmethod
    def tail(cls, count: int) -> OffsetOption:
        """Go back by a number of messages. RocketMQ 5.5.0 counts from the group's offset, not from the end."""
        return cls("TAIL_N", count)


class LiteRequest(NamedTuple):
    """A request to RocketMQ that changes the client's lite topics; the option of a PARTIAL_ADD has type and value."""

    action: Action
    names: tuple[str, ...]
    option: tuple[str, int] | None = None


class PatternSet:
    """Patterns of a client, and the requests that change them, with a selector as in subscription records."""

    def __init__(
        self, client_id: str, group: str, parent: str, dialect: str, selector: Mapping[str, str] | None
    ) -> None:
        self._common: dict[str, Any] = {"clientId": client_id, "group": group, "topic": parent, "dialect": dialect}
        if selector is not None:
            self._common["selector"] = dict(selector)
        self._dialect = dialect
        self._patterns: dict[str, None] = {}

    def add(self, patterns: Iterable[str], option: OffsetOption | None) -> dict[str, Any] | None:
        """Add patterns, and return the request; None if no pattern is new.

        Raises:
            InvalidPattern: a pattern is invalid. None of them is added.
        """
        new = dict.fromkeys(patterns)
        for pattern in new:
            validate(pattern, self._dialect)
        new = {pattern: None for pattern in new if pattern not in self._patterns}
        if not new:
            return None
        action = Action.PARTIAL_ADD if self._patterns else Action.COMPLETE_ADD
        self._patterns |= new
        further = {} if option is None else {"offsetOption": option._asdict()}
        return self._request(action, list(new)) | further

    def forget(self, patterns: Iterable[str]) -> None:
        """Take back an addition whose request was rejected."""
        for pattern in patterns:
            del self._patterns[pattern]

    def remove(self, patterns: Iterable[str]) -> dict[str, Any] | None:
        """Remove patterns, and return the request; None if the client has no such pattern.

        Removing the last pattern ends the client, because an empty set would match every topic.
        """
        gone = [pattern for pattern in dict.fromkeys(patterns) if pattern in self._patterns]
        if not gone:
            return None
        for pattern in gone:
            del self._patterns[pattern]
        return self._request(Action.PARTIAL_REMOVE, gone) if self._patterns else self.end()

    def repeat(self) -> dict[str, Any] | None:
        """Return the request that renews the lease; None without patterns."""
        return self._request(Action.COMPLETE_ADD, list(self._patterns)) if self._patterns else None

    def end(self) -> dict[str, Any]:
        """Return the request that ends the client."""
        return self._request(Action.COMPLETE_REMOVE, [])

    def _request(self, action: Action, patterns: list[str]) -> dict[str, Any]:
        return {"action": action.value, **self._common, "liteTopicSet": patterns}


def group_event(group: str, parent: str, attributes: Mapping[str, str]) -> dict[str, Any]:
    """Return a wildcard group's event; raise `ConfigInvalid` if bound elsewhere."""
    bound = attributes.get(BIND_TOPIC, parent)
    if bound != parent:
        raise ConfigInvalid(f"The attributes bind the group {group!r} to {bound!r}, but the consumer uses {parent!r}.")
    return {"group": group, "attributes": {WILDCARD: "true", **attributes, BIND_TOPIC: parent}}
