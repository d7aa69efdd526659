"""TAG selectors: `TagA || TagB` names the tags wanted; `*`, or nothing at all, wants all.

RocketMQ filters in two stages: by the hash of the tag, which is cheap to store with a message, and then by the tag
itself, because hashes collide (`Aa` and `BB`). Here the tag is known, so the second stage is enough.
Rules: `FilterAPI.buildSubscriptionData` of RocketMQ; the hash is Java's `String.hashCode`, whose recorded answers are
tests/conformance/vectors/taghash.json.
"""

from collections.abc import Collection, Mapping
from typing import Final

from matcher.errors import SelectorSyntaxError

_ALL: Final = ("", "*")
_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))  # what Java's `String.trim` drops


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`: over UTF-16 code units, as a signed 32-bit integer."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8) + units[index + 1]) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


class TagSelector:
    """Compiled TAG selector; it has no state, so one instance serves all threads.

    Args:
        text: tags with `||` between them; blanks around a tag are dropped, empty tags skipped.

    Attributes:
        tags: wanted tags; None for all.

    Raises:
        SelectorSyntaxError: the text names no tag.
    """

    __slots__ = ("_hashes", "tags", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.tags: frozenset[str] | None = None
        self._hashes: frozenset[int] | None = None
        if text not in _ALL:
            self.tags = frozenset(filter(None, (tag.strip(_JAVA_BLANKS) for tag in text.split("||"))))
            if not self.tags:
                raise SelectorSyntaxError(text, 0, "no tag is named", "name one, or write '*' for all")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"

    @property
    def hashes(self) -> frozenset[int] | None:
        """Hashes of the wanted tags, computed at the first use; None for all."""
        if self._hashes is None and self.tags is not None:
            self._hashes = frozenset(map(java_hash, self.tags))
        return self._hashes

    def may_match(self, hashed: int) -> bool:
        """Return True if a tag with this hash may be wanted (the first stage)."""
        hashes = self.hashes
        return hashes is None or hashed in hashes

    def matches(self, tag: str | None) -> bool:
        """Return True if the tag is wanted; a missing tag is wanted only if all tags are. One look-up in a set."""
        return self.tags is None or tag in self.tags

    def agrees(self, tags: Collection[str], properties: Mapping[str, str]) -> bool:  # noqa: ARG002 - the interface
        """Return True if one of the tags is wanted."""
        return self.tags is None or any(map(self.matches, tags))
