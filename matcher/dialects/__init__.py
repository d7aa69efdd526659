"""Dialects by name.

A dialect is one module of this package with one subclass of `Dialect`; nothing else lists it.
"""

from abc import ABC, abstractmethod
from importlib import import_module
from inspect import isabstract, isclass
from pkgutil import iter_modules
from typing import ClassVar, Final, NamedTuple

from matcher.errors import InvalidPattern, InvalidTopic, UnknownDialect, UnsupportedOption
from matcher.pattern import Pattern

DEFAULT: Final = "lite"
"""Name of the default dialect."""


class Flaw(NamedTuple):
    """Flaw of a text: the position of the first offending character, the broken rule, and the remedy."""

    position: int
    reason: str
    hint: str


class Dialect(ABC):
    """Pattern language: the notation of its patterns, and the division of its topics into segments.

    A dialect has no state, so one instance serves all threads.

    Attributes:
        name: name for users.
        separator: text between two segments.
        wildcards: characters that its wildcards are written with.
        catch_all: pattern for every topic. Topics with an empty token (nats) and hidden ones (mqtt) are exceptions.
        policies: match policies that a pattern may ask for; none in most dialects.
        whole_wildcards: True if a valid pattern has wildcard characters in wildcard segments only.
        has_inner_multi: True if `allow_inner_multi` admits multi-segment wildcards before the end of a pattern.
        reserved: prefix of the first segment of topics hidden from patterns that begin with a wildcard; blank for none.
        rest_may_be_empty: True if the trailing multi-segment wildcard also matches no segment at all.
        empty_topic: True if patterns can match the empty text.
        forbidden_characters: ASCII characters; no pattern matches a topic with one of them.
        forbidden_segments: segments of at most eight bytes; no pattern matches a topic with one of them.
        max_bytes: length in bytes of UTF-8; no pattern matches a longer topic, or one that UTF-8 cannot hold.

    The last four repeat the rules of `split` in a form for whole batches.
    """

    name: ClassVar[str]
    separator: ClassVar[str]
    wildcards: ClassVar[str]
    catch_all: ClassVar[str]
    policies: ClassVar[tuple[str, ...]] = ()
    whole_wildcards: ClassVar[bool] = False
    has_inner_multi: ClassVar[bool] = False
    reserved: ClassVar[str] = ""
    rest_may_be_empty: ClassVar[bool] = False
    empty_topic: ClassVar[bool] = False
    forbidden_characters: ClassVar[str] = ""
    forbidden_segments: ClassVar[tuple[str, ...]] = ()
    max_bytes: ClassVar[int | None] = None

    def __repr__(self) -> str:
        return f"<Dialect {self.name!r}>"

    @abstractmethod
    def parse(self, text: str, *, policy: str | None = None, allow_inner_multi: bool = False) -> Pattern:
        """Parse a pattern; linear in its length.

        Raises:
            InvalidPattern: the text is not a pattern of this dialect.
            UnsupportedOption: this dialect lacks the policy, or the inner multi-segment wildcard.
        """

    @abstractmethod
    def split(self, topic: str) -> list[str] | None:
        """Split a topic into its segments; return None if no pattern can match it.

        The segments are those of `topic.split(separator)`, unchanged: indexes and batches cut topics themselves.
        """

    @abstractmethod
    def flaw_of_topic(self, topic: str) -> Flaw | None:
        """Return the first flaw of a topic; None if it is valid."""

    def validate(self, text: str, *, policy: str | None = None, allow_inner_multi: bool = False) -> None:
        """Check a pattern; raise the errors of `parse` unless it is valid."""
        self.parse(text, policy=policy, allow_inner_multi=allow_inner_multi)

    def validate_topic(self, topic: str) -> None:
        """Check a topic.

        Raises:
            InvalidTopic: the text is not a topic of this dialect; with position, reason and remedy.
        """
        flaw = self.flaw_of_topic(topic)
        if flaw is not None:
            raise InvalidTopic(topic, flaw.position, self._segment_at(topic, flaw.position), flaw.reason, flaw.hint)

    def hides(self, topic: str) -> bool:
        """Return True if a wildcard in the first segment must not match this topic."""
        return bool(self.reserved) and topic.startswith(self.reserved)

    def matches(self, pattern: Pattern, topic: str) -> bool:
        """Return True if a parsed pattern matches a topic; for the bound see `Pattern.accepts`."""
        if pattern.literal is not None:
            return topic == pattern.literal
        segments = self.split(topic)
        if segments is None or (pattern.starts_with_wildcard and self.hides(topic)):
            return False
        return pattern.accepts(segments)

    def _refuse_options(self, policy: str | None, *, allow_inner_multi: bool = False) -> None:
        if policy is not None:
            raise UnsupportedOption(f"dialect {self.name!r} has no match policies, but policy={policy!r} was given")
        self._refuse_inner_multi(allow_inner_multi=allow_inner_multi)

    def _refuse_inner_multi(self, *, allow_inner_multi: bool) -> None:
        if allow_inner_multi:
            raise UnsupportedOption(f"dialect {self.name!r} has no inner multi-segment wildcard")

    def _invalid(self, text: str, position: int, reason: str, hint: str) -> InvalidPattern:
        return InvalidPattern(text, position, self._segment_at(text, position), reason, hint)

    def _start(self, parts: list[str], index: int) -> int:
        """Return the offset of the segment at `index`."""
        return sum(map(len, parts[:index])) + index * len(self.separator)

    def _segment_at(self, text: str, position: int) -> int:
        return text.count(self.separator, 0, position) + 1


def _load() -> dict[str, Dialect]:
    """Return one instance of each dialect of this package by name, the default dialect first."""
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    kinds = {
        kind for module in modules for kind in vars(module).values() if isclass(kind) and issubclass(kind, Dialect)
    }
    dialects = [kind() for kind in kinds if not isabstract(kind)]
    return {dialect.name: dialect for dialect in sorted(dialects, key=lambda each: (each.name != DEFAULT, each.name))}


DIALECTS: Final = _load()

SEPARATORS: Final = tuple(dict.fromkeys(dialect.separator for dialect in DIALECTS.values()))
"""Separators of all dialects, each once."""

POLICIES: Final = tuple(dict.fromkeys(policy for dialect in DIALECTS.values() for policy in dialect.policies))
"""Match policies of all dialects, each once."""


def get_dialect(name: str | Dialect) -> Dialect:
    """Return the dialect of this name; return a dialect of your own as it is.

    Raises:
        UnknownDialect: no dialect has this name.
    """
    if isinstance(name, Dialect):
        return name
    try:
        return DIALECTS[name]
    except KeyError:
        raise UnknownDialect(name, DIALECTS) from None
