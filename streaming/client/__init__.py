"""Clients of the job, without Spark and Java: the relation of subscribers and topics, and a Kafka consumer."""

from streaming.client.follower import UPDATES, SubscriptionClient
from streaming.client.relation import Change, Relation
from streaming.client.rows import Row, Subscriber
from streaming.errors import CallbackFailed, ClientError, Malformed, NotReady, UpdatesUnreadable
from streaming.kafka.options import client_options
from streaming.records.op import Op

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
    "client_options",
]
