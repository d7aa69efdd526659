"""NATS subjects: `.` separates tokens, `*` is one token, a final `>` one or more.

Rules: nats-server 2.15.2 (server/sublist.go), whose recorded answers are tests/conformance/vectors/nats.json:

- Empty tokens, and space, tab, line feed, carriage return and form feed, are invalid; any other character is valid.
- `*` and `>` are wildcards only if they are a whole token: `foo*`, `**` and `>>` are literals.
- `$` has no special meaning.
"""

import re
from typing import ClassVar, Final

from matcher.dialects import Dialect, Flaw
from matcher.pattern import ONE, Pattern, Segment, Tail

_BLANK: Final = re.compile(r"[ \t\n\r\f]")
_NOT_LITERAL: Final = frozenset(("", "*", ">"))


class Nats(Dialect):
    """NATS."""

    name: ClassVar[str] = "nats"
    separator: ClassVar[str] = "."
    wildcards: ClassVar[str] = "*>"
    catch_all: ClassVar[str] = ">"
    forbidden_characters: ClassVar[str] = " \t\n\r\f"
    forbidden_segments: ClassVar[tuple[str, ...]] = ("", "*", ">")

    def parse(self, text: str, *, policy: str | None = None, allow_inner_multi: bool = False) -> Pattern:
        """Parse a subject with or without wildcards; `IsValidSubject` decides if it is valid."""
        self._refuse_options(policy, allow_inner_multi=allow_inner_multi)
        tokens = text.split(".")
        flaw = self._flaw(text, tokens)
        if flaw is not None:
            raise self._invalid(text, *flaw)
        tail = Tail.END
        if tokens[-1] == ">":
            tokens.pop()
            tail = Tail.SOME
        if ">" in tokens:
            position = self._start(tokens, tokens.index(">"))
            raise self._invalid(text, position, "'>' is not the last token", "move it to the end, or write '*' here")
        if tail is Tail.END and "*" not in tokens:
            return Pattern(text, tuple(tokens), literal=text)
        segments: list[Segment] = [ONE if part == "*" else part for part in tokens]
        return Pattern(text, tuple(segments), tail)

    def split(self, topic: str) -> list[str] | None:
        """Split at `.`; return None unless `IsValidPublishSubject` accepts the topic."""
        tokens = topic.split(".")
        if not _NOT_LITERAL.isdisjoint(tokens):
            return None
        surely_without_blanks = topic.isprintable() and " " not in topic  # faster than the regular expression
        return tokens if surely_without_blanks or not _BLANK.search(topic) else None

    def flaw_of_topic(self, topic: str) -> Flaw | None:
        """Return the first flaw by the rules of `IsValidPublishSubject`."""
        tokens = topic.split(".")
        return self._flaw(topic, tokens) or self._flaw_of_literal(tokens)

    def is_literal(self, subject: str) -> bool:
        """Return True if `IsValidLiteralSubject` accepts the subject: no wildcards, but blanks are allowed."""
        tokens = subject.split(".")
        return "" not in tokens and self._flaw_of_literal(tokens) is None

    def _flaw(self, text: str, tokens: list[str]) -> Flaw | None:
        if "" in tokens:
            reason = "the token is empty" if text else "the subject is empty"
            return Flaw(self._start(tokens, tokens.index("")), reason, "write a name there")
        blank = _BLANK.search(text)
        if blank is not None:
            return Flaw(blank.start(), f"{blank.group()!r} is a blank", "leave it out")
        return None

    def _flaw_of_literal(self, tokens: list[str]) -> Flaw | None:
        for index, token in enumerate(tokens):
            if token in ("*", ">"):
                return Flaw(self._start(tokens, index), f"{token!r} is a wildcard", "write a name there")
        return None
