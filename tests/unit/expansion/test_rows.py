"""Rows of a client: entries of several dialects, policies and deliveries."""

import pytest

from streaming.records.model import LITE, Notation, Reason
from streaming.records.routing import Routing
from streaming.state import Shard
from tests.support.events import LITERAL, MQTT, NATS, WAMP, WILD, Event, add, created, deleted, drop, leave, replace
from tests.support.story import Said, Story, added, degrouped, regrouped, removed, subscribed, unsubscribed

EXACT, PREFIX, WILDCARD = (WAMP._replace(policy=policy) for policy in ("exact", "prefix", "wildcard"))
APART = Notation("lite", None, per_subscription=True)


@pytest.mark.rule("wamp-star")
def test_a_pattern_is_validated_under_its_policy() -> None:
    """An empty component stands for one under the policy `wildcard`, and is nothing elsewhere."""
    for notation, refused in [(WILDCARD, 0), (EXACT, 1), (PREFIX, 1)]:
        story = Story(WILD)
        story.then(replace("a..b", notation=notation))
        assert len(story.problems) == refused


@pytest.mark.rule("inner-multi")
def test_an_inner_multi_segment_wildcard_is_one_of_dialect_lite_only() -> None:
    """The other dialects read the text as always, even if it is allowed."""
    story = Story(WILD, replace("**", dialect="nats"), shard=Shard("p", inner_multi=True))
    assert story.then(created("a"), created("**")) == {added("**", "**")}
    assert story.then(add("a__**__b")) == set()
    assert story.then(created("a__x__y__b")) == {added("a__x__y__b", "a__**__b")}


# Several dialects in one client are one row, unless it asks for rows of their own.


@pytest.mark.rule("row-per-client")
def test_dialects_of_one_client_add_up_to_one_row() -> None:
    story = Story(WILD, replace("a/b"), add("+/b", "$s/#", dialect="mqtt"), add("a/*", "*", dialect="nats"))
    assert story.then(created("a/b")) == {added("a/b", "*", "+/b", "a/b")}
    assert story.then(drop("a/b"), drop("*", dialect="nats")) == set()
    assert story.then(drop("+/b", dialect="mqtt")) == {unsubscribed("a/b", "+/b")}


# Rows of their own: per subscription, and shared.


@pytest.mark.rule("row-per-subscription")
def test_each_wamp_subscription_is_a_row() -> None:
    """With its dialect, policy and text as its part."""
    story = Story(WILD, replace("com.app", notation=PREFIX), add("com.*", "com.app.x", dialect="wamp"))
    assert story.then(created("com.app.x")) == {
        added("com.app.x", "com.app", part="wamp:prefix:com.app"),
        added("com.app.x", "com.*", part="wamp::com.*"),
        added("com.app.x", "com.app.x", part="wamp::com.app.x"),
    }
    assert story.then(drop("com.*", dialect="wamp")) == {
        unsubscribed("com.app.x", "com.*", part="wamp::com.*"),
    }  # fmt: skip
    assert story.then(leave()) == {
        unsubscribed("com.app.x", "com.app", part="wamp:prefix:com.app"),
        unsubscribed("com.app.x", "com.app.x", part="wamp::com.app.x"),
    }


@pytest.mark.rule("row-per-client")
def test_deliveries_mix_in_one_client() -> None:
    """Entries delivered together share one row, next to the rows of the others."""
    story = Story(WILD, replace("a", "*"), add("a", "**", notation=APART))
    assert story.then(created("a")) == {
        added("a", "*", "a"), added("a", "a", part="lite::a"), added("a", "**", part="lite::**"),
    }  # fmt: skip
    assert story.then(drop("a", "*")) == {unsubscribed("a", "*", "a")}


@pytest.mark.rule("row-per-subscription", "row-of-everything")
@pytest.mark.parametrize(
    ("former", "event", "said"),
    [
        # Another delivery or policy of the same entry is another row.
        (replace("a"), replace("a", notation=APART), {unsubscribed("a", "a"), subscribed("a", "a", part="lite::a")}),
        (replace("a", notation=EXACT), add("a", notation=PREFIX), {subscribed("a", "a", part="wamp:prefix:a")}),
        (
            add("a", notation=PREFIX),
            replace("a", notation=EXACT),
            {unsubscribed("a", "a", part="wamp:prefix:a"), subscribed("a", "a", part="wamp:exact:a")},
        ),
        # Rows of their own give way to every topic.
        (replace("a", notation=APART), replace(), {unsubscribed("a", "a", part="lite::a"), subscribed("a")}),
        (replace(), replace("$share/s/a", dialect="mqtt"), {unsubscribed("a"), subscribed("a", "a", part="share:s/a")}),
        # As names, entries are delivered together.
        (replace("a", dialect="wamp"), LITERAL, {degrouped("a", "a", part="wamp::a"), regrouped("a", "a")}),
    ],
)
def test_a_change_of_delivery_changes_the_rows(former: Event, event: Event, said: set[Said]) -> None:
    assert Story(WILD, former, created("a")).then(event) == said


@pytest.mark.rule("shares")
def test_a_shared_subscription_is_a_row_of_its_share() -> None:
    """It matches with its filter, which is what the update names; another filter of the same name is another share."""
    story = Story(WILD, replace("$share/s/a/+", "$share/s/#", "$share/t/a/b", "a/b", dialect="mqtt"))
    assert story.then(created("a/b")) == {
        added("a/b", "a/+", part="share:s/a/+"), added("a/b", "#", part="share:s/#"),
        added("a/b", "a/b", part="share:t/a/b"), added("a/b", "a/b"),
    }  # fmt: skip
    assert story.then(drop("$share/s/#", dialect="mqtt")) == {unsubscribed("a/b", "#", part="share:s/#")}
    assert story.then(add("$share/s/a/b", dialect="mqtt")) == {subscribed("a/b", "a/b", part="share:s/a/b")}
    assert story.then(deleted("a/b")) == {
        removed("a/b", "a/+", part="share:s/a/+"), removed("a/b", "a/b", part="share:s/a/b"),
        removed("a/b", "a/b", part="share:t/a/b"), removed("a/b", "a/b"),
    }  # fmt: skip


@pytest.mark.rule("shares")
def test_clients_of_one_share_name_with_two_filters_are_in_two_shares() -> None:
    """Both shares get each message of the topic (MQTT 5.0 section 4.8.2), so their keys differ.

    Each member of a share has a row, because the broker decides which of them gets a message.
    """
    entries = {"c": "$share/s/t", "d": "$share/s/+", "e": "$share/s/+"}
    story = Story(WILD, *(replace(entry, dialect="mqtt", client=client) for client, entry in entries.items()))
    assert story.then(created("t")) == {
        added("t", "t", part="share:s/t"), *(added("t", "+", part="share:s/+", client=client) for client in "de"),
    }  # fmt: skip


@pytest.mark.rule("shares")
def test_a_share_is_one_row_whatever_the_delivery() -> None:
    """Two entries that differ in delivery only are two, though: the row stands as long as one of them does."""
    apart = MQTT._replace(per_subscription=True)
    story = Story(WILD, replace("$share/s/+", "+", notation=apart))
    assert story.then(created("a")) == {added("a", "+", part="share:s/+"), added("a", "+", part="mqtt::+")}
    assert story.then(add("$share/s/+", dialect="mqtt")) == set()
    assert story.then(drop("$share/s/+", notation=apart)) == set()
    assert story.then(created("b")) == {added("b", "+", part="share:s/+"), added("b", "+", part="mqtt::+")}
    assert story.then(drop("$share/s/+", dialect="mqtt")) == {
        unsubscribed(topic, "+", part="share:s/+") for topic in "ab"
    }  # fmt: skip


@pytest.mark.rule("shares", "mqtt-hidden")
def test_a_shared_filter_is_judged_as_a_filter() -> None:
    """Also where the topics begin with `$`, which its wildcards do not match."""
    story = Story(WILD)
    story.then(replace("$share/s/a/#/b", "$share/s/#", dialect="mqtt"))
    assert [problem.reason for problem in story.problems] == [Reason.INVALID_PATTERN]
    assert story.then(created("$s/a"), created("a")) == {added("a", "#", part="share:s/#")}


def test_a_shared_literal_lives_on_the_shard_of_its_filter() -> None:
    """Patterns live on all of them."""
    routing = Routing({"p": 5})
    kept: dict[str, list[int]] = {"$share/s/a": [], "$share/s/a/+": []}
    for number in range(5):
        story = Story(WILD, replace(*kept, dialect="mqtt"), shard=Shard("p", number, routing))
        for _, entry in story.interest().entries:
            kept[entry].append(number)
    assert kept == {"$share/s/a": [routing.shard_of("p", "a")], "$share/s/a/+": [0, 1, 2, 3, 4]}


@pytest.mark.parametrize("notation", [LITE, NATS, EXACT])
def test_only_in_mqtt_is_a_share_a_share(notation: Notation) -> None:
    story = Story(WILD, replace("$share/s/a", notation=notation._replace(per_subscription=False)))
    assert story.then(created("a"), created("$share/s/a")) == {added("$share/s/a", "$share/s/a")}
