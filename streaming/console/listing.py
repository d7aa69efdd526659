"""Lists of the page: searched, sorted and divided into pages, with limited work."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import matcher
from matcher.pattern import Pattern
from streaming.client.rows import Row
from streaming.console.budget import CHARACTERS_A_STEP, PATTERNS, STEPS, Budget, fitting, shortened, widest_run

T = TypeVar("T")

CONTAINS: Final = "contains"
WAYS: Final = (CONTAINS, "begins", *matcher.DIALECTS)
"""How a text selects names: as a part, as the beginning, or as a pattern of a dialect."""

SORTED: Final = 100_000
"""Maximum number of lines that are sorted, in some 0.2 s."""

_WAMP_POLICY: Final = "wildcard"


class Search:
    """Selection of names by a text.

    Attributes:
        text: the text; empty for all names.
        prefix: common prefix of all names that the text selects; empty if there is none.

    Args:
        how: one of `WAYS`.

    Raises:
        matcher.InvalidPattern: the text is not a pattern of the dialect.
    """

    def __init__(self, text: str = "", how: str = CONTAINS) -> None:
        self.text = text
        self.prefix = "" if how == CONTAINS else text
        self._is_part = how == CONTAINS
        self._width, self._separator = 0, ""
        self._matches: Callable[[str], bool] = lambda name: name.startswith(text)
        if how in matcher.DIALECTS and text:
            dialect = matcher.get_dialect(how)
            policy = _WAMP_POLICY if _WAMP_POLICY in dialect.policies else None
            parsed = dialect.parse(text, policy=policy)
            self.prefix = beginning(parsed, dialect.separator)
            self._width, self._separator = widest_run(parsed), dialect.separator
            self._matches = lambda name: dialect.matches(parsed, name)

    def selects(self, name: str) -> bool:
        """Return True if the text selects a name."""
        return self.text in name if self._is_part else self._matches(name)

    def cost(self, name: str) -> int:
        """Return the number of steps for a name."""
        if not self._width:
            return 1 + len(name) // CHARACTERS_A_STEP
        compared = (name.count(self._separator) + 1) * self._width
        return 2 + compared // 2 + (len(self.text) + len(name)) // CHARACTERS_A_STEP


class Found(NamedTuple, Generic[T]):
    """A page of a list.

    Attributes:
        items: lines of the page.
        total: number of lines that were found, on all pages.
        searched: number of names that were searched and sorted. It is less than `names` if the work reached its limit.
        names: number of names of the list.
    """

    items: list[T]
    total: int
    searched: int
    names: int

    @property
    def facts(self) -> dict[str, int]:
        """Fields of the response, without the lines."""
        return {"total": self.total, "searched": self.searched, "names": self.names}


class ListRequest(NamedTuple):
    """Part of a list that a request selects.

    Attributes:
        start: index of the first line.
        size: maximum number of lines.
        search: selection by a text.
        sort: column; empty for the order of the list.
        descending: True to reverse the order of the column.
    """

    start: int
    size: int
    search: Search
    sort: str = ""
    descending: bool = False

    @property
    def span(self) -> tuple[int, int]:
        """Start and maximum number of the names that `page` needs."""
        if self.search.text:
            return 0, STEPS
        return (0, SORTED) if self.sort else (self.start, self.size)

    def page(
        self,
        items: Sequence[T],
        names: int,
        texts: Callable[[T], Sequence[str]],
        columns: Mapping[str, Callable[[T], Any]],
    ) -> Found[T]:
        """Return the page.

        Args:
            items: the names of `span`.
            names: number of all names.
            texts: returns the texts of an item that are searched.
            columns: functions that return the sort key of an item, by column.
        """
        if not self.search.text and not self.sort:
            return Found(list(items), names, names, names)
        found, searched = self._found(items, texts) if self.search.text else (list(items), len(items))
        if self.sort:
            if len(found) > SORTED:
                searched, found = min(searched, SORTED), found[:SORTED]
            found = sorted(found, key=columns[self.sort], reverse=self.descending)
        total = len(found) if self.search.text else names
        return Found(found[self.start : self.start + self.size], total, searched, names)

    def _found(self, items: Sequence[T], texts: Callable[[T], Sequence[str]]) -> tuple[list[T], int]:
        budget, search = Budget(), self.search
        found, searched = [], 0
        for item in items:
            own = texts(item)
            if not budget.takes(sum(map(search.cost, own))):
                break
            searched += 1
            if any(map(search.selects, own)):
                found.append(item)
        return found, searched


def beginning(pattern: Pattern, separator: str) -> str:
    """Return the common prefix of all matching topics: the segments before the first wildcard."""
    if pattern.literal is not None:
        return pattern.literal
    leading = []
    for segment in pattern.segments:
        if not isinstance(segment, str):
            break
        leading.append(segment)
    return separator.join(leading)


ROW_COLUMNS: Final[Mapping[str, Callable[[Row], str | tuple[str, ...]]]] = {
    "client": lambda row: row.client_id,
    "group": lambda row: row.group,
    "topic": lambda row: row.lite_topic,
    "entries": lambda row: row.patterns,
    "cause": lambda row: row.cause,
}
"""Sort keys of rows."""


def row_list(found: Found[Row]) -> dict[str, Any]:
    """Convert rows for the page, as many as fit into a response."""
    shown: list[dict[str, Any]] = [
        {
            "group": row.group,
            "client": row.client_id,
            "part": row.part,
            "topic": row.lite_topic,
            "patterns": list(map(shortened, row.patterns[:PATTERNS])),
            "morePatterns": max(0, len(row.patterns) - PATTERNS),
            "cause": row.cause,
            "version": row.version,
            "further": row.further,
        }
        for row in found.items
    ]
    return {"rows": fitting(shown, lambda row: sum(len(str(value)) for value in row.values())), **found.facts}
