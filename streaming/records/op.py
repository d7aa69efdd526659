"""The two codes of an update: the operation on the row, and the cause.

Only the standard library is imported here: subscription clients read these codes without numpy and Spark.
"""

from enum import StrEnum


class Op(StrEnum):
    """Effect of an update on its row of the relation."""

    ADD = "ADD"
    REMOVE = "REMOVE"


class Cause(StrEnum):
    """Reason of an update: TOPIC_CREATED is the lazy path, SUBSCRIBED the eager one.

    REPAIRED is of corrections by `reexpand verify`. The job writes it only to replace keys of an earlier release.
    """

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
    REPAIRED = "REPAIRED"
