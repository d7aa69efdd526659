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

from collections.abc import Callable, Collection, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Final, NoReturn

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from matcher.errors import SelectorError, SelectorSyntaxError
from matcher.selectors.sql92 import nodes
from matcher.selectors.sql92.nodes import Constant, Equal, Node, Not, Property, walk
from matcher.selectors.sql92.values import compare, double, integer

__all__ = ["MAX_DEPTH", "MAX_LENGTH", "MAX_NODES", "SelectorError", "SelectorSyntaxError", "Sql92Selector", "compile"]

MAX_LENGTH: Final = 32_768  # characters; the search for the end of a comment makes parsing quadratic
MAX_DEPTH: Final = 200  # nested nodes; evaluation recurses
MAX_NODES: Final = 512  # comparisons, conditions and values; each is evaluated for each topic

_KEYWORDS: Final = {
    **{word: word for word in ("AND", "OR", "NOT", "IS", "NULL", "IN", "BETWEEN", "TRUE", "FALSE")},
    **dict.fromkeys(("CONTAINS", "STARTSWITH", "ENDSWITH"), "AFFIX"),
}
_TRUTH: Final = {"TRUE": True, "FALSE": False, "NULL": None}


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
        self._root = _parse(text, max_nodes)

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


class _Refusal(Exception):
    """A check refuses a node: position, reason, remedy. `_parse`, which has the whole text, raises it as an error."""


def _parse(text: str, max_nodes: int | None) -> Node:
    """Parse a selector.

    Linear in its length; the search for the end of a comment is quadratic at worst, bounded by `MAX_LENGTH`.
    """
    if len(text) > MAX_LENGTH:
        raise SelectorSyntaxError(text, MAX_LENGTH, f"longer than {MAX_LENGTH:,} characters", "shorten it")
    try:
        root = _parser()(text)
        beyond = None if max_nodes is None else next(islice(walk(root), max_nodes, None), None)
        if beyond is not None:
            reason = f"{sum(1 for _ in walk(root)):,} comparisons, conditions and values, more than {max_nodes:,}"
            _refuse(beyond, reason, "use IN for a list of strings, which counts as two")
    except UnexpectedCharacters as error:
        position: int = error.pos_in_stream  # type: ignore[assignment]  # lark declares None, and sets it
        hint = "strings are in single quotes, names have letters, digits, '_' and '$'"
        raise SelectorSyntaxError(text, position, f"{text[position]!r} does not start a known token", hint) from None
    except UnexpectedToken as error:
        token = error.token
        if token.type == "$END":
            raise SelectorSyntaxError(text, len(text), "the selector is not complete", "go on here") from None
        reason = f"{str(token)[:40]!r} is not allowed here"
        hint = "put AND or OR before it, or leave it out" if "$END" in error.expected else "write a value or a name"
        raise SelectorSyntaxError(text, token.start_pos or 0, reason, hint) from None
    except _Refusal as error:
        raise SelectorSyntaxError(text, *error.args) from None
    return root


@cache
def _parser() -> Callable[[str], Node]:
    """Return the parser; it builds nodes while reading, so nothing recurses."""
    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    lark = Lark(grammar, parser="lalr", lexer="basic", transformer=_Builder(), lexer_callbacks={"NAME": _keyword})
    return lark.parse  # type: ignore[return-value]  # the transformer turns the tree into a node


def _keyword(token: Token) -> Token:
    kind = _KEYWORDS.get(token.upper())
    return token if kind is None else Token.new_borrow_pos(kind, token.upper(), token)


@v_args(inline=True)
class _Builder(Transformer[Token, Node]):
    """Builder of nodes, with one method for each rule of the grammar."""

    def start(self, node: Node) -> Node:
        return _condition(node)

    def or_expr(self, *parts: Node | Token) -> Node:
        return _junction(parts, deciding=True)

    def and_expr(self, *parts: Node | Token) -> Node:
        return _junction(parts, deciding=False)

    def equal(self, left: Node, sign: Token, right: Node) -> Node:
        for side in (left, right):
            if isinstance(side, Constant) and side.value is None:
                _refuse(side, "NULL equals nothing", "write IS NULL or IS NOT NULL")
        if (
            isinstance(left, Constant)
            and isinstance(right, Constant)
            and isinstance(left.value, bool)
            and not isinstance(right.value, bool)
        ):
            _refuse(right, "a truth value can only equal a truth value", "compare two values of one type")
        return Equal(_start(sign), _depth(left, right), left, right)

    def unequal(self, left: Node, sign: Token, right: Node) -> Node:
        return _not(self.equal(left, sign, right))

    def is_null(self, left: Node, sign: Token, negated: Token | None, null: Token) -> Node:
        node = Equal(_start(sign), _depth(left), left, Constant(_start(null), 1, None))
        return node if negated is None else _not(node)

    def order(self, left: Node, sign: Token, right: Node) -> Node:
        return _order(str(sign), left, right)

    def between(self, value: Node, negated: Token | None, _between: Token, low: Node, _and: Token, high: Node) -> Node:
        if negated is None and isinstance(low, Constant) and isinstance(high, Constant):
            _check_bounds(low, high)
        operators = (">=", "<=") if negated is None else ("<", ">")
        depth = _depth(*map(_order, operators, (value, value), (low, high)))
        return nodes.Between(value.position, depth, value, operators, low, high, negated is not None)

    def is_in(self, left: Node, negated: Token | None, sign: Token, *strings: Token) -> Node:
        if not isinstance(left, Property):
            _refuse(left, "only a property can be IN a list", "write its name left of IN")
        return nodes.In(_start(sign), 2, left, frozenset(map(_unquoted, strings)), negated is not None)

    def affix(self, left: Node, negated: Token | None, sign: Token, needle: Token) -> Node:
        return nodes.Affix(_start(sign), _depth(left), str(sign), left, _unquoted(needle), negated is not None)

    def negate(self, sign: Token, operand: Node) -> Node:
        for _ in range(2 - len(sign) % 2):  # two signs have the same effect as any even number
            operand = nodes.Negate(_start(sign), _depth(operand), operand)
        return operand

    def negation(self, _: Token, operand: Node) -> Node:
        return _not(_condition(operand))

    def string(self, token: Token) -> Node:
        return Constant(_start(token), 1, _unquoted(token))

    def integer(self, token: Token) -> Node:
        try:
            return Constant(_start(token), 1, integer(str(token)))
        except ValueError:
            raise _Refusal(_start(token), "the number needs more than 64 bits", "write a smaller one") from None

    def double(self, token: Token) -> Node:
        try:
            return Constant(_start(token), 1, double(str(token)))
        except ValueError:
            reason = "a floating-point literal is neither zero nor beyond the range of a double"
            raise _Refusal(_start(token), reason, "write 0 for zero, or a number within the range") from None

    def truth_value(self, token: Token) -> Node:
        return Constant(_start(token), 1, _TRUTH[str(token)])

    def property(self, token: Token) -> Node:
        return Property(_start(token), 1, str(token))


def _start(token: Token) -> int:
    return token.start_pos or 0


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _refuse(node: Node, reason: str, hint: str) -> NoReturn:
    raise _Refusal(node.position, reason, hint)


def _depth(*nodes: Node) -> int:
    deepest = max(nodes, key=lambda node: node.depth)
    if deepest.depth >= MAX_DEPTH:
        _refuse(deepest, f"more than {MAX_DEPTH} nested parts", "use fewer parentheses and signs")
    return deepest.depth + 1


def _condition(node: Node) -> Node:
    """Return a node as a condition; refuse any other."""
    if isinstance(node, Property):
        return nodes.Cast(node.position, 2, node)
    if not node.is_condition or (isinstance(node, Constant) and not isinstance(node.value, bool | None)):
        _refuse(node, "a condition is needed here, not a value", "compare it with something")
    return node


def _not(node: Node) -> Node:
    # NOT NOT NULL is allowed in some places, NULL is not.
    if isinstance(node, Not) and not isinstance(node.operand, Constant):
        return node.operand
    return Not(node.position, _depth(node), node)


def _junction(parts: tuple[Node | Token, ...], *, deciding: bool) -> Node:
    """Join conditions; return a single part unchanged, even a value."""
    operands = [part for part in parts if isinstance(part, Node)]
    if len(operands) == 1:
        return operands[0]
    conditions = tuple(map(_condition, operands))
    return nodes.Junction(operands[0].position, _depth(*conditions), conditions, deciding)


def _order(operator: str, left: Node, right: Node) -> Node:
    for side in (left, right):
        if isinstance(side, Constant):
            if isinstance(side.value, bool) or not isinstance(side.value, (int, float)):
                _refuse(side, "only numbers are less or greater", "write a number, or compare with = or <>")
        elif side.is_condition:
            _refuse(side, "a condition is neither less nor greater", "compare two values")
    return nodes.Order(left.position, _depth(left, right), operator, left, right)


def _check_bounds(low: Constant, high: Constant) -> None:
    try:
        in_order = None not in (low.value, high.value) and compare(high.value, low.value) >= 0
    except ValueError:
        in_order = False
    if not in_order:
        _refuse(low, "the lower bound of BETWEEN is above the upper one", "exchange them")
