"""SQL92 selectors, as RocketMQ's brokers read them.

    >>> from matcher.selectors import sql92
    >>> selector = sql92.compile("region = 'eu' AND price BETWEEN 10 AND 20")
    >>> selector.evaluate({"region": "eu", "price": "12"})
    True
    >>> selector.evaluate({"region": "eu"}) is None
    True

Properties are strings; in a comparison with a literal they are read as values of its type. Logic has three values:
True, False, and None for "unknown". Missing properties lead to "unknown", which is no match. The answers equal the
answers of rocketmq-filter 5.5.0, recorded in tests/conformance/vectors/sql92.json, with two exceptions. Text after a
complete selector, which RocketMQ ignores, is an error here. A property right of a truth value, as in `TRUE = a`, is
read as one, as RocketMQ does since its fix of issue 10877; 5.5.0 fails on it.
"""

from collections.abc import Collection, Mapping

from matcher.errors import SelectorError, SelectorSyntaxError
from matcher.selectors.sql92.parser import MAX_DEPTH, MAX_LENGTH, MAX_NODES, parse

__all__ = ["MAX_DEPTH", "MAX_LENGTH", "MAX_NODES", "SelectorError", "SelectorSyntaxError", "Sql92Selector", "compile"]


class Sql92Selector:
    """Compiled selector; it has no state, so one instance serves all threads.

    Args:
        text: the selector.
        max_nodes: maximum number of comparisons, conditions and values that the selector may have; None for any number.

    Raises:
        SelectorSyntaxError: the selector is invalid; with position, reason and remedy.
    """

    __slots__ = ("_root", "text")

    def __init__(self, text: str, *, max_nodes: int | None = MAX_NODES) -> None:
        self.text = text
        self._root = parse(text, max_nodes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Evaluate on the properties.

        Each node is evaluated once at most, in time linear in the properties that it names: at most (number of nodes) x
        (length of the longest property).

        Raises:
            SelectorError: a property cannot be converted to the type of the value that it is compared with.
        """
        value = self._root.evaluate(properties)
        return value if value is None else bool(value)

    def agrees(self, tags: Collection[str], properties: Mapping[str, str]) -> bool:  # noqa: ARG002 - the interface
        """Return True if the selector matches; unknown and an error in evaluation are no match."""
        try:
            return self.evaluate(properties) is True
        except SelectorError:
            return False


def compile(text: str, *, max_nodes: int | None = MAX_NODES) -> Sql92Selector:  # noqa: A001 - as in `re.compile`
    """Compile a selector once, to evaluate it often.

    Raises:
        SelectorSyntaxError: the selector is invalid; with position, reason and remedy.
    """
    return Sql92Selector(text, max_nodes=max_nodes)
