"""The application: routes of the page, of its API and of the login form, and live changes as server-sent events."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from secrets import token_hex
from string import Template
from typing import Any, Final, NamedTuple, TypeAlias

import anyio
import anyio.to_thread
import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

import matcher
from matcher.dialects import POLICIES
from streaming.client.rows import Subscriber
from streaming.console import asking, live
from streaming.console.access import COOKIE, SESSION_SECONDS, Guard, Sessions, form_token
from streaming.console.asking import JsonAnswer, whole_number
from streaming.console.budget import fitting
from streaming.console.explaining import Explain, explain_by_updates
from streaming.console.job_lists import JobLists, by_job, group_list
from streaming.console.listing import ROW_COLUMNS, ListRequest, Search, row_list
from streaming.console.live import LiveRelation
from streaming.console.overview import slowest_of

Answer: TypeAlias = "Mapping[str, Any]"
"""Content of a response."""

STATIC: Final = Path(__file__).parent / "static"
_SAMPLE: Final = 20
"""Number of names from which the separator of a parent is guessed."""

THREADS: Final = 4
"""Number of requests that are processed at a time. Others wait, and the server rejects those beyond its limit."""

MAX_STREAMS: Final = 64
"""Maximum number of pages that follow the changes."""

_AT_ONCE: Final = 200
"""Maximum number of changes per event. The event also contains the number of omitted changes."""

_MAX_EVENTS: Final = 10**18
"""Maximum number of an event that a browser has received."""

_LOOK_SECONDS: Final = 0.25
_STATE_SECONDS: Final = 1.0
_BEAT_SECONDS: Final = 15.0
"""Maximum time between events in seconds, for proxies and for detecting lost connections."""


class ConsoleSources(NamedTuple):
    """Data sources of a console. Their functions are called in several threads.

    Attributes:
        relation: the relation, and its last changes.
        explain: explains a pair of client and topic.
        letters: returns a page of the dead letters with a reason, or of all if it is empty, newest first; None if they
            are not read.
        timings: returns the job's last micro-batches, oldest first; None for a standalone console.
        about: labels in the header of the page, such as the broker's address, by name.
        job: returns the state of the job; None if it is not observed.
        lists: lists from the job; None if it is not asked.
    """

    relation: LiveRelation
    explain: Explain
    letters: Callable[[str, int, int], Mapping[str, Any]] | None = None
    timings: Callable[[], Sequence[Mapping[str, Any]]] | None = None
    about: Mapping[str, str] = {}
    job: Callable[[], Mapping[str, Any]] | None = None
    lists: JobLists | None = None

    def job_state(self) -> dict[str, Any]:
        """Return the facts about the job for the header of the page: none if it is not observed."""
        found = self.job() if self.job else {}
        return {name: found[name] for name in ("state", "level", "reason") if name in found}


def console(sources: ConsoleSources, token: str | None = None) -> Starlette:
    """Create the application.

    It may be mounted below any path, because the page uses relative addresses. A server calls `state.close` before it
    stops, to end the streams of open pages.

    Args:
        sources: data sources.
        token: secret that each request must contain; None for a console on the loopback interface.
    """
    sessions = Sessions(token)
    stream = ChangeStream(sources)
    page = _Page(sources, sessions)
    app = Starlette(
        routes=[
            Route("/", lambda _: FileResponse(STATIC / "index.html", headers=_FRESH)),
            Route("/login", page.login),
            Route("/login", page.open_session, methods=["POST"]),
            Route("/logout", page.close_session, methods=["POST"]),
            *(Route(f"/api/{name}", endpoint) for name, endpoint in page.questions().items()),
            Route("/api/match", page.match, methods=["POST"]),
            Route("/api/stream", stream.follow),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(Guard, sessions=sessions)],
        exception_handlers={HTTPException: _refusal},
    )
    app.state.close = stream.close
    return app


class _Page:
    """Login form of a console with a token, logout, and the API of the page. Questions run in threads."""

    def __init__(self, sources: ConsoleSources, sessions: Sessions) -> None:
        self._sources = sources
        self._sessions = sessions
        self._live = sources.relation
        self._threads = anyio.CapacityLimiter(THREADS)

    def login(self, request: Request) -> Response:
        """Return the login form, if there is a token."""
        return _login_page() if self._sessions.has_token else RedirectResponse(_home(request), 303)

    async def open_session(self, request: Request) -> Response:
        """Set the cookie of a session, if the form contains the token."""
        if not self._sessions.opens(await form_token(request)):
            return _login_page(is_wrong=True)
        answer = RedirectResponse(_home(request), 303)
        answer.set_cookie(
            COOKIE, self._sessions.new(), max_age=SESSION_SECONDS, path=_home(request), httponly=True,
            samesite="strict", secure=request.url.scheme == "https",
        )  # fmt: skip
        return answer

    async def close_session(self, request: Request) -> Response:
        """End the session, and delete its cookie."""
        self._sessions.end(request.cookies.get(COOKIE, ""))
        answer = RedirectResponse(f"{_home(request)}login", 303)
        answer.delete_cookie(COOKIE, path=_home(request))
        return answer

    async def match(self, request: Request) -> JsonAnswer:
        """Try a pattern on topics."""
        trial = await asking.trial(request)
        try:
            found = await anyio.to_thread.run_sync(asking.attempt, trial, self._live, limiter=self._threads)
        except (matcher.UnknownDialect, matcher.UnsupportedOption) as error:
            raise HTTPException(400, str(error)) from None
        return JsonAnswer(found)

    def questions(self) -> dict[str, Callable[[Request], Awaitable[JsonAnswer]]]:
        """Return the endpoints of the questions by name."""
        questions = (
            self._state, self._overview, self._parents, self._level, self._topics, self._receivers, self._subscribers,
            self._received, self._letters, self._timings,
        )  # fmt: skip
        found = {question.__name__.removeprefix("_"): _in_turn(question, self._threads) for question in questions}
        slow = anyio.CapacityLimiter(THREADS)  # these wait for the job, which takes seconds
        asked = (self._explain, self._groups, self._unreceived, self._placed)
        return {**found, **{each.__name__.removeprefix("_"): _in_turn(each, slow) for each in asked}}

    def _state(self) -> Answer:
        sources = self._sources
        return {
            **self._live.health()._asdict(),
            "maxRows": self._live.max_rows,
            "about": sources.about,
            "dialects": list(matcher.DIALECTS),
            "policies": POLICIES,
            "hasToken": self._sessions.has_token,
            "hasLetters": sources.letters is not None,
            "hasTimings": sources.timings is not None,
            "job": sources.job_state(),
        }

    def _overview(self) -> Answer:
        sources, changes = self._sources, self._live.changes
        letters = None if sources.letters is None else {**sources.letters("", 0, 1), "letters": None}
        batches = None if sources.timings is None else sources.timings()
        count = self._live.rows.count_of_subscriber
        busiest = [
            {"parent": each.parent, "group": each.group, "client": each.client_id, "part": each.part,
             "updates": updates, "topics": count(each)}
            for each, updates in changes.busiest()
        ]  # fmt: skip
        return {
            "job": sources.job() if sources.job else None,
            "seconds": [second._asdict() for second in changes.seconds()],
            "letters": letters,
            "shards": None if batches is None else slowest_of(batches, time.time()),
            "busiest": fitting(busiest, lambda each: sum(len(str(value)) for value in each.values())),
        }

    def _parents(self, all_parents: ListRequest) -> Answer:
        found = self._live.parents(all_parents)
        shown = []
        for parent, count in fitting(found.items, lambda each: len(each[0])):
            with self._live.names(parent) as names:
                separator = asking.likely_separator(live.sample(names.topics, _SAMPLE))
            shown.append({"parent": parent, "topics": count, "separator": separator})
        return {"parents": shown, **found.facts}

    def _level(self, parent: str, separator: str, size: int, prefix: str = "", after: str = "") -> Answer:
        with self._live.names(parent) as names:
            found, more = live.level(names.topics, prefix, separator, after, size)
        count = self._live.rows.count_of_topic
        branches = [
            {**branch._asdict(), "receivers": count(parent, branch.topic) if branch.topic else None} for branch in found
        ]
        return {"branches": branches, "more": more}

    def _topics(self, parent: str, of_topics: ListRequest) -> Answer:
        found = self._live.topics(parent, of_topics)
        count = self._live.rows.count_of_topic
        shown = [{"topic": name, "receivers": count(parent, name)} for name in fitting(found.items, len)]
        return {"topics": shown, **found.facts}

    def _subscribers(self, parent: str, of_subscribers: ListRequest) -> Answer:
        found = self._live.subscribers(parent, of_subscribers)
        count = self._live.rows.count_of_subscriber
        shown = [
            {"group": each.group, "client": each.client_id, "part": each.part, "topics": count(each)}
            for each in fitting(found.items, lambda each: sum(len(text or "") for text in each[1:]))
        ]
        return {"subscribers": shown, **found.facts}

    def _receivers(self, parent: str, topic: str, of_rows: ListRequest) -> Answer:
        rows = self._live.rows
        found, total = rows.page_of_topic(parent, topic, *of_rows.span), rows.count_of_topic(parent, topic)
        return row_list(of_rows.page(found, total, lambda row: row.subscriber[1:3], ROW_COLUMNS))

    def _received(self, subscriber: Subscriber, of_rows: ListRequest) -> Answer:
        rows = self._live.rows
        found, total = rows.page_of_subscriber(subscriber, *of_rows.span), rows.count_of_subscriber(subscriber)
        return row_list(of_rows.page(found, total, lambda row: (row.lite_topic,), ROW_COLUMNS))

    def _explain(self, explained: Subscriber, topic: str, source: str = "job") -> Answer:
        if source == "updates":  # immediately, while another request asks the job
            found = explain_by_updates(self._live, explained, topic)
            return {**found, "basis": f"{found['basis']} The job is being asked."}
        return self._sources.explain(explained, topic)

    def _groups(self, parent: str, of_groups: ListRequest, source: str = "job") -> Answer:
        return group_list(self._live, None if source == "updates" else self._sources.lists, parent, of_groups)

    def _unreceived(self, parent: str, place: tuple[int, int], search: Search) -> Answer:
        return by_job(self._sources.lists, lambda lists: lists.unreceived(self._live, parent, place, search))

    def _placed(self) -> Answer:
        return by_job(self._sources.lists, lambda lists: {"parents": lists.parents()[: asking.MAX_PAGE]})

    def _letters(self, start: int, size: int, reason: str = "") -> Answer:
        if self._sources.letters is None:
            return {"letters": [], "total": 0, "counts": {}, "cut": 0, "error": "no dead letters are read"}
        return self._sources.letters(reason, start, size)

    def _timings(self) -> Answer:
        batches = None if self._sources.timings is None else list(map(_without_shards, self._sources.timings()))
        return {"batches": batches, "seconds": [second._asdict() for second in self._live.changes.seconds()]}


def _in_turn(
    question: Callable[..., Answer], threads: anyio.CapacityLimiter
) -> Callable[[Request], Awaitable[JsonAnswer]]:
    async def endpoint(request: Request) -> JsonAnswer:
        given = asking.arguments(request, question)
        return JsonAnswer(await anyio.to_thread.run_sync(partial(question, **given), limiter=threads))

    return endpoint


def _without_shards(batch: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in batch.items() if name != "slowest"}


_FRESH: Final[Mapping[str, str]] = {"Cache-Control": "no-store"}


def _login_page(*, is_wrong: bool = False) -> Response:
    alert = '<p class="bad" role="alert" id="wrong">The token is wrong.</p>\n' if is_wrong else ""
    state = ' aria-describedby="wrong" aria-invalid="true"' if is_wrong else ""
    form = Template((STATIC / "login.html").read_text(encoding="utf-8"))
    return HTMLResponse(form.substitute(alert=alert, state=state), 403 if is_wrong else 200, _FRESH)


def _home(request: Request) -> str:
    return f"{request.scope.get('root_path', '')}/"


def _refusal(_: Request, error: Exception) -> Response:
    status, detail, headers = (
        (error.status_code, error.detail, error.headers) if isinstance(error, HTTPException) else (500, "", None)
    )
    return JsonAnswer({"error": detail}, status, headers)


class ChangeStream:
    """Streams of a console.

    Streams have no queues: each reads the changes after its last number, so a slow browser needs no memory.

    Attributes:
        open: number of open streams.
    """

    def __init__(self, sources: ConsoleSources) -> None:
        self._relation = sources.relation
        self._job_state = sources.job_state
        self.open = 0
        self._closed = False
        self._run = token_hex(4)

    async def follow(self, request: Request) -> Response:
        """Stream the changes from now, or after the last event that the browser has received."""
        if self.open >= MAX_STREAMS:
            return JsonAnswer({"error": f"{MAX_STREAMS} pages already follow the changes"}, 503, {"Retry-After": "10"})
        run, _, number = request.headers.get("last-event-id", "").partition("-")
        seen = whole_number(number, _MAX_EVENTS) if run == self._run else None
        self.open += 1  # before the response starts, to include concurrent requests
        events = self._events(self._relation.changes.last if seen is None else seen)
        return _Stream(self, events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    def close(self) -> None:
        """End all streams, before the server stops."""
        self._closed = True

    async def _events(self, seen: int) -> AsyncIterator[bytes]:
        yield b"retry: 2000\n\n"
        told, told_at = None, 0.0
        while not self._closed:
            health, now = self._relation.health(), time.monotonic()
            if not health.ready:  # send nothing while catching up; the page reloads when the reader is ready
                seen = health.changes
            changes, missed = self._relation.changes.since(seen, _AT_ONCE)
            if changes:
                seen = changes[-1].number
                fields = {"missed": missed, "changes": [change._asdict() for change in changes]}
                yield self._event("changes", fields, seen)
            state = {**health._asdict(), "job": self._job_state(), "run": self._run}
            due = state != told and now - told_at >= _STATE_SECONDS
            if told is None or due or now - told_at >= _BEAT_SECONDS:
                told, told_at = state, now
                yield self._event("state", state, seen)
            await asyncio.sleep(_LOOK_SECONDS)

    def _event(self, name: str, fields: dict[str, Any], seen: int) -> bytes:
        return b"event: %b\nid: %b-%d\ndata: %b\n\n" % (name.encode(), self._run.encode(), seen, orjson.dumps(fields))


class _Stream(StreamingResponse):
    """Stream that counts as open until its end, even if it never started."""

    def __init__(self, streams: ChangeStream, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until the client disconnects."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.open -= 1
