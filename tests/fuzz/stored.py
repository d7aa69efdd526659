"""Bytes that claim to be an index: those of one are read back, any others are refused or answered, never a failure."""

import json
import zlib
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

from matcher.batch import FlatPatterns, FlatTopics
from matcher.dialects import get_dialect
from matcher.errors import CorruptIndex, InvalidPattern, UnsupportedOption
from tests.fuzz.draw import Draw
from tests.fuzz.patterns import CASES, Case, pattern_for, topic_for

_SALT: Final = b"the same each time"
_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, -1, 0, 1, 17, 1 << 31, 1 << 70, 1.5, "", "a", "SOME", "STARTS", "nats", "patterns", "ff", "<i4"),
    *("<f8", "|O", "keys", [], {}, [0], [None], ["a"], {"kind": "topics"}),
)


def stored(data: bytes) -> None:
    """Damage an index in one of many ways, mend its checksum, and ask what is left of it."""
    draw = Draw(data)
    case = draw.pick(CASES)
    patterns = [text for text in (pattern_for(draw, case) for _ in range(draw.number(6))) if _valid(case, text)]
    topics = [topic_for(draw, case, patterns) for _ in range(draw.number(6))]
    of_topics = draw.flag()
    if of_topics:
        raw = FlatTopics(topics, case.dialect, allow_inner_multi=case.inner).to_bytes()
    else:
        raw = FlatPatterns(patterns, case.dialect, allow_inner_multi=case.inner, salt=_SALT).to_bytes()
    damaged = draw.pick(_DAMAGES)(draw, raw)
    if draw.number(8):
        damaged = damaged[:4] + zlib.crc32(damaged[8:]).to_bytes(4, "little") + damaged[8:]
    opens_topics = of_topics is not (draw.number(16) == 15)
    asked = [*patterns, "a", "**", "*", "#", ">", ""]
    try:
        index = FlatTopics.from_bytes(damaged) if opens_topics else FlatPatterns.from_bytes(damaged)
    except CorruptIndex:
        assert damaged != raw or opens_topics is not of_topics
        return
    if isinstance(index, FlatTopics):
        numbers = _expand(index, asked)
    else:
        rows, found = index.match_batch([*topics, "a", "", "$", "\ud800"])
        assert all(0 <= row < len(topics) + 4 for row in rows.tolist())
        numbers = found.tolist()
    assert all(0 <= number < len(index) for number in numbers)
    assert index.nbytes >= 0
    index.to_bytes()


def _expand(index: FlatTopics, asked: list[str]) -> list[int]:
    try:
        return [number for text in asked for number in index.expand(text).tolist()]
    except UnsupportedOption:
        return []


def _valid(case: Case, text: str) -> bool:
    try:
        get_dialect(case.dialect).parse(text, allow_inner_multi=case.inner)
    except InvalidPattern:
        return False
    return True


def _untouched(_: Draw, raw: bytes) -> bytes:
    return raw


def _made_up(draw: Draw, raw: bytes) -> bytes:
    return raw[:4] + bytes(4) + draw.rest()


def _edited(draw: Draw, raw: bytes) -> bytes:
    """Change, remove or insert a few bytes anywhere."""
    data = bytearray(raw)
    for _ in range(1 + draw.number(8)):
        place, size = draw.number(0x10000) % (len(data) + 1), draw.number(3)
        data[place : place + size] = bytes(draw.number(256) for _ in range(draw.number(3)))
    return bytes(data)


def _edited_numbers(draw: Draw, raw: bytes) -> bytes:
    data = bytearray(raw)
    position = 12 + int.from_bytes(raw[8:12], "little")
    spots = []
    for _, kind, count in json.loads(raw[12:position])[1]:
        size = int(kind[2:])
        spots += [(position + size * at, size) for at in range(count)]
        position += -(-size * count // 8) * 8
    for _ in range(1 + draw.number(4)):
        place, size = spots[draw.number(0x10000) % len(spots)]
        number = draw.pick((-1, 0, 1, 2, 3, -1 << 8 * size - 1, (1 << 8 * size - 1) - 1, draw.number(256)))
        data[place : place + size] = (number % (1 << 8 * size)).to_bytes(size, "little")
    return bytes(data)


def _edited_facts(draw: Draw, raw: bytes) -> bytes:
    """Change, remove or exchange a few of the facts, and leave the arrays as they are."""
    behind = 12 + int.from_bytes(raw[8:12], "little")
    metadata = json.loads(raw[12:behind])
    for _ in range(1 + draw.number(4)):
        _replace(draw, metadata)
    text = json.dumps(metadata).encode()
    text += b" " * (-(12 + len(text)) % 8)
    return raw[:8] + len(text).to_bytes(4, "little") + text + raw[behind:]


def _replace(draw: Draw, value: Any) -> None:
    """Walk down from a value, and put another one in the place of what lies there."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = draw.pick(keys)
        if not isinstance(value[key], list | dict) or not draw.number(4):
            break
        value = value[key]
    if draw.number(4) == 3:
        del value[key]
    else:
        value[key] = deepcopy(draw.pick(_VALUES))


_DAMAGES: Final[tuple[Callable[[Draw, bytes], bytes], ...]] = (
    _untouched,
    _made_up,
    _edited,
    _edited_numbers,
    _edited_numbers,
    _edited_facts,
    _edited_facts,
)
