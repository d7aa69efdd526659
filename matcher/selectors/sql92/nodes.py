"""Nodes of a compiled SQL92 selector; each evaluates to a value, or to None for "unknown"."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, Final

from matcher.errors import SelectorError, shown
from matcher.selectors.sql92.values import Value, compare, compare_as_numbers, negate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


@dataclass(frozen=True, slots=True)
class Node(ABC):
    """Part of a selector.

    Attributes:
        position: position in the text, for messages.
        depth: number of nodes on the longest way down, this node included.
    """

    position: int
    depth: int

    is_condition: ClassVar[bool] = True  # True if it can replace a truth value

    @abstractmethod
    def evaluate(self, properties: Mapping[str, str]) -> Value:
        """Return the value for these properties.

        Raises:
            SelectorError: a property does not spell a value of the type that it is compared with.
        """


@dataclass(frozen=True, slots=True)
class Constant(Node):
    """Literal; TRUE, FALSE and NULL are conditions."""

    value: Value

    def evaluate(self, properties: Mapping[str, str]) -> Value:  # noqa: ARG002, D102
        return self.value


@dataclass(frozen=True, slots=True)
class Property(Node):
    """Value of a property, always a string; unknown if it is missing."""

    name: str
    is_condition: ClassVar[bool] = False

    def evaluate(self, properties: Mapping[str, str]) -> Value:  # noqa: D102
        return properties.get(self.name)


@dataclass(frozen=True, slots=True)
class Cast(Node):
    """Property in place of a condition: a string, so it is false, even `"true"`."""

    property: Property

    def evaluate(self, properties: Mapping[str, str]) -> Value:  # noqa: D102
        return None if self.property.evaluate(properties) is None else False


@dataclass(frozen=True, slots=True)
class Negate(Node):
    """Number with its sign changed; unknown for a property, since its value is a string."""

    operand: Node
    is_condition: ClassVar[bool] = False

    def evaluate(self, properties: Mapping[str, str]) -> Value:  # noqa: D102
        return negate(self.operand.evaluate(properties))


@dataclass(frozen=True, slots=True)
class Not(Node):
    """Opposite of a condition; unknown stays unknown."""

    operand: Node

    def evaluate(self, properties: Mapping[str, str]) -> Value:  # noqa: D102
        value = self.operand.evaluate(properties)
        return None if value is None else not value


@dataclass(frozen=True, slots=True)
class Junction(Node):
    """AND or OR of conditions, left to right.

    The `deciding` value ends the evaluation: errors of operands further right stay hidden, those further left are
    raised.
    """

    operands: tuple[Node, ...]
    deciding: bool

    def evaluate(self, properties: Mapping[str, str]) -> Value:  # noqa: D102
        unknown = False
        for operand in self.operands:
            value = operand.evaluate(properties)
            if value is self.deciding:
                return value
            unknown = unknown or value is None
        return None if unknown else not self.deciding


@dataclass(frozen=True, slots=True)
class Equal(Node):
    """Equality; asymmetric if one side is missing: unknown on the left, false on the right."""

    left: Node
    right: Node

    def evaluate(self, properties: Mapping[str, str]) -> Value:  # noqa: D102
        left, right = self.left.evaluate(properties), self.right.evaluate(properties)
        if left is None or right is None:
            return None if left is None and right is not None else left is right
        if isinstance(left, bool) and isinstance(self.right, Property):  # `TRUE = a` is `a = TRUE`
            left, right = right, left
        try:
            return compare(left, right) == 0
        except ValueError as error:
            raise _unreadable(self, left, right) from error


_HOLDS: Final[dict[str, Callable[[int], bool]]] = {
    ">": lambda answer: answer > 0,
    ">=": lambda answer: answer >= 0,
    "<": lambda answer: answer < 0,
    "<=": lambda answer: answer <= 0,
}


@dataclass(frozen=True, slots=True)
class Order(Node):
    """`<`, `<=`, `>` or `>=` between numbers; two properties are compared as numbers."""

    operator: str
    left: Node
    right: Node

    def evaluate(self, properties: Mapping[str, str]) -> Value:  # noqa: D102
        return _is_ordered(self, self.operator, self.left.evaluate(properties), self.right, properties)


@dataclass(frozen=True, slots=True)
class Between(Node):
    """Two orders of one value, joined like the operands of a `Junction`.

    The value is evaluated once: evaluated for each bound, nested BETWEENs would double the work at each level.
    """

    value: Node
    operators: tuple[str, str]
    low: Node
    high: Node
    deciding: bool

    def evaluate(self, properties: Mapping[str, str]) -> Value:  # noqa: D102
        value = self.value.evaluate(properties)
        unknown = False
        for operator, bound in zip(self.operators, (self.low, self.high), strict=True):
            answer = _is_ordered(self, operator, value, bound, properties)
            if answer is self.deciding:
                return answer
            unknown = unknown or answer is None
        return None if unknown else not self.deciding


@dataclass(frozen=True, slots=True)
class In(Node):
    """Membership of a property in a list of strings."""

    property: Property
    strings: frozenset[str]
    negated: bool

    def evaluate(self, properties: Mapping[str, str]) -> Value:  # noqa: D102
        value = self.property.evaluate(properties)
        return None if value is None else (value in self.strings) is not self.negated


_FINDS: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


@dataclass(frozen=True, slots=True)
class Affix(Node):
    """CONTAINS, STARTSWITH or ENDSWITH; false, negated or not, for an empty needle or a value other than a string."""

    operator: str
    operand: Node
    needle: str
    negated: bool

    def evaluate(self, properties: Mapping[str, str]) -> Value:  # noqa: D102
        value = self.operand.evaluate(properties) if self.needle else None
        if not isinstance(value, str):
            return False
        return _FINDS[self.operator](value, self.needle) is not self.negated


def walk(root: Node) -> Iterator[Node]:
    """Yield the nodes from the root down, operands from left to right."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        operands: list[Node] = []
        for field in fields(node):
            value = getattr(node, field.name)
            operands += [each for each in (value if isinstance(value, tuple) else (value,)) if isinstance(each, Node)]
        stack += reversed(operands)


def _is_ordered(node: Node, operator: str, left: Value, bound: Node, properties: Mapping[str, str]) -> bool | None:
    """Compare a value with a node, which is evaluated unless the value is missing."""
    right = None if left is None else bound.evaluate(properties)
    if left is None or right is None:
        return None
    try:
        if isinstance(left, str) and isinstance(right, str):
            answer = compare_as_numbers(left, right)
        else:
            answer = compare(left, right)
    except ValueError as error:
        raise _unreadable(node, left, right) from error
    return _HOLDS[operator](answer)


def _unreadable(node: Node, left: Value, right: Value) -> SelectorError:
    one, other = (repr(shown(value) if isinstance(value, str) else value) for value in (left, right))
    return SelectorError(f"at character {node.position}: {one} and {other} cannot be compared")
