"""SQL92 selectors, as RocketMQ's brokers read them.

    >>> from matcher.selectors import sql92
    >>> selector = sql92.compile("region = 'eu' AND price BETWEEN 10 AND 20")
    >>> selector.evaluate({"region": "eu", "price": "12"})
    True
    >>> selector.evaluate({"region": "eu"}) is None
    True

Properties are strings; in a comparison with a literal they are read as values of its type. Logic has three values:
True, False, and None for "unknown". Missing properties lead to "unknown", which is no match. The answers equal those of
rocketmq-filter 5.5.0, recorded in tests/conformance/vectors/sql92.json, with one exception: RocketMQ ignores text after
a complete selector, which is an error here.
"""

from collections.abc import Collection, Mapping

from matcher.errors import SelectorError, SelectorSyntaxError
from matcher.selectors.sql92.parser import MAX_DEPTH, MAX_LENGTH, parse

__all__ = ["MAX_DEPTH", "MAX_LENGTH", "SelectorError", "SelectorSyntaxError", "Sql92Selector", "compile"]


class Sql92Selector:
    """Compiled selector; it has no state, so one instance serves all threads.

    Args:
        text: the selector.

    Raises:
        SelectorSyntaxError: the selector is invalid; with position, reason and remedy.
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
        """Return True if the selector matches; unknown and an error in evaluation are no match."""
        try:
            return self.evaluate(properties) is True
        except SelectorError:
            return False


def compile(text: str) -> Sql92Selector:  # noqa: A001 - the word for it, as in `re.compile`
    """Compile a selector once, to evaluate it often.

    Raises:
        SelectorSyntaxError: the selector is invalid; with position, reason and remedy.
    """
    return Sql92Selector(text)
