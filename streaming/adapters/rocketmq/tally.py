"""Number of lite topics that a broker counts, against the number of the known ones; it tells that some have ended."""

from collections import deque

_LOOKS = 10
"""Number of looks after which a surplus is the usual one."""


class Tally:
    """Topics of one broker by number.

    The broker may count topics that nobody knows, so its number is usually above that of the known ones, by a surplus
    that falls with each end. A birth of a moment ago raises the surplus for a moment only.
    """

    def __init__(self) -> None:
        self._recent = deque[int](maxlen=_LOOKS)
        self._usual: int | None = None
        self._explained: int | None = None
        self._fell = False

    def is_short(self, known: int, count: int) -> bool:
        """Return True if topics have ended that are still known.

        Args:
            known: number of the known topics, from before the broker was asked.
            count: answer of the broker.
        """
        surplus = count - known
        self._recent.append(surplus)
        if self._usual is None:
            self._usual = max(0, surplus)  # all known ones lived a moment ago
        if len(self._recent) == _LOOKS:
            self._usual = max(self._usual, min(self._recent))
        if self._explained is not None and surplus < self._explained:
            self._fell, self._explained = True, surplus
        return surplus < self._usual

    def search(self) -> None:
        """Note that all known topics are asked for from now on."""
        self._fell, self._explained = False, self._recent[-1]

    def found(self, ends: int) -> None:
        """Note ends that were found."""
        if self._explained is not None:
            self._explained += ends

    def searched(self) -> None:
        """Note that all were asked for; what is short now is the usual number, unless more ended meanwhile."""
        if not self._fell:
            self._usual = self._recent[-1]
        self._explained = None
