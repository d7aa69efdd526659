"""PatternTexts: patterns by topic, found by their text, without a parse and without nodes."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple

from matcher.dialects import get_dialect
from matcher.index.node import V
from matcher.index.patterns import PatternIndex
from matcher.pattern import Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from matcher.dialects import Dialect
    from matcher.pattern import Pattern

MAX_FORMS: Final = 16  # forms that a look-up spells; so many cost about as much as a trie
MAX_SEGMENTS: Final = 16  # segments of a pattern that is spelled

_SEPARATOR: Final = "\x01"  # between the segments of an outline
_END: Final = "\n"  # between outlines
_LITERAL: Final = "x"  # any literal, since outlines lack them
_LONGEST: Final = 3 * MAX_SEGMENTS  # bytes of an outline
_CACHED_FORMS: Final = 1_024
_LONG: Final = b"long"  # in place of the outlines of more segments


class _Form(NamedTuple):
    """Patterns that differ in their literals only.

    Attributes:
        pattern: one of them.
        template: their text, with `%s` for each literal.
        places: numbers of the segments that are literals.
    """

    pattern: Pattern
    template: str
    places: tuple[int, ...]

    def fits(self, segments: int, *, hidden: bool) -> bool:
        """Return True if a topic of so many segments can match."""
        if hidden and self.pattern.starts_with_wildcard:
            return False
        tail, size = self.pattern.tail, len(self.pattern.segments)
        return segments == size if tail is Tail.END else segments > size or (tail is Tail.ANY and segments == size)


class _Speller:
    """The texts of all patterns that would match a topic, for some forms.

    Attributes:
        template: the texts, each with a line feed after it, and `%s` for each literal.
        literals: returns the segments of a topic for the template.
    """

    __slots__ = ("_forms", "literals", "template")

    def __init__(self, forms: Sequence[_Form]) -> None:
        self._forms = forms
        self.template = "".join(form.template + _END for form in forms)
        self.literals = _getter([place for form in forms for place in form.places])

    def one_by_one(self, segments: Sequence[str]) -> list[str]:
        """Return the texts for the segments of a topic, which may have line feeds."""
        return [form.template % _getter(form.places)(segments) for form in self._forms]


def _getter(places: Sequence[int]) -> Callable[[Sequence[str]], Any]:
    return itemgetter(*places) if places else lambda _: ()


@lru_cache
def _characters(dialect: Dialect) -> tuple[bytes, tuple[str, ...]]:
    """Return all bytes but those of outlines, and the characters of a topic that is spelled form by form."""
    kept = (_SEPARATOR + _END + dialect.wildcards).encode()
    # Wildcard characters in a topic can make two forms spell the same text.
    odd = _END, *(each for each in dialect.wildcards if each not in dialect.forbidden_characters)
    return bytes(code for code in range(256) if code not in kept), odd


@lru_cache(_CACHED_FORMS)
def _form_of(outline: bytes, dialect: Dialect, allow_inner_multi: bool) -> _Form | None:  # noqa: FBT001 - private
    """Return the form of an outline; None if no look-up can spell its texts."""
    if outline == _LONG:
        return None
    parts = outline.decode().split(_SEPARATOR)
    text = dialect.separator.join(part or _LITERAL for part in parts)
    pattern = dialect.parse(text, allow_inner_multi=allow_inner_multi)
    if pattern.has_many or (pattern.literal is None and len(pattern.segments) > MAX_SEGMENTS):
        return None
    template = dialect.separator.join(part or "%s" for part in parts)
    return _Form(pattern, template, tuple(place for place, part in enumerate(parts) if not part))


class Spelling:
    """Forms of patterns, and the texts of these forms that match a topic.

    The outline of a pattern is its text without the literals; patterns of one outline are a form. One text of each form
    matches a topic. Not all patterns are spelled: not those of dialects without `whole_wildcards`, with inner
    multi-segment wildcards, of more than `MAX_SEGMENTS` segments, or of forms beyond `MAX_FORMS`.

    Args:
        dialect: dialect of all patterns.
        allow_inner_multi: accept multi-segment wildcards before the end of a pattern, in dialects that have them.
    """

    def __init__(self, dialect: Dialect, *, allow_inner_multi: bool = False) -> None:
        self._dialect = dialect
        self._split = dialect.split  # these two are read at each look-up
        self._reserved = dialect.reserved
        self._allow_inner_multi = allow_inner_multi
        self._forms: dict[bytes, _Form | None] = {}  # by outline; None if its patterns are not spelled
        self._spelled: dict[bytes, _Form] = {}  # forms with wildcards, by outline
        self._counts: dict[bytes, int] = {}  # patterns by outline
        self._spellers: dict[int, _Speller] = {}  # by number of segments, of hidden topics negative
        self._dropped, self._odd = _characters(self._dialect)

    def __contains__(self, outline: object) -> bool:
        """Return True if the patterns of an outline that was added are spelled."""
        return self._forms[outline] is not None  # type: ignore[index]

    def example(self, outline: bytes) -> Pattern | None:
        """Return a pattern of an outline that was added; None if its patterns are not spelled."""
        form = self._forms[outline]
        return form and form.pattern

    def add(self, counts: Mapping[bytes, int]) -> bool:
        """Add patterns, counted by outline; return True if all of them are spelled."""
        are_spelled = True
        for outline in sorted(counts, key=counts.__getitem__, reverse=True) if len(counts) > 1 else counts:
            if outline not in self._forms:
                self._forms[outline], self._counts[outline] = self._new_form(outline), 0
            self._counts[outline] += counts[outline]
            are_spelled = are_spelled and self._forms[outline] is not None
        return are_spelled

    def remove(self, outline: bytes) -> None:
        """Remove a pattern of an outline."""
        self._counts[outline] -= 1
        if not self._counts[outline]:
            del self._counts[outline], self._forms[outline]
            if self._spelled.pop(outline, None):
                self._spellers = {}

    def texts(self, topic: str) -> Collection[str]:
        """Return the texts of the patterns that would match a topic."""
        segments = self._split(topic)
        if segments is None:
            return ()
        count = len(segments)
        if count > MAX_SEGMENTS:
            count = MAX_SEGMENTS + 1  # forms of no more segments fit alike
        if self._reserved and topic.startswith(self._reserved):
            count = -count
        speller = self._spellers.get(count)
        if speller is None:
            speller = _Speller([form for form in self._spelled.values() if form.fits(abs(count), hidden=count < 0)])
            self._spellers[count] = speller
        for each in self._odd:
            if each in topic:
                return dict.fromkeys((topic, *speller.one_by_one(segments)))
        texts: str = speller.template % speller.literals(segments)
        return (texts + topic).split(_END)

    def outlines(self, texts: Sequence[str]) -> list[bytes]:
        """Return the outline of each pattern; all together take a few passes over their bytes."""
        if not texts:
            return []
        joined = _END.join(texts)
        if _SEPARATOR in joined or joined.count(_END) >= len(texts):
            joined = _END.join(text.replace(_SEPARATOR, _LITERAL).replace(_END, _LITERAL) for text in texts)
        cut = joined.replace(self._dialect.separator, _SEPARATOR).encode("utf-8", "surrogatepass")
        outlines = cut.translate(None, self._dropped).split(_END.encode())
        return [_LONG if len(outline) > _LONGEST else outline for outline in outlines]

    def _new_form(self, outline: bytes) -> _Form | None:
        """Return the form of an outline; None if its patterns are not spelled."""
        form = None
        if self._dialect.whole_wildcards:
            form = _form_of(outline, self._dialect, self._allow_inner_multi)
        if form is None or form.pattern.literal is not None:
            return form
        if len(self._spelled) == MAX_FORMS:
            return None
        self._spelled[outline] = form
        self._spellers = {}
        return form


class ValuesByText(dict[str, "tuple[V] | dict[V, None]"], Generic[V]):
    """Values of texts; a value that is the only one of many texts takes no memory for each."""

    __slots__ = ()

    def add(self, texts: Iterable[str], value: V) -> None:
        """Add a value for some texts."""
        alone, known = (value,), self.setdefault
        for text in texts:
            held = known(text, alone)
            if isinstance(held, dict):
                held[value] = None
            elif held is not alone:
                self[text] = {held[0]: None, value: None}

    def discard(self, text: str, value: V) -> None:
        """Remove a value of a text, if the text has it."""
        held = self.get(text, {})
        if isinstance(held, dict):
            held.pop(value, None)
        if not held or held == (value,):
            self.pop(text, None)


class PatternTexts(Generic[V]):
    """Set of (pattern, value) pairs, looked up by topic; a pattern takes one entry of a dict.

    A look-up spells the texts of the patterns that would match (see `Spelling`). A `PatternIndex` has the patterns that
    are not spelled, or have a match policy.

    Args:
        dialect: dialect of all patterns.
        allow_inner_multi: accept multi-segment wildcards before the end of a pattern, in dialects that have them.

    Attributes:
        parsed: number of pairs in the other index, which takes far more memory for each.
    """

    def __init__(self, dialect: str | Dialect = "lite", *, allow_inner_multi: bool = False) -> None:
        self._dialect = get_dialect(dialect)
        self._allow_inner_multi = allow_inner_multi
        self._values: ValuesByText[V] = ValuesByText()
        self._others: PatternIndex[V] | None = None  # most indexes need none
        self._spelling = Spelling(self._dialect, allow_inner_multi=allow_inner_multi)
        self._size = 0
        self.parsed = 0

    def __len__(self) -> int:
        """Return the number of pairs."""
        return self._size

    @property
    def parsed_bytes(self) -> int:
        """Estimated memory of the other index, in bytes."""
        return 0 if self._others is None else self._others.memory_bytes

    def add(self, texts: Sequence[str], value: V, *, policy: str | None = None) -> None:
        """Add a value for some patterns, as `add_all`."""
        self.add_all([(texts, value)], policy=policy)

    def add_all(self, additions: Sequence[tuple[Sequence[str], V]], *, policy: str | None = None) -> None:
        """Add values, each for some patterns; linear in their texts.

        Args:
            additions: valid patterns, and a hashable value. Patterns that have it already must be removed once more.
            policy: match policy of the patterns, in dialects that have match policies.
        """
        texts = [text for each, _ in additions for text in each]
        self._size += len(texts)
        if policy is None:
            outlines = self._spelling.outlines(texts)
            counts = Counter(outlines) if len(outlines) > 1 else dict.fromkeys(outlines, 1)
            if self._spelling.add(counts):
                for each, value in additions:
                    self._values.add(each, value)
                return
            spelled = iter([outline in self._spelling for outline in outlines])
        else:
            spelled = iter([False] * len(texts))
        for each, value in additions:
            for text in each:
                if next(spelled):
                    self._values.add((text,), value)
                else:
                    self._add_other(text, value, policy)

    def remove(self, texts: Sequence[str], value: V, *, policy: str | None = None) -> None:
        """Remove a value that `add` added for these patterns."""
        self._size -= len(texts)
        if policy is not None:
            for text in texts:
                self._remove_other(text, value, policy)
            return
        for text, outline in zip(texts, self._spelling.outlines(texts), strict=True):
            if outline in self._spelling:
                self._values.discard(text, value)
            else:
                self._remove_other(text, value, None)
            self._spelling.remove(outline)

    def match(self, topic: str) -> list[V]:
        """Return the value of every pair whose pattern matches, in no particular order.

        It costs a look-up for each form that fits the number of segments, and a look-up in the other index.
        """
        values = self._values
        found = [value for text in self._spelling.texts(topic) if text in values for value in values[text]]
        return found if self._others is None else found + self._others.match(topic)

    def match_patterns(self, topic: str) -> list[tuple[str, V]]:
        """Return (pattern, value) for each matching pair, in the order of `match`."""
        values = self._values
        found = [(text, value) for text in self._spelling.texts(topic) if text in values for value in values[text]]
        return found if self._others is None else found + self._others.match_patterns(topic)

    def _add_other(self, text: str, value: V, policy: str | None) -> None:
        if self._others is None:
            self._others = PatternIndex(self._dialect, allow_inner_multi=self._allow_inner_multi)
        self._others.add(text, value, policy=policy)
        self.parsed = len(self._others)

    def _remove_other(self, text: str, value: V, policy: str | None) -> None:
        if self._others is not None:
            self._others.remove(text, value, policy=policy)
            self.parsed = len(self._others)
            self._others = self._others if self.parsed else None
