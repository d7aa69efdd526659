"""Scenario of the demo on RocketMQ: tenants that send orders to lite topics, and consumers of patterns."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from streaming import oracle
from streaming.demo.scenario import ORDERS
from streaming.events.model import BIND_TOPIC, WILDCARD, Action


class PatternUser(NamedTuple):
    """A consumer: its name, which is its group as well, and its pattern."""

    name: str
    pattern: str


class LiteScene(NamedTuple):
    """Messages under a common title.

    Attributes:
        topics: lite topics to which one message each is sent.
        deleted: a lite topic that an administrator deletes before.
        is_without_job: the job is killed before, and started again after.
    """

    title: str
    topics: tuple[str, ...]
    deleted: str | None = None
    is_without_job: bool = False


USERS = (
    PatternUser("acme-billing", "*__acme__**"),
    PatternUser("globex-billing", "*__globex__**"),
    PatternUser("eu-warehouse", "eu__*__order__*"),
    PatternUser("auditor", "**"),
)

BEFORE = LiteScene(
    "Tenants send their first orders, before anybody has subscribed",
    ("eu__acme__order__created", "us__globex__invoice__issued"),
)
SCENES = (
    LiteScene(
        "Topics are born while the consumers run",
        ("eu__globex__order__created", "us__acme__order__created", "eu__initech__order__shipped"),
    ),
    LiteScene(
        "Further messages of topics that are there come at RocketMQ's own speed",
        ("eu__acme__order__created", "us__globex__invoice__issued", "eu__globex__order__created"),
    ),
    LiteScene(
        "An administrator deletes a topic; others go on",
        ("eu__acme__order__created",),
        deleted="us__acme__order__created",
    ),
    LiteScene(
        "The job is killed: known topics go on, and a topic that is born meanwhile waits for it",
        ("eu__acme__order__created", "eu__acme__invoice__issued"),
        is_without_job=True,
    ),
    LiteScene(
        "All goes on",
        ("eu__acme__invoice__issued", "us__initech__order__created", "us__globex__invoice__issued"),
    ),
)


def receivers(topics: list[str], deleted: set[str]) -> dict[str, set[str]]:
    """Return the lite topics of each consumer, by the oracle, when these topics were born and some have ended."""
    groups = [_json(group=user.name, attributes={BIND_TOPIC: ORDERS, WILDCARD: "true"}) for user in USERS]
    requests = [
        _json(
            action=Action.COMPLETE_ADD, clientId=user.name, group=user.name, topic=ORDERS, liteTopicSet=[user.pattern]
        )
        for user in USERS
    ]
    events = [_json(event="CREATED", parentTopic=ORDERS, liteTopic=topic) for topic in topics]
    events += [_json(event="DELETED", parentTopic=ORDERS, liteTopic=topic) for topic in deleted]
    relation = oracle.replay(events, requests, groups)
    return {user.name: {row.lite_topic for row in relation if row.client_id == user.name} for user in USERS}


def _json(**fields: object) -> bytes:
    return orjson.dumps(fields)
