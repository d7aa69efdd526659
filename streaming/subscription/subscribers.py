"""Who receives a topic."""

from typing import NamedTuple


class ClientKey(NamedTuple):
    """A client of a group."""

    group: str
    client_id: str


class SubscriberKey(NamedTuple):
    """Who stands in one row of the relation beside the topic.

    Attributes:
        part: blank for all of a client's entries together; what is delivered apart has a part of its own:
            `share:NAME` (MQTT `$share`), or `DIALECT:POLICY:PATTERN` for an entry that is a row of its own (WAMP).
    """

    group: str
    client_id: str
    part: str = ""

    @property
    def client(self) -> ClientKey:
        """The client that receives."""
        return ClientKey(self.group, self.client_id)


Matches = dict[SubscriberKey, list[str]]
"""The receivers of a topic, each with the entries that say so (none for receive-all)."""

Orders = dict[SubscriberKey, int]
"""The order of each receiver's newest entry that asks for a topic."""
