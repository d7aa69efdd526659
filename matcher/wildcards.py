"""Parts of a parsed pattern that match any segments of a topic."""

from enum import Enum
from typing import Final, Literal, TypeAlias


class Wildcard(Enum):
    """Wildcard in place of a literal segment."""

    ONE = "exactly one segment"
    MANY = "one or more segments"


class Tail(Enum):
    """Remainder of a topic, after the segments of a pattern."""

    END = "nothing"
    SOME = "one or more further segments"
    ANY = "zero or more further segments"
    STARTS = "the rest of the last segment, then zero or more further segments"

    @property
    def may_end(self) -> bool:
        """True if a topic may end with the segments of the pattern."""
        return self in (Tail.END, Tail.ANY)

    @property
    def may_go_on(self) -> bool:
        """True if a topic may have more segments than the pattern."""
        return self is not Tail.END


ONE: Final = Wildcard.ONE
MANY: Final = Wildcard.MANY
Segment: TypeAlias = str | Literal[Wildcard.ONE, Wildcard.MANY]
