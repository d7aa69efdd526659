"""Keys of clients and subscribers, and the subscribers of one topic."""

from typing import NamedTuple

SHARE = "share:"
"""Prefix of the part of a subscriber by an MQTT shared subscription: `share:NAME/FILTER`."""


class ClientKey(NamedTuple):
    """Key of a client: its id within its group."""

    group: str
    client_id: str


class SubscriberKey(NamedTuple):
    """Key of a subscriber: a row of the relation without the topic.

    The part is blank for all entries of a client together. An entry with its own delivery has its own part:
    `share:NAME/FILTER` (MQTT `$share`), or `DIALECT:POLICY:PATTERN` for an entry with its own row (WAMP).
    """

    group: str
    client_id: str
    part: str = ""

    @property
    def client(self) -> ClientKey:
        """Key of the client."""
        return ClientKey(self.group, self.client_id)


Matches = dict[SubscriberKey, list[str]]
"""Subscribers of one topic, each with its matching entries (no entry for receive-all)."""

Orders = dict[SubscriberKey, float]
"""Order of the newest matching entry for each subscriber of one topic."""
