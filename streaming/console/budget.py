"""Budget of work per response of the console, in steps. It holds for arbitrary names."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from typing import Any, Final, TypeVar

from matcher.pattern import MANY, Pattern

T = TypeVar("T")

STEPS: Final = 400_000
"""Steps per response: compared segments and searched names. They take some 0.2 s."""

MAX_SEGMENTS: Final = 256
"""Maximum number of segments of a pattern or topic that is shown segment by segment."""

MAX_SHOWN: Final = 256
"""Maximum number of characters of a pattern in a list."""

PATTERNS: Final = 16
"""Maximum number of patterns per row or change."""

MAX_CHARACTERS: Final = 500_000
"""Maximum number of characters of the names in a response."""

NAME_STEPS: Final = 8
CHARACTERS_A_STEP: Final = 64


@dataclass
class Budget:
    """Remaining steps of a response.

    Attributes:
        left: number of steps.
        is_spent: True if something was omitted.
    """

    left: int = STEPS
    is_spent: bool = False

    def takes(self, steps: int) -> bool:
        """Take steps; return False if too few are left. After that, nothing can be taken."""
        if self.is_spent or steps > self.left:
            self.is_spent = True
            return False
        self.left -= steps
        return True

    def search(self, names: Iterable[Any], contains: str) -> Iterator[Any]:
        """Yield names, or tuples of names, that contain a string, until the budget is spent."""
        for name in names:
            texts = (name,) if isinstance(name, str) else name
            if not self.takes(NAME_STEPS + sum(map(len, texts)) // CHARACTERS_A_STEP):
                return
            if any(contains in text for text in texts):
                yield name


def widest_run(pattern: Pattern) -> int:
    """Return the maximum number of segments between two multi-segment wildcards; 1 without an inner wildcard."""
    if not pattern.has_many:
        return 1
    ends = [-1, *(at for at, segment in enumerate(pattern.segments) if segment is MANY), len(pattern.segments)]
    return max(after - before for before, after in pairwise(ends))


def shown_steps(steps: Iterable[Any]) -> list[dict[str, Any]]:
    """Convert the first `MAX_SEGMENTS` steps of an explanation for the page."""
    return [asdict(step) for step, _ in zip(steps, range(MAX_SEGMENTS), strict=False)]


def fitting(items: list[T], size: Callable[[T], int]) -> list[T]:
    """Return the first items, as many as fit into a response, but at least one.

    Args:
        items: the items.
        size: returns the number of characters of an item.
    """
    ends = accumulate(map(size, items))
    return [item for item, end in zip(items, ends, strict=True) if end <= MAX_CHARACTERS] or items[:1]


def shortened(text: str) -> str:
    """Shorten a string for a list."""
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
