"""Access control of the console: hosts, the token, browser sessions, and response headers."""

import hmac
import secrets
import time
from typing import Final
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streaming.monitor.server import is_loopback_name

COOKIE: Final = "reexpand_console"
SESSION_SECONDS: Final = 12 * 3_600
"""Lifetime of a session in seconds, after which the browser needs the token again."""

_FORM_BYTES: Final = 8_192

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers omit the origin of the login form
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of all responses. The page may show hostile text, and runs only its own files."""


class Sessions:
    """Sessions of browsers that have sent the token: an end in seconds since the epoch, a nonce, and a signature.

    Args:
        token: secret that each request must contain; None for a console on the loopback interface.
    """

    def __init__(self, token: str | None) -> None:
        self._token = token
        self._key = secrets.token_bytes(32)
        self._ended: set[str] = set()

    @property
    def has_token(self) -> bool:
        """True if requests need the token or a session."""
        return self._token is not None

    def opens(self, token: str) -> bool:
        """Compare a string with the token in constant time."""
        return self._token is not None and hmac.compare_digest(token.encode(), self._token.encode())

    def new(self) -> str:
        """Return the cookie of a new session."""
        session = f"{int(time.time()) + SESSION_SECONDS}.{secrets.token_hex(8)}"
        return f"{session}.{self._signature(session)}"

    def holds(self, cookie: str) -> bool:
        """Return True if a cookie belongs to a valid session."""
        session, _, signature = cookie.rpartition(".")
        genuine = hmac.compare_digest(signature.encode(), self._signature(session).encode())
        return genuine and session not in self._ended and int(session.partition(".")[0]) > time.time()

    def end(self, cookie: str) -> None:
        """End the session of a cookie, including copies of the cookie."""
        if self.holds(cookie):
            now = time.time()
            self._ended = {each for each in self._ended if int(each.partition(".")[0]) > now}
            self._ended.add(cookie.rpartition(".")[0])

    def _signature(self, session: str) -> str:
        return hmac.digest(self._key, session.encode(), "sha256").hex()


class Guard:
    """Middleware that checks access, and adds the headers.

    Without a token, only requests for a loopback name pass, to protect from DNS rebinding. With a token, each request
    needs the token or a session, except for the login form and static files.
    """

    def __init__(self, app: ASGIApp, sessions: Sessions) -> None:
        self._app = app
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, reject, or redirect to the login form."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(HTTPConnection(scope))
        await (refusal or self._app)(scope, receive, with_headers)

    def _refusal(self, request: HTTPConnection) -> Response | None:
        refusal = self._unknown(request)
        if refusal is not None:
            return refusal
        origin = request.headers.get("origin")
        try:  # according to the browser
            is_foreign = origin is not None and urlsplit(origin).netloc != request.headers.get("host")
        except ValueError:
            return _refused(400, "the Origin header is malformed")
        return _refused(403, "the request comes from a page of another origin") if is_foreign else None

    def _unknown(self, request: HTTPConnection) -> Response | None:
        """Return the response to a request without token or with a foreign host name, or None."""
        if not self._sessions.has_token:
            if is_loopback_name(request.headers.get("host", "")):
                return None
            return _refused(403, "this console answers only to localhost; set a token to serve other host names")
        root = str(request.scope.get("root_path", ""))
        path = str(request.scope["path"]).removeprefix(root) or "/"
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        is_known = kind.lower() == "bearer" and self._sessions.opens(token.strip())
        is_known = is_known or self._sessions.holds(request.cookies.get(COOKIE, ""))
        if path == "/login" or path.startswith("/static/") or is_known:
            return None
        if path == "/":
            return RedirectResponse(f"{root}/login", 303)
        return _refused(401, "the token is missing or wrong", {"WWW-Authenticate": "Bearer"})


async def form_token(request: Request) -> str:
    """Return the token in a login form; empty if there is none."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _FORM_BYTES:
            return ""
    try:
        fields = parse_qs(body.decode(errors="replace"), max_num_fields=8)
    except ValueError:  # too many fields
        return ""
    return fields.get("token", [""])[0]


def _refused(status: int, why: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": why}, status, headers)
