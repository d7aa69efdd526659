"""The placement of records in Python: any bytes have a place, and a request keeps its own text."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.coordinator import COORDINATOR, UNROUTABLE
from streaming.operations.advise.inventory import Inventory
from streaming.records.model import BIND_TOPIC, Place, Stream
from streaming.records.routing import Placed, Routing, placed, requests_of
from tests.support.events import encoded, replace

ROUTING = Routing({"p": 3}, 1)
DEEP = b"[" * 300 + b"]" * 300

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=5) | st.just("p"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
"""JSON, and numbers beyond it."""

FIELDS = (
    "subscriptionSet", "topic", "group", "clientId", "action", "parentTopic", "liteTopic", "lmqName", "attributes",
    "tick", "alarm", "wake", "shard", BIND_TOPIC,
)  # fmt: skip
records = st.dictionaries(
    st.sampled_from(FIELDS), json_values | st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=4)
)


@given(stream=st.sampled_from(Stream), record=records)
def test_any_json_has_a_place(stream: Stream, record: Any) -> None:
    assert placed(stream, json.dumps(record).encode(), ROUTING)


@given(stream=st.sampled_from(Stream), value=st.none() | st.binary(max_size=30))
def test_any_bytes_have_a_place(stream: Stream, value: bytes | None) -> None:
    assert placed(stream, value, ROUTING)


@given(requests=st.lists(json_values.filter(lambda value: value == value), min_size=1, max_size=5), data=st.data())  # noqa: PLR0124 - NaN
def test_requests_are_the_elements_of_the_set(requests: list[Any], data: st.DataObject) -> None:
    """Whatever stands between them and around them."""
    indent = data.draw(st.sampled_from([None, 0, 2]))
    record = {"before": ["x", {"subscriptionSet": 1}], "subscriptionSet": requests, 'a"fter,[{': "}]"}
    found = requests_of(json.dumps(record, indent=indent).encode())
    assert [json.dumps(json.loads(each)) for each in found] == [json.dumps(each) for each in requests]


def test_a_request_keeps_its_bytes() -> None:
    """The job sees a repeated field, and an entry that nests deeper than Python writes."""
    texts = [b'{"topic": "a", "topic":"b"}', b'{"topic":"a","x":%b}' % DEEP, b"1e2"]
    assert requests_of(b'{"subscriptionSet" : [ %b ]}' % b" ,\n".join(texts)) == texts


def test_a_set_in_a_record_with_a_repeated_field_is_no_set() -> None:
    value = b'{"subscriptionSet":[%b],"x":1,"x":2}' % encoded(replace("t", parent="p"))
    assert placed(Stream.SUBSCRIPTIONS, value, ROUTING) == [Placed(COORDINATOR, UNROUTABLE, 0, value)]


@pytest.mark.parametrize(
    "value", [b'{"tick":true}', b'{"tick":1e30}', b'{"wake":1,"parentTopic":"p","shard":3000000000}']
)
def test_a_time_that_the_jvm_does_not_read_is_not_placed(value: bytes) -> None:
    assert placed(Stream.CLOCK, value, ROUTING) == [Placed(COORDINATOR, UNROUTABLE, 0, value)]


def test_advice_leaves_out_what_the_job_does() -> None:
    """An entry of the set that nests too deep or repeats a field is left out. The others count."""
    deep = encoded(replace("t", client="deep", parent="p"))[:-1] + b',"x":%b}' % DEEP
    twice = encoded(replace("t", client="twice", parent="p"))[:-1] + b',"clientId":"c"}'
    inventory = Inventory()
    inventory.feed(
        Stream.SUBSCRIPTIONS,
        [
            (
                Place(0, 0, 1),
                b'{"subscriptionSet":[%b,%b,%b]}' % (deep, twice, encoded(replace("t", client="c", parent="p"))),
            ),
            (
                Place(0, 1, 2),
                b'{"subscriptionSet":[%b],"x":1,"x":2}' % encoded(replace("t", client="other", parent="p")),
            ),
        ],
    )
    (holding,) = inventory.holdings(0).values()
    assert sorted(key.client_id for key in holding.subscriptions.clients) == ["c"]
    assert inventory.refused == 3
