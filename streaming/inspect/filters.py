"""Filters of lists."""

from typing import NamedTuple


class Filter(NamedTuple):
    """Selection of items.

    Attributes:
        pattern: pattern that their names match, or their name; of subscriptions, the entry itself.
        dialect: of the pattern.
        client: id of a client.
        group: name of a group.
    """

    pattern: str | None = None
    dialect: str = "lite"
    client: str | None = None
    group: str | None = None


EVERYTHING = Filter()
