"""Explanations of random pairs of client and topic, held against the oracle: answer and reason are right."""

import os
from collections import Counter
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.oracle import Oracle
from streaming.records.routing import Routing
from streaming.records.subscribers import ClientKey
from streaming.state import Shard
from streaming.worker.inquiry.model import PairFacts, PairVerdict
from streaming.worker.inquiry.pair import explain_pair
from tests.support.histories import LANGUAGES, PROFILES, batches, feed, history, lease_of
from tests.support.simulator import Simulation
from tests.support.states import decode

EXAMPLES = int(os.environ.get("REEXPAND_EXAMPLES", "60")) // 3
"""Histories of each profile; each gives some 500 pairs."""

TOPICS = sorted({topic for languages in LANGUAGES.values() for each in languages for topic in each.topics} | {"zz"})
CLIENTS = [ClientKey(group, client) for group in ("g1", "g2", "g9") for client in ("c1", "c2", "c3")]
routings = st.builds(Routing, st.fixed_dictionaries({}, optional={"p": st.integers(2, 4)}), st.integers(0, 2))


@pytest.mark.rule("explanation")
@pytest.mark.parametrize("profile", PROFILES)
@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 120), routing=routings)
def test_every_pair_is_explained_as_the_oracle_has_it(profile: str, seed: int, length: int, routing: Routing) -> None:
    """After a history, each topic that there was, and each client, on both parents."""
    random = Random(seed)
    records = history(random, length, PROFILES[profile])
    lease, caps = lease_of(records), PROFILES[profile].capped
    job = Simulation(routing, client_timeout_ms=lease, cap_requests=caps)
    oracle = Oracle(routing, client_timeout_ms=lease, cap_requests=caps)
    for batch in batches(random, records):
        job.run(batch)
        feed(oracle, batch)
    relation = {row[:4] for row in oracle.relation()}
    keys = product(("p", "q"), range(4))
    shards = {key: decode(job.states.get(key), job.archives.of(*key)) for key in keys}
    for parent, topic in product(("p", "q"), TOPICS):
        number = routing.shard_of(parent, topic)
        for key in CLIENTS:
            shard = Shard(parent, number, routing, cap_requests=caps)
            found = explain_pair(shards[parent, number], shard, key, topic)
            assert found.received == ((parent, *key, topic) in relation), found
            assert_right_reason(found, oracle, number, relation)


def assert_right_reason(  # noqa: C901 - a case for each verdict
    found: PairFacts, oracle: Oracle, number: int, relation: set[tuple[str, str, str, str]]
) -> None:
    """Check what the oracle can say about the deciding fact."""
    shard = oracle._shards[found.parent, number]
    rules = oracle._rules(found.parent, found.group)
    client = found.group, found.client
    assert (found.topic_facts is not None) == (found.topic in shard.topics)
    assert (found.group_facts.bound_to is None) or rules is None
    if found.verdict is PairVerdict.BOUND_ELSEWHERE:
        assert rules is None
    if rules is None:
        assert not found.received
        return
    orders = rules.sets_in_force(shard).orders(client)
    asks = any(entry.matches(found.topic, inner_multi=False) for entry in orders)
    match found.verdict:
        case PairVerdict.CLIENT_UNKNOWN | PairVerdict.NOT_IN_SESSION:
            assert not orders
        case PairVerdict.NO_MATCH:
            assert not asks
            assert not any(entry.matches for entry in found.entries)
        case PairVerdict.TOPIC_UNKNOWN:
            assert asks
            assert found.topic not in shard.topics
        case PairVerdict.SELECTOR:
            assert asks
            assert not oracle._matching_entries(shard, rules.sets_in_force(shard), client, found.topic)
        case PairVerdict.EXCLUSIVE:
            assert rules.exclusive
            assert oracle._entries_in_force(found.parent, client, found.topic)
            holder = (found.parent, found.group, found.holder or "", found.topic)
            assert holder in relation or rules.quota >= 0
        case PairVerdict.QUOTA:
            assert oracle._entries_in_force(found.parent, client, found.topic)
            held = oracle._topics_held(found.parent, number, found.group)[found.client]
            assert found.quota is not None
            assert len(held) == found.quota.share
            assert found.topic not in held
        case PairVerdict.RECEIVED:
            assert all(entry.matches for entry in found.entries)
            if found.entries and found.client_facts is not None and not found.client_facts.everything:
                assert found.decided_by in [entry.place for entry in found.entries]
        case PairVerdict.UNDER_WAY:
            pytest.fail("no change is under way")


@pytest.mark.rule("explanation")
def test_the_pairs_reach_every_verdict() -> None:
    """A verdict that never comes is a rule that nobody has tested; changes under way have a test of their own."""
    seen: Counter[PairVerdict] = Counter()
    for seed in range(40):
        random = Random(seed)
        profile = PROFILES[random.choice(list(PROFILES))]
        records = history(random, 80, profile)
        job = Simulation(client_timeout_ms=lease_of(records), cap_requests=profile.capped)
        for batch in batches(random, records):
            job.run(batch)
        shard = decode(job.states.get(("p", 0)), job.archives.of("p", 0))
        seen.update(explain_pair(shard, Shard("p"), key, topic).verdict for key in CLIENTS for topic in TOPICS)
    assert set(PairVerdict) - set(seen) == {PairVerdict.UNDER_WAY}
