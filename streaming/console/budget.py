"""Budget of work for one answer of the console, in counted steps, whatever names strangers have chosen."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

from matcher.pattern import MANY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from matcher.pattern import Pattern

T = TypeVar("T")

STEPS: Final = 400_000
"""Steps of one answer: segments compared, and names looked at. They take some 0.2 s."""

MAX_SEGMENTS: Final = 256
"""Greatest number of segments of a pattern or topic that is shown segment by segment."""

MAX_SHOWN: Final = 256
"""Number of characters of a pattern that a list shows."""

MAX_CHARACTERS: Final = 500_000
"""Number of characters of the names in one answer, after which a page of names ends."""

_NAME_STEPS: Final = 8
_CHARACTERS_A_STEP: Final = 64


@dataclass
class Budget:
    """Steps that are left for one answer.

    Attributes:
        left: number of steps.
        is_spent: True once something was left out.
    """

    left: int = STEPS
    is_spent: bool = False

    def takes(self, steps: int) -> bool:
        """Take steps, and tell whether they were left; nothing is affordable after the first refusal."""
        if self.is_spent or steps > self.left:
            self.is_spent = True
            return False
        self.left -= steps
        return True

    def search(self, names: Iterable[Any], contains: str) -> Iterator[Any]:
        """Yield names, or tuples of names, that contain a text, until the budget is spent."""
        for name in names:
            texts = (name,) if isinstance(name, str) else name
            if not self.takes(_NAME_STEPS + sum(map(len, texts)) // _CHARACTERS_A_STEP):
                return
            if any(contains in text for text in texts):
                yield name


def cost(pattern: str, topic: str, separator: str, width: int | None = None) -> int:
    """Return the greatest number of steps in which a pattern is compared with a topic.

    Args:
        pattern: text of the pattern.
        topic: name of the topic.
        separator: text between two segments.
        width: number of segments of the pattern that a segment of the topic may be compared with; all by default.
    """
    compared = (topic.count(separator) + 1) * (pattern.count(separator) + 1 if width is None else width)
    return _NAME_STEPS + compared + (len(pattern) + len(topic)) // _CHARACTERS_A_STEP


def widest_run(pattern: Pattern) -> int:
    """Return the greatest number of segments between two multi-segment wildcards; 1 without an inner one."""
    if not pattern.has_many:
        return 1
    ends = [-1, *(at for at, segment in enumerate(pattern.segments) if segment is MANY), len(pattern.segments)]
    return max(after - before for before, after in pairwise(ends))


def shown_steps(steps: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the steps of an explanation as the page shows them: the first `MAX_SEGMENTS`."""
    return [asdict(step) for step, _ in zip(steps, range(MAX_SEGMENTS), strict=False)]


def fitting(items: list[T], size: Callable[[T], int]) -> list[T]:
    """Return the first of some items: as many as one answer holds, but at least one.

    Args:
        items: the items.
        size: function that returns the number of characters of an item.
    """
    ends = accumulate(map(size, items))
    return [item for item, end in zip(items, ends, strict=True) if end <= MAX_CHARACTERS] or items[:1]


def shortened(text: str) -> str:
    """Return a text in the length that lists show."""
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
