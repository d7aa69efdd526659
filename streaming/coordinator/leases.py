"""Leases of clients."""

from collections.abc import Mapping
from typing import NamedTuple

from streaming.events.model import Place
from streaming.state.notes import Versions


class ClientLease(NamedTuple):
    """What a client has asked for.

    Attributes:
        parents: on which it may be in session.
        place: of its last request.
        versions: by parent, also where its session has ended: older requests stay stale there.
    """

    parents: tuple[str, ...]
    place: Place
    versions: Mapping[str, Versions] = {}
