"""Notes about clients that ended, and the latest requests of groups, which may be judged again."""

from typing import NamedTuple

from streaming.records.model import Place, SubscriptionRequest
from streaming.state.client import Client, Mode
from streaming.state.group import GroupSelectors

MAX_NOTES = 1_000
"""Number of clients of a shard whose notes are kept: the clients that ended last."""

MAX_LOGGED = 64
"""Number of requests and ends in the log of a group, the latest ones. It is cut when it has twice as many."""

EndId = tuple[int, int]
"""Identity of an end: position of its request, and its rank among the ends of that position."""

NO_END: EndId = (-1, 0)


class Judged(NamedTuple):
    """Judgement of a request by the quota of its client.

    Attributes:
        order: number of the request on the shard.
        is_contested: the request exceeded the quota.
        is_refused: the quota refused the request.
        former: subscriptions of the client before the request, if it is the client's first in the log.
        selectors: of the group before the request, if it is the first in the log.
    """

    order: float
    is_contested: bool = False
    is_refused: bool = False
    former: Client | None = None
    selectors: GroupSelectors | None = None


class Repeated(NamedTuple):
    """An end, or a request, that can be applied again.

    Attributes:
        judged: its judgement, if it is a request in the log of a group.
    """

    place: Place
    request: SubscriptionRequest
    judged: Judged | None = None


class Versions(NamedTuple):
    """Versions of the requests that a parent applied last for one client, by mode; None for none."""

    literal: int | None = None
    wildcard: int | None = None

    def of(self, mode: Mode) -> int | None:
        """Return the version under a mode."""
        return self.wildcard if mode is Mode.WILDCARD else self.literal


NO_VERSIONS = Versions()


class ClientNotes(NamedTuple):
    """Notes about one client, or about the log of a group, whose key has a blank client id.

    Attributes:
        partition: of all positions.
        end: the end that was read last.
        read: number of its parts that were read: the end itself, and repeated requests; or of requests in the log.
        applied: number of them that were applied, or that are no longer in the log.
        pieces: text of a repeated request, incomplete so far.
    """

    partition: int = 0
    end: EndId = NO_END
    read: int = 0
    applied: int = 0
    pieces: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """True if no part of an end waits for others, and no request is in the log."""
        return self.read == self.applied and not self.pieces


NO_NOTES = ClientNotes()
