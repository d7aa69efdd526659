"""Scenario of the demo, in scenes: orders of regions and tenants, and sensors of plants.

`SCENES` contains the events, and `relation` returns the expected result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from streaming import oracle
from streaming.records.model import BIND_TOPIC, WILDCARD, Action, Reason, Stream, lmq_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.oracle import Effective

ORDERS = "orders"
SENSORS = "sensors"


@dataclass(frozen=True, slots=True)
class Step:
    """An input record of the scenario, with its description.

    Attributes:
        rejected: reason of the expected dead letter; None if the record is valid.
    """

    stream: Stream
    key: str
    value: bytes
    says: str
    rejected: Reason | None = None

    @property
    def entries(self) -> list[bytes]:
        """Entries for the oracle: the record, or the elements of a subscription record."""
        if self.stream is not Stream.SUBSCRIPTIONS:
            return [self.value]
        return [orjson.dumps(entry) for entry in orjson.loads(self.value)["subscriptionSet"]]


@dataclass(frozen=True, slots=True)
class Scene:
    """Steps under a common title."""

    title: str
    steps: tuple[Step, ...]


def relation(steps: Sequence[Step]) -> set[Effective]:
    """Return the relation after these steps according to the oracle."""
    entries = {
        stream: [entry for step in steps if step.stream is stream for entry in step.entries] for stream in Stream
    }
    return oracle.replay(entries[Stream.TOPICS], entries[Stream.SUBSCRIPTIONS], entries[Stream.GROUPS])


def _topic(event: str, parent: str, topic: str, says: str) -> Step:
    value = {"event": event, "parentTopic": parent, "liteTopic": topic}
    return Step(Stream.TOPICS, parent, orjson.dumps(value), f"{says} topic {parent}/{topic}")


def appears(parent: str, topic: str) -> Step:
    """Return the creation of a topic."""
    return _topic("CREATED", parent, topic, "create")


def appears_by_lmq_name(parent: str, topic: str) -> Step:
    """Return the creation of a topic that is reported by the name of its queue in the broker."""
    name = lmq_name(parent, topic)
    value = orjson.dumps({"event": "CREATED", "lmqName": name})
    return Step(Stream.TOPICS, parent, value, f"create topic {parent}/{topic}, reported as {name}")


def vanishes(parent: str, topic: str) -> Step:
    """Return the deletion of a topic."""
    return _topic("DELETED", parent, topic, "delete")


def _group(group: str, attributes: dict[str, str], says: str) -> Step:
    return Step(Stream.GROUPS, group, orjson.dumps({"group": group, "attributes": attributes}), says)


def wildcard_group(group: str, parent: str) -> Step:
    """Return the declaration of a wildcard group, whose entries are patterns."""
    attributes = {BIND_TOPIC: parent, WILDCARD: "true"}
    return _group(group, attributes, f"declare {group} on {parent} as a wildcard group")


def request(
    action: Action,
    client: str,
    group: str,
    parent: str,
    entries: Sequence[str],
    *,
    says: str,
    version: int | None = None,
    rejected: Reason | None = None,
) -> Step:
    """Return a subscription request of a client, in the format of the broker's request body."""
    entry: dict[str, Any] = {
        "action": action,
        "clientId": client,
        "group": group,
        "topic": parent,
        "liteTopicSet": entries,
    }
    if version is not None:
        entry["version"] = version
    body = {"subscriptionSet": [entry]}
    return Step(Stream.SUBSCRIPTIONS, group, orjson.dumps(body), says, rejected)


def subscribes(client: str, group: str, parent: str, *entries: str, version: int | None = None) -> Step:
    """Return a request with the complete set of a client. An empty set matches everything."""
    wanted = ", ".join(entries) or f"everything under {parent}"
    says = f"{client} ({group}) subscribes to {wanted}"
    return request(Action.COMPLETE_ADD, client, group, parent, entries, says=says, version=version)


def adds(client: str, group: str, parent: str, entry: str) -> Step:
    """Return a request that adds an entry to a client's set."""
    return request(Action.PARTIAL_ADD, client, group, parent, [entry], says=f"{client} ({group}) adds {entry}")


def leaves(client: str, group: str, parent: str) -> Step:
    """Return the end of a client's subscription."""
    return request(Action.COMPLETE_REMOVE, client, group, parent, [], says=f"{client} ({group}) unsubscribes")


SCENES = (
    Scene(
        "Groups, clients and topics, sent while Spark starts: the job reads them later",
        (
            wildcard_group("billing", ORDERS),
            subscribes("acme-billing", "billing", ORDERS, "*__acme__**"),
            wildcard_group("dashboards", ORDERS),
            subscribes("eu-dashboard", "dashboards", ORDERS, "eu__**", version=1),
            subscribes("sales-dashboard", "dashboards", ORDERS, "*__*__order__*", "eu__**"),
            wildcard_group("audit", ORDERS),
            subscribes("auditor", "audit", ORDERS),
            _group("warehouse", {BIND_TOPIC: ORDERS}, f"declare warehouse on {ORDERS} as a literal group"),
            subscribes("eu-warehouse", "warehouse", ORDERS, "eu__acme__order__created", "eu__acme__order__shipped"),
            wildcard_group("monitoring", SENSORS),
            subscribes("plant1-monitor", "monitoring", SENSORS, "plant1__**"),
            subscribes("temp-monitor", "monitoring", SENSORS, "*__*__temp"),
            appears(ORDERS, "eu__acme__order__created"),
            appears(ORDERS, "us__acme__order__created"),
            appears(ORDERS, "eu__globex__order__created"),
            appears(SENSORS, "plant1__line1__temp"),
        ),
    ),
    Scene(
        "New topics: each is matched with the patterns in state (lazy)",
        (
            appears(ORDERS, "eu__acme__order__shipped"),
            appears(ORDERS, "us__globex__invoice__issued"),
            appears(SENSORS, "plant1__line2__vibration"),
            appears_by_lmq_name(SENSORS, "plant2__line1__temp"),
        ),
    ),
    Scene(
        "Changed subscriptions: their patterns are matched with the existing topics (eager)",
        (
            subscribes("globex-billing", "billing", ORDERS, "*__globex__**"),
            subscribes("eu-dashboard", "dashboards", ORDERS, "eu__acme__**", "us__acme__**", version=3),
            request(
                Action.COMPLETE_ADD,
                "eu-dashboard",
                "dashboards",
                ORDERS,
                ["eu__**"],
                says="eu-dashboard (dashboards) sends version 2 after version 3, which changes nothing",
                version=2,
            ),
            request(
                Action.PARTIAL_REMOVE,
                "sales-dashboard",
                "dashboards",
                ORDERS,
                ["eu__**"],
                says="sales-dashboard (dashboards) drops eu__**, but its other pattern matches the same topics",
            ),
            adds("plant1-monitor", "monitoring", SENSORS, "plant2__*__temp"),
            adds("eu-warehouse", "warehouse", ORDERS, "eu__globex__order__created"),
        ),
    ),
    Scene(
        "A group is declared as a wildcard group after its client subscribed",
        (
            subscribes("courier-app", "couriers", ORDERS, "us__acme__order__created", "*__*__order__shipped"),
            wildcard_group("couriers", ORDERS),
            appears(ORDERS, "us__globex__order__shipped"),
        ),
    ),
    Scene(
        "Invalid events become dead letters, and other events are not affected",
        (
            Step(
                Stream.TOPICS,
                ORDERS,
                b'{"event": "CREATED", "parentTopic": "orders", "liteTop',
                "a topic event is truncated",
                Reason.NOT_JSON,
            ),
            request(
                Action.COMPLETE_ADD,
                "eu-dashboard",
                "dashboards",
                ORDERS,
                ["**__order"],
                says="eu-dashboard (dashboards) subscribes to **__order, which is invalid and changes nothing",
                version=4,
                rejected=Reason.INVALID_PATTERN,
            ),
            appears(ORDERS, "eu__acme__invoice__issued"),
        ),
    ),
    Scene(
        "Topics, clients and a group's attributes are deleted",
        (
            vanishes(ORDERS, "us__acme__order__created"),
            leaves("acme-billing", "billing", ORDERS),
            vanishes(SENSORS, "plant1__line2__vibration"),
            _group("couriers", {}, "delete the attributes of group couriers: its entries become topic names"),
            appears(ORDERS, "us__acme__order__created"),
        ),
    ),
)
"""Scenes in order. The first scene is sent before the job is ready."""
