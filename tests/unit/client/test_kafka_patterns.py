"""Patterns that a consumer accepts, and arguments that it refuses before it connects."""

from typing import Any

import pytest
from orjson import dumps

from streaming.client.pattern_consumer import PatternConsumer
from streaming.client.requests import KafkaSubscription, check_patterns
from streaming.errors import ConfigInvalid, PatternsRefused
from streaming.records.model import Action, Notation, TopicEvent
from streaming.records.parsing import parse_group_event, parse_subscription
from streaming.state import Shard
from tests.support.story import Story


@pytest.mark.parametrize(
    ("dialect", "policy", "pattern"),
    [
        ("nats", None, "orders.*.created"),
        ("nats", None, "orders.>"),
        ("nats", None, ">"),
        ("lite", None, "eu__**"),
        ("mqtt", None, "#"),
        ("wamp", None, "orders.eu*"),
        ("wamp", "prefix", "orders."),
        ("wamp", "wildcard", "orders..created"),
    ],
)
def test_patterns_that_a_kafka_topic_can_match(dialect: str, policy: str | None, pattern: str) -> None:
    check_patterns([pattern], dialect, policy)


@pytest.mark.parametrize(
    ("dialect", "patterns", "said"),
    [
        ("nats", ["ok", "orders..x"], "'orders..x' is invalid in dialect nats"),
        ("nats", ["orders/eu"], "has the character '/'"),
        ("mqtt", ["orders/+/created"], "Use the dialect nats"),
        ("nats", ["orders-*"], "'orders-\\*' has the character '\\*', .* put it between dots, as in 'orders\\.\\*'"),
        ("nats", ["ok", "orders.**"], "put it between dots"),
        ("nats", ["*-orders.>"], "put it between dots"),
        ("nats", ["orders>"], "put it after a dot"),
        ("lite", ["."], "the name '.', which Kafka gives to no topic"),
        ("lite", [".."], "the name"),
        ("lite", ["x" * 250], "at least 250 characters"),
        ("nats", ["x" * 249 + ".>"], "at least 250 characters"),
        ("mqtt", ["$share"], "without \\$share"),
        *((f"wamp {policy}", ["orders.*"], "leave the policy out") for policy in ("exact", "prefix", "wildcard")),
        ("glob", ["a*"], "use one of lite, mqtt, nats, wamp"),
        ("nats", "orders.>", "must be a list, not the text 'orders.>': write \\['orders.>'\\]"),
        ("nats", [], "patterns is empty; '>' matches every topic"),
    ],
)
def test_patterns_that_are_refused(dialect: str, patterns: Any, said: str) -> None:
    """The part of the dialect after a blank is a policy."""
    with pytest.raises(PatternsRefused, match=said):
        check_patterns(patterns, *dialect.split())


@pytest.mark.rule("every-kafka-topic")
@pytest.mark.parametrize(("dialect", "pattern"), [("nats", ">"), ("lite", "**"), ("mqtt", "#"), ("wamp", "*")])
def test_a_consumer_of_everything_reads_every_name(dialect: str, pattern: str) -> None:
    """It asks for everything, as no pattern of `nats` matches an empty token."""
    subscription = KafkaSubscription("kafka", "g", "c", ("a.b", pattern), dialect)
    story = Story(parse_group_event(dumps(subscription.group_event())), shard=Shard("kafka"))
    story.then(parse_subscription(dumps(subscription.request())))
    names = ["orders..created", ".x", "x.", "__debezium-heartbeat.inventory", "a"]
    events = [TopicEvent("kafka", name, created=True) for name in names]
    assert {said.topic for said in story.then(*events)} == set(names)


def test_the_job_reads_what_is_sent() -> None:
    """A wildcard group without a quota, a set of patterns with one row a topic, and its end."""
    subscription = KafkaSubscription("kafka", "billing", "c1", ("orders.", "x."), "wamp", "prefix", exclusive=True)
    group = parse_group_event(dumps(subscription.group_event()))
    assert (group.group, group.parent) == ("billing", "kafka")
    assert group.attributes == {
        "lite.bind.topic": "kafka",
        "lite.sub.wildcard": "true",
        "lite.sub.model": "Exclusive",
        "lite.sub.client.quota": "-1",
    }
    request = parse_subscription(dumps(subscription.request()))
    assert (request.action, request.client_id, request.entries) == (Action.COMPLETE_ADD, "c1", ("orders.", "x."))
    assert request.notation == Notation("wamp", "prefix", per_subscription=False)
    end = parse_subscription(dumps(subscription.end()))
    assert (end.action, end.parent, end.group) == (Action.COMPLETE_REMOVE, "kafka", "billing")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"group": " "}, "group is blank"),
        ({"client_id": "c" * 1_001}, "client_id is longer than 1,000 characters"),
        (
            {"topics": {"update": "u"}},
            "topics has unknown keys: update; use updates, subscription_events, group_events",
        ),
        ({"options": {"no.such.option": "1"}}, "no.such.option"),
        ({"lease_seconds": 0}, "lease_seconds must be greater than 0"),
    ],
)
def test_arguments_that_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said):
        PatternConsumer("127.0.0.1:1", ["a.*"], **{"group": "g", **arguments})
