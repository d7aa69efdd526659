"""Follows the updates topic and knows at any moment who receives which topic; needs neither Spark nor Java."""

from streaming.client.follower import UPDATES, SubscriptionClient
from streaming.client.relation import Change, Relation
from streaming.client.rows import Op, Row, Subscriber
from streaming.errors import CallbackFailed, ClientError, Malformed, NotReady, UpdatesUnreadable

__all__ = [
    "UPDATES",
    "CallbackFailed",
    "Change",
    "ClientError",
    "Malformed",
    "NotReady",
    "Op",
    "Relation",
    "Row",
    "Subscriber",
    "SubscriptionClient",
    "UpdatesUnreadable",
]
