"""Groups as some topics still see them: the topics that a backfill has not reached follow the former group.

Several backfills of a group may cover a topic. The oldest one decides, because its former group is the one that the
topic's subscribers still follow.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from streaming.records.model import TopicMetadata
from streaming.records.subscribers import ClientKey, Matches
from streaming.state.client import NOTHING, Interest
from streaming.state.delta import Backfill
from streaming.state.group import Roster, interest
from streaming.state.interests import Interests
from streaming.state.policy import GroupPolicy, apply_policies, is_restrictive


class Frame(NamedTuple):
    """Interests of clients of a group, and its policy, as some topics see them.

    Attributes:
        keys: the clients.
        policies: the policy by group; empty if it restricts no client.
    """

    keys: dict[ClientKey, None]
    interests: Interests
    policies: dict[str, GroupPolicy]

    def subscribers(self, topic: str, metadata: TopicMetadata, matches: Matches | None = None) -> Matches:
        """Return the subscribers of a topic among the clients; `matches` are those with a matching entry."""
        found = self.interests.match(topic) if matches is None else matches
        return apply_policies(found, topic, metadata, (self.interests,), self.policies)


def frame(
    roster: Roster, group: str, keys: Iterable[ClientKey], backfills: Sequence[Backfill], interests: Interests
) -> Frame:
    """Return a group as the topics see it that some backfills cover.

    Args:
        roster: groups and clients by all events.
        group: the group.
        keys: the clients.
        backfills: the oldest first.
        interests: an empty index.
    """
    policy, found = former_policy(roster, group, backfills), dict.fromkeys(keys)
    for key in found:
        interests.add(key, former_interest(roster, key, backfills, policy))
    return Frame(found, interests, {group: policy} if is_restrictive(policy) else {})


def former_policy(roster: Roster, group: str, backfills: Iterable[Backfill]) -> GroupPolicy:
    """Return the policy of a group for the topics that some backfills cover."""
    return next((each.policy for each in backfills if each.policy is not None), None) or roster.policy(group)


def former_interest(
    roster: Roster, key: ClientKey, backfills: Sequence[Backfill], policy: GroupPolicy | None = None
) -> Interest:
    """Return the interest of a client on the topics that some backfills cover; `policy` is that of `former_policy`."""
    for each in backfills:
        if key.client_id in each.clients:
            return each.clients[key.client_id].interest
    if policy is None:
        policy = former_policy(roster, key.group, backfills)
    return NOTHING if policy.elsewhere else interest(roster.client(key), policy.mode)


def pinned(group: str, backfills: Iterable[Backfill]) -> dict[ClientKey, None]:
    """Return the clients whose former interests are in some backfills of a group."""
    return {ClientKey(group, client_id): None for each in backfills for client_id in each.clients}
