"""Selectors of groups: which topics they accept, which requests set them, and the bitmaps of updates."""

import pytest

from matcher.selectors import BloomFilter, sql92
from streaming.errors import Rejected
from streaming.records.model import Reason, SelectorSpec, Source
from streaming.records.updates import Op
from streaming.state import Shard, policy
from streaming.state.client import Ignored
from streaming.state.group import NO_SELECTORS
from tests.support.events import (
    DELETED,
    LITERAL,
    WILD,
    Event,
    add,
    attributes,
    created,
    deleted,
    leave,
    quota,
    replace,
    request,
    superseded,
    told,
    wildcard,
)
from tests.support.story import (
    Story,
    added,
    degrouped,
    deselected,
    regrouped,
    removed,
    selected,
    subscribed,
    unsubscribed,
)

REPLACED = Ignored.SELECTOR_REPLACED
GONE = superseded(1_000, "q")


@pytest.mark.rule("recreated-topic")
def test_a_second_creation_of_an_existing_topic_has_no_tags() -> None:
    """One after a deletion has, also within the micro-batch. The deletion is the cause, in any cut."""
    story = Story(WILD, replace("*", tag="x"), created("t", tags="x"))
    assert story.then(created("t", tags="y")) == set()
    assert story.then(deleted("t"), created("t", tags="y")) == {removed("t", "*")}
    assert story.only_update.source.offset == 5
    assert story.then(deleted("t"), created("t", tags="x")) == {added("t", "*")}


@pytest.mark.rule("latest-selector")
def test_a_selector_is_one_of_its_group() -> None:
    """For all of its clients, whichever sent it, and for those of no other group."""
    story = Story(WILD, wildcard(group="h"), replace("*"), replace("*", group="h"), created("t", tags="y"))
    assert story.then(replace("z", client="d", tag="x")) == {deselected("t", "*")}
    assert story.only_update.source == Source("subscriptions", 0, 6, 0, 1_006)
    assert story.then(created("u", tags="x"), created("v", tags="y")) == {
        added("u", "*"),
        added("u", "*"),
        added("v", "*"),
    }
    assert {(update.subscriber.group, update.lite_topic) for update in story.expansion.updates} == {
        ("g", "u"), ("h", "u"), ("h", "v"),
    }  # fmt: skip


# How it comes, and how it stays.


@pytest.mark.rule("latest-selector", "causes-of-policies")
def test_a_later_selector_replaces_the_former_over_existing_topics() -> None:
    """Which is counted; the same one once more is not, and neither resets offsets."""
    story = Story(
        wildcard(reset_unsubscribed="true"), created("a", tags="x"), created("b", tags="y"), replace("*", tag="x")
    )
    assert story.ignored == {}
    assert story.then(add("z", client="d", tag="y")) == {deselected("a", "*"), selected("b", "*")}
    assert {update.reset for update in story.expansion.updates} == {False}
    assert story.ignored == {REPLACED: 1}
    assert story.then(replace("*", tag="y")) == set()
    assert story.ignored == {Ignored.UNCHANGED: 1}
    assert story.then(add("z", client="d", tag="x"), add("z", client="d", tag="y")) == set()
    assert story.ignored[REPLACED] == 2


@pytest.mark.rule("revoked-selector")
def test_the_selector_of_a_request_that_proves_stale_is_revoked() -> None:
    """Its client had left everywhere before, with a higher version; the shard learns of it later."""
    story = Story(WILD, replace("*"), created("t", tags="y"))
    late = add("z", client="d", tag="x", version=2)
    assert story.then(late) == {deselected("t", "*")}
    assert story.then(told(3, (4, late), client="d", version=3)) == {selected("t", "*")}
    assert story.state.selectors == {"g": NO_SELECTORS}


@pytest.mark.rule("restored-selector")
def test_the_selector_of_a_stale_request_counts_if_its_version_was_forgotten() -> None:
    story = Story(WILD, replace("*"), created("t", tags="y"), leave(client="d", version=3))
    late = add("z", client="d", tag="x", version=2)
    assert story.then(late) == set()
    end = told(4, (5, late), client="d")
    forgets = {mode: {**each, "forgets": True} for mode, each in end["ends"].items()}
    assert story.then({**end, "ends": forgets}) == {deselected("t", "*")}


@pytest.mark.parametrize("version", [None, 7])
def test_the_selector_of_a_request_after_the_stale_request_stays(version: int | None) -> None:
    """Also if it sets the same selector as the stale one."""
    for tags, received in (("x", set()), ("y", {"t"})):
        story = Story(WILD, replace("*"), created("t", tags="y"))
        late = add("z", client="d", tag="x", version=2)
        story.then(late, add("z", client="e", tag=tags, version=version))
        assert story.then(told(3, (4, late), client="d", version=3)) == set()
        assert set(story.held()) == received


@pytest.mark.rule("lasting-selector")
def test_each_mode_has_its_own_selector() -> None:
    """A request that was refused as patterns has set that of the names only. Both outlive the group's attributes."""
    story = Story(WILD, replace("*", "t", tag="x"), created("t", tags="x"), created("u", tags="y"))
    story.then(add("a*", tag="y"))
    assert story.held() == ["t"]
    for without in (LITERAL, DELETED):
        assert story.then(without) == {degrouped("t", "*", "t")}
        assert story.then(WILD) == {regrouped("t", "*", "t")}


def test_a_topic_and_a_selector_that_come_together() -> None:
    story = Story(WILD, replace("*"), created("old", tags="y"))
    assert story.then(add("z", tag="x"), created("a", tags="x"), created("b", tags="y"), deleted("old")) == {
        added("a", "*"), removed("old", "*"),
    }  # fmt: skip


def test_a_request_that_brings_a_selector_and_another_set_is_the_cause_of_both() -> None:
    """The selector of what the client asked for before and after, its set of the rest."""
    topics = [created("a", tags="x"), created("b", tags="y"), created("c", tags="y"), created("e", tags="x")]
    story = Story(wildcard(reset_unsubscribed="true"), *topics, replace("b", "c"))
    assert story.then(replace("a", "b", tag="x")) == {
        subscribed("a", "a"), deselected("b", "b"), unsubscribed("c", "c"),
    }  # fmt: skip
    resets = {update.lite_topic: update.reset for update in story.expansion.updates}
    assert resets == {"a": False, "b": False, "c": True}
    assert story.then(replace("a", "b", "e", tag="y || x")) == {selected("b", "b"), subscribed("e", "e")}


@pytest.mark.rule("causes-of-policies")
def test_a_group_event_that_changes_nothing_is_not_the_cause() -> None:
    """Nor is one that changes the quota."""
    story = Story(WILD, replace("*"), created("t", tags="y"))
    assert story.then(WILD, add("z", client="d", tag="x")) == {deselected("t", "*")}
    assert story.only_update.source.topic == "subscriptions"
    assert story.then(quota(7), add("z", client="d", tag="y")) == {selected("t", "*")}
    assert story.then(attributes(), add("z", client="d", tag="x")) == {degrouped("t", "*")}


def test_the_first_shard_of_a_parent_counts_a_replaced_selector() -> None:
    for number in range(2):
        story = Story(WILD, replace("*", tag="x"), shard=Shard("p", number))
        story.then(replace("*", tag="y"))
        assert story.ignored.get(REPLACED, 0) == (number == 0)


def longer(than: str) -> Event:
    """A request with a selector of an installed package."""
    return replace("*", selector={"type": "MIN_LENGTH", "expression": than})


@pytest.mark.rule("failing-selector")
@pytest.mark.usefixtures("min_length")
def test_a_kind_of_ones_own_decides_by_topic_and_by_request() -> None:
    """One that raises rejects the topic: foreign code must not stop the shard. It may refuse a request."""
    story = Story(
        WILD, created("a", properties={"name": "xxx"}), created("b", properties={"name": "x"}), created("fails")
    )
    assert story.then(longer("3")) == {subscribed("a", "*")}
    assert story.then(
        created("c", properties={"name": "yyy"}), created("d", properties={"name": "y"}), created("fails too")
    ) == {added("c", "*")}
    policy._COMPILED.clear()
    with pytest.raises(Rejected, match=r"invalid literal for int.*'three'") as refused:
        request(longer("three"))
    assert refused.value.reason == Reason.INVALID_SELECTOR


LARGE = " or ".join(["size = 1"] * sql92.MAX_NODES)


@pytest.mark.rule("sql-nodes")
def test_a_large_selector_that_an_earlier_release_stored_decides_as_before() -> None:
    """A state, and the requests that the coordinator repeats, may hold a selector beyond the bound of this release."""
    selector = {"type": "SQL92", "expression": LARGE}
    with pytest.raises(Rejected, match="more than 512") as refused:
        request(replace("*", selector=selector))
    assert refused.value.reason == Reason.INVALID_SELECTOR
    story = Story(WILD, request(replace("*"))._replace(selector=SelectorSpec("SQL92", LARGE)))
    assert story.then(created("a", properties={"size": "1"}), created("b", properties={"size": "2"})) == {
        added("a", "*")
    }
    place = [3, 2, 1_002, 0]
    later = {"action": "COMPLETE_ADD", "liteTopicSet": ["*"], "selector": selector, "place": place}
    end = request(leave(asOf=place, later=[later]))
    assert [request.selector for _, request in end.later] == [SelectorSpec("SQL92", LARGE)]


# Bitmaps: the groups whose SQL92 selectors agree with a topic.


def bits(*groups: str) -> bytes:
    found = BloomFilter().bitmap()
    for group in groups:
        found.add(f"{group}#p")
    return bytes(found)


def bitmaps(story: Story) -> dict[str, bytes | None]:
    """Return the bitmaps of the last micro-batch by topic."""
    return {update.lite_topic: update.bitmap for update in story.expansion.updates}


@pytest.mark.rule("bitmap")
def test_a_bitmap_has_the_groups_whose_selectors_agree() -> None:
    """Also on the ADDs of groups that have none, and if no group agrees. Without SQL92, and on a REMOVE, is none."""
    story = Story(
        WILD,
        wildcard(group="h"),
        wildcard(group="i"),
        wildcard(group="j"),
        replace("*", tag="*"),
        replace("*", group="i"),
    )
    story.then(created("t", tags="x"))
    assert bitmaps(story) == {"t": None}
    story.then(
        *(replace("*", sql="size > 1"), replace("*", group="h", sql="size > 2")),
        *(
            replace("*", group="j", tag="x"),
            created("a", tags="x", properties={"size": "3"}),
            created("b", tags="x", properties={"size": "2"}),
            created("c"),
        ),
    )
    assert {topic: bitmap for topic, bitmap in bitmaps(story).items() if topic != "t"} == {
        "a": bits("g", "h"), "b": bits("g"), "c": bits(),
    }  # fmt: skip
    assert len([update for update in story.expansion.updates if update.lite_topic != "t"]) == 4 + 3 + 1
    story.then(deleted("a"))
    assert {(update.op, update.bitmap) for update in story.expansion.updates} == {(Op.REMOVE, None)}


def test_the_selectors_after_the_batch_and_of_the_mode_in_force_make_the_bitmap() -> None:
    story = Story(WILD, replace("*", sql="size > 2"), replace("*", group="h"))
    story.then(
        replace("*", sql="size > 3"),
        wildcard(group="h"),
        created("a", properties={"size": "3"}),
        replace("*", group="i", sql="size=3"),
    )
    assert bitmaps(story) == {"a": bits("i")}
    story.then(add("z", tag="*"), add("z", group="i", tag="*"), add("a*", "b*", sql="size = 3"))
    assert bitmaps(story) == {"a": None}
    story.then(LITERAL, created("b", properties={"size": "3"}))
    assert bitmaps(story)["b"] == bits("g")


@pytest.mark.rule("bitmap-without-attributes", "bitmap")
def test_a_group_without_attributes_is_in_bitmaps_as_long_as_it_has_a_client() -> None:
    """It may be bound to another parent by then, which this one is not told. A group bound elsewhere is in none."""
    story = Story(WILD, replace("*"), replace("a", group="h", sql="size = 3"))
    story.then(created("b", properties={"size": "3"}))
    assert bitmaps(story) == {"b": bits("h")}
    story.then(leave(group="h", version=1), created("c", properties={"size": "3"}))
    assert bitmaps(story) == {"c": None}
    story.then(wildcard(group="h"), created("d", properties={"size": "3"}))
    assert bitmaps(story) == {"d": bits("h")}
    story = Story(WILD, replace("*", sql="size = 3"), replace("a", "b", group="h"), GONE)
    story.then(created("a", properties={"size": "3"}))
    assert bitmaps(story) == {"a": None}
    story.offset = 2_000
    story.then(WILD, created("b", properties={"size": "3"}))
    assert bitmaps(story) == {"a": bits("g"), "b": bits("g")}
