"""FlatPatterns: patterns by topic, for batches of topics, in flat arrays that are their own binary form."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from matcher.batch.codec import FlatIndex, all_below, is_partition
from matcher.batch.segments import (
    MAX_POSITIONS,
    TOPICS_AT_ONCE,
    Salt,
    at_positions,
    cut,
    firsts_of,
    hashes,
    is_packed,
    pack,
    ranges,
    same_text,
    unpack,
)
from matcher.batch.shapes import EMPTY, Keys, from_json, group_by_shape, probes, shape_from_json, to_json, usable
from matcher.dialects import DIALECTS, get_dialect
from matcher.errors import not_a_list
from matcher.index import PatternIndex
from matcher.pattern import Pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matcher.batch.codec import Arrays
    from matcher.batch.segments import Ints, Segments
    from matcher.batch.shapes import Shape
    from matcher.dialects import Dialect

_SALT_BYTES: Final = 16
_HEX: Final = re.compile(r"(?:[0-9a-f]{2})+")
_TYPES: Final = {
    "keys": "<u8",
    "shapes": "<i2",
    "first_literals": "<i4",
    "literals": "<i4",
    "first_numbers": "<i4",
    "numbers": "<i4",
    "texts": "|u1",
    "lengths": "<i4",
}


class FlatPatterns(FlatIndex):
    """Immutable index of patterns for batches of topics; patterns are numbered in the order given.

    The key of a pattern is the sum of one salted hash for each literal at its position. The key of a topic for one
    shape of patterns is the sum over its segments less those under wildcards, so a batch costs a few array operations
    for each of at most `MAX_SHAPES` shapes. Hits are verified against the real segments. Patterns that arrays cannot
    serve, patterns of the rarest shapes beyond that number, and different patterns with equal keys are in a
    `PatternIndex`, with one look-up per topic.

    It is faster than a `PatternIndex` for batches of more than about 300 topics with 1,000 patterns, or 100 topics with
    100,000 patterns.

    Any number of threads can read it at once. Keep additions in a `PatternIndex` next to it, and rebuild it when they
    have become many.

    Args:
        patterns: texts, or patterns parsed by the dialect.
        dialect: dialect of all patterns, by name or one of your own.
        allow_inner_multi: accept multi-segment wildcards before the end of a pattern, in dialects that have them.
        salt: seed of the hashes; random unless given, because users choose the names that are hashed.

    Raises:
        InvalidPattern: a text is not a pattern of the dialect.
        TypeError: a text was given in place of a list.
    """

    _kind = "patterns"
    _types = _TYPES

    def __init__(
        self,
        patterns: Iterable[str | Pattern],
        dialect: str | Dialect = "lite",
        *,
        allow_inner_multi: bool = False,
        salt: bytes | None = None,
    ) -> None:
        if isinstance(patterns, str):
            raise not_a_list("patterns", patterns)
        rules = get_dialect(dialect)
        parsed = [
            pattern if isinstance(pattern, Pattern) else rules.parse(pattern, allow_inner_multi=allow_inner_multi)
            for pattern in patterns
        ]
        salt = salt or os.urandom(_SALT_BYTES)
        shapes, others = group_by_shape(parsed)
        members = [(place, number, pattern) for place, shape in enumerate(shapes) for number, pattern in shapes[shape]]
        arrays = _build(members, list(shapes), Salt(salt))
        rivals = _rivals(arrays)
        if rivals:
            others += [(number, pattern) for _, number, pattern in members if number in rivals]
            members = [member for member in members if member[1] not in rivals]
            arrays = _build(members, list(shapes), Salt(salt))
        header = {
            "kind": "patterns",
            "dialect": rules.name,
            "size": len(parsed),
            "salt": salt.hex(),
            "shapes": [[shape.tail.name, shape.size, list(shape.wildcards)] for shape in shapes],
            "others": [(number, to_json(pattern)) for number, pattern in others],
        }
        self._open(header, arrays, rules)

    def __len__(self) -> int:
        """Return the number of patterns."""
        return int(self._header["size"])

    @property
    def nbytes(self) -> int:
        """Size of all arrays in bytes, derived ones included."""
        return sum(array.nbytes for array in self._arrays.values()) + self._keys.nbytes

    def match_batch(self, topics: Sequence[str]) -> tuple[Ints, Ints]:
        """Return (number of the topic, number of the pattern) for each match, as two arrays in no particular order.

        Linear in the topics, their segments, and the shapes in use; patterns without a shape add one look-up in their
        `PatternIndex` for each topic.

        Raises:
            TypeError: a text was given in place of a list.
        """
        if isinstance(topics, str):
            raise not_a_list("topics", topics)
        pairs = [
            self._match_chunk(topics[start : start + TOPICS_AT_ONCE], start)
            for start in range(0, len(topics), TOPICS_AT_ONCE)
        ]
        if len(self._others):
            found = [(row, number) for row, topic in enumerate(topics) for number in self._others.match(topic)]
            others = np.array(found, np.int64).reshape(-1, 2)
            pairs.append((others[:, 0], others[:, 1]))
        rows, numbers = zip((np.zeros(0, np.int64),) * 2, *pairs, strict=True)
        return np.concatenate(rows), np.concatenate(numbers)

    @staticmethod
    def _is_consistent(header: dict[str, Any], arrays: Arrays) -> bool:
        match header:
            case {
                "dialect": str(dialect),
                "size": int(size),
                "salt": str(salt),
                "shapes": [*stored],
                "others": [*others],
            }:
                pass
            case _:
                return False
        keys, shapes, literals, numbers = (arrays[name] for name in ("keys", "shapes", "literals", "numbers"))
        counts = np.array([len(shape_from_json(shape).literals) for shape in stored], np.int64)
        return (
            dialect in DIALECTS
            and _HEX.fullmatch(salt) is not None
            and all(isinstance(other, list) and len(other) == 2 and type(other[0]) is int for other in others)  # noqa: PLR2004
            and all(0 <= number < size for number, _ in others)
            and bool((keys[1:] > keys[:-1]).all())
            and usable(keys)
            and len(numbers) + len(others) == size
            and len(shapes) == len(keys)
            and all_below(shapes, len(counts))
            and is_partition(arrays["first_literals"], len(keys), len(literals))
            and bool((np.diff(arrays["first_literals"]) == counts[shapes]).all())
            and all_below(literals, len(arrays["lengths"]))
            and is_partition(arrays["first_numbers"], len(keys), len(numbers))
            and bool((np.diff(arrays["first_numbers"]) > 0).all())
            and all_below(numbers, size)
            and is_packed(arrays["texts"], arrays["lengths"])
        )

    def _open(self, header: dict[str, Any], arrays: Arrays, dialect: Dialect) -> None:
        self._header, self._arrays, self._dialect = header, arrays, dialect
        self._salt = Salt(bytes.fromhex(header["salt"]))
        self._shapes = list(map(shape_from_json, header["shapes"]))
        self._literal_counts = np.array([len(shape.literals) for shape in self._shapes], np.int64)
        self._literal_places = np.zeros((MAX_POSITIONS, len(self._shapes)), np.int64)
        for number, shape in enumerate(self._shapes):
            self._literal_places[: len(shape.literals), number] = shape.literals
        self._literals = unpack(arrays["texts"], arrays["lengths"])
        self._keys = Keys(arrays["keys"])
        self._others: PatternIndex[int] = PatternIndex(dialect)
        for number, pattern in header["others"]:
            self._others.add(from_json(pattern), number)

    def _match_chunk(self, topics: Sequence[str], start: int) -> tuple[Ints, Ints]:
        segments = cut(topics, self._dialect)
        keys, rows, shapes = probes(segments, self._dialect, self._shapes, self._salt, self._keys.candidates)
        asked, entries = self._keys.find(keys)
        rows, shapes = rows.take(asked), shapes.take(asked)
        real = self._arrays["shapes"].take(entries) == shapes
        kept = real.nonzero()[0]
        rows, entries, shapes = rows.take(kept), entries.take(kept), shapes.take(kept)
        kept = self._verified(segments, rows, entries, shapes)
        rows, entries = rows.take(kept), entries.take(kept)
        numbers = self._arrays["numbers"]
        if len(numbers) == len(self._arrays["keys"]):
            return rows + start, numbers.take(entries).astype(np.int64)
        firsts = self._arrays["first_numbers"]
        pairs, places = ranges(firsts[entries], firsts[entries + 1])
        return rows[pairs] + start, numbers[places].astype(np.int64)

    def _verified(self, segments: Segments, rows: Ints, entries: Ints, shapes: Ints) -> Ints:
        """Return the hits confirmed by comparing every literal with the segment of the topic."""
        begins = self._arrays["first_literals"].take(entries)
        firsts = segments.first.take(rows)
        counts = self._literal_counts.take(shapes)
        real = np.ones(len(rows), np.bool_)
        hits = np.arange(len(rows))
        for column in range(MAX_POSITIONS):
            hits = hits[counts.take(hits) > column]
            if not len(hits):
                break
            places = firsts.take(hits) + self._literal_places[column].take(shapes.take(hits))
            literals = self._arrays["literals"].take(begins.take(hits) + column)
            real[hits] &= same_text(segments, places, self._literals, literals)
        return real.nonzero()[0]


def _rivals(arrays: Arrays) -> set[int]:
    """Return the numbers of the patterns whose key is `EMPTY`, or also the key of another pattern."""
    keys, firsts = arrays["keys"], arrays["first_numbers"]
    unusable = keys == EMPTY
    equal = keys[1:] == keys[:-1]
    unusable[1:] |= equal
    unusable[:-1] |= equal
    _, places = ranges(firsts[:-1][unusable].astype(np.int64), firsts[1:][unusable].astype(np.int64))
    return set(arrays["numbers"][places].tolist())


def _build(members: list[tuple[int, int, Pattern]], shapes: Sequence[Shape], salt: Salt) -> Arrays:
    """Build the arrays from (place of the shape, number, pattern)."""
    spots_of = [shape.literals for shape in shapes]
    literals: dict[str, int] = {}
    entries: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for place, number, pattern in members:
        ids = tuple(literals.setdefault(str(pattern.segments[at]), len(literals)) for at in spots_of[place])
        entries.setdefault((place, ids), []).append(number)
    texts = pack(list(literals))
    hashed = hashes(texts, salt)
    sizes = np.array([len(ids) for _, ids in entries], np.int64)
    flat_ids = np.array([literal for _, ids in entries for literal in ids], np.int64)
    flat_places = np.array([at for place, _ in entries for at in spots_of[place]], np.int64)
    sums = np.zeros(len(flat_ids) + 1, np.uint64)
    np.cumsum(at_positions(hashed[flat_ids], flat_places, salt), out=sums[1:])
    ends = sizes.cumsum()
    keys = sums[ends] - sums[ends - sizes]
    keys += np.array([salt.of(*shapes[place][:2]) for place, _ in entries], np.uint64)
    order = np.argsort(keys, kind="stable")
    _, spots = ranges((ends - sizes)[order], ends[order])
    numbers = list(entries.values())
    return {
        "keys": keys[order],
        "shapes": np.array([place for place, _ in entries], np.int16)[order],
        "first_literals": firsts_of(sizes[order]),
        "literals": flat_ids[spots].astype(np.int32),
        "first_numbers": firsts_of(np.array([len(numbers[at]) for at in order.tolist()], np.int64)),
        "numbers": np.array([number for at in order.tolist() for number in numbers[at]], np.int32),
        "texts": texts.data,
        "lengths": texts.lengths.astype(np.int32),
    }
