"""Selectors: what a group asks of a topic's tags and properties, and which bits that sets."""

from collections.abc import Collection, Iterator, Mapping
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from matcher import selectors
from matcher.selectors import BloomFilter, sql92
from streaming.errors import Rejected
from streaming.records.columns import Event
from streaming.records.model import GroupEvent, Place, Reason, SelectorSpec, Source, SubscriptionRequest
from streaming.records.parsing import parse_subscription
from streaming.records.updates import Cause, Op
from streaming.state import Shard, policy
from streaming.state.client import Ignored
from streaming.state.group import NO_SELECTORS
from tests.support.builders import (
    DELETED,
    EXCLUSIVE,
    LITERAL,
    WILD,
    add,
    bound,
    created,
    deleted,
    drop,
    leave,
    replace,
    request_json,
    told,
)
from tests.support.story import Said, Story, added, removed

TAG_X, TAG_Y = SelectorSpec("TAG", "x"), SelectorSpec("TAG", "y")
REPLACED = Ignored.SELECTOR_REPLACED
GONE = GroupEvent("g", {}, "p", Place(0, 1_000, 0), "q")


def selected(topic: str, *patterns: str, client: str = "c") -> Said:
    return added(topic, *patterns, cause=Cause.SELECTOR_CHANGED, client=client)


def deselected(topic: str, *patterns: str, client: str = "c") -> Said:
    return removed(topic, *patterns, cause=Cause.SELECTOR_CHANGED, client=client)


# What a selector decides.


@pytest.mark.rule("selector")
@pytest.mark.parametrize(
    ("request_", "agreeing"),
    [
        (replace("*", tag="x"), ["a", "c"]),
        (replace("*", tag="x || y"), ["a", "b", "c"]),
        (replace("*", tag="*"), ["a", "b", "c", "d", "e"]),
        (replace("*", sql="size > 3"), ["c"]),
        (replace("*", sql="size is null"), ["a", "b", "e"]),
        (replace("*", sql="colour = 'red' or size = 1"), ["d"]),
        (replace(tag="x"), ["a", "c"]),
    ],
)
def test_topics_need_a_creation_that_agrees(request_: SubscriptionRequest, agreeing: list[str]) -> None:
    """Topics that come later and those that exist alike; everything is no exception."""
    topics = [created("a", "x"), created("b", "y"), created("c", "x", size="5"), created("d", size="1"), created("e")]
    story = Story(WILD, request_)
    story.then(*topics)
    assert story.held() == agreeing
    story = Story(WILD, *topics)
    story.then(request_)
    assert story.held() == agreeing


@pytest.mark.rule("selector")
def test_names_need_to_agree_as_well() -> None:
    story = Story(LITERAL, replace("a", "b", tag="x"))
    assert story.then(created("a", "x"), created("b", "y")) == {added("a", "a")}


@pytest.mark.rule("recreated-topic")
def test_a_second_creation_of_what_exists_says_nothing_new() -> None:
    """One after a deletion does, also within the micro-batch; the deletion takes the topic, in any cut."""
    story = Story(WILD, replace("*", tag="x"), created("t", "x"))
    assert story.then(created("t", "y")) == set()
    assert story.then(deleted("t"), created("t", "y")) == {removed("t", "*", cause=Cause.TOPIC_DELETED)}
    assert story.only_update.source.offset == 5
    assert story.then(deleted("t"), created("t", "x")) == {added("t", "*")}


@pytest.mark.rule("latest-selector")
def test_a_selector_is_one_of_its_group() -> None:
    """For all of its clients, whoever said it, and for those of no other group."""
    story = Story(WILD, bound("h"), replace("*"), replace("*", group="h"), created("t", "y"))
    assert story.then(replace("z", client="d", tag="x")) == {deselected("t", "*")}
    assert story.only_update.source == Source("subscriptions", 0, 6, 0, 1_006)
    assert story.then(created("u", "x"), created("v", "y")) == {added("u", "*"), added("u", "*"), added("v", "*")}
    assert {(update.subscriber.group, update.lite_topic) for update in story.expansion.updates} == {
        ("g", "u"), ("h", "u"), ("h", "v"),
    }  # fmt: skip


# How it comes, and how it stays.


@pytest.mark.rule("latest-selector")
@pytest.mark.rule("causes-of-policies")
def test_a_later_selector_replaces_the_former_over_existing_topics() -> None:
    """Which is counted; the same one once more is not."""
    story = Story(WILD, created("a", "x"), created("b", "y"), replace("*", tag="x"))
    assert story.ignored == {}
    assert story.then(add("z", client="d", tag="y")) == {deselected("a", "*"), selected("b", "*")}
    assert story.ignored == {REPLACED: 1}
    assert story.then(replace("*", tag="y")) == set()
    assert story.ignored == {Ignored.UNCHANGED: 1}


@pytest.mark.rule("no-selector")
def test_a_request_without_one_leaves_it() -> None:
    story = Story(WILD, replace("*", tag="x"))
    story.then(replace("*", client="d"), add("t"), drop("t"))
    assert story.ignored == {}
    assert story.then(created("a", "y"), created("b", "x")) == {added("b", "*"), added("b", "*", client="d")}


@pytest.mark.rule("lasting-selector")
def test_it_stays_when_the_client_that_said_it_leaves() -> None:
    """Also when it was the last."""
    story = Story(WILD, replace("*", tag="x"))
    story.then(leave())
    story.then(replace("*", client="d"))
    assert story.then(created("a", "y"), created("b", "x")) == {added("b", "*", client="d")}


@pytest.mark.rule("no-selector")
def test_that_of_a_client_that_leaves_is_ignored() -> None:
    story = Story(WILD, replace("*"), created("t", "y"))
    story.then(leave()._replace(selector=TAG_X))
    assert story.state.selectors == {}


@pytest.mark.parametrize("request_", [add("z", tag="x"), drop("z", tag="x"), drop("z", client="nobody", tag="x")])
def test_that_of_any_other_request_counts(request_: Event) -> None:
    story = Story(WILD, replace("*"), created("t", "y"))
    assert story.then(request_) == {deselected("t", "*")}


@pytest.mark.rule("no-selector")
def test_that_of_a_stale_or_refused_request_does_not_count() -> None:
    story = Story(WILD, replace("*", version=5), created("t", "y"))
    assert story.then(replace("*", version=4, tag="x"), add("a*", tag="x")) == set()
    assert story.state.selectors["g"].in_force == (TAG_X, None), "`a*` is no pattern, but a name"


@pytest.mark.rule("revoked-selector")
def test_that_of_a_request_that_turns_out_to_be_stale_is_taken_back() -> None:
    """Its client had left everywhere before, with a higher version; the shard learns of it later."""
    story = Story(WILD, replace("*"), created("t", "y"))
    late = add("z", client="d", tag="x", version=2)
    assert story.then(late) == {deselected("t", "*")}
    assert story.then(told(3, (4, late), client="d", version=3)) == {selected("t", "*")}
    assert story.state.selectors == {"g": NO_SELECTORS}


@pytest.mark.rule("restored-selector")
def test_that_of_a_stale_request_counts_where_the_versions_of_its_client_were_forgotten() -> None:
    story = Story(WILD, replace("*"), created("t", "y"), leave(client="d", version=3))
    late = add("z", client="d", tag="x", version=2)
    assert story.then(late) == set()
    end = told(4, (5, late), client="d")
    forgets = {mode: end._replace(forgets=True) for mode, end in (end.ends or {}).items()}
    assert story.then(end._replace(ends=forgets)) == {deselected("t", "*")}


@pytest.mark.parametrize("version", [None, 7])
def test_that_of_a_request_after_the_stale_one_stays(version: int | None) -> None:
    """Also if it sets the same selector as the stale one."""
    for tag, received in (("x", set()), ("y", {"t"})):
        story = Story(WILD, replace("*"), created("t", "y"))
        late = add("z", client="d", tag="x", version=2)
        story.then(late, add("z", client="e", tag=tag, version=version))
        assert story.then(told(3, (4, late), client="d", version=3)) == set()
        assert set(story.held()) == received


def test_there_and_back_in_one_batch_emits_nothing() -> None:
    story = Story(WILD, replace("*", tag="x"), created("t", "x"))
    assert story.then(add("z", client="d", tag="y"), add("z", client="d", tag="x")) == set()
    assert story.ignored[REPLACED] == 2


@pytest.mark.rule("lasting-selector")
def test_each_mode_has_its_own_selector() -> None:
    """A request that was refused as patterns has set the one of the names only."""
    story = Story(WILD, replace("*", "t", tag="x"), created("t", "x"), created("u", "y"))
    story.then(add("a*", tag="y"))
    assert story.held() == ["t"]
    assert story.then(LITERAL) == {removed("t", "*", "t", cause=Cause.GROUP_CHANGED)}
    assert story.then(WILD) == {added("t", "*", "t", cause=Cause.GROUP_CHANGED)}


@pytest.mark.rule("lasting-selector")
def test_it_outlives_the_attributes_of_the_group() -> None:
    story = Story(LITERAL, replace("t", tag="x"), created("t", "y"))
    assert story.then(DELETED) == set()
    assert story.then(WILD) == set()


def test_a_topic_and_a_selector_that_come_together() -> None:
    story = Story(WILD, replace("*"), created("old", "y"))
    assert story.then(add("z", tag="x"), created("a", "x"), created("b", "y"), deleted("old")) == {
        added("a", "*"), removed("old", "*"),
    }  # fmt: skip


def test_a_request_that_brings_a_selector_and_another_set_is_the_cause_of_both() -> None:
    """The selector of what the client asked for before and after, its set of the rest."""
    topics = [created("a", "x"), created("b", "y"), created("c", "y"), created("e", "x")]
    story = Story(bound(resets="unsubscribe"), *topics, replace("b", "c"))
    assert story.then(replace("a", "b", tag="x")) == {
        added("a", "a", cause=Cause.SUBSCRIBED), deselected("b", "b"), removed("c", "c", cause=Cause.UNSUBSCRIBED),
    }  # fmt: skip
    assert {update.lite_topic: update.reset for update in story.expansion.updates} == {
        "a": False, "b": False, "c": True,
    }  # fmt: skip
    assert story.then(replace("a", "b", "e", tag="y || x")) == {
        selected("b", "b"), added("e", "e", cause=Cause.SUBSCRIBED),
    }  # fmt: skip


@pytest.mark.rule("causes-of-policies")
def test_a_group_event_that_says_nothing_new_is_not_the_cause() -> None:
    """Nor is one that changes the quota."""
    story = Story(WILD, replace("*"), created("t", "y"))
    assert story.then(WILD, add("z", client="d", tag="x")) == {deselected("t", "*")}
    assert story.only_update.source.topic == "subscriptions"
    assert story.then(bound(quota=7), add("z", client="d", tag="y")) == {selected("t", "*")}
    assert story.then(bound(wildcard=False), add("z", client="d", tag="x")) == {
        removed("t", "*", cause=Cause.GROUP_CHANGED)
    }


def test_of_the_shards_of_a_parent_the_first_counts_a_replacement() -> None:
    for number in range(2):
        story = Story(WILD, replace("*", tag="x"), shard=Shard("p", number))
        story.then(replace("*", tag="y"))
        assert story.ignored.get(REPLACED, 0) == (number == 0)


def test_a_selector_that_narrows_resets_no_offsets() -> None:
    story = Story(bound(resets="unsubscribe"), replace("*"), created("t", "y"))
    story.then(replace("*", tag="x"))
    assert not story.only_update.reset


class Shorter:
    """A kind of one's own: the property `name` is shorter than this, and must not be missing."""

    def __init__(self, text: str) -> None:
        self.limit = int(text)

    def agrees(self, tags: Collection[str], properties: Mapping[str, str]) -> bool:  # noqa: ARG002 - the interface
        """Return the answer for the name; raise for a topic without a name."""
        return len(properties["name"]) < self.limit


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that offers `SHORTER` is installed."""
    offered = EntryPoints([EntryPoint("SHORTER", f"{__name__}:Shorter", selectors.GROUP)])
    monkeypatch.setattr(EntryPoint, "load", lambda _: Shorter)
    monkeypatch.setattr(selectors, "entry_points", lambda *, group: offered.select(group=group))
    selectors._factory.cache_clear()
    selectors._offered.cache_clear()
    yield
    selectors._factory.cache_clear()
    selectors._offered.cache_clear()
    policy._COMPILED.clear()


def shorter(than: str) -> SubscriptionRequest:
    return parse_subscription(request_json(liteTopicSet=["*"], selector={"type": "SHORTER", "expression": than}))


@pytest.mark.rule("failing-selector")
@pytest.mark.usefixtures("_installed")
def test_a_kind_of_ones_own_decides_by_topic_and_by_request() -> None:
    """One that raises rejects the topic: foreign code must not stop the shard."""
    story = Story(WILD, created("a", name="x"), created("b", name="xxx"), created("fails"))
    assert story.then(shorter("3")) == {added("a", "*", cause=Cause.SUBSCRIBED)}
    assert story.then(created("c", name="y"), created("d", name="yyy"), created("fails too")) == {added("c", "*")}


@pytest.mark.usefixtures("_installed")
def test_a_kind_of_ones_own_may_refuse_a_request() -> None:
    with pytest.raises(Rejected, match=r"invalid literal for int.*'three'") as refused:
        shorter("three")
    assert refused.value.reason == Reason.INVALID_SELECTOR


# Selectors and exclusive groups.


@pytest.mark.rule("selector-before-exclusivity")
def test_who_evicts_needs_a_selector_that_agrees() -> None:
    """A topic rejected by the selector of the group has no newest client."""
    story = Story(EXCLUSIVE, replace("*"), created("a", "x"), created("b", "y"))
    assert story.then(replace("*", client="d", tag="x")) == {
        removed("a", "*", cause=Cause.EVICTED),
        deselected("b", "*"),
        added("a", "*", client="d", cause=Cause.SUBSCRIBED),
    }
    assert story.then(created("c", "x"), created("e", "y")) == {added("c", "*", client="d")}


LARGE = " or ".join(["size = 1"] * sql92.MAX_NODES)


def test_a_selector_of_too_many_nodes_is_refused() -> None:
    with pytest.raises(Rejected, match="more than 512") as refused:
        parse_subscription(request_json(liteTopicSet=["*"], selector={"type": "SQL92", "expression": LARGE}))
    assert refused.value.reason == Reason.INVALID_SELECTOR


@pytest.mark.rule("sql-nodes")
def test_a_large_selector_that_an_earlier_release_stored_decides_as_before() -> None:
    """A state, and the requests that the coordinator repeats, may hold a selector beyond the bound of this release."""
    story = Story(WILD, replace("*", sql=LARGE))
    assert story.then(created("a", size="1"), created("b", size="2")) == {added("a", "*")}
    place = [3, 2, 1_002, 0]
    later = {"action": "COMPLETE_ADD", "liteTopicSet": ["*"], "selector": {"type": "SQL92", "expression": LARGE}}
    end = parse_subscription(
        request_json(action="COMPLETE_REMOVE", liteTopicSet=[], asOf=place, later=[{**later, "place": place}])
    )
    assert [request.selector for _, request in end.later] == [SelectorSpec("SQL92", LARGE)]


# Bitmaps: which groups' SQL92 selectors agree with a topic.


def bits(*groups: str) -> bytes:
    found = BloomFilter().bitmap()
    for group in groups:
        found.add(f"{group}#p")
    return bytes(found)


def bitmaps(story: Story) -> dict[str, bytes | None]:
    """Return the bitmaps of the last micro-batch by topic."""
    return {update.lite_topic: update.bitmap for update in story.expansion.updates}


@pytest.mark.rule("bitmap")
def test_without_sql92_there_is_no_bitmap() -> None:
    story = Story(WILD, replace("*", tag="*"), replace("*", group="h"))
    story.then(created("t", "x"))
    assert bitmaps(story) == {"t": None}


@pytest.mark.rule("bitmap")
def test_a_bitmap_has_the_groups_whose_selectors_agree() -> None:
    """Also on the ADDs of groups that have none, and also where no group agrees."""
    story = Story(
        WILD, bound("h"), bound("i"), bound("j"),
        replace("*", sql="size > 1"), replace("*", group="h", sql="size > 2"),
        replace("*", group="i"), replace("*", group="j", tag="x"),
    )  # fmt: skip
    story.then(created("a", "x", size="3"), created("b", "x", size="2"), created("c"))
    assert bitmaps(story) == {"a": bits("g", "h"), "b": bits("g"), "c": bits()}
    assert len(story.expansion.updates) == 4 + 3 + 1


def test_an_eager_add_has_a_bitmap_as_well() -> None:
    story = Story(WILD, created("a", size="3"), created("b", size="1"))
    story.then(replace("*", sql="size > 2"), replace("z", group="h"))
    assert bitmaps(story) == {"a": bits("g")}
    story.then(bound("h"), replace("*", group="h"), created("c", size="3"))
    assert bitmaps(story) == {"a": bits("g"), "b": bits(), "c": bits("g")}


def test_a_remove_has_none() -> None:
    story = Story(WILD, replace("*", sql="size > 2"), created("a", size="3"))
    story.then(deleted("a"))
    assert [(update.op, update.bitmap) for update in story.expansion.updates] == [(Op.REMOVE, None)]


def test_the_selectors_after_the_batch_make_the_bitmap() -> None:
    story = Story(WILD, replace("*", sql="size > 2"), replace("*", group="h"))
    story.then(replace("*", sql="size > 3"), bound("h"), created("a", size="3"), replace("*", group="i", sql="size=3"))
    assert bitmaps(story) == {"a": bits("i")}
    story.then(add("z", tag="*"), add("z", group="i", tag="*"))
    assert bitmaps(story) == {"a": None}


def test_the_selector_of_the_mode_in_force_counts() -> None:
    story = Story(WILD, replace("a*", sql="size = 3"), replace("*", group="h"), bound("h"))
    story.then(created("a", size="3"))
    assert bitmaps(story) == {"a": None}
    story.then(LITERAL, created("b", size="3"))
    assert bitmaps(story) == {"b": bits("g")}


@pytest.mark.rule("bitmap-without-attributes")
def test_a_group_without_attributes_is_in_bitmaps_as_long_as_it_has_a_client() -> None:
    """It may be bound to another parent by then, which this one is not told."""
    story = Story(WILD, replace("*"), replace("a", group="h", sql="size = 3"))
    story.then(created("b", size="3"))
    assert bitmaps(story) == {"b": bits("h")}
    story.then(leave(group="h", version=1), created("c", size="3"))
    assert bitmaps(story) == {"c": None}
    story.then(bound("h"), created("d", size="3"))
    assert bitmaps(story) == {"d": bits("h")}


@pytest.mark.rule("bitmap")
def test_a_group_bound_elsewhere_is_in_no_bitmap() -> None:
    """Its selector is not in force here; it is again when the group comes back."""
    story = Story(WILD, replace("*", sql="size = 3"), replace("a", "b", group="h"), GONE)
    story.then(created("a", size="3"))
    assert bitmaps(story) == {"a": None}
    story.offset = 2_000
    story.then(WILD, created("b", size="3"))
    assert bitmaps(story) == {"a": bits("g"), "b": bits("g")}
