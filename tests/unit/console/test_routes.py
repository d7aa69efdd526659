"""Answers to the questions of the page."""

import asyncio
import threading
from functools import partial
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient

from streaming.console import asking, budget, live
from streaming.console.app import THREADS, ConsoleSources, console
from streaming.console.explaining import explain_by_updates
from streaming.console.live import LiveRelation
from tests.support.processes import eventually
from tests.support.simulated import Simulated
from tests.support.update_records import add

HOSTILE = "<img src=x onerror=alert(1)>__\"'`&\u202e__\u0000"


def ask(browser: TestClient, question: str, **parameters: Any) -> Any:
    answer = browser.get(f"/api/{question}", params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_page_gets_the_state_of_the_relation(browser: TestClient) -> None:
    state = ask(browser, "state")
    assert (state["ready"], state["rows"], state["topics"], state["subscribers"]) == (True, 5, 4, 3)
    assert state["dialects"] == ["lite", "mqtt", "nats", "wamp"]
    assert (state["hasToken"], state["hasLetters"], state["hasTimings"]) == (False, False, False)


ORDERS = {"parent": "orders", "topics": 3, "separator": "__"}
SENSORS = {"parent": "sensors", "topics": 1, "separator": "/"}
EU = {"text": "eu", "prefix": "eu__", "topic": "", "topics": 2, "receivers": None}
US = {"text": "us", "prefix": "us__", "topic": "", "topics": 1, "receivers": None}
LEAF = {"text": "created", "prefix": "", "topic": "eu__acme__created", "topics": 1, "receivers": 2}
ACME, GLOBEX, US_ACME = (
    {"topic": f"{name}__created", "receivers": n} for name, n in (("eu__acme", 2), ("eu__globex", 1), ("us__acme", 1))
)
C1, C2 = (
    {"group": group, "client": client, "part": None, "topics": 2}
    for group, client in (("billing", "c1"), ("audit", "c2"))
)


def facts(total: int, names: int) -> dict[str, int]:
    return {"total": total, "searched": names, "names": names}


@pytest.mark.parametrize(
    ("question", "parameters", "wanted"),
    [
        ("parents", {}, {"parents": [ORDERS, SENSORS], **facts(2, 2)}),
        ("parents", {"start": 1, "size": 1}, {"parents": [SENSORS], **facts(2, 2)}),
        ("parents", {"search": "ord"}, {"parents": [ORDERS], **facts(1, 2)}),
        ("level", {"parent": "orders", "size": 1}, {"branches": [EU], "more": "us__acme__created"}),
        ("level", {"parent": "orders", "after": "us__acme__created"}, {"branches": [US], "more": ""}),
        ("level", {"parent": "orders", "prefix": "eu__acme__"}, {"branches": [LEAF], "more": ""}),
        ("level", {"parent": "sensors", "separator": "/"},
         {"branches": [{**EU, "prefix": "eu/", "topics": 1}], "more": ""}),
        ("level", {"parent": "nobody"}, {"branches": [], "more": ""}),
        ("topics", {"parent": "orders", "search": "eu__a", "how": "begins"}, {"topics": [ACME], **facts(1, 1)}),
        ("topics", {"parent": "orders", "search": "*__globex__**", "how": "lite"}, {"topics": [GLOBEX], **facts(1, 3)}),
        ("topics", {"parent": "orders", "search": "__a", "start": 1}, {"topics": [US_ACME], **facts(2, 3)}),
        ("topics", {"parent": "orders", "size": 2}, {"topics": [ACME, GLOBEX], **facts(3, 3)}),
        ("topics", {"parent": "orders", "size": 2, "start": 2}, {"topics": [US_ACME], **facts(3, 3)}),
        ("topics", {"parent": "orders", "size": 1, "sort": "topic", "order": "descending"},
         {"topics": [US_ACME], **facts(3, 3)}),
        ("subscribers", {"parent": "orders"}, {"subscribers": [C2, C1], **facts(2, 2)}),
        ("subscribers", {"parent": "orders", "sort": "client"}, {"subscribers": [C1, C2], **facts(2, 2)}),
        ("subscribers", {"parent": "orders", "search": "audit", "how": "nats"}, {"subscribers": [C2], **facts(1, 2)}),
        ("received", {"parent": "sensors", "group": "hot", "client": "c3"}, {"rows": [], **facts(0, 0)}),
    ],
)  # fmt: skip
def test_the_page_gets_lists_page_by_page(
    browser: TestClient, question: str, parameters: dict[str, Any], wanted: dict[str, Any]
) -> None:
    assert ask(browser, question, **parameters) == wanted


def test_the_page_gets_rows_of_a_topic_and_of_a_subscriber(browser: TestClient) -> None:
    found = ask(browser, "receivers", parent="orders", topic="eu__acme__created", size=1, start=1)
    (row,) = found["rows"]
    assert (row["group"], row["client"], row["patterns"], found["total"]) == ("audit", "c2", [], 2)
    for order, first in (("ascending", "c2"), ("descending", "c1")):
        rows = ask(browser, "receivers", parent="orders", topic="eu__acme__created", sort="entries", order=order)[
            "rows"
        ]
        assert rows[0]["client"] == first, "no entry comes before eu__**"
    rows = ask(browser, "received", parent="sensors", group="hot", client="c3", part="share:s")["rows"]
    assert [row["topic"] for row in rows] == ["eu/berlin/temp"]


def test_a_page_of_long_names_is_shorter(browser: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next one goes on behind it."""
    for module in (budget, live):
        monkeypatch.setattr(module, "MAX_CHARACTERS", 20)
    found = ask(browser, "topics", parent="orders")
    assert ([each["topic"] for each in found["topics"]], found["total"]) == (["eu__acme__created"], 3)
    level = ask(browser, "level", parent="orders")
    assert ([each["text"] for each in level["branches"]], level["more"]) == (["eu"], "us__acme__created")
    rows = ask(browser, "receivers", parent="orders", topic="eu__acme__created")
    assert (len(rows["rows"]), rows["total"]) == (1, 2)
    assert len(ask(browser, "parents")["parents"]) == 2


class Slow:
    """Source of explanations that takes until it is released."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.running = self.most = 0
        self.lock = threading.Lock()

    def __call__(self, *_: object) -> dict[str, Any]:
        """Count the calls at a time."""
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.go.wait(60)
        with self.lock:
            self.running -= 1
        return {}


def test_slow_questions_take_few_threads_and_hold_up_no_other(still: LiveRelation) -> None:
    slow = Slow()
    app = console(ConsoleSources(still, slow))

    async def story() -> None:
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            question = {"parent": "p", "group": "g", "client": "c", "topic": "t"}
            asked = [asyncio.create_task(client.get("/api/explain", params=question)) for _ in range(20)]
            while slow.running < THREADS:  # noqa: ASYNC110 - threads count
                await asyncio.sleep(0.01)
            assert (await client.get("/api/state")).status_code == 200
            slow.go.set()
            assert {(await each).status_code for each in asked} == {200}

    asyncio.run(story())
    assert slow.most == THREADS


def test_the_page_gets_explanations_and_tries_patterns(browser: TestClient) -> None:
    found = ask(browser, "explain", parent="orders", group="billing", client="c1", topic="eu__acme__created")
    assert found["receives"]
    assert found["history"][0]["op"] == "ADD"
    answer = browser.post("/api/match", json={"pattern": "a.>", "dialect": "nats", "topics": ["a.b", "a"]})
    assert (answer.json()["matched"], answer.json()["total"]) == (1, 2)


def test_beside_the_updates_a_job_shows_what_it_has(browser: TestClient, still: LiveRelation) -> None:
    batch = {"number": 7, "phases": {"read": 0.1, "expand": 0.3}}
    sources = ConsoleSources(
        still,
        lambda subscriber, topic: {"headline": f"{subscriber.part} {topic}"},
        lambda reason, start, size: {"letters": [reason, start, size]},
        lambda: [batch],
    )
    client = TestClient(console(sources), base_url="http://localhost")
    assert ask(client, "timings")["batches"] == [batch]
    found = ask(client, "explain", parent="p", group="g", client="c", part="share:x", topic="t")
    assert found["headline"] == "share:x t"
    assert ask(client, "letters", reason="not-json", start=3, size=9)["letters"] == ["not-json", 3, 9]
    assert ask(browser, "timings")["batches"] is None, "alone"
    assert ask(browser, "letters")["error"] == "no dead letters are read"


def test_hostile_names_pass_as_texts_in_json(broker: Simulated, live: LiveRelation) -> None:
    browser = TestClient(console(ConsoleSources(live, partial(explain_by_updates, live))), base_url="http://localhost")
    broker.write(add(HOSTILE, parent="<b>", client="</script>", group="&lt;"), partition=0)
    assert eventually(lambda: live.rows.count_of_topic("<b>", HOSTILE) > 0)
    answer = browser.get("/api/topics", params={"parent": "<b>"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["topics"][0]["topic"] == HOSTILE
    found = ask(browser, "explain", parent="<b>", group="&lt;", client="</script>", topic=HOSTILE)
    assert found["receives"]


SIZE = "the parameter size must be a number from 0 to 500"
START = "the parameter start must be a number from 0 to 1000000000"


@pytest.mark.parametrize(
    ("question", "parameters", "sentence"),
    [
        ("level", {}, "the parameter parent is missing"),
        ("receivers", {"parent": "p"}, "the parameter topic is missing"),
        ("received", {"parent": "p", "group": "g"}, "the parameter client is missing"),
        ("received", {"parent": "p", "client": "c"}, "the parameter group is missing"),
        ("explain", {"parent": "p", "group": "g", "client": "c"}, "the parameter topic is missing"),
        *(("level", {"parent": "p", "size": size}, SIZE) for size in ("501", "-1", "²")),
        ("receivers", {"parent": "p", "topic": "t", "start": "9" * 5_000}, START),
        ("level", {"parent": "p", "separator": "e"}, "the parameter separator must be one of __ / ."),
        ("topics", {"parent": "p", "sort": "group"}, "the parameter sort must be one of topic receivers"),
        ("topics", {"parent": "p", "how": "regex"}, "the parameter how must be one of contains begins lite"),
        ("topics", {"parent": "p", "search": "a__**__b", "how": "lite"}, "invalid pattern 'a__**__b' at segment 2"),
    ],
)
def test_wrong_parameters_are_told(
    browser: TestClient, question: str, parameters: dict[str, str], sentence: str
) -> None:
    answer = browser.get(f"/api/{question}", params=parameters)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(sentence)


TYPES = "pattern, policy, parent and topics must be strings"
UNTYPED = [
    b"{}", b'{"pattern": 1}', b'{"pattern": "a", "topics": "a"}', b'{"pattern": "a", "topics": [1]}',
    b'{"pattern": "a", "policy": 1}',
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"{", 400, "the request is not JSON"),
        (b"[]", 400, "the request must be an object"),
        *((body, 400, TYPES) for body in UNTYPED),
        (b'{"pattern": "a", "dialect": "x"}', 400, "no dialect is named 'x'"),
        (b'{"pattern": "a", "dialect": "mqtt", "policy": "exact"}', 400, "dialect 'mqtt' has no match policies"),
        (b'{"pattern": "a", "dialect": "mqtt", "innerMulti": true}', 400, "dialect 'mqtt' has no inner"),
        (b'{"pattern": "' + b"a" * 16_385 + b'"}', 413, "at most 1,000 topics of 16,384 characters"),
        (b'{"pattern": "a", "topics": [' + b'"",' * 1_000 + b'""]}', 413, "at most 1,000 topics"),
        (b'{"pattern": "' + b"a" * asking._BODY_BYTES, 413, "the request is larger than 1,048,576 bytes"),
    ],
)
def test_wrong_questions_of_the_playground_are_told(
    browser: TestClient, body: bytes, status: int, sentence: str
) -> None:
    answer = browser.post("/api/match", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert answer.json()["error"].startswith(sentence)
    as_a_form = browser.post("/api/match", content=body, headers={"content-type": "text/plain"})
    assert as_a_form.status_code == 415, "a form of another page"


def test_what_is_not_there_is_told_in_json(browser: TestClient) -> None:
    assert browser.get("/api/nothing").json() == {"error": "Not Found"}
    for path in ("/static/../app.py", "/static/%2e%2e/app.py"):
        assert browser.get(path).status_code == 404
    assert browser.post("/api/state").status_code == 405
