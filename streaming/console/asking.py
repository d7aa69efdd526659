"""Questions of the page: parameters, with a sentence for each that is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response

from streaming.client.rows import Subscriber
from streaming.console.playground import MAX_CHARACTERS, MAX_OWN, Trial

if TYPE_CHECKING:
    from starlette.requests import Request

PAGE: Final = 100
"""Number of lines of a list that come at once, where the page does not say."""

MAX_PAGE: Final = 500
"""Greatest number of lines of a list that come at once."""

_MAX_START: Final = 1_000_000_000
_BODY_BYTES: Final = 1_048_576
_SEPARATORS: Final = ("__", "/", ".")


class JsonAnswer(Response):
    """Answer in JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the bytes of the answer."""
        return orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS)


def text(request: Request, name: str, default: str | None = None) -> str:
    """Return a parameter.

    Raises:
        HTTPException: it is missing, and has no default.
    """
    found = request.query_params.get(name, default)
    if found is None:
        raise HTTPException(400, f"the parameter {name} is missing")
    return found


def number(request: Request, name: str, default: int, most: int) -> int:
    """Return a parameter that is a number from 0 on.

    Raises:
        HTTPException: it is none, or greater than `most`.
    """
    found = request.query_params.get(name, str(default))
    if not (found.isascii() and found.isdigit() and len(found) <= len(str(most)) and int(found) <= most):
        raise HTTPException(400, f"the parameter {name} must be a number from 0 to {most}")
    return int(found)


def size(request: Request) -> int:
    """Return the number of lines that are wanted."""
    return number(request, "size", PAGE, MAX_PAGE) or PAGE


def start(request: Request) -> int:
    """Return the number of lines before the wanted ones."""
    return number(request, "start", 0, _MAX_START)


def subscriber(request: Request) -> Subscriber:
    """Return the subscriber of a question; without `part` it is the client as a whole."""
    parent, group, client = (text(request, name) for name in ("parent", "group", "client"))
    return Subscriber(parent, group, client, request.query_params.get("part") or None)


def separator(request: Request) -> str:
    """Return the text at which names are divided."""
    found = text(request, "separator", _SEPARATORS[0])
    if found not in _SEPARATORS:
        raise HTTPException(400, f"the parameter separator must be one of {' '.join(_SEPARATORS)}")
    return found


def likely_separator(names: list[str]) -> str:
    """Return the separator that stands in most of some names."""
    return max(_SEPARATORS, key=lambda each: sum(each in name for name in names))


async def trial(request: Request) -> Trial:
    """Return the question of the playground.

    Raises:
        HTTPException: it is not complete, or too large.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "the question must be application/json")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BODY_BYTES:
            raise HTTPException(413, f"the question is larger than {_BODY_BYTES:,} bytes")
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise HTTPException(400, f"the question is not JSON: {error}") from None
    if not isinstance(asked, dict):
        raise HTTPException(400, "the question must be an object")
    pattern, topics = asked.get("pattern"), asked.get("topics", [])
    policy, parent = asked.get("policy") or None, asked.get("parent")
    if not (
        isinstance(pattern, str)
        and isinstance(topics, list)
        and all(isinstance(each, str) for each in topics)
        and all(each is None or isinstance(each, str) for each in (policy, parent))
    ):
        raise HTTPException(400, "pattern, policy, parent and topics must be texts")
    if len(topics) > MAX_OWN or max(map(len, (pattern, *topics))) > MAX_CHARACTERS:
        raise HTTPException(
            413, f"at most {MAX_OWN:,} topics of {MAX_CHARACTERS:,} characters each can be tried at once"
        )
    dialect, inner = str(asked.get("dialect", "lite")), asked.get("innerMulti") is True
    return Trial(pattern, dialect, policy, inner, topics, parent)
