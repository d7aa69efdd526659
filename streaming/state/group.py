"""Groups of clients: attributes in force, and the policy that follows from them and the selectors."""

from typing import NamedTuple

from streaming.events.model import (
    DEFAULT_QUOTA,
    MODEL,
    QUOTA,
    RESET_EXCLUSIVE,
    RESET_UNSUBSCRIBE,
    WILDCARD,
)
from streaming.state.selectors import GroupSelectors
from streaming.subscription.client import NOTHING, Client, Interest, Mode, interest
from streaming.subscription.policy import GroupPolicy
from streaming.updates.model import Cause


class Group(NamedTuple):
    """Attributes in force, with the place of the event that set them.

    Attributes:
        attributes: by name, as in the group event.
        partition, offset: place of that event.
        bound_to: another parent that the group is bound to, where its attributes are kept.
    """

    attributes: dict[str, str]
    partition: int
    offset: int
    bound_to: str | None = None

    @property
    def mode(self) -> Mode:
        """Meaning of the entries of its clients."""
        return Mode.WILDCARD if WILDCARD in self.attributes else Mode.LITERAL

    @property
    def is_exclusive(self) -> bool:
        """True if a topic goes to one of its clients only."""
        return self.attributes.get(MODEL, "").lower() == "exclusive"

    @property
    def quota(self) -> int:
        """Number of topics that a client may hold; negative for any number."""
        return int(self.attributes.get(QUOTA, DEFAULT_QUOTA))

    def resets_offset(self, cause: Cause) -> bool:
        """Tell whether a client that loses a topic for this cause starts over."""
        if cause is Cause.EVICTED:
            return self._is_true(RESET_EXCLUSIVE)
        return cause in (Cause.UNSUBSCRIBED, Cause.LEASE_EXPIRED) and self._is_true(RESET_UNSUBSCRIBE)

    def _is_true(self, attribute: str) -> bool:
        return self.attributes.get(attribute, "").lower() == "true"


UNKNOWN_GROUP = Group({}, -1, -1)
"""A group without a known event: it has the defaults."""


def interest_of(group: Group, client: Client) -> Interest:
    """Return the interest of a client of the group on this parent."""
    return NOTHING if group.bound_to is not None else interest(client, group.mode)


def policy_of(group: Group, selectors: GroupSelectors) -> GroupPolicy:
    """Return the policy that follows from a group's attributes and selectors."""
    return GroupPolicy(
        group.mode, group.bound_to is not None, group.is_exclusive, selectors.in_mode(group.mode), group.quota
    )
