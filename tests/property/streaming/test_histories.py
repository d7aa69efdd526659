"""Random histories leave the oracle's relation, however they are interleaved, cut into batches, sharded or repeated."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from streaming import worker
from streaming.routing import Routing
from tests.support.histories import batches, expected, history
from tests.support.simulator import Simulation

routings = st.builds(
    Routing,
    st.fixed_dictionaries({}, optional={"p": st.integers(2, 5), "q": st.integers(2, 3)}),
    st.integers(0, 3),
)


@settings(max_examples=400, deadline=None)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 120), routing=routings)
def test_any_split_and_any_shard_count_leave_the_oracles_relation(seed: int, length: int, routing: Routing) -> None:
    """Each stream keeps its order; how streams interleave, batches are cut, and shards are counted does not matter.

    Workers are replaced and batches repeated on the way, and every update must be a change of the relation.
    """
    random = Random(seed)
    records = history(random, length)
    job = Simulation(routing)
    for batch in batches(random, records):
        if random.random() < 0.3:
            worker.forget()
        job.run(batch, crash=random.random() < 0.3)
    wanted = expected(records)
    assert job.relation - wanted == set(), "surplus"
    assert wanted - job.relation == set(), "missing"
