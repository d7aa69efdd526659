"""Notes about clients whose requests are judged again when their end arrives."""

from typing import NamedTuple

from streaming.events.model import End, Place, SelectorSpec, SubscriptionRequest
from streaming.subscription.client import Mode

MAX_NOTES = 1_000
"""Number of clients of a shard whose notes are kept, those of the latest ends and refusals."""

MAX_VERDICTS = 64
"""Number of verdicts about one client that are kept, the latest ones."""

EndId = tuple[int, int]
"""Identity of an end: position of its request, and its rank among the ends of that position."""

NO_END: EndId = (-1, 0)

Repeated = tuple[Place, SubscriptionRequest]
"""An end, or a request that its record repeats, with its place."""


class Versions(NamedTuple):
    """Versions of the requests that a parent applied last for one client, by mode; None for none."""

    literal: int | None = None
    wildcard: int | None = None

    def of(self, mode: Mode) -> int | None:
        """Return the version under a mode."""
        return self.wildcard if mode is Mode.WILDCARD else self.literal

    def reach(self, version: int | None) -> bool:
        """Tell whether both versions are at least this one."""
        return version is None or all(each is not None and each >= version for each in self)


NO_VERSIONS = Versions()


class QuotaVerdict(NamedTuple):
    """QuotaVerdict about a request that a quota refused, that exceeded it, or that followed one of these.

    Attributes:
        position: of the request.
        is_contested: the request exceeded the quota of its client.
        is_refused: the quota refused the request.
        versions: of the client after it; None if the versions that the coordinator counted are right from here on.
        selector: in force in the group before it.
    """

    position: int
    is_contested: bool = False
    is_refused: bool = False
    versions: Versions | None = None
    selector: SelectorSpec | None = None


class ClientNotes(NamedTuple):
    """Notes about one client.

    Attributes:
        partition: of all positions.
        end: the end that was read last.
        read: number of its parts that were read: the end itself, and repeated requests.
        applied: number of them that were applied.
        pieces: text of a repeated request of which not all pieces are read.
        verdicts: about its latest requests, oldest first.
        ceiling: highest version that a quota refused; None for none.
    """

    partition: int = 0
    end: EndId = NO_END
    read: int = 0
    applied: int = 0
    pieces: tuple[str, ...] = ()
    verdicts: tuple[QuotaVerdict, ...] = ()
    ceiling: int | None = None

    @property
    def is_complete(self) -> bool:
        """True if no part of an end waits for others."""
        return self.read == self.applied and not self.pieces

    @property
    def is_unsettled(self) -> bool:
        """True if the coordinator may count other versions than the shard."""
        return bool(self.verdicts) and self.verdicts[-1].versions is not None

    def verdict(self, place: Place) -> QuotaVerdict | None:
        """Return the verdict about the request at a place; None if nothing was remarkable about it."""
        if place.partition != self.partition:
            return None
        return next((each for each in self.verdicts if each.position == place.position), None)

    def versions_at(self, place: Place) -> Versions | None:
        """Return the versions of the client at a place; None if those that the coordinator counted are right there."""
        before = (each for each in reversed(self.verdicts) if each.position <= place.position)
        last = next(before, None) if place.partition == self.partition else None
        return None if last is None else last.versions

    def known(self, end: End, mode: Mode) -> int | None:
        """Return the version of the client just before an end, under a mode."""
        versions = self.versions_at(end.place)
        return end.known if versions is None else versions.of(mode)

    def judged(self, verdict: QuotaVerdict) -> "ClientNotes":
        """Return the notes with one more verdict, or with another one about the same request."""
        others = [each for each in self.verdicts if each.position != verdict.position]
        ordered = sorted((*others, verdict), key=lambda each: each.position)
        return self._replace(verdicts=tuple(ordered[-MAX_VERDICTS:]))


NO_NOTES = ClientNotes()
