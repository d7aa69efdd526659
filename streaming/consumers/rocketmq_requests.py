"""Requests of one client to the job: its patterns, and their repetition."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from confluent_kafka import KafkaError, KafkaException, Producer

from matcher import validate
from streaming.errors import ConfigInvalid, NotWritten
from streaming.events.model import BIND_TOPIC, WILDCARD, Action
from streaming.kafka.clients import create, reason
from streaming.kafka.permissions import writable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

WRITE_SECONDS = 30.0
"""Longest wait in seconds for Kafka to take a request."""


class OffsetOption(NamedTuple):
    """The place from which a client reads the topics that are there when it subscribes.

    RocketMQ 5.5.0 takes the type TIMESTAMP as well, and does nothing with it, so there is none here.

    Attributes:
        type: POLICY, OFFSET or TAIL_N.
        value: of POLICY 0 (where the group was), 1 (the first message) or 2 (the next message).
    """

    type: str
    value: int

    @classmethod
    def last(cls) -> OffsetOption:
        """Go on where the group was; the same as no option."""
        return cls("POLICY", 0)

    @classmethod
    def min(cls) -> OffsetOption:
        """Begin with the first message of a topic."""
        return cls("POLICY", 1)

    @classmethod
    def max(cls) -> OffsetOption:
        """Begin with the next message of a topic."""
        return cls("POLICY", 2)

    @classmethod
    def at(cls, offset: int) -> OffsetOption:
        """Begin at an offset."""
        return cls("OFFSET", offset)

    @classmethod
    def tail(cls, count: int) -> OffsetOption:
        """Go back by a number of messages; RocketMQ 5.5.0 counts from where the group was, not from the end."""
        return cls("TAIL_N", count)


class PatternSet:
    """Patterns of one client, and the requests that make the job know of them.

    Args:
        client_id: id of the client.
        group: its group.
        parent: parent topic of the patterns.
        dialect: dialect of the patterns.
        selector: condition on topics, as in the records.
    """

    def __init__(
        self, client_id: str, group: str, parent: str, dialect: str, selector: Mapping[str, str] | None
    ) -> None:
        self._common: dict[str, Any] = {"clientId": client_id, "group": group, "topic": parent, "dialect": dialect}
        if selector is not None:
            self._common["selector"] = dict(selector)
        self._dialect = dialect
        self._patterns: dict[str, None] = {}

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns, in order."""
        return tuple(self._patterns)

    def add(self, patterns: Iterable[str], option: OffsetOption | None) -> dict[str, Any] | None:
        """Return the request for further patterns; None where none is new.

        Raises:
            InvalidPattern: one of them is invalid; then none is added.
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

    def remove(self, patterns: Iterable[str]) -> dict[str, Any] | None:
        """Return the request without some patterns; None where the client has none of them.

        The last pattern takes the client with it, since an empty set would ask for every topic.
        """
        gone = [pattern for pattern in dict.fromkeys(patterns) if pattern in self._patterns]
        if not gone:
            return None
        for pattern in gone:
            del self._patterns[pattern]
        return self._request(Action.PARTIAL_REMOVE, gone) if self._patterns else self.end()

    def repeat(self) -> dict[str, Any] | None:
        """Return the request that keeps the lease; None without patterns."""
        return self._request(Action.COMPLETE_ADD, list(self._patterns)) if self._patterns else None

    def end(self) -> dict[str, Any]:
        """Return the request that ends the client."""
        return self._request(Action.COMPLETE_REMOVE, [])

    def _request(self, action: Action, patterns: list[str]) -> dict[str, Any]:
        return {"action": action.value, **self._common, "liteTopicSet": patterns}


class InputWriter:
    """Writer of one client's records to inputs of the job, in order.

    Args:
        bootstrap_servers: Kafka brokers.
        group: group of the client, the key of its records.
        options: further client options, in the names of librdkafka.

    Raises:
        ConfigInvalid: an option is not valid.
    """

    def __init__(self, bootstrap_servers: str, group: str, options: Mapping[str, Any]) -> None:
        self._group = group
        self._lock = threading.Lock()
        # The partitioner is that of Java, so that the requests of a group stay in one partition for any writer.
        self._producer = create(
            Producer,
            {
                "log_level": 0,
                **options,
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "partitioner": "murmur2_random",
            },
        )

    def write(self, topic: str, value: Mapping[str, Any], seconds: float = WRITE_SECONDS) -> None:
        """Write a record, and wait until Kafka has it.

        Raises:
            NotWritten: Kafka refuses it, or does not take it in time; in the latter case it is written later.
        """
        refused: list[KafkaError] = []

        def written(error: KafkaError | None, _: object) -> None:
            if error is not None:
                refused.append(error)

        with self._lock:
            try:
                self._producer.produce(topic, orjson.dumps(value), self._group, on_delivery=written)
                left = self._producer.flush(seconds)
            except KafkaException as error:
                raise NotWritten(f"The topic {topic} takes no request: {reason(error, writable(topic))}.") from None
        if refused:
            raise NotWritten(f"The topic {topic} takes no request: {reason(refused[0], writable(topic))}.")
        if left:
            raise NotWritten(f"The topic {topic} has not taken a request within {seconds:g} s; it is still tried.")


def group_event(group: str, parent: str, attributes: Mapping[str, str]) -> dict[str, Any]:
    """Return the event that declares a group whose entries are patterns.

    Raises:
        ConfigInvalid: the attributes bind it to another parent.
    """
    bound = attributes.get(BIND_TOPIC, parent)
    if bound != parent:
        raise ConfigInvalid(f"The attributes bind the group {group!r} to {bound!r}, and the consumer is of {parent!r}.")
    return {"group": group, "attributes": {WILDCARD: "true", **attributes, BIND_TOPIC: parent}}
