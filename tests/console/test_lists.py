"""Lists of the console: groups, topics without receivers, search and sorting, in a real Chromium."""

import re
from functools import partial
from typing import Any

import pytest

from streaming.console import asking, job_lists, letters, listing
from streaming.console.app import ConsoleSources
from streaming.console.budget import Budget
from streaming.console.explaining import explain_by_updates
from streaming.console.live import LiveRelation
from tests.console.conftest import served, serving
from tests.console.job import FakeJob
from tests.support.processes import eventually
from tests.support.simulated import TOPIC, Simulated
from tests.support.update_records import add, remove

Open = Any  # opens an address in a new window


def shows(page: Any, column: int, first: list[str]) -> bool:
    """Return True if a column of the subscribers begins with these texts."""
    cells = page.get_by_role("table", name="Subscribers of orders").locator(f"tbody td:nth-child({column})")
    return bool(cells.all_inner_texts()[: len(first)] == first)


def test_numbers_are_right_aligned(url: str, opened: Open) -> None:
    page = opened(f"{url}#/clients?parent=orders")
    cells = page.get_by_role("table", name="Subscribers of orders").locator(".number")
    assert eventually(lambda: cells.count() == 4)
    assert cells.evaluate_all("cells => cells.every(cell => getComputedStyle(cell).textAlign === 'right')")


def test_columns_are_sorted_by_keyboard(url: str, opened: Open) -> None:
    """A number begins with the largest, a name with the first. The heading keeps the focus and tells the order."""
    page = opened(f"{url}#/clients?parent=orders")
    table = page.get_by_role("table", name="Subscribers of orders")
    topics, client = (table.get_by_role("columnheader", name=name) for name in ("Topics", "Client"))
    topics.get_by_role("button").focus()
    for order, wanted in (("descending", ["12", "6", "6"]), ("ascending", ["6", "6", "12"])):
        page.keyboard.press("Enter")
        assert eventually(partial(shows, page, 3, wanted))
        assert topics.get_attribute("aria-sort") == order
        assert page.evaluate("document.activeElement.innerText") == "Topics"
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    for order, first in (("ascending", "auditor"), ("descending", "globex-billing")):
        page.keyboard.press(" ")
        assert eventually(partial(shows, page, 1, [first]))
        assert (client.get_attribute("aria-sort"), topics.get_attribute("aria-sort")) == (order, None)


@pytest.mark.parametrize(
    ("view", "name", "wanted"),
    [
        ("topics?parent=orders&show=list", "Receivers", "us__acme__invoice__issued"),
        ("topics?parent=orders&show=unreceived", "Topic", "ap__old__118"),
        ("topics?parent=orders&topic=eu__globex__invoice__issued", "Group", "eu-dashboard"),
        ("topics?parent=orders&topic=eu__globex__invoice__issued", "Entries", "eu-dashboard"),
        ("clients?parent=orders&group=audit&client=auditor", "Topic", "us__globex__order__shipped"),
        ("groups?parent=orders", "Quota, topics", "night-shift"),
        ("groups?parent=orders", "Clients", "audit"),
        ("overview", "Longest wait, s", "sensors"),
    ],
)
def test_every_list_is_sorted_by_its_columns(view: str, name: str, wanted: str, url: str, opened: Open) -> None:
    page = opened(f"{url}#/{view}")
    top = page.get_by_role("columnheader", name=name, exact=True)
    for _ in range(2):
        top.get_by_role("button").click()
    is_number = "number" in (top.get_attribute("class") or "")
    assert top.get_attribute("aria-sort") == ("ascending" if is_number else "descending")
    rows = top.locator("xpath=ancestor::table").locator("tbody tr")
    assert eventually(lambda: rows.first.inner_text().startswith(wanted))


def test_groups_have_their_settings_and_clients(broker: Simulated, url: str, opened: Open) -> None:
    """From the job, and their subscribers from the updates; without a job only these."""
    page = opened(f"{url}#/groups?parent=orders")
    table = page.get_by_role("table", name="Groups of orders")
    page.get_by_text("Answered by the running job, from its live state.").wait_for()
    rows = [row.split("\t") for row in table.locator("tbody tr").all_inner_texts()]
    assert [row[0].strip().split("\n") for row in rows] == [
        ["audit", "no group event"], ["billing", "set by lite-group-events[0]@7"], ["dashboards"],
        ["night-shift", "bound to sensors", "no group event"],
    ]  # fmt: skip
    assert [row[1:] for row in rows[:3]] == [
        ["wildcard", "no", "none", "none", "1", "1"],
        ["wildcard", "yes", "SQL92 region = 'eu'", "2,000", "3", "1"],
        ["unknown", "unknown", "unknown", "unknown", "unknown", "1"],
    ]
    page.get_by_label("Search").fill("ight")
    assert eventually(lambda: table.locator("tbody tr").count() == 1)
    page.get_by_label("Search").fill("")
    table.get_by_role("link", name="billing").click()
    page.get_by_role("heading", name="Clients", exact=True).wait_for()
    assert page.get_by_label("Search").input_value() == "billing"
    page.get_by_role("link", name="globex-billing").wait_for()
    with LiveRelation(broker.address, TOPIC) as relation:
        relation.wait_ready(60)
        with serving(ConsoleSources(relation, partial(explain_by_updates, relation))) as alone:
            page = opened(f"{alone}#/groups?parent=orders")
            page.get_by_text("contains only groups with receivers").wait_for()
            assert [row.split("\t")[6] for row in table_rows(page)] == ["1", "1", "1"]


def table_rows(page: Any) -> Any:
    rows = page.get_by_role("table", name="Groups of orders").locator("tbody tr")
    assert eventually(lambda: rows.count() == 3)
    return rows.all_inner_texts()


def test_topics_without_receivers_are_searched_part_by_part(url: str, opened: Open) -> None:
    """Each part shows how many of the job's topics it covers."""
    page = opened(f"{url}#/topics?parent=orders")
    page.get_by_label("Show").select_option("without receivers")
    page.get_by_text("122 topics without receivers; searched all: 123 topics of the job.").wait_for()
    assert page.get_by_role("link", name="eu__acme__order__created").count() == 0
    page.get_by_role("link", name="ap__acme__lost").focus()
    page.keyboard.press("Enter")
    page.get_by_text("The topic has no receivers.").wait_for()
    assert page.evaluate("document.activeElement.getAttribute('aria-current')") == "true"
    page.get_by_label("Topics that").select_option("match (lite)")
    page.get_by_label("Search").fill("ap__new__*")
    page.get_by_text("60 topics without receivers in this selection; searched all: 123").wait_for()
    page.reload()  # the address names what is shown
    page.get_by_text("60 topics without receivers in this selection; searched all: 123").wait_for()
    page.get_by_role("heading", name="ap__acme__lost").wait_for()


@pytest.mark.parametrize(
    ("view", "search", "found"),
    [
        ("topics", ("contain", "globex__order"), 4),
        ("topics", ("begin with", "us__acme"), 3),
        ("topics", ("match (lite)", "*__acme__order__*"), 4),
        ("clients", ("contain", "dash"), 1),
        ("clients", ("match (nats)", "auditor"), 1),
    ],
)
def test_lists_are_searched_by_text_and_by_pattern(
    view: str, search: tuple[str, str], found: int, url: str, opened: Open
) -> None:
    how, text = search
    page = opened(f"{url}#/{view}?parent=orders")
    page.get_by_role("combobox", name=re.compile("^(Topics|Clients or groups) that")).select_option(how)
    page.get_by_label("Search").fill(text)
    rows = page.locator(".panel tbody tr")
    assert eventually(lambda: rows.count() == found)
    page.reload()  # the address names the search
    assert eventually(lambda: rows.count() == found)
    assert page.get_by_label("Search").input_value() == text


def test_a_pattern_that_is_not_finished_is_reported_at_its_field(url: str, opened: Open) -> None:
    page = opened(f"{url}#/topics?parent=orders&show=list&how=lite", quiet=False)
    search = page.get_by_label("Search")
    search.fill("eu__**__x")
    page.get_by_text("'**' is not the last segment").wait_for()
    assert search.get_attribute("aria-invalid") == "true"
    assert page.get_by_role("alert").is_hidden()
    search.fill("eu__**")
    page.get_by_text("'**' is not the last segment").wait_for(state="hidden")
    assert eventually(lambda: page.locator(".panel tbody tr").count() == 6)


def test_a_search_shows_its_limit(url: str, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "Budget", lambda: Budget(5))
    page = opened(f"{url}#/topics?parent=orders&search=__")
    page.get_by_text("1 to 5 of 5; only the first 5 of 12 were searched and sorted").wait_for()


def test_every_limit_is_shown_beside_what_it_limits(
    broker: Simulated, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a sorted list, of groups, of a search for topics without receivers, of letters, and of the playground."""
    monkeypatch.setattr(letters, "KEPT", 2)
    with served(broker) as url:
        page = opened(f"{url}#/letters")
        page.get_by_text("2 dead letters; 1 older one is not shown.").wait_for()
        page.goto(f"{url}#/overview")
        page.get_by_text("and 1 older record that this console does not keep").wait_for()
        monkeypatch.setattr(listing, "SORTED", 4)
        page.goto(f"{url}#/topics?parent=orders&show=list")
        page.get_by_role("button", name="Receivers").click()
        page.get_by_text("1 to 4 of 12; only the first 4 of 12 were searched and sorted").wait_for()
        monkeypatch.setattr(job_lists, "MAX_ITEMS", 2)
        page.goto(f"{url}#/groups?parent=orders")
        page.get_by_text("1 to 2 of 2; only the first 2 were searched and sorted").wait_for()
        monkeypatch.setattr(asking, "SCANNED", 4)
        monkeypatch.setattr(asking, "_PAGE", 4)
        page.goto(f"{url}#/playground?dialect=lite&parent=orders&pattern=*__acme__**")
        page.get_by_text("3 of 12 topics match among the first 4 of 12 with its prefix.").wait_for()
        monkeypatch.setattr(asking, "Budget", lambda *_: Budget(60))
        page.goto(f"{url}#/playground?dialect=lite&parent=orders&pattern=eu__**")
        page.get_by_text("Not all topics were compared, to limit the work. Try fewer or shorter topics").wait_for()


def test_topics_without_receivers_are_searched_as_far_as_the_reader_wants(
    url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_lists, "_FOUND", 1)
    page = opened(f"{url}#/topics?parent=orders&show=unreceived")
    page.get_by_text("2 topics without receivers; searched 3 of about 123 topics of the job.").wait_for()
    page.get_by_role("button", name="Search more topics").click()
    page.get_by_text("122 topics without receivers; searched all: 123 topics of the job.").wait_for()
    assert page.get_by_role("button", name="Search more topics").is_hidden()


def test_topics_without_receivers_stay_up_to_date(
    broker: Simulated, url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an update, and without one: a topic that is created without receivers causes none. The focus stays."""
    page = opened("about:blank")
    page.clock.install()
    page.goto(f"{url}#/topics?parent=orders&show=unreceived")
    page.get_by_text("122 topics without receivers").wait_for()
    page.get_by_role("link", name="ap__new__001").focus()
    broker.write(add("ap__acme__lost", parent="orders", client="late", group="g"), partition=0)
    page.get_by_text("6 subscribers").wait_for()
    page.clock.fast_forward(5_000)
    page.get_by_text("121 topics without receivers").wait_for(timeout=5_000)
    monkeypatch.setattr(FakeJob, "born", ["ap__born"])
    page.clock.fast_forward(15_000)
    page.get_by_role("link", name="ap__born").wait_for()
    page.get_by_text("122 topics without receivers").wait_for()
    assert page.evaluate("document.activeElement.innerText") == "ap__new__001"


def test_a_list_that_changes_keeps_the_focus(broker: Simulated, url: str, opened: Open) -> None:
    """At the same link, or at its place if its row has gone."""
    page = opened(f"{url}#/clients?parent=orders")
    rows = page.get_by_role("table", name="Subscribers of orders").locator("tbody tr")
    page.get_by_role("link", name="globex-billing").focus()
    named: dict[str, Any] = {"parent": "orders", "client": "added", "group": "a"}
    broker.write(add("x", **named), partition=0)
    assert eventually(lambda: rows.count() == 4)
    assert page.evaluate("document.activeElement.innerText") == "globex-billing"
    page.get_by_role("link", name="added").focus()
    broker.write(remove("x", **named), partition=0)
    assert eventually(lambda: rows.count() == 3)
    assert page.evaluate("document.activeElement.innerText") == "auditor"


def test_a_parent_beyond_the_first_ones_is_found_by_a_part_of_its_name(
    broker: Simulated, url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.write(*(add("a/b", parent=f"tenant-{number:03}") for number in range(600)), partition=0)
    page = opened(f"{url}#/topics?parent=tenant-598")
    page.get_by_role("treeitem", name="a, 1 topic").wait_for()  # its separator is known
    page.get_by_text("500 of 603 parents").wait_for()
    search, parent = page.get_by_label("Parents that contain"), page.get_by_role("combobox", name="Parent", exact=True)
    search.fill("599")
    page.get_by_text("1 parent", exact=True).wait_for()
    assert parent.locator("option").all_text_contents() == ["tenant-598", "tenant-599 (1 topic)"]
    parent.select_option("tenant-599")
    assert eventually(lambda: page.url.endswith("parent=tenant-599"))
    page.get_by_role("link", name="Explain", exact=True).click()
    page.get_by_role("heading", name="Explain").wait_for()
    assert parent.input_value() == "tenant-599"
    search.press("Enter")  # it does not send the form
    page.get_by_role("link", name="Playground").click()
    page.get_by_label("received topics").check()
    search.fill("sens")
    topics = page.get_by_role("combobox", name="Topics of")
    assert eventually(lambda: topics.locator("option").count() == 2)
    topics.select_option("sensors")
    page.get_by_text("of 1 topics match").wait_for()
    monkeypatch.setattr(listing, "Budget", lambda: Budget(90))
    search.fill("tenant")
    page.get_by_text(re.compile(r"^\d+ of \d+ parents; only \d+ of 603 were searched$")).wait_for()


def test_a_parent_without_receivers_is_offered_where_the_job_is_asked(url: str, opened: Open) -> None:
    """The selection keeps what is shown."""
    page = opened(f"{url}#/topics?parent=orders")
    parent = page.get_by_role("combobox", name="Parent", exact=True)
    page.get_by_label("Show").select_option("without receivers")
    assert eventually(lambda: parent.locator("optgroup option").all_text_contents() == ["idle"])
    parent.select_option("idle")
    page.get_by_text("123 topics without receivers; searched all: 123 topics of the job.").wait_for()
    assert parent.input_value() == "idle"


def test_a_client_is_found_from_its_group_by_keyboard(url: str, opened: Open) -> None:
    """Each step is a walk with Tab, so everything on the way takes the focus."""
    page = opened(url)
    for target in (
        "Groups",
        "billing",
        "globex-billing",
        "Why does globex-billing receive eu__globex__order__created?",
    ):
        link = page.get_by_role("link", name=target, exact=True)
        link.wait_for()
        for _ in range(60):
            if link.evaluate("link => link === document.activeElement"):
                break
            page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", target
        page.keyboard.press("Enter")
    page.get_by_text("globex-billing receives eu__globex__order__created: by *__globex__**").wait_for()


def test_only_the_answer_to_the_last_search_is_shown(url: str, opened: Open) -> None:
    page = opened(f"{url}#/topics?parent=orders&show=unreceived")
    page.get_by_text("122 topics without receivers; searched all: 123 topics of the job.").wait_for()
    held: list[Any] = []
    page.route("**/api/unreceived?*", lambda route: held.append(route))  # noqa: PLW0108 - it needs a signature
    for number, text in enumerate(("ap__new", "ap__acme"), 1):
        page.get_by_label("Search").fill(text)
        while len(held) < number:
            page.wait_for_timeout(50)
    for route in held:
        route.continue_()
        page.wait_for_timeout(200)
    page.get_by_role("link", name="ap__acme__lost").wait_for()
    assert page.get_by_role("link", name=re.compile("ap__new__")).count() == 0
