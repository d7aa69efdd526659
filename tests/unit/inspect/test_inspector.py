"""Inspectors of a job of several shards and parents, without Kafka; and what they say in words."""

import json
from functools import partial
from typing import Any
from unittest.mock import MagicMock

import pytest

from streaming.config import Settings, load
from streaming.errors import NotPlaced, QuestionRefused, Unanswered
from streaming.inspect import Filter, Inspector, PairVerdict, wording
from streaming.inspect.asking import Inquirer
from streaming.records.model import Stream
from streaming.records.routing import Routing
from tests.support.events import created, encoded, replace, with_attributes
from tests.support.inspected import inspector_of
from tests.support.simulator import Record, Simulation

ATTRIBUTES = {"lite.bind.topic": "p", "lite.sub.wildcard": "true"}


def a_job(*values: tuple[Stream, bytes], routing: Routing | None = None) -> Simulation:
    """A job that has read some records, one micro-batch each."""
    job = Simulation(routing or Routing({"p": 3}))
    for offset, (stream, value) in enumerate(values):
        job.run([Record(stream, value, 0, offset, 1_000 * (1 + offset))])
    return job


def inspector_after(*values: tuple[Stream, bytes], routing: Routing | None = None) -> Inspector:
    return inspector_of(a_job(*values, routing=routing))[0]


def group(name: str = "g", **attributes: str) -> tuple[Stream, bytes]:
    return Stream.GROUPS, encoded(with_attributes({**ATTRIBUTES, **attributes}, group=name))


def asks(*entries: str, **fields: Any) -> tuple[Stream, bytes]:
    return Stream.SUBSCRIPTIONS, encoded(replace(*entries, **fields))


def topic(name: str, parent: str = "p") -> tuple[Stream, bytes]:
    return Stream.TOPICS, encoded(created(name, parent=parent))


TOPICS = [topic(f"{first}__{second}") for first in "abcdef" for second in "12"]


@pytest.mark.parametrize("given", ["b:1", {"bootstrap_servers": "b:1", "answers": "mine"}], ids=["text", "mapping"])
def test_settings_need_no_checkpoint(given: str | dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Settings] = []
    monkeypatch.setattr("streaming.inspect.api.Inquirer", lambda settings, _: found.append(settings))
    Inspector(given)
    assert found[0].bootstrap_servers == "b:1"
    assert found[0].answers == ("lite-answers" if given == "b:1" else "mine")


def test_a_missing_answer_names_no_option() -> None:
    """The console shows it too."""
    inquirer = object.__new__(Inquirer)
    inquirer._timeout, inquirer._settings = 0, load({"bootstrap_servers": "b:1", "checkpoint": "/c"})
    inquirer._reader = MagicMock(trouble="", poll=lambda _: [])
    with pytest.raises(Unanswered, match="no job has answered within 0 s") as caught:
        inquirer._answers("question", {("p", 0)})
    assert "--" not in str(caught.value)


def test_the_shard_of_a_topic_answers_whichever_it_is() -> None:
    """One question where the routing is known; another one to all shards where no entry matches."""
    inspector, inquirer = inspector_of(a_job(group(), asks("*__1"), *TOPICS))
    for first in "abcdef":
        (one,), (two,) = (inspector.explain("c", f"{first}__{second}", parent="p") for second in "12")
        assert (one.verdict, two.verdict) == (PairVerdict.RECEIVED, PairVerdict.NO_MATCH)
    assert inquirer.questions <= 6 + 2 * 6 + 1


def test_without_a_parent_it_is_that_of_the_client_and_any_other_is_named() -> None:
    d_elsewhere = asks("x", topic="q", group="h", clientId="d")
    inspector = inspector_after(group(), asks("*__1"), d_elsewhere, *TOPICS)
    (found,) = inspector.explain("c", "a__1")
    assert (found.pair.parent, found.received) == ("p", True)
    (found,) = inspector.explain("d", "a__1", parent="p")
    assert [hint.code for hint in found.hints] == ["other-parent"]
    assert "in session on 'q'" in found.hints[0].text
    with pytest.raises(NotPlaced, match="in session on no parent topic: name one with --parent"):
        inspector.explain("nobody", "a__1")
    with pytest.raises(NotPlaced, match=r"several parent topics: name one with --parent \(p, q\)"):
        inspector_after(asks("x"), asks("x", topic="q")).explain("c", "x")


def test_the_only_parent_is_that_of_all_groups_and_clients() -> None:
    for values in ([group()], [asks("x")], [group(), asks("x", group="h", clientId="d"), *TOPICS]):
        assert inspector_after(*values).only_parent() == "p"
    with pytest.raises(NotPlaced, match=r"several parent topics: name one with --parent \(p, q\)"):
        inspector_after(group(), asks("x", topic="q", group="h")).only_parent()
    with pytest.raises(NotPlaced, match="no group and no client, which would name the parent topic: add --parent"):
        inspector_after(*TOPICS).only_parent()


def test_every_group_of_a_client_is_explained_unless_one_is_named() -> None:
    inspector = inspector_after(group(), asks("*__1"), asks("a__1", group="h"), *TOPICS)
    explained = {(each.pair.group, each.received) for each in inspector.explain("c", "a__1", parent="p")}
    assert explained == {("g", True), ("h", True)}
    (found,) = inspector.explain("c", "a__1", parent="p", group="nobody")
    assert found.verdict is PairVerdict.CLIENT_UNKNOWN
    assert {hint.code for hint in found.hints} == {"other-group", "no-request"}


def test_the_number_of_explained_groups_is_limited() -> None:
    """Each group that does not match asks the other shards."""
    groups = [asks("b__*", group=f"g{number}") for number in range(9)]
    inspector, inquirer = inspector_of(a_job(*groups, asks("a__1", group="z"), *TOPICS))
    found = inspector.explain("c", "a__1", parent="p", most_groups=3)
    assert [each.pair.group for each in found] == ["z", "g0", "g1"]
    assert inquirer.questions <= 5


def test_a_group_that_moved_is_found_by_its_binding() -> None:
    inspector = inspector_after(group(), asks("*__1"), *TOPICS, group(**{"lite.bind.topic": "q"}))
    (found,) = inspector.explain("c", "a__1", parent="p")
    assert (found.verdict, found.hints[-1].code) == (PairVerdict.BOUND_ELSEWHERE, "other-parent")
    assert found.binding is not None
    assert found.binding.parent == "q"
    said = wording.explanation(found)
    assert said.startswith("no: client 'c' of group 'g' does not receive 'a__1' of 'p'\n")
    assert "binding      'q', by " in said


def test_lists_go_through_all_shards_page_by_page() -> None:
    inspector = inspector_after(group(), asks("*__1", "a__2"), *TOPICS)
    pages = list(inspector.topics("p", Filter("*__1"), limit=2))
    found = [item.topic for page in pages for item in page.items]
    assert sorted(found) == [f"{first}__1" for first in "abcdef"]
    assert max(len(page.items) for page in pages) == 2
    assert [item.client for page in inspector.clients("p") for item in page.items] == ["c"]
    assert [item.group for page in inspector.groups("p") for item in page.items] == ["g"]
    entries = {item.entry for page in inspector.subscriptions("p", Filter(client="c")) for item in page.items}
    assert entries == {"*__1", "a__2"}
    assert [each.client for each in inspector.topic("p", "a__2").subscribers] == ["c"]
    assert [(each.group, each.parent) for each in inspector.bindings()] == [("g", "p")]
    assert [(each.client, each.parents) for each in inspector.leases()] == [("c", ("p",))]
    with pytest.raises(QuestionRefused, match="is next to other characters"):
        list(inspector.topics("p", Filter("a*")))


@pytest.mark.rule("plan")
def test_a_plan_adds_up_shards_and_parents() -> None:
    """What a group event does to the parent that it leaves is said by the coordinator."""
    job = a_job(group(), asks("*__1"), asks("*__1", topic="q", group="h", clientId="d"), *TOPICS, topic("z__1", "q"))
    inspector, _ = inspector_of(job)
    moved = {"group": "g", "attributes": {**ATTRIBUTES, "lite.bind.topic": "q"}}
    found = inspector.plan(moved)
    assert {(each.parent, each.adds, each.removes) for each in found.parents} == {("p", 0, 6), ("q", 0, 0)}
    before = len(job.updates)
    job.run([Record(Stream.GROUPS, json.dumps(moved).encode(), 0, 99, 99_000)])
    assert [update["op"] for update in job.updates[before:]] == ["REMOVE"] * 6
    inspector = inspector_after(group(), asks("*__1"), *TOPICS)
    everywhere = inspector.plan({"action": "COMPLETE_REMOVE", "clientId": "c", "group": "g"})
    assert (everywhere.adds, everywhere.removes) == (0, 6)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"action": "SUBSCRIBE", "clientId": "c", "group": "g", "topic": "p"}, "unknown-action"),
        (replace("a*"), "invalid-pattern"),
        (replace("t", parent="q"), "group-bound-elsewhere"),
    ],
)
def test_a_plan_tells_dead_letters(record: dict[str, Any], reason: str) -> None:
    found = inspector_after(group(), *TOPICS).plan(record)
    assert [problem.reason for problem in found.problems] == [reason]
    assert wording.dry_run(found).splitlines()[0] == "would add 0 and remove 0 rows"


def test_a_plan_shows_that_nothing_remains_where_the_group_is_not_bound() -> None:
    """The parent learns it a micro-batch later; other requests of the record have their effect."""
    known = [group(), topic("a__1", "q"), topic("a__1"), topic("a__1", "r")]
    inspector, _ = inspector_of(job := a_job(*known))
    elsewhere = replace("a__1", parent="q")
    found = inspector.plan(elsewhere)
    assert (found.adds, found.removes) == (0, 0)
    several = {"subscriptionSet": [elsewhere, {**elsewhere, "topic": "p"}, {**elsewhere, "group": "h", "topic": "r"}]}
    found = inspector.plan(several)
    assert {(each.parent, each.adds, each.removes) for each in found.parents} == {("p", 1, 0), ("q", 0, 0), ("r", 1, 0)}
    job.run([Record(Stream.SUBSCRIPTIONS, json.dumps(several).encode(), 0, 99, 99_000)])
    assert {(row.parent, row.group) for row in job.relation} == {("p", "g"), ("r", "h")}


def test_a_plan_counts_the_valid_requests_of_a_record() -> None:
    inspector, inquirer = inspector_of(a_job(group(), *TOPICS))
    valid = encoded(replace("a__1"))
    found = inspector.plan(b'{"subscriptionSet":[%b,%b,"expired":true}]}' % (valid, valid[:-1]))
    assert (found.adds, [problem.reason for problem in found.problems]) == (1, ["reserved-field"])
    asked = inquirer.questions
    assert inspector.plan(valid[:-1] + b',"clientId":"d"}').problems[0].reason == "duplicate-field"
    assert inquirer.questions == asked, "of a dead letter nothing is asked"


def test_a_mistake_shows_although_the_entry_lies_in_another_shard() -> None:
    """Its first segment is another one than that of the topic."""
    routing = Routing({"p": 3})
    shard = partial(routing.shard_of, "p")
    name = next(f"{first}__1" for first in "abcdefghijk" if shard(f"{first}/+") != shard(f"{first}__1"))
    inspector = inspector_after(group(), asks(f"{name[0]}/+", "zz"), topic(name), routing=routing)
    (found,) = inspector.explain("c", name)
    assert (found.verdict, [hint.code for hint in found.hints]) == (PairVerdict.NO_MATCH, ["dialect"])
    assert [entry.entry for entry in found.pair.entries] == [f"{name[0]}/+", "zz"]


# Words.


def test_an_explanation_is_printed_in_words() -> None:
    inspector = inspector_after(group(), asks("a__*__c"), topic("a__b__d"), routing=Routing())
    (found,) = inspector.explain("c", "a__b__d")
    assert wording.explanation(found).splitlines() == [
        "no: client 'c' of group 'g' does not receive 'a__b__d' of 'p'",
        "  its pattern 'a__*__c' does not match: segment 3 of the topic, 'd', is not 'c'",
        "  decided by   subscriptions[0]@1",
        "  topic        exists",
        "  group        entries are patterns, quota 2,000, set by groups[0]@0",
        "  binding      'p', by groups[0]@0",
        "  client       in session, 1 entry, last request subscriptions[0]@1",
        "  lease        last request at 1970-01-01 00:00:02 UTC (subscriptions[0]@1)",
        "  lite pattern 'a__*__c' does not match: segment 3 of the topic, 'd', is not 'c', sent by subscriptions[0]@1",
        "      a                a                equal",
        "      *                b                one segment",
        "    ! c                d                differs",
    ]
    assert json.loads(wording.as_json(found))["pair"]["verdict"] == "no-match"


def test_lists_are_printed_in_words() -> None:
    inspector = inspector_after(group(), asks("a__*"), asks("x", group="h", version=4), topic("a__1"))
    shown = [wording.subscription(item) for page in inspector.subscriptions("p") for item in page.items]
    assert "g/c  a__*  lite  subscriptions[0]@1" in shown
    assert "h/c  x  name  subscriptions[0]@2" in shown
    assert [wording.group(item) for page in inspector.groups("p") for item in page.items] == [
        "g  wildcard  1 client  lite.bind.topic=p lite.sub.wildcard=true  by groups[0]@0",
        "h  literal  1 client  no group event",
    ]
    assert wording.topic_details("a__1", "p", inspector.topic("p", "a__1")) == "a__1\n1 subscriber\n  g/c  a__*"
    assert wording.topic_details("b", "p", inspector.topic("p", "b")) == "the parent 'p' has no topic 'b'"
    assert wording.list_end(3, 9, more=True) == "3 shown, of 9; --all shows all, --limit more of them"
    (page,) = wording.chosen(inspector.leases(), "group", Filter("h"))
    assert [item.group for item in page.items] == ["h"]


def test_all_leases_and_bindings_are_listed_in_several_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """All clients of a group are in one bucket, whose answer has a limit."""
    monkeypatch.setattr("streaming.worker.inquiry.listing.PAGE_CHARACTERS", 40)
    clients = [asks("x", clientId=f"client-{number}", group=f"g{number % 2}") for number in range(40)]
    elsewhere = asks("x", topic="q", clientId="the-last", group="g1")
    inspector = inspector_after(*(group(f"b{number}") for number in range(30)), *clients, elsewhere)
    leases = [(each.group, each.client) for each in inspector.leases()]
    assert len(leases) == len(set(leases)) == 41
    assert len(inspector.leases(group="g1")) == 21
    assert {each.group for each in inspector.bindings()} == {f"b{number}" for number in range(30)}
    assert inspector.parents() == ["p", "q"]


@pytest.mark.parametrize("parent", ["", "\udcff"])
def test_a_parent_without_a_name_is_refused(parent: str) -> None:
    """An empty name is that of the coordinator, and a lone surrogate comes from an argument that is no UTF-8."""
    inspector = inspector_after(group(), asks("*__1"), *TOPICS)
    for ask in (inspector.topics, inspector.clients, inspector.groups, inspector.subscriptions):
        with pytest.raises(QuestionRefused, match=r"is empty|is not UTF-8"):
            list(ask(parent))
    with pytest.raises(QuestionRefused, match=r"is empty|is not UTF-8"):
        inspector.explain("c", "a__1", parent=parent)
    with pytest.raises(QuestionRefused, match="is not UTF-8"):
        inspector.explain("\udcff", "a__1", parent="p")


def test_a_client_that_has_left_is_not_counted_in_its_group() -> None:
    """Its version is kept for a week."""
    leaves = asks(clientId="d", version=2, action="COMPLETE_REMOVE")
    inspector = inspector_after(group(), asks("*__1"), asks("*__1", clientId="d", version=1), leaves)
    assert [item.clients for page in inspector.groups("p") for item in page.items] == [1]
