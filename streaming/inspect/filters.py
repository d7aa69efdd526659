"""Filters of lists."""

from typing import NamedTuple


class Filter(NamedTuple):
    """Selection of items.

    Attributes:
        pattern: pattern of their names, or a name; for subscriptions, of the entries.
        dialect: dialect of the pattern.
        client: id of a client.
        group: name of a group.
    """

    pattern: str | None = None
    dialect: str = "lite"
    client: str | None = None
    group: str | None = None


EVERYTHING = Filter()
