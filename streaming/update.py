"""What the job says: changes of the relation, and what it could not apply."""

from enum import StrEnum
from typing import Any, NamedTuple

from streaming.events import Reason, Source
from streaming.interests import Receiver


class Op(StrEnum):
    """What an update does to the relation."""

    ADD = "ADD"
    REMOVE = "REMOVE"


class Cause(StrEnum):
    """Why the relation changed. TOPIC_CREATED is the lazy path, SUBSCRIBED the eager one."""

    TOPIC_CREATED = "TOPIC_CREATED"
    TOPIC_DELETED = "TOPIC_DELETED"
    TOPIC_EXPIRED = "TOPIC_EXPIRED"
    SUBSCRIBED = "SUBSCRIBED"
    UNSUBSCRIBED = "UNSUBSCRIBED"
    LEASE_EXPIRED = "LEASE_EXPIRED"
    GROUP_CHANGED = "GROUP_CHANGED"
    SELECTOR_CHANGED = "SELECTOR_CHANGED"
    EVICTED = "EVICTED"
    RELEASED = "RELEASED"
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"
    QUOTA_FREED = "QUOTA_FREED"


class Update(NamedTuple):
    """One change of the relation.

    Attributes:
        patterns: the client's entries that match the topic, before a REMOVE and after an ADD, sorted, so that a
            repeated batch repeats them; none for receive-all.
        version: of the client's last applied request.
        source: the event that caused it.
        offset_option: where the client wants to start, when the request that caused an ADD said so.
        reset: the client's offsets on the topic are to be forgotten.
        bitmap: of an ADD, the groups whose SQL92 selectors agree with the topic.
    """

    op: Op
    receiver: Receiver
    lite_topic: str
    patterns: tuple[str, ...]
    cause: Cause
    version: int | None
    source: Source
    offset_option: Any = None
    reset: bool = False
    bitmap: bytes | None = None


class Problem(NamedTuple):
    """A part of an entry that cannot be applied; becomes a dead letter."""

    source: Source
    reason: Reason
    message: str
