"""Values of the SQL92 selectors, and how Java converts and compares them."""

import math
import re
from typing import Final, TypeAlias


class Long(int):
    """A 64-bit integer; a plain `int` stands for a 32-bit one. Only the reading of strings differs."""

    __slots__ = ()


Value: TypeAlias = bool | int | float | str | None

_INT_BITS: Final = 32
_LONG_BITS: Final = 64
_DOUBLE: Final = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)"
)
_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))


def integer(literal: str) -> int:
    """Read an integer literal as the narrowest type that holds it.

    Raises:
        ValueError: 64 bits do not hold it.
    """
    value = int(literal.rstrip("lL"))
    if value < 1 << _INT_BITS - 1:
        return value
    if value < 1 << _LONG_BITS - 1:
        return Long(value)
    raise ValueError(literal)


def double(literal: str) -> float:
    """Read a floating-point literal.

    Raises:
        ValueError: it is zero or too large, both of which RocketMQ refuses.
    """
    value = float(literal)
    if value == 0 or math.isinf(value):
        raise ValueError(literal)
    return value


def negate(value: Value) -> Value:
    """Change the sign of a number; of anything else comes nothing."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return Long(-value) if isinstance(value, Long) else -value


def compare(left: Value, right: Value) -> int:
    """Compare two values that are not null: negative, zero or positive.

    A string is read as the type of the other side. A truth value and a number do not compare, which counts as "less".

    Raises:
        ValueError: the string is nothing of the other side's type, or stands right of a truth value.
    """
    if isinstance(left, str) and not isinstance(right, str):
        left = _read(left, right)
    elif isinstance(right, str) and not isinstance(left, str):
        if isinstance(left, bool):
            raise ValueError(right)  # noqa: TRY004 - like any string that cannot be read
        right = _read(right, left)
    if isinstance(left, str) and isinstance(right, str):
        return (left > right) - (left < right)
    if isinstance(left, bool) is not isinstance(right, bool):
        return -1
    if isinstance(left, float) or isinstance(right, float):
        first, second = _order(_number(left)), _order(_number(right))
        return (first > second) - (first < second)
    return (_number(left) > _number(right)) - (_number(left) < _number(right))


def compare_as_numbers(left: str, right: str) -> int:
    """Compare two strings by the numbers that they spell.

    Raises:
        ValueError: one of them spells none.
    """
    return compare(parse_double(left), parse_double(right))


def parse_integer(text: str, bits: int) -> int:
    """Read what Java's `Integer.valueOf` or `Long.valueOf` reads: a sign, digits of any script, no blanks.

    Raises:
        ValueError: it reads no such text.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or max(digits) > "\uffff":
        raise ValueError(text)
    value = int(text)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(text)
    return value


def parse_double(text: str) -> float:
    """Read what Java's `Double.valueOf` reads: surrounding blanks, hexadecimal and a type suffix are allowed.

    Raises:
        ValueError: it reads no such text.
    """
    text = text.strip(_JAVA_BLANKS)
    found = _DOUBLE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    if found["hex"]:
        magnitude = _hexadecimal(found["hex"])
        return -magnitude if text.startswith("-") else magnitude
    return float(text.rstrip("fFdD"))


def _hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return math.inf


def _read(text: str, like: Value) -> Value:
    if isinstance(like, bool):
        return text.lower() == "true"
    if isinstance(like, float):
        return parse_double(text)
    return parse_integer(text, _LONG_BITS if isinstance(like, Long) else _INT_BITS)


def _number(value: Value) -> int | float:
    if isinstance(value, (int, float)):
        return value
    raise TypeError(value)


def _order(value: float) -> tuple[float, float]:
    """Return what orders numbers as Java's doubles: NaN above all others, -0.0 below 0.0."""
    value = float(value)
    return (math.inf, 2) if math.isnan(value) else (value, math.copysign(1, value))
