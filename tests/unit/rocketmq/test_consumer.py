"""Decisions of the consumer with patterns: lite topics to subscribe to, requests to the job, messages to pass on."""

from __future__ import annotations

import builtins
import threading
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matcher import InvalidPattern
from streaming.client import Change, Op, Row, Subscriber
from streaming.errors import ConfigInvalid, ExtraMissing
from streaming.records.model import Action
from streaming.records.updates import Cause
from streaming.rocketmq.consumer import Handover, WildcardLiteConsumer
from streaming.rocketmq.requests import LiteRequest, OffsetOption, PatternSet, group_event
from streaming.rocketmq.subscriptions import MAX_REQUEST_NAMES, OwnLiteTopics

if TYPE_CHECKING:
    from collections.abc import Mapping

ME = Subscriber("orders", "billing", "me")
NUMBERS = count()


def change(op: Op, name: str, cause: Cause = Cause.SUBSCRIBED, further: bytes = b"") -> Change:
    row = Row(ME, name, ("*",), cause, None, f"event-{next(NUMBERS)}", further)
    return Change(op, row, None, {})


def followed(topics: OwnLiteTopics, *changes: tuple[Op, str] | tuple[Op, str, Cause]) -> OwnLiteTopics:
    for each in changes:
        topics.apply(change(*each))
    return topics


def add(*names: str, option: tuple[str, int] | None = None) -> LiteRequest:
    return LiteRequest(Action.PARTIAL_ADD, names, option)


def remove(*names: str) -> LiteRequest:
    return LiteRequest(Action.PARTIAL_REMOVE, names)


POLICY = b'{"offsetOption":{"type":"POLICY","value":2}}'
NAMES = [f"t{number}" for number in range(2 * MAX_REQUEST_NAMES + 1)]
STORIES: dict[str, list[tuple[list[Change], list[LiteRequest]]]] = {
    "the last changes gather, and a topic that is born again is subscribed to again, as RocketMQ forgets it": [
        ([change(Op.ADD, "a"), change(Op.ADD, "b"), change(Op.ADD, "c"), change(Op.REMOVE, "c")],
         [add("a", "b"), remove("c")]),
        ([change(Op.REMOVE, "a", Cause.TOPIC_DELETED), *(change(Op.ADD, name) for name in "ad"),
          change(Op.REMOVE, "b")],
         [add("a", "d"), remove("b")]),
        ([], []),
    ],
    "additions go by their offset options": [
        ([change(Op.ADD, "a", further=POLICY), change(Op.ADD, "b"), change(Op.ADD, "c", further=POLICY),
          change(Op.ADD, "d", further=POLICY.replace(b"2", b"null"))],
         [add("a", "c", option=("POLICY", 2)), add("b", "d")]),
    ],
    "no request has too many names": [
        ([change(Op.ADD, name) for name in NAMES],
         [add(*NAMES[:MAX_REQUEST_NAMES]), add(*NAMES[MAX_REQUEST_NAMES:-1]), add(NAMES[-1])]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("steps", STORIES.values(), ids=STORIES)
def test_changes_become_requests(steps: list[tuple[list[Change], list[LiteRequest]]]) -> None:
    topics = OwnLiteTopics()
    for changes, requests in steps:
        for each in changes:
            topics.apply(each)
        assert topics.pending.is_set() == bool(changes)
        assert topics.take() == requests


def test_what_could_not_be_sent_is_gathered_again() -> None:
    topics = followed(OwnLiteTopics(), (Op.ADD, "a"), (Op.ADD, "b"))
    failed = topics.take()
    followed(topics, (Op.REMOVE, "a"))
    topics.put_back(failed)
    assert topics.pending.is_set()
    assert topics.take() == [add("b"), remove("a")]


def test_topics_beyond_the_quota_wait_for_room() -> None:
    topics = OwnLiteTopics()
    topics.limit(2, 64)
    followed(topics, *((Op.ADD, name) for name in "abcd"))
    assert topics.take() == [add("a", "b")]
    assert topics.not_received == dict.fromkeys("cd", "beyond the quota of 2 lite topics")
    followed(topics, (Op.REMOVE, "a"))
    assert topics.take() == [add("c"), remove("a")]
    topics.limit(3, 64)
    assert topics.take() == [add("d")]
    assert topics.not_received == {}


def test_a_topic_that_waited_for_room_begins_where_the_client_asked() -> None:
    topics = OwnLiteTopics()
    topics.limit(1, 64)
    topics.apply(change(Op.ADD, "a"))
    topics.apply(change(Op.ADD, "b", further=POLICY))
    followed(topics, (Op.REMOVE, "a"))
    assert topics.take() == [add("b", option=("POLICY", 2)), remove("a")]


@pytest.mark.parametrize("name", ["a/b", "a b", "ä", "", "x" * 65])
def test_a_name_that_the_proxy_does_not_take_is_left_out(name: str) -> None:
    """It would make the whole request fail."""
    topics = followed(OwnLiteTopics(), (Op.ADD, name), (Op.ADD, "x" * 64))
    assert topics.take() == [add("x" * 64)]
    assert topics.not_received.keys() == {name}
    followed(topics, (Op.REMOVE, name))
    assert topics.take() == []
    assert topics.not_received == {}


def test_messages_of_a_topic_that_another_client_has_now_are_refused() -> None:
    """Not those of a topic that has ended: nobody else would get them."""
    now = [0.0]
    topics = followed(OwnLiteTopics(lambda: now[0]), *((Op.ADD, name) for name in "abc"))
    followed(topics, (Op.REMOVE, "a", Cause.EVICTED), (Op.REMOVE, "b", Cause.TOPIC_DELETED))
    assert [topics.is_lost(name) for name in "abc"] == [True, False, False]
    followed(topics, (Op.ADD, "a", Cause.RELEASED))
    assert not topics.is_lost("a")
    followed(topics, (Op.REMOVE, "a", Cause.EVICTED))
    now[0] = 3_600
    topics.take()
    assert not topics.is_lost("a")


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(Op), st.sampled_from("abcdef")),
            st.integers(0, 4),
            st.booleans(),
        )
    )
)
def test_requests_always_lead_to_the_names(steps: list[Any]) -> None:
    """Whatever comes, whatever fails: RocketMQ ends with the client's names, as many as the quota allows."""
    topics, server, wanted, quota = OwnLiteTopics(), set[str](), dict[str, None](), 4
    topics.limit(quota, 64)
    for step in [*steps, True]:
        if isinstance(step, tuple):
            topics.apply(change(*step))
            wanted.pop(step[1], None)
            if step[0] is Op.ADD:
                wanted[step[1]] = None
        elif isinstance(step, bool):
            requests = topics.take()
            done = requests if step else requests[:1]
            for action, names, _ in done:
                server = server | set(names) if action is Action.PARTIAL_ADD else server - set(names)
            topics.put_back(requests[len(done) :])
        else:
            quota = max(quota, step)  # a lower one takes no topic from a client
            topics.limit(quota, 64)
    assert server == set(topics.names)
    assert server | topics.not_received.keys() == wanted.keys()
    assert len(server) == min(quota, len(wanted))


def patterns_of_me(selector: Mapping[str, str] | None = None) -> PatternSet:
    return PatternSet("me", "billing", "orders", "lite", selector)


def expected(action: str, *entries: str) -> dict[str, Any]:
    common = {"clientId": "me", "group": "billing", "topic": "orders", "dialect": "lite"}
    return {"action": action, **common, "liteTopicSet": list(entries)}


def test_each_change_of_the_patterns_is_a_request() -> None:
    """The first patterns are a whole set, which keeps the order of an exclusive group; the last one ends the client.

    An empty set would ask for every topic. Of patterns with an invalid one, none is added.
    """
    patterns = patterns_of_me()
    assert patterns.add(["a__*", "b__*", "a__*"], None) == expected("COMPLETE_ADD", "a__*", "b__*")
    assert patterns.add(["b__*", "c__*"], None) == expected("PARTIAL_ADD", "c__*")
    assert patterns.add(["c__*"], None) is None
    with pytest.raises(InvalidPattern):
        patterns.add(["d__*", "a*b"], None)
    assert patterns.repeat() == expected("COMPLETE_ADD", "a__*", "b__*", "c__*")
    assert patterns.remove(["a__*", "x"]) == expected("PARTIAL_REMOVE", "a__*")
    assert patterns.remove(["a__*"]) is None
    assert patterns.remove(["b__*", "c__*"]) == expected("COMPLETE_REMOVE")
    assert patterns.repeat() is None


def test_an_offset_option_goes_with_the_first_request_only() -> None:
    """Repeated, it would take the client back after its lease had expired."""
    patterns = patterns_of_me({"type": "TAG", "expression": "paid"})
    request = patterns.add(["a__*"], OffsetOption.max())
    assert request is not None
    assert request["offsetOption"] == {"type": "POLICY", "value": 2}
    assert request["selector"] == {"type": "TAG", "expression": "paid"}
    assert "offsetOption" not in (patterns.repeat() or {})


def test_a_group_is_declared_as_one_of_patterns_and_of_the_parent() -> None:
    assert group_event("g", "orders", {"lite.sub.model": "Exclusive"})["attributes"] == {
        "lite.sub.model": "Exclusive", "lite.sub.wildcard": "true", "lite.bind.topic": "orders",
    }  # fmt: skip
    with pytest.raises(ConfigInvalid, match="'other'"):
        group_event("g", "orders", {"lite.bind.topic": "other"})


def test_a_message_is_consumed_when_the_loop_says_so() -> None:
    handover, results = Handover(), list[bool]()
    threads = [threading.Thread(target=lambda: results.append(handover.consume("m"))) for _ in range(2)]
    for thread, is_consumed in zip(threads, (True, False), strict=True):
        thread.start()
        delivery = handover.take(60)
        assert delivery is not None
        assert delivery.message == "m"
        delivery.end(is_consumed=is_consumed)
        thread.join(60)
    assert results == [True, False]
    assert handover.take(0.01) is None


@pytest.mark.parametrize("in_hand", [True, False])
def test_messages_are_given_back_at_the_end(*, in_hand: bool) -> None:
    handover, results = Handover(), list[bool]()
    thread = threading.Thread(target=lambda: results.append(handover.consume("m")))
    thread.start()
    delivery = handover.take(60) if in_hand else None
    handover.close()
    thread.join(60)
    if delivery is not None:
        delivery.end(is_consumed=True)  # a loop that goes on
    assert results == [False]
    assert not handover.consume("late")


def test_without_the_extra_the_command_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == "streaming.rocketmq" and "official" in (rest[2] if len(rest) > 2 else ()):
            raise ModuleNotFoundError("No module named 'rocketmq'")
        return original(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ExtraMissing, match=r"pip install 'reexpand\[rocketmq\]'"):
        WildcardLiteConsumer("127.0.0.1:1", "g", "orders", "127.0.0.1:1")
