"""Entries made to hurt, among good ones: none raises, and what the good ones lead to stays right."""

import json
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming.oracle import Effective
from streaming.records.json_fields import OWN_FIELDS
from streaming.records.model import BIND_TOPIC, MAX_AHEAD_MS, WILDCARD, Reason, Stream
from streaming.records.routing import Routing
from streaming.worker import reading
from streaming.worker.bounds import Bounds
from streaming.worker.signature import Signer
from streaming.worker.worker import Worker
from tests.support.events import created, replace
from tests.support.mutations import NOW, VICTIMS
from tests.support.simulator import Record, Simulation

BOUNDS = Bounds(1_000_000, 16, 100, 16_384, MAX_AHEAD_MS)
SIGNER = Signer(b"secret")


@pytest.fixture(autouse=True, scope="module")
def _now() -> Iterator[None]:
    """The time does not pass, so a repeated run answers the same questions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "time", SimpleNamespace(time=lambda: NOW / 1_000))
        yield


NUMBERS = st.sampled_from(
    [0, -1, 1, 2**31, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, 10**30, 1e300, -0.0, 0.5, NOW, 9.3e18]
)
TEXTS = st.one_of(
    st.text(max_size=8), st.sampled_from(["", " ", "*", "**", "a__*", "+/#", "\x00", "\ud800", "x" * 20_000, "$", "-1"])
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=8,
)
DEPTHS = st.sampled_from([20, 40, 200, 260, 900, 1_100, 5_000])
NESTED = st.builds(lambda levels: b"[" * levels + b"]" * levels, DEPTHS)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to all values in a record."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for name, each in inner for found in places(each, (*path, name)))]


def replaced(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    """Return a record with another value at a path."""
    if not path:
        return other
    name, *rest = path
    changed = list(value) if isinstance(value, list) else dict(value)
    changed[name] = replaced(changed[name], tuple(rest), other) if name in value or isinstance(value, list) else other
    return changed


@st.composite
def anything(draw: st.DrawFn) -> tuple[Stream, bytes]:
    """Return a record of any bytes or JSON, or one with a further field."""
    stream, value = draw(st.sampled_from(VICTIMS))
    if draw(st.booleans()):
        return stream, draw(st.binary(max_size=40))
    name = draw(st.one_of(st.sampled_from(sorted(OWN_FIELDS[stream]) or ["x"]), TEXTS))
    return stream, json.dumps(draw(st.one_of(JSON, JSON.map(lambda other: {**value, name: other})))).encode()


@st.composite
def damaged(draw: st.DrawFn) -> tuple[Stream, bytes]:
    """Return a record in which a value is another one, or nests, or stands twice; some are signed."""
    stream, value = draw(st.sampled_from(VICTIMS))
    kind = draw(st.sampled_from(["field", "field", "deep", "twice", "signed"]))
    path = draw(st.sampled_from(places(value)))
    if kind == "deep":
        return stream, json.dumps(replaced(value, path, "HERE")).encode().replace(b'"HERE"', draw(NESTED))
    data = json.dumps(replaced(value, path, draw(JSON))).encode()
    if kind == "twice":
        return stream, data[:-1] + b"," + data[1:]
    if kind == "signed":
        return stream, draw(st.sampled_from([SIGNER, Signer(b"another")])).sign(data)
    return stream, data


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    st.lists(st.one_of(anything(), damaged(), damaged()), min_size=1, max_size=25),
    st.integers(1, 4),
    st.sampled_from([{}, {"victim": 2}, {"whole": 3}]),
)
def test_hostile_entries_harm_nothing_else(
    entries: list[tuple[Stream, bytes]], batches: int, shards: dict[str, int]
) -> None:
    """No exception, and no entry that is left out because of one; a repeated run gives the same bytes."""
    job = Simulation(Routing(shards, 1), now=NOW)
    config = job.config
    job.worker = Worker(
        type(config)(config.topics, config.routing, archives=config.archives, bounds=BOUNDS, signer=SIGNER)
    )
    bound = {"group": "sound", "attributes": {BIND_TOPIC: "whole", WILDCARD: "true", "lite.sub.client.quota": "-1"}}
    job.run([Record(Stream.GROUPS, json.dumps(bound).encode(), 2, 0, NOW)])
    wanted: set[Effective] = set()
    offset = 0
    for number in range(batches):
        good = [
            (Stream.SUBSCRIPTIONS, replace("*", client=f"c{number}", group="sound", parent="whole")),
            (Stream.TOPICS, created(f"t{number}", parent="whole")),
        ]
        records = [
            Record(stream, data, 0, offset + at, NOW) for at, (stream, data) in enumerate(entries[number::batches])
        ]
        records += [Record(stream, json.dumps(each).encode(), 2, offset + 1, NOW) for stream, each in good]
        offset += 1_000
        job.run(records, crash=True)
        wanted |= {
            Effective("whole", "sound", f"c{a}", f"t{b}", "") for a in range(number + 1) for b in range(number + 1)
        }
        assert {row for row in job.relation if row.parent == "whole"} == wanted
    reasons = Counter(letter["reason"] for letter in job.dead_letters)
    assert reasons[Reason.NOT_APPLICABLE] == 0, [letter["message"] for letter in job.dead_letters]
