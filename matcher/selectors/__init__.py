"""Selectors: conditions of a subscription on a topic's tags and properties, in addition to a matching pattern.

| kind      | text                                | see                        |
|-----------|-------------------------------------|----------------------------|
| `TAG`     | `TagA || TagB`, or `*`              | `matcher.selectors.tag`    |
| `SQL92`   | `region = 'eu' AND price > 10`      | `matcher.selectors.sql92`  |
| your own  | any text                            | below                      |

A kind of your own is a class that takes the text of a selector and has the method `agrees`; a package offers it by an
entry point of the group `reexpand.selectors`, whose name is the kind:

    class MinLength:
        def __init__(self, text: str) -> None:
            self.least = int(text)  # a ValueError refuses the subscription

        def agrees(self, tags, properties) -> bool:
            return len(properties.get("name", "")) >= self.least

    [project.entry-points."reexpand.selectors"]
    MIN_LENGTH = "my_package:MinLength"

It must always give the same answer to the same arguments: a replayed topic must reach the same clients. Nothing bounds
the time that it takes, so bound the work that a text can cause, and refuse other texts with a ValueError.
"""

from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from importlib.metadata import EntryPoints, entry_points
from typing import Final, Protocol

from matcher.errors import SelectorError, SelectorSyntaxError, UnknownSelector
from matcher.selectors.bloom import Bitmap, BloomFilter
from matcher.selectors.tag import TagSelector, java_hash

__all__ = [
    "GROUP",
    "Bitmap",
    "BloomFilter",
    "Selector",
    "SelectorError",
    "SelectorSyntaxError",
    "TagSelector",
    "UnknownSelector",
    "compile",
    "java_hash",
]

GROUP: Final = "reexpand.selectors"
"""Group of the entry points whose names are kinds of selectors."""


class Selector(Protocol):
    """Interface of a compiled selector."""

    def agrees(self, tags: Collection[str], properties: Mapping[str, str]) -> bool:
        """Return True if the selector accepts a topic with these tags and properties; never raise."""


def compile(kind: str, text: str, *, stored: bool = False) -> Selector:  # noqa: A001 - the word for it, as in `re.compile`
    """Compile the text of a selector of this kind.

    Args:
        kind: name of the kind.
        text: the selector.
        stored: accept an SQL92 selector of any number of nodes, because an earlier release accepted it.

    Raises:
        UnknownSelector: no kind has this name.
        SelectorSyntaxError: the text breaks the rules of the kind; a kind of your own may raise any ValueError.
    """
    return _factory(kind, stored)(text)


@cache
def _factory(kind: str, stored: bool) -> Callable[[str], Selector]:  # noqa: FBT001 - private
    if kind == "TAG":
        return TagSelector
    if kind == "SQL92":
        from matcher.selectors.sql92 import Sql92Selector  # noqa: PLC0415 - its grammar library is needed here only

        return partial(Sql92Selector, max_nodes=None) if stored else Sql92Selector
    offered = _offered()
    if kind not in offered.names:
        raise UnknownSelector(kind, ["TAG", "SQL92", *sorted(offered.names)])
    factory: Callable[[str], Selector] = offered[kind].load()
    return factory


@cache
def _offered() -> EntryPoints:
    """Return the kinds of installed packages, which the metadata of all of them must be read for."""
    return entry_points(group=GROUP)
