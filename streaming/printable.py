"""Text for terminals and logs: untrusted characters escaped, and numbers with their nouns."""

import logging
import re
import shlex
from typing import Final

_LINES: Final = "\n"
_INDENT: Final = "    "
_JSON_UNSAFE: Final = re.compile(r"[^\x20-\x7e]")


def printable(text: str, keep: str = "") -> str:
    r"""Escape unprintable characters of a text as Python does, such as `\x1b`, `\n` or `\u202e`.

    Args:
        text: the text.
        keep: characters that stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else _escape(each) for each in text)


def printable_lines(text: str) -> str:
    """Escape each line of a text, and indent all but the first.

    A name with a line end cannot forge a line.
    """
    return printable(text, _LINES).replace(_LINES, f"{_LINES}{_INDENT}")


def printable_json(document: str) -> str:
    r"""Return equivalent JSON in one line, with unprintable characters as `\u` escapes."""
    if document.isprintable():
        return document
    return _JSON_UNSAFE.sub(lambda found: found[0] if found[0].isprintable() else _json_escape(found[0]), document)


def counted(number: int, one: str, several: str = "") -> str:
    """Return a number with its noun."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def quoted(word: str) -> str:
    """Quote a word for POSIX shells and bash, in printable characters."""
    if word.isprintable():
        return shlex.quote(word)
    plain = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{printable(plain)}'"


class PrintableFormatter(logging.Formatter):
    """Formatter of a log: each message is one line of printable characters, and a traceback is indented below."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as logging calls it
        """Return the line."""
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: "logging._SysExcInfoType") -> str:  # noqa: N802 - as logging calls it
        """Return a traceback."""
        return _INDENT + printable_lines(super().formatException(ei))


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
