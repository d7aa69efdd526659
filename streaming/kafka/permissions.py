"""Minimal permissions at the broker for each user of Kafka.

READ, WRITE and DELETE include DESCRIBE, and ALTER_CONFIGS includes DESCRIBE_CONFIGS, as Kafka has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from uuid import UUID

from streaming.kafka.facts import ROLES, names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.config import Settings

Kind = Literal["TOPIC", "GROUP", "TRANSACTIONAL_ID"]

LEASE_SECONDS: Final = 10.0
"""Seconds without a beat after which the driver that holds a checkpoint's lease counts as gone."""

OWN_NAMES: Final = "reexpand-"
"""Beginning of the names of the job's consumer groups and transactional ids."""

PARENT: Final = "PARENT"
"""Stand-in for the name of a parent topic whose messages a dispatcher delivers."""

_ACCEPT: Final = f"reexpand-accept-{PARENT}"
_EMIT: Final = f"reexpand-emit-{PARENT}"
"""Consumer groups and transactional ids of `reexpand cloudevents`, for the topic of CloudEvents."""

_EVENTS: Final = ("group_events", "subscription_events", "topic_events")


class Permission(NamedTuple):
    """An operation that a role must be allowed.

    Attributes:
        resources: settings that name Kafka topics, or other names; one that ends in `-` is a prefix.
    """

    role: str
    resources: tuple[str, ...]
    operation: str
    why: str
    kind: Kind = "TOPIC"


class Grant(NamedTuple):
    """An operation on one resource of a broker."""

    kind: Kind
    name: str
    operation: str

    @property
    def is_prefix(self) -> bool:
        """True if it holds for all names with this beginning."""
        return self.name.endswith("-")

    def __str__(self) -> str:
        kind = self.kind.lower().replace("_", " ")
        return f"{self.operation} on the {kind} {self.name}{'...' if self.is_prefix else ''}"


PERMISSIONS: Final = (
    Permission("job", (*_EVENTS, "clock"), "READ", "reads its inputs"),
    Permission("job", ("updates",), "READ", "compares the updates with the checkpoint at each start"),
    Permission("job", ("updates", "dead_letters"), "WRITE", "writes its results"),
    Permission("job", ("clock",), "WRITE", "writes ticks and alarms"),
    Permission("job", ("group_events",), "WRITE", "writes that a group is bound elsewhere, and `groups`"),
    Permission("job", ("subscription_events",), "WRITE", "writes the ends of clients to all of their parents"),
    Permission("job", ROLES, "DESCRIBE_CONFIGS", "checks retention and compaction at each start"),
    Permission("job", (OWN_NAMES,), "READ", "stores its lease, write markers, and offsets for lag monitors", "GROUP"),
    Permission("job", (OWN_NAMES,), "WRITE", "writes in transactions, including its lease", "TRANSACTIONAL_ID"),
    Permission("job that answers", ("answers",), "WRITE", "answers questions; in addition to `job`"),
    Permission("topics", ROLES, "CREATE", "creates missing topics"),
    Permission("topics", ROLES, "DESCRIBE", "checks which topics exist"),
    Permission("topics", ROLES, "DESCRIBE_CONFIGS", "compares the settings of topics"),
    Permission(
        "topics --fix", (*_EVENTS, "clock", "updates"), "ALTER_CONFIGS", "corrects settings; in addition to `topics`"
    ),
    Permission("producer of topic events", ("topic_events",), "WRITE", "announces topics"),
    Permission("client", ("subscription_events",), "WRITE", "subscribes and unsubscribes"),
    Permission("owner of groups", ("group_events",), "WRITE", "sets the attributes of groups"),
    Permission("follower", ("updates",), "READ", "follows the updates, such as `SubscriptionClient`"),
    Permission("dispatcher", ("updates",), "READ", "follows the updates"),
    Permission("dispatcher", (PARENT,), "READ", "reads the messages of a parent topic"),
    Permission("dispatcher", (f"{PARENT}-delivered",), "WRITE", "delivers them"),
    Permission(
        "dispatcher", ("dispatcher",), "READ", "stores the offsets of delivered messages (`--group-id`)", "GROUP"
    ),
    Permission("PatternConsumer", ("subscription_events",), "WRITE", "subscribes"),
    Permission("PatternConsumer", ("group_events",), "WRITE", "declares its group, unless `declare=False`"),
    Permission("PatternConsumer", ("updates",), "READ", "follows the relation"),
    Permission("PatternConsumer", (f"{PARENT}-",), "READ", "reads the matching topics, here with a prefix"),
    Permission("PatternConsumer", ("billing",), "READ", "stores its offsets (`group`, or `group_id`)", "GROUP"),
    Permission("explain", ("clock",), "WRITE", "asks the job; also `plan` and lists"),
    Permission("explain", ("answers",), "READ", "reads the answers; also `plan` and lists"),
    Permission("tail", ("updates",), "READ", "follows the updates"),
    Permission("send", _EVENTS, "WRITE", "writes an event; each kind needs only its topic"),
    Permission("send --wait", ("clock",), "WRITE", "asks whether the job has read it; in addition to `send`"),
    Permission("send --wait", ("answers", "updates"), "READ", "reads the answer, and the updates of the event"),
    Permission("cloudevents accept", (PARENT,), "READ", "reads the CloudEvents of a topic"),
    Permission("cloudevents accept", _EVENTS, "WRITE", "writes the inputs"),
    Permission("cloudevents accept", (_ACCEPT,), "READ", "stores its progress", "GROUP"),
    Permission("cloudevents accept", (_ACCEPT,), "WRITE", "converts in transactions", "TRANSACTIONAL_ID"),
    Permission("cloudevents emit", ("updates", "dead_letters"), "READ", "reads the outputs"),
    Permission("cloudevents emit", (PARENT,), "WRITE", "writes CloudEvents to a topic"),
    Permission("cloudevents emit", (_EMIT,), "READ", "stores its progress", "GROUP"),
    Permission("cloudevents emit", (_EMIT,), "WRITE", "converts in transactions", "TRANSACTIONAL_ID"),
    Permission("advise", _EVENTS, "READ", "reads the inputs"),
    Permission("verify", (*_EVENTS, "clock", "updates", "dead_letters"), "READ", "reads the compared topics"),
    Permission("verify --repair", ("updates",), "WRITE", "writes corrections; in addition to `verify`"),
    Permission("compact-inputs", (*_EVENTS, "clock"), "DELETE", "removes the records that a backup contains"),
    Permission("quarantine add", (*_EVENTS, "clock"), "READ", "reads the entry"),
    Permission("quarantine add", (OWN_NAMES,), "DESCRIBE", "checks that no driver runs", "GROUP"),
    Permission("dlq list", ("dead_letters",), "READ", "reads dead letters; also `dlq show`"),
    Permission(
        "dlq replay", _EVENTS, "READ", "reads entries that dead letters hold in part; in addition to `dlq list`"
    ),
    Permission(
        "dlq replay", (*_EVENTS, "dead_letters"), "WRITE", "writes entries back, and marks their dead letters as done"
    ),
    Permission("watch-kafka", ("topic_events",), "READ", "reads earlier announcements"),
    Permission("watch-kafka", ("topic_events",), "WRITE", "announces topics"),
    Permission("watch-kafka", (f"{PARENT}-",), "DESCRIBE", "lists the topics to announce, here with a prefix"),
)
"""Permissions by role; the topics exist beforehand, except for the role `topics`."""


def own_group(checkpoint_id: str) -> str:
    """Return the consumer group and the transactional id under which Kafka keeps the lease of a checkpoint."""
    return f"{OWN_NAMES}{checkpoint_id}"


def partition_names(checkpoint_id: str, partitions: int) -> list[str]:
    """Return the name of each state partition: the transactional id of its producer, and the group of its marker."""
    return [f"{own_group(checkpoint_id)}-{number}" for number in range(partitions)]


def checkpoint_of(name: str) -> str | None:
    """Return the checkpoint id in the name of a state partition; None for other names."""
    checkpoint_id, _, number = name.removeprefix(OWN_NAMES).rpartition("-")
    if not (name.startswith(OWN_NAMES) and number.isdecimal()):
        return None
    try:
        return checkpoint_id if str(UUID(checkpoint_id)) == checkpoint_id else None
    except ValueError:
        return None


def lag_group(updates: str) -> str:
    """Return the consumer group under which a job commits its positions, for monitors of lag."""
    return f"{OWN_NAMES}lag-{updates}"


def missing(lacking: Sequence[Grant]) -> str:
    """Return the sentence about permissions that a user lacks, without a full stop."""
    return f"Kafka does not allow this user {', '.join(map(str, lacking))}; docs/security.md lists what each needs"


def readable(topic: str) -> Grant:
    """Return the permission to read a topic."""
    return Grant("TOPIC", topic, "READ")


def usable_group(group: str) -> Grant:
    """Return the permission to keep offsets in a consumer group."""
    return Grant("GROUP", group, "READ")


def writable(topic: str) -> Grant:
    """Return the permission to write to a topic."""
    return Grant("TOPIC", topic, "WRITE")


def grants(role: str, settings: Settings, parent: str = PARENT) -> list[Grant]:
    """Return the permissions of a role, with the topics of these settings."""
    topics = {**names(settings), "answers": settings.answers}
    return [
        Grant(each.kind, topics.get(resource, resource.replace(PARENT, parent)), each.operation)
        for each in PERMISSIONS
        for resource in each.resources
        if each.role == role
    ]
