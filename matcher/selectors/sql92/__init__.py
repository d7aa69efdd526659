"""SQL92 selectors, as RocketMQ's brokers read them.

    >>> from matcher.selectors import sql92
    >>> selector = sql92.compile("region = 'eu' AND price BETWEEN 10 AND 20")
    >>> selector.evaluate({"region": "eu", "price": "12"})
    True
    >>> selector.evaluate({"region": "eu"}) is None
    True

Properties are strings; a literal says how the one that it is compared with is read. Logic has three values: True, False
and None for "unknown", which comes of missing properties and is no match. The recorded answers of rocketmq-filter 5.5.0
are tests/conformance/vectors/sql92.json; they are followed in everything but one: text after a complete selector, which
RocketMQ ignores, is an error here.
"""

from collections.abc import Collection, Mapping

from matcher.errors import SelectorError, SelectorSyntaxError
from matcher.selectors.sql92.parser import MAX_DEPTH, MAX_LENGTH, parse

__all__ = ["MAX_DEPTH", "MAX_LENGTH", "SelectorError", "SelectorSyntaxError", "Sql92Selector", "compile"]


class Sql92Selector:
    """A compiled selector; it has no state, so one instance serves all threads.

    Args:
        text: the selector.

    Raises:
        SelectorSyntaxError: with the position, the reason and how to mend it.
    """

    __slots__ = ("_root", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._root = parse(text)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Evaluate on the properties; linear in the length of the selector and of the properties it names.

        Raises:
            SelectorError: a property cannot be read as what the selector compares it with.
        """
        value = self._root.evaluate(properties)
        return value if value is None else bool(value)

    def agrees(self, tags: Collection[str], properties: Mapping[str, str]) -> bool:  # noqa: ARG002 - the interface
        """Whether the selector matches; unknown and an error in evaluation are no match."""
        try:
            return self.evaluate(properties) is True
        except SelectorError:
            return False


def compile(text: str) -> Sql92Selector:  # noqa: A001 - the word for it, as in `re.compile`
    """Compile a selector once, to evaluate it often.

    Raises:
        SelectorSyntaxError: with the position, the reason and how to mend it.
    """
    return Sql92Selector(text)
