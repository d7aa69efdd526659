"""Many topics at once have the same subscribers as each alone, by tries and by arrays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.records.model import LITE, Notation
from streaming.records.subscribers import ClientKey
from streaming.state.blocks import Block
from streaming.state.client import Interest
from streaming.state.interests import Interests
from tests.support.events import MQTT, WAMP

NAMES = ["a", "b", "a__b", "b__a", "a__b__c", "a/b", "a.b", ""]
PATTERNS: dict[Notation, list[str]] = {
    LITE: ["a", "*", "**", "a__*", "*__b", "a__**", "a__b__c"],
    MQTT: ["a", "#", "a/+", "$share/s/#", "$share/t/#", "$share/s/a/+"],
    WAMP: ["a", "a.b", "b"],
}

blocks = st.sampled_from(list(PATTERNS)).flatmap(
    lambda notation: st.lists(st.sampled_from(PATTERNS[notation]), min_size=1, unique=True).map(
        lambda entries: Block(1, 0, 0, notation, tuple(entries))
    )
)
wants = st.one_of(
    st.builds(Interest, st.just(True), st.lists(blocks, max_size=3).map(tuple)),
    st.builds(
        lambda names: Interest(blocks=(Block(1, 0, 0, LITE, tuple(names)),)),
        st.lists(st.sampled_from(NAMES), unique=True),
    ),
    st.builds(lambda order: Interest(everything=order), st.integers(0, 9)),
)


@pytest.mark.rule("by-column")
@pytest.mark.parametrize("arrays", [False, True])
@given(wanted=st.lists(wants, max_size=5), left=st.sets(st.integers(0, 4)), topics=st.lists(st.sampled_from(NAMES)))
def test_many_topics_are_matched_as_each_alone(
    arrays: bool,  # noqa: FBT001
    wanted: list[Interest],
    left: set[int],
    topics: list[str],
) -> None:
    """Also after clients have left."""
    asked = Interests(inner_multi=False, array_min_topics=0 if arrays else 100, array_build_topics=0)
    keys = [ClientKey("g", f"c{number}") for number in range(len(wanted))]
    for key, each in zip(keys, wanted, strict=True):
        asked.add(key, each)
        asked.pairs(topics)
    for number in left & set(range(len(wanted))):
        asked.remove(keys[number], wanted[number])
    pairs = asked.pairs(topics)
    found = {
        (row, pairs.subscriber_table[subscriber], pairs.pattern_table[patterns])
        for row, subscriber, patterns in pairs.numbers()
    }
    assert len(found) == len(pairs)
    assert found == {
        (row, subscriber, tuple(sorted(set(patterns))))
        for row, topic in enumerate(topics)
        for subscriber, patterns in asked.match(topic).items()
    }
