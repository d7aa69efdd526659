"""Records of a hostile tenant: each kind once ended the job, or delayed all others."""

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

from streaming.records.model import BIND_TOPIC, QUOTA, WILDCARD, Stream
from tests.support.events import created, encoded, replace
from tests.support.mutations import mutate, mutated

PARENT: Final = "evil"
"""Parent topic of all valid hostile records."""

GROUP: Final = "evil-group"
LARGEST_BYTES: Final = 985_000
"""Size of the large values, which a producer with Kafka's defaults can send."""

SIGNATURE: Final = ',"sign":"' + "0" * 32 + '"}'
"""End of a value that resembles a signed record of the job."""

_PAST_MS: Final = 1_000_000_000_000
"""Timestamp of topics that have already expired when they are created."""

_MUTABLE_BYTES: Final = 50_000
"""Size up to which a hostile record is also sent with random mutations."""

Sent = tuple[Stream, bytes]
"""Input stream and value of a record."""


def nested(depth: int) -> str:
    """Return JSON arrays nested `depth` times."""
    return "[" * depth + "]" * depth


def _request(**changes: Any) -> dict[str, Any]:
    return replace("t", **{"topic": PARENT, "group": GROUP, "clientId": "hostile", **changes})


def _subscription(**changes: Any) -> Sent:
    return Stream.SUBSCRIPTIONS, json.dumps(_request(**changes)).encode()


def _topic(name: str, **changes: Any) -> Sent:
    return Stream.TOPICS, encoded(created(name, parent=PARENT, **changes))


def _with_raw(field: str, text: str, **changes: Any) -> Sent:
    """Return a request with an additional field of raw JSON text."""
    body = json.dumps(_request(**changes))
    return Stream.SUBSCRIPTIONS, f'{body[:-1]}, "{field}": {text}}}'.encode()


def deep_fields(depth: int = 300) -> Iterator[Sent]:
    """Yield requests with a deeply nested value in a field that an error message quotes."""
    for field in ("dialect", "policy", "delivery", "selector", "offsetOption", "action"):
        yield _with_raw(field, nested(depth), **{field: ...} if field == "action" else {})


def deep_later() -> Iterator[Sent]:
    """Yield requests with the reserved field `later`, nested so deep that parsing recurses."""
    for depth in (330, 480, 5_000):
        later = '{"place": [0, 0, 0], "action": "PARTIAL_ADD", "liteTopicSet": [], "later": [' * depth + "]}" * depth
        yield _with_raw("later", f"[{later}]")


def topics(count: int = 2_000) -> Iterator[Sent]:
    """Yield topics for the evaluation of selectors and patterns."""
    for each in range(count):
        yield _topic(f"t{each}", properties={"p7": "x"})


def null_set() -> Iterator[Sent]:
    """Yield a set of 1,024 nulls next to a large field."""
    value = {"subscriptionSet": [None] * 1_024, "pad": "x" * LARGEST_BYTES}
    yield Stream.SUBSCRIPTIONS, json.dumps(value).encode()


def looks_signed() -> Iterator[Sent]:
    """Yield a large request that ends like a record of the job, from a client with a pending end."""
    yield _subscription(clientId="signed")
    yield _subscription(clientId="signed", action="COMPLETE_REMOVE", topic=..., liteTopicSet=...)
    body = json.dumps(_request(clientId="signed", pad="x" * LARGEST_BYTES))
    yield Stream.SUBSCRIPTIONS, (body[:-1] + SIGNATURE).encode()


def one_name_each(count: int = 1_000) -> Iterator[Sent]:
    """Yield one record in which a client subscribes to one name after another."""
    requests = [_request(action="PARTIAL_ADD", clientId="many", liteTopicSet=[f"t{each}"]) for each in range(count)]
    yield Stream.SUBSCRIPTIONS, json.dumps({"subscriptionSet": requests}).encode()


def repeated_field(count: int = 40_000) -> Iterator[Sent]:
    """Yield an object of many fields, the last of which is repeated."""
    fields = ", ".join(f'"f{each}": 0' for each in range(count))
    yield _with_raw("filler", f'{{{fields}, "f{count - 1}": 1}}')


def wide_selector() -> Iterator[Sent]:
    """Yield selectors of 32 kB that replace each other."""
    for value in ("x", "y"):
        expression = " OR ".join(f"p{each} = '{value}'" for each in range(2_300))
        yield _subscription(clientId="selective", selector={"type": "SQL92", "expression": expression})


def many_multi(count: int = 1_500) -> Iterator[Sent]:
    """Yield patterns of 30 segments with inner multi-segment wildcards."""
    patterns = [f"{each}__" + "__".join(["**", "a"] * 14) + "__z" for each in range(count)]
    yield _subscription(clientId="multi", liteTopicSet=patterns)


def due_deadlines(count: int = 1_000) -> Iterator[Sent]:
    """Yield topics whose different deadlines have all passed."""
    for each in range(count):
        yield _topic(f"due{each}", timestamp=_PAST_MS + each * 20_000, ttlMs=1_000)


def group_storm(count: int = 200) -> Iterator[Sent]:
    """Yield events that change the attributes of one group again and again."""
    for each in range(count):
        attributes = {BIND_TOPIC: PARENT, QUOTA: str(each)} | ({WILDCARD: "true"} if each % 2 else {})
        yield Stream.GROUPS, json.dumps({"group": GROUP, "attributes": attributes}).encode()


def pending_ends(count: int = 200) -> Iterator[Sent]:
    """Yield a client that repeatedly leaves all of its parents and subscribes again."""
    for each in range(count):
        yield _subscription(clientId="leaver", liteTopicSet=[f"x{each}"])
        yield _subscription(clientId="leaver", action="COMPLETE_REMOVE", topic=..., liteTopicSet=...)


def wrong_types() -> Iterator[Sent]:
    """Yield entries that can break only the routing by raw fields."""
    yield Stream.TOPICS, json.dumps({"event": "CREATED", "parentTopic": PARENT, "liteTopic": 5}).encode()
    yield Stream.TOPICS, f'{{"event": "CREATED", "parentTopic": "{PARENT}", "liteTopic": {nested(300)}}}'.encode()
    yield Stream.GROUPS, f'{{"group": {nested(300)}, "attributes": {{}}}}'.encode()
    yield Stream.SUBSCRIPTIONS, f'{{"subscriptionSet": [{nested(300)}]}}'.encode()


KINDS: Final[tuple[Callable[[], Iterator[Sent]], ...]] = (
    topics, deep_fields, deep_later, null_set, looks_signed, one_name_each, repeated_field,
    wide_selector, many_multi, due_deadlines, group_storm, pending_ends, wrong_types,
)  # fmt: skip
"""All kinds of hostile records."""


def hostile(random: Random, rounds: int = 1) -> Iterator[Sent]:
    """Yield hostile records of all kinds, their mutations, damaged valid records, and random bytes."""
    for _ in range(rounds):
        for kind in random.sample(KINDS, len(KINDS)):
            for stream, value in kind():
                yield stream, value
                if len(value) < _MUTABLE_BYTES and random.random() < 0.2:
                    yield stream, mutate(random, value)
            yield from mutated(random, 20)
            for stream in (Stream.GROUPS, Stream.SUBSCRIPTIONS, Stream.TOPICS):
                yield stream, random.randbytes(random.randrange(2_000))
