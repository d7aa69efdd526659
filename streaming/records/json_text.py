"""Parts of a JSON text, byte for byte: a parser would drop repeated fields, and an encoder refuses deep nesting."""

import re
from collections.abc import Iterator
from typing import Final

import orjson

_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]', re.DOTALL)
"""String, bracket or comma: the tokens that a split distinguishes."""

_STRING: Final = re.compile(rb'\s*("[^"\\]*(?:\\.[^"\\]*)*")\s*:\s*', re.DOTALL)

_SET: Final = "subscriptionSet"


def requests_of(payload: bytes) -> list[bytes]:
    """Return the text of each request in a subscription record, in order; none if a field of the record is repeated.

    A record without a set of requests is one request.

    Args:
        payload: text of a JSON object.
    """
    fields = list(_fields(payload))
    names = [name for name, _ in fields]
    listed = next((text for name, text in reversed(fields) if name == _SET), b"")
    requests = list(_parts(listed)) if listed.startswith(b"[") else []
    if not requests:
        return [payload]
    return requests if len(set(names)) == len(names) else []


def _fields(text: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield name and text of each field of a JSON object."""
    for part in _parts(text):
        name = _STRING.match(part)
        if name is not None:
            yield orjson.loads(name[1]), part[name.end() :]


def _parts(text: bytes) -> Iterator[bytes]:
    """Yield the text of each field or element of a JSON object or array."""
    depth = start = 0
    for token in _TOKEN.finditer(text):
        kind = token[0]
        if kind in (b"[", b"{"):
            depth += 1
            start = token.end() if depth == 1 else start
        elif kind in (b"]", b"}"):
            depth -= 1
            if depth == 0 and (last := text[start : token.start()].strip()):
                yield last
        elif kind == b"," and depth == 1:
            yield text[start : token.start()].strip()
            start = token.end()
