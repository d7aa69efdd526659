"""Keys of clients and subscribers, and the subscribers of one topic."""

from typing import NamedTuple


class ClientKey(NamedTuple):
    """Key of a client: its id within its group."""

    group: str
    client_id: str


class SubscriberKey(NamedTuple):
    """Key of a subscriber: the part of a relation row beside the topic.

    Attributes:
        group: name of the group.
        client_id: id of the client within the group.
        part: blank for all entries of a client together. Entries with a delivery of their own have a part of their own:
            `share:NAME/FILTER` (MQTT `$share`), or `DIALECT:POLICY:PATTERN` for an entry that is a row of its own
            (WAMP).
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
