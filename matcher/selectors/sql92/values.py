"""Values of SQL92 selectors, with Java's rules for conversion and comparison.

Functions raise `ValueError` for texts that do not spell a value of the wanted type.
"""

import math
import re
from sys import getsizeof
from typing import Final, TypeAlias

from matcher.cache import BoundedCache


class Long(int):
    """64-bit integer; a plain `int` is a 32-bit one. They differ only in the strings that are converted to them."""

    __slots__ = ()


Value: TypeAlias = bool | int | float | str | None

_INT_BITS: Final = 32
_LONG_BITS: Final = 64
_DOUBLE: Final = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)"
)
_MAX_DIGITS: Final = 4_300  # Python reads no longer integers
_SHORT: Final = 64  # characters; longer numbers are read once, however many nodes compare them
_LONG_DOUBLES_BYTES: Final = 8 * 1024 * 1024
_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))


def integer(literal: str) -> int:
    """Read an integer literal of at most 64 bits as the narrowest type."""
    value = int(literal.rstrip("lL"))
    if value < 1 << _INT_BITS - 1:
        return value
    if value < 1 << _LONG_BITS - 1:
        return Long(value)
    raise ValueError(literal)


def double(literal: str) -> float:
    """Read a floating-point literal; RocketMQ refuses zero and too large ones."""
    value = float(literal)
    if value == 0 or math.isinf(value):
        raise ValueError(literal)
    return value


def negate(value: Value) -> Value:
    """Change the sign of a number; return None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return Long(-value) if isinstance(value, Long) else -value


def compare(left: Value, right: Value) -> int:
    """Compare two values other than null; the answer is negative, zero or positive.

    A string is read as the type of the other side; right of a truth value it is an error. A truth value and a number do
    not compare; the answer is "less".
    """
    if isinstance(left, str) and not isinstance(right, str):
        left = _read(left, right)
    elif isinstance(right, str) and not isinstance(left, str):
        if isinstance(left, bool):
            raise ValueError(right)  # noqa: TRY004 - like any string without a value of the type
        right = _read(right, left)
    if isinstance(left, str) and isinstance(right, str):
        return (left > right) - (left < right)
    if isinstance(left, bool) is not isinstance(right, bool):
        return -1
    if isinstance(left, float) or isinstance(right, float):
        first, second = _java_order_key(_number(left)), _java_order_key(_number(right))
        return (first > second) - (first < second)
    return (_number(left) > _number(right)) - (_number(left) < _number(right))


def compare_as_numbers(left: str, right: str) -> int:
    """Compare two strings as numbers."""
    return compare(parse_double(left), parse_double(right))


def parse_integer(text: str, bits: int) -> int:
    """Read an integer like Java's `Integer.valueOf` or `Long.valueOf`: a sign, digits of any script, no blanks."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if len(digits) > _MAX_DIGITS or not digits.isdecimal() or (not digits.isascii() and max(digits) > "\uffff"):
        raise ValueError(text)
    value = int(text)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(text)
    return value


def parse_double(text: str) -> float:
    """Read a number like Java's `Double.valueOf`: surrounding blanks, hexadecimal and a type suffix are allowed."""
    return _parse_double(text) if len(text) <= _SHORT else _LONG_DOUBLES[text]


def _parse_double(text: str) -> float:
    text = text.strip(_JAVA_BLANKS)
    found = _DOUBLE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    if found["hex"]:
        try:
            magnitude = float.fromhex(found["hex"])
        except OverflowError:
            magnitude = math.inf
        return -magnitude if text.startswith("-") else magnitude
    return float(text.rstrip("fFdD"))


_LONG_DOUBLES: Final = BoundedCache(_parse_double, lambda text, _: getsizeof(text), _LONG_DOUBLES_BYTES)


def _read(text: str, like: Value) -> Value:
    if isinstance(like, bool):
        return len(text) == len("true") and text.lower() == "true"
    if isinstance(like, float):
        return parse_double(text)
    return parse_integer(text, _LONG_BITS if isinstance(like, Long) else _INT_BITS)


def _number(value: Value) -> int | float:
    if isinstance(value, (int, float)):
        return value
    raise TypeError(value)


def _java_order_key(value: float) -> tuple[float, float]:
    """Return a sort key for Java's order of doubles: NaN above all others, -0.0 below 0.0."""
    value = float(value)
    return (math.inf, 2) if math.isnan(value) else (value, math.copysign(1, value))
