"""RocketMQ LiteTopic patterns: `__` separates segments, `*` is one segment, `**` one or more.

Rules: Apache RocketMQ issue 10559 (the RFC), and `LitePatternMatcher` of its pull requests 10607 and 11054, whose
recorded answers are tests/conformance/vectors/lite.json. The implementations decide if the RFC has no rule:

- Topics are not validated: `pay__*` matches `pay__`, whose second segment is empty. Only the empty topic matches no
  pattern.
- Splitting is leftmost: `a___b` is `a` and `_b`.
- A blank segment (`" "`) is a segment like any other.
"""

from typing import ClassVar

from matcher.dialects import Dialect, Flaw
from matcher.pattern import MANY, ONE, Pattern, Segment, Tail


class Lite(Dialect):
    """The default dialect."""

    name: ClassVar[str] = "lite"
    separator: ClassVar[str] = "__"
    wildcards: ClassVar[str] = "*"
    catch_all: ClassVar[str] = "**"
    whole_wildcards: ClassVar[bool] = True
    has_inner_multi: ClassVar[bool] = True

    def parse(self, text: str, *, policy: str | None = None, allow_inner_multi: bool = False) -> Pattern:
        """Parse a pattern.

        With `allow_inner_multi`, `**` may also be before other segments. The RFC defers this to its second version.
        """
        self._refuse_options(policy)
        parts = text.split("__")
        if "*" not in text and all(parts):
            return Pattern(text, tuple(parts), literal=text)
        segments: list[Segment] = []
        tail = Tail.END
        for index, part in enumerate(parts):
            if part == "*":
                segments.append(ONE)
            elif part == "**" and index == len(parts) - 1:
                tail = Tail.SOME
            elif part == "**" and allow_inner_multi:
                segments.append(MANY)
            elif part == "**":
                hint = "move it to the end, or write '*' here"
                raise self._invalid(text, self._start(parts, index), "'**' is not the last segment", hint)
            elif "*" in part:
                position = self._start(parts, index) + part.index("*")
                hint = "a wildcard takes a whole segment: write '*' alone, or leave it out"
                raise self._invalid(text, position, f"'*' is next to other characters in {part[:40]!r}", hint)
            elif part:
                segments.append(part)
            else:
                reason = "the segment is empty" if text else "the pattern is empty"
                raise self._invalid(text, self._start(parts, index), reason, "write a name, '*' or '**' there")
        return Pattern(text, tuple(segments), tail, has_many=MANY in segments)

    def split(self, topic: str) -> list[str] | None:
        """Split at `__` from the left; return None for the empty topic."""
        return topic.split("__") if topic else None

    def flaw_of_topic(self, topic: str) -> Flaw | None:
        """Return a flaw for the empty topic only, as the implementations do."""
        return None if topic else Flaw(0, "the topic is empty", "give it a name")
