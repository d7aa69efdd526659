"""Who may see the console."""

import time

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from streaming.console.access import COOKIE, SESSION_SECONDS, Sessions
from streaming.console.app import ConsoleSources, console

TOKEN = "a-token-of-some-length"  # noqa: S105 - of this test
LOCAL = "http://localhost:9465"
PATHS = ["/", "/api/state", "/api/parents", "/api/stream", "/api/level?parent=orders", "/api/timings", "/nothing"]


@pytest.fixture
def guarded(sources: ConsoleSources) -> TestClient:
    """A client of a console with a token, under a name of the network."""
    return TestClient(console(sources, TOKEN), base_url="http://console.example", follow_redirects=False)


@pytest.mark.parametrize("host", ["localhost", "localhost:9465", "127.0.0.1:1", "[::1]:9465", "[::1]"])
def test_this_machine_may_ask_without_a_token(browser: TestClient, host: str) -> None:
    assert browser.get("/api/parents", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:9465", "", "localhost@evil.example", "["]
)
@pytest.mark.parametrize("path", ["/", "/api/parents", "/static/main.js", "/login"])
def test_a_foreign_name_that_points_here_is_refused(browser: TestClient, host: str, path: str) -> None:
    """Else a page of another site could read the console, once its own name is resolved to this machine."""
    answer = browser.get(path, headers={"host": host})
    assert answer.status_code == 403
    assert "localhost" in answer.json()["error"]


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_answered(guarded: TestClient, path: str) -> None:
    answer = guarded.get(path)
    if path == "/":
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    else:
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    for post in ("/api/match", "/logout"):
        assert guarded.post(post, json={"pattern": "a"}).status_code == 401


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer  {TOKEN} ", 200),
        (f"Bearer {TOKEN}x", 401),
        (f"Bearer {TOKEN[:-1]}", 401),
        ("Bearer", 401),
        ("Bearer é", 401),
        (f"Basic {TOKEN}", 401),
        (TOKEN, 401),
    ],
)
def test_a_program_brings_the_token_in_a_header(guarded: TestClient, header: str, status: int) -> None:
    assert guarded.get("/api/parents", headers=[(b"authorization", header.encode())]).status_code == status


def test_a_browser_logs_in_by_a_form_and_out_again(guarded: TestClient, sources: ConsoleSources) -> None:
    assert guarded.get("/login").status_code == 200
    wrong = guarded.post("/login", data={"token": "another"})
    assert wrong.status_code == 403
    assert "The token is wrong" in wrong.text
    assert "set-cookie" not in wrong.headers
    right = guarded.post("/login", data={"token": TOKEN}, headers={"origin": "http://console.example"})
    assert (right.status_code, right.headers["location"]) == (303, "/")
    cookie = right.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert TOKEN not in cookie
    assert guarded.get("/api/parents").status_code == 200
    assert guarded.get("/api/state").json()["hasToken"]
    assert guarded.post("/logout").headers["location"] == "/login"
    assert guarded.get("/api/parents").status_code == 401
    by_tls = TestClient(console(sources, TOKEN), base_url="https://console.example", follow_redirects=False)
    assert "Secure" in by_tls.post("/login", data={"token": TOKEN}).headers["set-cookie"]


@pytest.mark.parametrize("body", [b"", b"token", b"token=", b"x=" * 9_000, b"token=" + b"a" * 9_000, b"\xff\xfe"])
def test_a_strange_form_is_refused(guarded: TestClient, body: bytes) -> None:
    answer = guarded.post("/login", content=body, headers={"content-type": "application/x-www-form-urlencoded"})
    assert answer.status_code == 403


def test_a_page_of_another_origin_is_refused(guarded: TestClient, browser: TestClient) -> None:
    for client in (guarded, browser):
        for origin in ("http://evil.example", "null"):
            answer = client.post("/login", data={"token": TOKEN}, headers={"origin": origin})
            assert answer.status_code == 403
            assert "origin" in answer.json()["error"]


def test_sessions_end_and_cannot_be_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions, others = Sessions(TOKEN), Sessions(TOKEN)
    cookie = sessions.new()
    until, nonce, signature = cookie.split(".")
    assert sessions.holds(cookie)
    made_up = [f"{int(until) + 1}.{nonce}.{signature}", f"{until}.{nonce}.", f"{until}.{signature}", f"{cookie}0"]
    for wrong in ("", ".", "x", "é.é", *made_up, others.new()):
        assert not sessions.holds(wrong)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + SESSION_SECONDS + 2)
    assert not sessions.holds(cookie)
    assert not Sessions(None).opens("")


def test_a_session_that_was_ended_holds_no_more(guarded: TestClient) -> None:
    """For a copy of its cookie too; another session goes on."""
    cookies = [guarded.post("/login", data={"token": TOKEN}).cookies[COOKIE] for _ in range(2)]
    guarded.cookies.clear()

    def ask(cookie: str, path: str = "/api/parents", method: str = "GET") -> int:
        return guarded.request(method, path, headers={"cookie": f"{COOKIE}={cookie}"}).status_code

    assert ask(cookies[0], "/logout", "POST") == 303
    assert [ask(cookie) for cookie in cookies] == [401, 200]


def test_ended_sessions_are_forgotten_with_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Sessions(TOKEN)
    for day in range(3):
        now = day * 86_400
        monkeypatch.setattr(time, "time", lambda now=now: now)
        for _ in range(5):
            sessions.end(sessions.new())
        sessions.end("made.up")
    assert len(sessions._ended) == 5


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "//["])
def test_a_malformed_origin_is_refused(guarded: TestClient, browser: TestClient, origin: str) -> None:
    """Behind the token, which is asked for first."""
    answer = browser.get("/api/parents", headers={"origin": origin})
    assert (answer.status_code, answer.json()) == (400, {"error": "the Origin header is malformed"})
    assert guarded.get("/api/parents", headers={"origin": origin}).status_code == 401
    known = {"origin": origin, "authorization": f"Bearer {TOKEN}"}
    assert guarded.get("/api/parents", headers=known).status_code == 400


@pytest.mark.parametrize("path", ["/", "/api/parents", "/api/nothing", "/static/main.js", "/static/nothing", "/login"])
def test_every_answer_has_the_headers(browser: TestClient, guarded: TestClient, path: str) -> None:
    for client in (browser, guarded):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert not [word for word in ("unsafe", "*") if word in policy]
        wanted = {"x-content-type-options": "nosniff", "referrer-policy": "same-origin", "x-frame-options": "DENY"}
        assert {name: headers[name] for name in wanted} == wanted
        assert path.startswith("/static/main") or headers["cache-control"] == "no-store"


def test_it_can_be_mounted_below_a_path(sources: ConsoleSources) -> None:
    """With its form, its cookie and its files there."""
    app = Starlette(routes=[Mount("/console", console(sources, TOKEN))])
    client = TestClient(app, base_url="http://console.example", follow_redirects=False)
    assert client.get("/console/").headers["location"] == "/console/login"
    assert client.get("/console/static/main.js").status_code == 200
    answer = client.post("/console/login", data={"token": TOKEN})
    assert answer.headers["location"] == "/console/"
    assert "Path=/console/" in answer.headers["set-cookie"]
    assert client.cookies.get(COOKIE) is not None
    assert client.get("/console/api/parents").status_code == 200


def test_a_form_of_many_fields_is_a_wrong_token(guarded: TestClient) -> None:
    """It is no error of the server: nobody has brought the token yet."""
    answer = guarded.post("/login", data={f"field{number}": "1" for number in range(9)})
    assert answer.status_code == 403
