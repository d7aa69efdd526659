"""Selectors of a group, and the requests that set them."""

from collections.abc import Collection
from typing import NamedTuple

from streaming.events.model import Place, SelectorSpec
from streaming.subscription.client import Mode

MAX_UNSETTLED = 16
"""Requests of a group whose selectors can still be taken back; those of older requests stay."""


class Selection(NamedTuple):
    """A request that set the selector of its group.

    Attributes:
        partition, position: place of the request.
        selector: of the request.
        modes: in which it counts.
    """

    partition: int
    position: int
    selector: SelectorSpec
    modes: tuple[Mode, ...]


class GroupSelectors(NamedTuple):
    """Selectors of a group under both modes, since a request may be valid in one mode only.

    The end of a client on all parents comes late, and its version can make a request stale that was applied before. So
    the selectors of requests with versions are kept apart for a while. Where the client's versions were forgotten, a
    request counts that was stale before.

    Attributes:
        literal, wildcard: settled selectors.
        unsettled: the latest requests that set another one, oldest first.
        settled_at: position of the last request that is settled; -1 if none is known.
    """

    literal: SelectorSpec | None = None
    wildcard: SelectorSpec | None = None
    unsettled: tuple[Selection, ...] = ()
    settled_at: int = -1

    def in_mode(self, mode: Mode) -> SelectorSpec | None:
        """Return the selector in force in a group of that mode."""
        for selection in reversed(self.unsettled):
            if mode in selection.modes:
                return selection.selector
        return self.wildcard if mode is Mode.WILDCARD else self.literal

    @property
    def in_force(self) -> tuple[SelectorSpec | None, ...]:
        """The selector in force under each mode."""
        return tuple(map(self.in_mode, Mode))

    def after(self, selection: Selection, *, can_be_stale: bool) -> "GroupSelectors":
        """Return the selectors after a request that sets one.

        Args:
            selection: the request.
            can_be_stale: it has a version, so an end that comes later can make it stale.
        """
        if not self.unsettled and self.has_settled(selection):
            return self  # nearly always: clients repeat their requests now and then
        is_final = not can_be_stale and len(selection.modes) == len(Mode)
        return _settled(self._replace(unsettled=(*self.unsettled, selection)), 0 if is_final else MAX_UNSETTLED)

    def with_earlier(self, selection: Selection) -> "GroupSelectors":
        """Return the selectors with a request that counts after all, although later ones were read before."""
        if selection.position <= self.settled_at:
            return self
        known = {each[:2]: each for each in (*self.unsettled, selection)}
        if len(known) == len(self.unsettled):  # it counted under one mode
            modes = next(each.modes for each in self.unsettled if each[:2] == selection[:2])
            known[selection[:2]] = selection._replace(modes=tuple(dict.fromkeys((*modes, *selection.modes))))
        ordered = sorted(known.values(), key=lambda each: each.position)
        return _settled(self._replace(unsettled=tuple(ordered)), MAX_UNSETTLED)

    def has_settled(self, selection: Selection) -> bool:
        """Tell whether a request sets what is settled under its modes."""
        settled = {Mode.LITERAL: self.literal, Mode.WILDCARD: self.wildcard}
        return all(settled[mode] == selection.selector for mode in selection.modes)

    def without(self, place: Place, modes: Collection[Mode]) -> "GroupSelectors":
        """Return the selectors as if the request at a place had set none under these modes."""
        at = place.partition, place.position
        left = (
            each if each[:2] != at else each._replace(modes=tuple(other for other in each.modes if other not in modes))
            for each in self.unsettled
        )
        return self._replace(unsettled=tuple(each for each in left if each.modes))


NO_SELECTORS = GroupSelectors()


def _settled(selectors: GroupSelectors, keeps: int) -> GroupSelectors:
    """Settle the oldest requests, until few are left and the oldest of them sets another selector."""
    while selectors.unsettled:
        oldest, *rest = selectors.unsettled
        settled = selectors._replace(unsettled=())
        if len(selectors.unsettled) <= keeps and not settled.has_settled(oldest):
            break
        selectors = settled._replace(
            **dict.fromkeys(oldest.modes, oldest.selector), unsettled=tuple(rest), settled_at=oldest.position
        )
    return selectors
