"""The console as a person uses it, in a real Chromium."""

import re
import threading
from functools import partial
from typing import Any

import pytest

from streaming.client.rows import Subscriber
from streaming.console.app import ConsoleSources
from streaming.console.explaining import explain_by_updates
from streaming.console.live import LiveRelation
from streaming.local.server import free_port
from tests.console.conftest import JOB, served, serving
from tests.console.rows import HOSTILE, HOSTILE_CLIENT
from tests.support.processes import eventually
from tests.support.simulated import TOPIC, Simulated
from tests.support.update_records import add, remove

Open = Any  # opens an address in a new window
VIEWS = {
    "overview": "#/overview",
    "topics": "#/topics?parent=orders&topic=eu__acme__order__created",
    "topic-list": "#/topics?parent=orders&search=acme&topic=eu__acme__order__created",
    "unreceived": "#/topics?parent=orders&show=unreceived",
    "groups": "#/groups?parent=orders",
    "clients": "#/clients?parent=orders&group=audit&client=auditor",
    "playground": "#/playground",
    "explain": "#/explain?parent=orders&group=billing&client=globex-billing&topic=eu__acme__order__created",
    "live": "#/live",
    "letters": "#/letters",
    "timings": "#/timings",
}
TOKEN = "a-token-of-some-length"  # noqa: S105 - of this test


def heading(page: Any, text: str) -> Any:
    return page.get_by_role("heading", name=text, exact=True)


def item(page: Any, name: str) -> Any:
    return page.get_by_role("treeitem", name=re.compile(rf"^{re.escape(name)},"))


def test_the_tree_is_walked_by_keyboard_and_shows_who_receives_a_topic(url: str, opened: Open) -> None:
    page = opened(f"{url}#/topics?parent=orders")
    item(page, "eu").wait_for()
    assert page.get_by_role("treeitem").count() == 2
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('role')") == "treeitem":
            break
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
        page.wait_for_timeout(250)
    focused = "document.activeElement.getAttribute('aria-label')"
    assert page.evaluate(focused) == "invoice, 1 topic"
    page.keyboard.press("o")
    assert page.evaluate(focused) == "order, 2 topics"
    page.keyboard.press("Enter")
    item(page, "created").wait_for()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("getComputedStyle(document.activeElement.querySelector('.line')).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    heading(page, "eu__acme__order__created").wait_for()
    assert item(page, "created").get_attribute("aria-selected") == "true"
    rows = page.get_by_role("table", name="Receivers of eu__acme__order__created").get_by_role("row")
    assert eventually(lambda: rows.count() == 3)
    heads = page.get_by_role("columnheader").all_inner_texts()
    assert [text.split()[0] for text in heads[:4]] == ["Client", "Group", "Entries", "Cause"]
    assert rows.nth(2).inner_text().split("\t")[:4] == ["eu-dashboard", "dashboards", "eu__**", "subscribed"]
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(focused) == "order, 2 topics"
    page.keyboard.press("ArrowLeft")
    assert item(page, "created").count() == 0
    page.reload()  # the address names what is shown
    heading(page, "eu__acme__order__created").wait_for()
    item(page, "created").wait_for()


@pytest.mark.parametrize("view", ["clients", "topics"])
def test_a_tap_on_a_phone_shows_its_detail(view: str, broker: Simulated, url: str, opened: Open) -> None:
    """Below a list of fifty rows the detail would be out of sight."""
    named: dict[str, Any] = {"parent": "orders", "group": "g"}
    broker.write(*(add(f"t{number:03}", client=f"a{number:03}", **named) for number in range(90)), partition=0)
    page = opened(f"{url}#/{view}?parent=orders", width=390)
    (page.get_by_role("link", name="a000") if view == "clients" else item(page, "t000")).click()
    title = page.locator(".detail h2")
    assert eventually(lambda: title.inner_text().startswith("a000" if view == "clients" else "t000"))
    assert eventually(lambda: 0 <= title.bounding_box()["y"] < 400)
    assert page.evaluate("document.activeElement.tagName") == "H2"
    page.get_by_role("button", name="Back to the list").click()
    chosen = page.get_by_role("link", name="a000", exact=True) if view == "clients" else item(page, "t000")
    assert eventually(lambda: 0 <= chosen.bounding_box()["y"] < 800)
    assert chosen.evaluate("chosen => chosen === document.activeElement")


def test_an_explanation_on_a_phone_is_shown_above_its_form(url: str, opened: Open) -> None:
    page = opened(f"{url}{VIEWS['explain']}", width=390)
    headline = page.locator(".headline")
    assert eventually(lambda: headline.count() == 1 and 0 <= headline.bounding_box()["y"] < 200)


def test_the_parent_is_kept_between_views_and_reloads(url: str, opened: Open) -> None:
    page = opened(f"{url}#/topics")
    item(page, "eu").wait_for()
    parent = page.get_by_role("combobox", name="Parent")
    assert parent.input_value() == "orders", "the parent with most topics"
    parent.select_option("sensors")
    for view in ("Clients", "Explain", "Topics"):
        page.get_by_role("link", name=view, exact=True).click()
        heading(page, view).wait_for()
        assert parent.input_value() == "sensors"
    page.reload()
    heading(page, "Topics").wait_for()
    assert parent.input_value() == "sensors"
    page.get_by_role("link", name="Playground").click()
    page.get_by_label("received topics").check()
    assert page.get_by_role("combobox", name="Topics of").input_value() == "sensors"


def test_times_are_in_utc(url: str, opened: Open) -> None:
    """Whatever the time zone of the browser is. Its local time is a tooltip."""
    page = opened(f"{url}#/letters", zone="Asia/Kolkata")
    times = page.locator("summary time")
    times.first.wait_for()
    shown, at = times.first.inner_text(), times.first.get_attribute("datetime")
    assert shown == f"{at[:19].replace('T', ' ')} UTC"
    assert re.search(r"GMT\+5:30|IST", times.first.get_attribute("title"))
    page.goto(f"{url}#/timings")
    page.get_by_text(re.compile(r"^micro-batch 29 at \d\d:\d\d:\d\d\.\d{3} UTC: ")).wait_for()


def test_why_explains_a_pair_segment_by_segment(url: str, opened: Open) -> None:
    page = opened(f"{url}{VIEWS['topics']}")
    page.get_by_role("link", name="Why does eu-dashboard receive eu__acme__order__created?").click()
    answer = page.get_by_role("region", name="Answer")
    answer.get_by_text("eu-dashboard receives eu__acme__order__created: by eu__**").wait_for()
    answer.get_by_role("listitem").filter(has_text="any further segments").first.wait_for()
    page.get_by_label("Client").fill("globex-billing")
    page.get_by_label("Group").fill("billing")
    page.get_by_role("button", name="Explain").click()
    answer.get_by_text("globex-billing does not receive eu__acme__order__created, and the kept").wait_for()
    differs = answer.locator(".step.differs")
    assert differs.inner_text().split("\n") == ["globex", "acme", "✗ differs"]
    answer.get_by_text("Read from the updates topic").wait_for()
    page.go_back()
    answer.get_by_text("eu-dashboard receives").wait_for()


def test_facts_and_hints_have_other_marks_than_verdicts(url: str, opened: Open) -> None:
    page = opened(f"{url}{VIEWS['explain']}")
    marks = page.locator(".check-line .mark")
    assert eventually(lambda: marks.count() == 3)
    named = [(mark.inner_text(), mark.get_attribute("aria-label")) for mark in marks.all()]
    assert named == [("•", "fact"), ("✗", "does not match"), ("→", "hint")]
    fact, entry, hint = (mark.evaluate("mark => getComputedStyle(mark).color") for mark in marks.all())
    muted = page.locator(".answer .note").evaluate("note => getComputedStyle(note).color")
    assert (fact == muted, hint != entry) == (True, True)


def test_an_empty_view_suggests_the_next_step(url: str, opened: Open) -> None:
    for view, what in (("topics", "topic with receivers"), ("clients", "client or group of this parent"),
                       ("groups", "group of this parent")):  # fmt: skip
        sentence = f"No {what} fits"
        page = opened(f"{url}#/{view}?parent=orders")
        page.get_by_label("Search").fill("zz")
        page.get_by_text(f"{sentence}. Clear the search, or select another parent.").wait_for()
        page.get_by_label("Search").fill("")
        page.get_by_text(f"{sentence}. ").wait_for(state="hidden")


def test_a_console_without_rows_names_a_command(opened: Open) -> None:
    broker = Simulated()
    with served(broker) as url:
        page = opened(f"{url}#/clients")
        page.get_by_text("No client receives a topic yet").wait_for()
        page.get_by_text("reexpand demo --keep").wait_for()
        broker.write(add("first", parent="orders", client="c"), partition=0)
        page.get_by_role("link", name="c", exact=True).wait_for()


def test_an_explanation_needs_no_group(broker: Simulated, url: str, opened: Open) -> None:
    broker.write(add("other", parent="orders", client="eu-dashboard", group="archive"), partition=0)
    page = opened(f"{url}#/explain?parent=orders")
    page.get_by_label("Client").fill("eu-dashboard")
    topic = page.get_by_role("combobox", name="Topic", exact=True)
    assert topic.bounding_box()["width"] > 1.5 * page.get_by_label("Client").bounding_box()["width"]
    topic.fill("eu__acme__order__created")
    page.get_by_role("button", name="Explain").click()
    answer = page.get_by_role("region", name="Answer")
    answer.get_by_text("In group dashboards; the client is also in archive").wait_for()
    answer.get_by_role("link", name="archive").click()
    answer.get_by_text("does not receive eu__acme__order__created").wait_for()
    assert page.get_by_label("Group").input_value() == "archive"


def test_changes_show_by_themselves(broker: Simulated, url: str, opened: Open) -> None:
    """In the figures, the tree, the receivers and the live list, while the focus stays where it is."""
    page = opened(f"{url}{VIEWS['topics']}")
    item(page, "created").wait_for()
    item(page, "created").focus()
    other = opened(f"{url}#/live")
    other.get_by_text("No changes since this page").wait_for()
    broker.write(add("eu__acme__order__created", parent="orders", client="late", group="g"), partition=0)
    broker.write(add("ap__new__order__created", parent="orders", client="late", group="g"), partition=0)
    page.get_by_role("table").get_by_role("link", name="late", exact=True).wait_for()
    item(page, "ap").wait_for()
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "created, 3 receivers"
    other.get_by_role("row").filter(has_text="ap__new__order__created").get_by_text("ADD").wait_for()
    broker.write(remove("ap__new__order__created", parent="orders", client="late", group="g"), partition=0)
    other.get_by_text("REMOVE").wait_for()
    item(page, "ap").wait_for(state="detached")
    assert other.get_by_role("row").count() == 4
    other.get_by_role("button", name="Pause").click()
    broker.write(add("more", parent="orders", client="late", group="g"), partition=0)
    other.wait_for_timeout(700)
    assert other.get_by_role("row").count() == 4
    other.get_by_role("button", name="Resume").click()
    other.get_by_role("row").filter(has_text="more").wait_for()


def test_the_playground_answers_while_one_types(url: str, opened: Open) -> None:
    page = opened(f"{url}#/playground")
    result = page.get_by_role("region", name="Result")
    result.get_by_text("2 of 4 topics match").wait_for()
    pattern = page.get_by_label("Pattern", exact=True)
    pattern.fill("")
    pattern.press_sequentially("us__**")
    result.get_by_text("1 of 4 topics match").wait_for()
    result.get_by_text("segment 1 of the topic, 'eu', is not 'us'").first.wait_for()
    pattern.press_sequentially("__x")
    result.get_by_text("'**' is not the last segment").wait_for()
    assert pattern.get_attribute("aria-invalid") == "true"
    page.get_by_label("** before the end").check()
    result.get_by_text("0 of 4 topics match").wait_for()
    page.get_by_label("received topics").check()
    page.get_by_role("combobox", name="Topics of").select_option("orders")
    pattern.fill("*__acme__**")
    result.get_by_text("6 of 12 topics match").wait_for()


def test_the_playground_names_its_limit(url: str, opened: Open) -> None:
    """A paste beyond it is not counted as tried, and a paste of a megabyte is not refused."""
    page = opened(f"{url}#/playground")
    result = page.get_by_role("region", name="Result")
    topics = page.get_by_label("Topics, one per line")
    page.get_by_label("Pattern", exact=True).fill("eu__**")
    paste = "(area, text) => { area.value = text; area.dispatchEvent(new Event('input')); }"  # fill() types each line
    topics.evaluate(paste, "\n".join(f"eu__{number}" for number in range(3_000)))
    result.get_by_text("1,000 of 1,000 tried topics match. Only the first 1,000 of 3,000 topics are tried.").wait_for()
    topics.evaluate(paste, "\n".join(f"eu__{number:010000}" for number in range(300)))
    result.get_by_text(re.compile(r"Only the first \d\d of 300 topics are tried")).wait_for()
    assert page.get_by_role("alert").is_hidden()


@pytest.mark.parametrize(
    ("dialect", "line"),
    [("lite", "2 of 4"), ("mqtt", "1 of 4"), ("nats", "2 of 4"), ("wamp", "2 of 4")],
)
def test_every_dialect_has_an_example(dialect: str, line: str, url: str, opened: Open) -> None:
    page = opened(f"{url}#/playground")
    page.get_by_label("Dialect").select_option(dialect)
    page.get_by_text(f"{line} topics match").wait_for()
    assert page.get_by_label("Policy").is_visible() == (dialect == "wamp")


def test_dead_letters_open_and_name_the_way_back(url: str, opened: Open) -> None:
    page = opened(f"{url}#/letters")
    letter = page.get_by_role("group").filter(has_text="not-json")
    letter.wait_for()
    page.locator("summary").filter(has_text="not-json").focus()
    page.keyboard.press("Enter")
    letter.get_by_text("would be rejected again").wait_for()
    assert letter.get_by_text("dlq replay").count() == 0
    page.locator("summary").filter(has_text="quota-exceeded").click()
    page.get_by_text("First raise the quota. Then run reexpand dlq replay 'lite-topic-events[0]@2'").wait_for()
    page.get_by_label("Reason").select_option("blank-name")
    assert eventually(lambda: page.locator("summary").count() == 1)
    page.get_by_text("blank-name", exact=True).wait_for()


def test_plots_are_read_bar_by_bar(url: str, opened: Open) -> None:
    page = opened(f"{url}#/timings")
    plot = page.get_by_role("img", name=re.compile("^Duration of micro-batches"))
    plot.focus()
    page.keyboard.press("End")
    page.get_by_text(re.compile(r"^micro-batch 29 at .*580 records, 87 updates, offsets 0.02 s")).wait_for()
    page.keyboard.press("ArrowLeft")
    page.get_by_text(re.compile(r"^micro-batch 28 at ")).wait_for()
    assert page.locator(".plot .bar").count() >= 3 * 30


def test_hostile_names_stay_texts(broker: Simulated, url: str, opened: Open) -> None:
    """In every view, live ones too; characters that show nothing or turn the text are made visible."""
    names = {"parent": "odd", "client": HOSTILE_CLIENT, "group": "<b>"}
    page = opened(f"{url}#/live")
    page.get_by_text("No changes since this page").wait_for()
    broker.write(add(f"{HOSTILE}2", changes={"cause": "<s>"}, **names), partition=0)
    page.get_by_role("row").filter(has_text="<img").wait_for()
    query = f"parent=odd&group=%3Cb%3E&client={_quoted(HOSTILE_CLIENT)}&topic={_quoted(HOSTILE)}"
    for view in ("topics", "clients", "explain", "letters"):
        page.goto(f"{url}#/{view}?{query}")
        page.get_by_text("<img src=x onerror=").first.wait_for()
        assert page.locator("main img, main script, main i, main b, main u, main s").count() == 0
        assert "owned" not in page.title()
        assert page.get_by_text("U+202E").count() > 0 or view == "letters"
    page.goto(f"{url}#/playground")
    page.get_by_label("Topics, one per line").fill(HOSTILE)
    page.get_by_text("0 of 1 topics match").wait_for()
    assert page.locator("main img").count() == 0


def _quoted(text: str) -> str:
    from urllib.parse import quote  # noqa: PLC0415 - for these two names

    return quote(text, safe="")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_nothing_keeps_anyone_out(view: str, scheme: str, url: str, opened: Open) -> None:
    """By the rules of axe: landmarks, labels, roles, contrast."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = opened(f"{url}{VIEWS[view]}", scheme=scheme)
    page.get_by_role("heading", level=1).wait_for()
    page.wait_for_timeout(400)
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("width", [320, 390, 700])
@pytest.mark.parametrize("view", VIEWS)
def test_a_narrow_window_shows_everything_without_scrolling_sideways(
    view: str, width: int, url: str, opened: Open
) -> None:
    page = opened(f"{url}{VIEWS[view]}", width=width)
    page.get_by_role("heading", level=1).wait_for()
    page.wait_for_timeout(400)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_token_is_asked_for_once(broker: Simulated, opened: Open) -> None:
    with served(broker, token=TOKEN) as url:
        page = opened(url, quiet=False)
        page.get_by_label("Token").wait_for()
        assert page.url == f"{url}login"
        page.keyboard.type("not the token")
        page.keyboard.press("Enter")
        page.get_by_text("The token is wrong.").wait_for()
        page.keyboard.type(TOKEN)
        page.keyboard.press("Enter")
        heading(page, "Overview").wait_for()
        assert page.evaluate("document.cookie") == ""
        page.reload()
        heading(page, "Overview").wait_for()
        page.get_by_role("button", name="Log out").click()
        page.get_by_label("Token").wait_for()
        page.goto(url)
        page.get_by_label("Token").wait_for()


def test_a_console_that_comes_back_is_followed_again(broker: Simulated, opened: Open) -> None:
    port = free_port()
    with served(broker, port) as url:
        page = opened(f"{url}#/topics?parent=orders", quiet=False)
        item(page, "eu").wait_for()
    page.get_by_text("not connected").wait_for()
    broker.write(add("ap__x", parent="orders"), partition=0)
    with served(broker, port):
        page.get_by_text("live", exact=True).wait_for()
        item(page, "ap").wait_for()


def test_a_parent_with_many_topics_is_read_level_by_level(broker: Simulated, opened: Open) -> None:
    """20,000 topics at one level: a page of them at a time, whatever the list holds."""
    broker.write(*(add(f"t{number:05}", parent="many") for number in range(20_000)), partition=0)
    with served(broker) as url:
        page = opened(f"{url}#/topics?parent=many")
        page.get_by_role("treeitem", name="Show more").wait_for()
        assert page.get_by_role("treeitem").count() == 101
        page.get_by_role("treeitem", name="Show more").click()
        item(page, "t00199").wait_for()
        assert page.get_by_role("treeitem").count() == 201
        page.get_by_label("Search").fill("t1999")
        assert eventually(lambda: page.get_by_role("link", name="t1999").count() == 10)
        page.goto(f"{url}#/playground?dialect=lite&parent=many&pattern=*")
        page.get_by_text(re.compile("20,000 of 20,000 topics match")).wait_for()


def test_the_overview_comes_first_with_job_shards_and_clients(broker: Simulated, url: str, opened: Open) -> None:
    page = opened(url)
    heading(page, "Overview").wait_for()
    page.get_by_role("region", name="Job", exact=True).get_by_text("ready", exact=True).wait_for()
    assert page.get_by_role("region", name="Lag", exact=True).inner_text().split("\n")[-4:] == [
        "Unread records", "12", "Oldest waits", "1.5 s"]  # fmt: skip
    table = page.get_by_role("region", name="Table: Slowest shards, last five minutes")
    assert table.get_by_role("row").nth(1).inner_text().split("\t")[:3] == ["orders", "3", "2.50"]
    page.get_by_text("No updates since this console started").wait_for()
    broker.write(add("ap__x", parent="orders", client="dear", group="g"), partition=0)
    clients = page.get_by_role("region", name="Table: Most expensive clients, by updates since this console started")
    clients.get_by_role("link", name="dear").wait_for()
    page.get_by_role("region", name="Dead letters", exact=True).get_by_role("link", name="not-json").click()
    heading(page, "Dead letters").wait_for()
    assert page.get_by_label("Reason").input_value() == "not-json"


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        ({"rates": None, "micro_batch": None}, ["No rate yet: the first micro-batch is running."]),
        ({"rates": None, "micro_batch": None, "lag_records": 0}, ["No rate yet."]),
        ({"rates": None}, ["No rate yet."]),
        ({"rates": {"lite-topic-events": 0.0}}, ["lite-topic-events\n0", "Average of 20 s, by Kafka topic."]),
    ],
)
def test_no_rate_is_shown_as_zero_before_it_is_known(
    facts: dict[str, Any], shown: list[str], broker: Simulated, opened: Open
) -> None:
    with LiveRelation(broker.address, TOPIC) as relation:
        job = {**JOB, **facts}
        sources = ConsoleSources(relation, partial(explain_by_updates, relation), job=lambda: job)
        with serving(sources) as url:
            region = opened(url).get_by_role("region", name="Records read per second")
            assert eventually(lambda: region.locator("p, dl").all_inner_texts() == shown)


@pytest.mark.parametrize("view", VIEWS)
def test_no_view_is_live_while_kafka_refuses_connections(view: str, opened: Open) -> None:
    """Next to it the job is reported as missing, with the reason."""
    with LiveRelation(f"127.0.0.1:{free_port()}", TOPIC) as relation:
        job = {"state": "missing", "level": "bad", "reason": "no tick since noon"}
        sources = ConsoleSources(relation, partial(explain_by_updates, relation), job=lambda: job)
        with serving(sources) as url:
            page = opened(f"{url}{VIEWS[view]}", quiet=False)
            header = page.locator("#health")
            header.get_by_text("no Kafka", exact=True).wait_for()
            header.get_by_text("job missing").wait_for()
            header.get_by_text("no tick since noon").wait_for()
            assert header.locator(".state.good").count() == 0


def test_an_explanation_shows_the_updates_before_the_job_answers(broker: Simulated, opened: Open) -> None:
    asked, answers = threading.Event(), threading.Event()
    with LiveRelation(broker.address, TOPIC) as relation:

        def explain(subscriber: Subscriber, topic: str) -> dict[str, Any]:
            asked.set()
            answers.wait(30)
            return {**explain_by_updates(relation, subscriber, topic), "basis": "Answered by the job."}

        relation.wait_ready(60)
        with serving(ConsoleSources(relation, explain)) as url:
            page = opened(f"{url}{VIEWS['explain']}", quiet=False)
            page.get_by_text("The job is being asked.").wait_for()
            assert asked.wait(30)
            answers.set()
            page.get_by_text("Answered by the job.").wait_for()


def test_rows_that_are_left_out_are_told(broker: Simulated, opened: Open) -> None:
    with served(broker, max_rows=5) as url:
        page = opened(url)
        page.get_by_text(re.compile(r"\d+ rows are omitted: the maximum is 5")).wait_for()
