"""FlatTopics: topics by pattern, in flat arrays that are their own binary form."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from matcher.batch.codec import FlatIndex, all_below, is_partition
from matcher.batch.segments import (
    MAX_POSITIONS,
    Salt,
    are_texts,
    cut,
    hashes,
    hidden,
    is_packed,
    matchable,
    ranges,
    same_text,
    unpack,
)
from matcher.dialects import DIALECTS, get_dialect
from matcher.errors import InvalidPattern, not_a_list
from matcher.pattern import MANY, ONE, Automaton, Pattern, Segment, Tail

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matcher.batch.codec import Arrays
    from matcher.batch.segments import Ints, Segments
    from matcher.dialects import Dialect

_SALT_BYTES: Final = 16
_TYPES: Final = {
    "counts": "<i4",
    "firsts": "<i4",
    "segments": "<i4",
    "texts": "|u1",
    "lengths": "<i4",
    "postings": "<i4",
    "kinds": "<i4",
    "bounds": "<i4",
    "places": "<i4",
}
_FEW_TOPICS: Final = 256  # with so few topics left, the search for a rarer literal does not pay


class FlatTopics(FlatIndex):
    """Immutable index of topics for look-ups by pattern; topics are numbered in the order given.

    Every distinct segment has a number. For each of the first `MAX_POSITIONS` positions the topics are sorted by the
    segment there, so a literal names a range of them; the shortest range is filtered by the other literals.

    A look-up costs at least about twenty array operations; for patterns with few matching topics, use a `TopicIndex`.

    Any number of threads can read it at once. Keep additions in a `TopicIndex` next to it, and rebuild it when they
    have become many.

    Args:
        topics: names of the topics.
        dialect: dialect of all topics and patterns, by name or one of your own.
        allow_inner_multi: accept multi-segment wildcards before the end of a pattern, in dialects that have them.

    Raises:
        TypeError: a text was given in place of a list.
    """

    _kind = "topics"
    _types = _TYPES

    def __init__(
        self, topics: Sequence[str], dialect: str | Dialect = "lite", *, allow_inner_multi: bool = False
    ) -> None:
        if isinstance(topics, str):
            raise not_a_list("topics", topics)
        rules = get_dialect(dialect)
        segments = cut(topics, rules)
        counts = np.where(matchable(segments, rules), segments.counts, 0)
        header = {"kind": "topics", "dialect": rules.name, "allow_inner_multi": allow_inner_multi}
        self._open(header, _build(segments, counts), rules)

    def __len__(self) -> int:
        """Return the number of topics."""
        return len(self._counts)

    @property
    def nbytes(self) -> int:
        """Size of all arrays, in bytes."""
        return sum(array.nbytes for array in self._arrays.values())

    def expand(self, pattern: str | Pattern, *, policy: str | None = None) -> Ints:
        """Return the numbers of the matching topics, ascending; none for an invalid pattern.

        The cost is one filter over the topics with the rarest literal among the sorted positions. With inner
        multi-segment wildcards, topics that fit the segments before the first of them are checked one by one: (their
        segments) x (segments of the pattern) / 64 operations.
        """
        if not isinstance(pattern, Pattern):
            try:
                pattern = self._dialect.parse(
                    pattern, policy=policy, allow_inner_multi=self._header["allow_inner_multi"]
                )
            except InvalidPattern:
                return np.zeros(0, np.int64)
        if pattern.has_many:
            rows = self._select(pattern.segments[: pattern.segments.index(MANY)], Tail.SOME)
        else:
            rows = self._select(pattern.whole, Tail.SOME if pattern.tail is Tail.STARTS else pattern.tail)
        if pattern.starts_with_wildcard and len(self._reserved):
            rows = rows[~np.isin(self._segment(rows, 0), self._reserved)]
        if pattern.has_many:
            automaton = Automaton([pattern])
            rows = rows[[automaton.accepts(self._names_of(row)) for row in rows.tolist()]] if len(rows) else rows
        elif pattern.tail is Tail.STARTS:
            numbers, start = self._segment(rows, len(pattern.whole)), str(pattern.segments[-1])
            wanted = [number for number in np.unique(numbers).tolist() if self._names[number].startswith(start)]
            rows = rows[np.isin(numbers, wanted)]
        found: Ints = rows.astype(np.int64)
        return found

    def expand_batch(self, patterns: Iterable[str | Pattern]) -> tuple[Ints, Ints]:
        """Return (number of the pattern, number of the topic) for each match, as two arrays in this order.

        Raises:
            TypeError: a text was given in place of a list.
        """
        if isinstance(patterns, str):
            raise not_a_list("patterns", patterns)
        found = [self.expand(pattern) for pattern in patterns]
        none = np.zeros(0, np.int64)
        return np.repeat(np.arange(len(found)), list(map(len, found))), np.concatenate([none, *found])

    @staticmethod
    def _is_consistent(header: dict[str, Any], arrays: Arrays) -> bool:
        counts, firsts, places = arrays["counts"], arrays["firsts"], arrays["places"]
        return (
            header.get("dialect") in list(DIALECTS)  # a list, because the stored value may not be hashable
            and isinstance(header.get("allow_inner_multi"), bool)
            and is_partition(firsts, len(counts), len(arrays["segments"]))
            and bool((counts >= 0).all() and (counts <= np.diff(firsts)).all())
            and all_below(arrays["segments"], len(arrays["lengths"]))
            and is_packed(arrays["texts"], arrays["lengths"])
            and are_texts(unpack(arrays["texts"], arrays["lengths"]))
            and len(places) <= MAX_POSITIONS + 1
            and is_partition(places, len(places) - 1, len(arrays["kinds"]))
            and is_partition(arrays["bounds"], len(arrays["kinds"]), len(arrays["postings"]))
            and all_below(arrays["postings"], len(counts))
        )

    def _open(self, header: dict[str, Any], arrays: Arrays, dialect: Dialect) -> None:
        self._header, self._arrays, self._dialect = header, arrays, dialect
        self._counts = arrays["counts"]
        self._firsts = arrays["firsts"]
        self._places: list[int] = arrays["places"].tolist()
        self._texts = unpack(arrays["texts"], arrays["lengths"])
        hidden_texts = hidden(self._texts, self._dialect)
        self._reserved = np.zeros(0, np.int64) if hidden_texts is None else np.flatnonzero(hidden_texts)

    @cached_property
    def _names(self) -> list[str]:
        """Distinct segments as text, decoded at the first use."""
        return [self._texts.text(number).decode("utf-8", "surrogatepass") for number in range(len(self._texts.starts))]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self._names)}

    def _segment(self, rows: Any, place: int) -> Any:
        """Return the number of the segment at a place of each topic."""
        return self._arrays["segments"].take(self._firsts.take(rows) + place)

    def _names_of(self, row: int) -> list[str]:
        start = int(self._firsts[row])
        return [self._names[number] for number in self._arrays["segments"][start : start + int(self._counts[row])]]

    def _select(self, segments: Sequence[Segment], tail: Tail) -> Any:
        """Return the topics with these segments and this tail, ascending."""
        literals = []
        for place, segment in enumerate(segments):
            if segment is not ONE:
                literals.append((place, self._numbers.get(str(segment), -1)))
        if any(number < 0 for _, number in literals):
            return np.zeros(0, np.int32)
        rows, rarest_place = self._rarest([literal for literal in literals if literal[0] < len(self._places) - 1])
        least = len(segments) + (tail is Tail.SOME)
        if rows is None:
            rows = np.flatnonzero(self._counts == least if tail is Tail.END else self._counts >= max(1, least))
        else:
            counts = self._counts.take(rows)
            rows = rows.compress(counts == least if tail is Tail.END else counts >= least)
        for place, number in literals:
            if place != rarest_place:
                rows = rows.compress(self._segment(rows, place) == number)
        return rows

    def _rarest(self, literals: list[tuple[int, int]]) -> tuple[Any, int]:
        """Return the topics with the rarest literal, and its place; None without any literal."""
        rows, rarest_place = None, -1
        # Places with more distinct segments first, since fewer topics share each.
        for place, number in sorted(literals, key=lambda each: self._places[each[0]] - self._places[each[0] + 1]):
            posting = self._posting(place, number)
            if rows is None or len(posting) < len(rows):
                rows, rarest_place = posting, place
            if len(rows) <= _FEW_TOPICS:
                break
        return rows, rarest_place

    def _posting(self, place: int, number: int) -> Any:
        """Return the topics with this segment at this place, ascending."""
        start, end = self._places[place : place + 2]
        kinds = self._arrays["kinds"][start:end]
        spot = int(kinds.searchsorted(np.int32(number)))  # a number of another type converts the whole array
        if spot == len(kinds) or kinds[spot] != number:
            return np.zeros(0, np.int32)
        first, last = self._arrays["bounds"][start + spot : start + spot + 2]
        return self._arrays["postings"][first:last]


def _build(segments: Segments, counts: Ints) -> Arrays:
    """Number the distinct segments, and sort the topics by the segment at each place."""
    while True:
        hashed = hashes(segments, Salt(os.urandom(_SALT_BYTES)))
        _, samples, numbers = np.unique(hashed, return_index=True, return_inverse=True)
        if same_text(segments, np.arange(len(numbers)), segments, samples[numbers]).all():
            break
    starts = segments.starts[samples]
    _, places = ranges(starts, starts + segments.lengths[samples] + 1)
    texts = segments.data[places]
    texts[np.cumsum(segments.lengths[samples] + 1) - 1] = ord("\n")  # in place of the start of a separator
    padding = np.zeros(8, np.uint8)
    postings, kinds, bounds, place_firsts = [], [], [], [0]
    placed = 0
    for place in range(min(MAX_POSITIONS, int(counts.max(initial=0)))):
        rows = np.flatnonzero(counts > place)
        found = numbers[segments.first[rows] + place]
        order = np.argsort(found, kind="stable")
        begins = np.flatnonzero(np.diff(found[order], prepend=-1))
        postings.append(rows[order])
        kinds.append(found[order][begins])
        bounds.append(begins + placed)
        placed += len(rows)
        place_firsts.append(place_firsts[-1] + len(begins))
    none = np.zeros(0, np.int64)
    return {
        "counts": counts.astype(np.int32),
        "firsts": segments.first.astype(np.int32),
        "segments": numbers.astype(np.int32),
        "texts": np.concatenate((texts, padding)),
        "lengths": segments.lengths[samples].astype(np.int32),
        "postings": np.concatenate((none, *postings)).astype(np.int32),
        "kinds": np.concatenate((none, *kinds)).astype(np.int32),
        "bounds": np.concatenate((none, *bounds, [placed])).astype(np.int32),
        "places": np.array(place_firsts, np.int32),
    }
