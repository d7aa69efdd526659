"""WAMP topics: `.` separates components; a match policy decides the meaning of a pattern.

- `exact`: the topic itself.
- `prefix`: a prefix of the *text*, so `com.myapp` matches `com.myapp2.foobar`.
- `wildcard`: each empty component matches exactly one component, which may be empty.
- no policy: the common notation with `*`. As a whole component it is a wildcard; at the end of the text it makes the
  text before it a prefix (`com.myapp.*` is the prefix `com.myapp.`); `**` as the last component is a wildcard for that
  one component. Without any `*` the pattern is exact. With an explicit policy `*` is a character like others.

| without a policy      | the same with a policy                     |
|-----------------------|--------------------------------------------|
| `com.*.create`        | `com..create`, wildcard                    |
| `com.myapp*`          | `com.myapp`, prefix                        |
| `com.myapp.*`         | `com.myapp.`, prefix                       |
| `com.myapp.**`        | `com.myapp.`, wildcard                     |

Rules: Crossbar.io's page on pattern-based subscriptions; the answers of Crossbar.io 26.10.1 and autobahn 26.10.2 are
recorded in tests/conformance/vectors/wamp.json. Like them, matching validates neither pattern nor topic; `validate`
does.
"""

import re
from typing import ClassVar, Final

from matcher.dialects import Dialect, Flaw
from matcher.errors import UnsupportedOption
from matcher.pattern import ONE, Pattern, Segment, Tail

POLICIES: Final = ("exact", "prefix", "wildcard")
_STRICT: Final = re.compile(r"[^\da-z_]")
_LOOSE: Final = re.compile(r"[\s#]")


class Wamp(Dialect):
    """WAMP, with the match policies of its advanced profile."""

    name: ClassVar[str] = "wamp"
    separator: ClassVar[str] = "."
    wildcards: ClassVar[str] = "*"
    catch_all: ClassVar[str] = "*"
    policies: ClassVar[tuple[str, ...]] = POLICIES
    empty_topic: ClassVar[bool] = True

    def parse(self, text: str, *, policy: str | None = None, allow_inner_multi: bool = False) -> Pattern:
        """Parse a pattern; with an explicit policy every text is one."""
        self._refuse_inner_multi(allow_inner_multi=allow_inner_multi)
        parts = text.split(".")
        if policy == "prefix":
            return Pattern(text, tuple(parts), Tail.STARTS, policy=policy)
        if policy == "wildcard" and "" in parts:
            return Pattern(text, tuple(part or ONE for part in parts), policy=policy)
        if policy in POLICIES or (policy is None and "*" not in text):
            return Pattern(text, tuple(parts), literal=text, policy=policy)
        if policy is None:
            return self._parse_notation(text, parts)
        raise UnsupportedOption(f"no match policy is named {policy!r}; use one of {', '.join(POLICIES)}")

    def validate(self, text: str, *, policy: str | None = None, allow_inner_multi: bool = False) -> None:
        """Check a pattern by Crossbar.io's loose rules for URIs in subscriptions.

        Empty components are allowed everywhere in a wildcard pattern, at the end of a prefix, and nowhere else.
        """
        self.parse(text, policy=policy, allow_inner_multi=allow_inner_multi)
        flaw = flaw_of_uri(text, allow_last_empty=policy == "prefix", allow_empty_components=policy == "wildcard")
        if flaw is not None:
            raise self._invalid(text, *flaw)

    def split(self, topic: str) -> list[str] | None:
        """Split at `.`; every text is a topic."""
        return topic.split(".")

    def flaw_of_topic(self, topic: str) -> Flaw | None:
        """Return the first flaw by the loose rules for URIs."""
        return flaw_of_uri(topic)

    def _parse_notation(self, text: str, parts: list[str]) -> Pattern:
        last = parts.pop()
        segments: list[Segment] = []
        for index, part in enumerate(parts):
            if "*" in part and part != "*":
                position = self._start(parts, index) + part.index("*")
                raise self._invalid(text, position, f"'*' is next to other characters in {part[:40]!r}", _HINT)
            segments.append(ONE if part == "*" else part)
        if last == "**":
            return Pattern(text, (*segments, ONE))
        if "*" in last[:-1]:
            position = len(text) - len(last) + last.index("*")
            raise self._invalid(text, position, f"'*' is inside {last[:40]!r}", _HINT)
        if last.endswith("*"):
            return Pattern(text, (*segments, last[:-1]), Tail.STARTS)
        return Pattern(text, (*segments, last))


_HINT: Final = "write it as a whole component or at the end, or give an explicit policy, which makes it literal"


def flaw_of_uri(
    uri: str, *, strict: bool = False, allow_last_empty: bool = False, allow_empty_components: bool = False
) -> Flaw | None:
    """Return the first flaw of a URI by the rules of autobahn's `check_or_raise_uri`; None if it is valid.

    Loose rules forbid blanks and `#`; strict ones allow a to z, digits (of any script) and `_` only. A line feed at the
    very end, which upstream overlooks, is a blank like others.
    """
    forbidden = _STRICT if strict else _LOOSE
    allowed = "a to z, digits and '_'" if strict else "anything but blanks and '#'"
    position = 0
    components = uri.split(".")
    for number, component in enumerate(components, 1):
        may_be_empty = allow_empty_components or (allow_last_empty and number == len(components))
        if not component and not may_be_empty:
            return Flaw(position, "the component is empty", "write a name there")
        found = forbidden.search(component)
        if found is not None:
            return Flaw(position + found.start(), f"{found.group()!r} is not allowed", f"use {allowed}")
        position += len(component) + 1
    return None
