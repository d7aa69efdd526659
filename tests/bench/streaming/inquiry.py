"""CPU that one answer takes from a worker whose shard has a million topics: `make bench SUITE=inquiry`.

The first answer of a kind may build an index of the shard; the others find it.
"""

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import orjson

from streaming.records.model import NO_METADATA
from streaming.records.subscribers import ClientKey
from streaming.state import Shard, ShardDelta, ShardState
from streaming.worker.inquiry import listing
from streaming.worker.inquiry.pair import explain_pair
from streaming.worker.inquiry.planning import plan_shard, read
from streaming.worker.inquiry.questions import Ask, Question
from tests.bench.command import arguments, milliseconds, show
from tests.support.builders import bound, replace, request_value
from tests.support.story import Story

if TYPE_CHECKING:
    from collections.abc import Callable

SHARD = Shard("p")


def a_shard(topics: int) -> ShardState:
    """Return a shard with so many topics, 1,000 clients by pattern, and groups of each kind."""
    groups = [bound("g", quota=-1), bound("q", quota=2_000), bound("x", exclusive=True, quota=-1)]
    requests = [replace(f"t__{number}__*", client=f"c{number}") for number in range(1_000)]
    rivals = [replace("t__5__*", client=f"e{number}", group="x") for number in range(3)]
    state = Story(*groups, *requests, replace("t__**", client="cq", group="q"), *rivals).state
    state.apply(ShardDelta(added=dict.fromkeys((f"t__{n % 1_000}__{n}" for n in range(topics)), NO_METADATA)))
    return state


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--topics", type=int, default=1_000_000, help="of the shard")
    options = parser.parse_args()
    topics: int = options.topics
    state = a_shard(topics)
    wide = Question("q", Ask.PLAN, stream="subscriptions", record=request_value(clientId="new", liteTopicSet=["**"]))
    going_on = dataclasses.replace(wide, cursor=topics // 2, group="g", client="new")
    planned = read(wide, "s", 0)
    by_pattern = Question("q", Ask.TOPICS, pattern="t__999__*", cursor=topics // 2)
    answers: dict[str, Callable[[], Any]] = {
        "explain: received": lambda: explain_pair(state, SHARD, ClientKey("g", "c7"), "t__7__7"),
        "explain: no match": lambda: explain_pair(state, SHARD, ClientKey("g", "c7"), "t__8__8"),
        "explain: exclusive": lambda: explain_pair(state, SHARD, ClientKey("x", "e0"), "t__5__5"),
        "explain: quota": lambda: explain_pair(state, SHARD, ClientKey("q", "cq"), "t__7__90007"),
        "topics: 100": lambda: listing.topics(state, Question("q", Ask.TOPICS, limit=100)),
        "topics: 10,000": lambda: listing.topics(state, Question("q", Ask.TOPICS, limit=10_000)),
        "topics: by pattern, one look": lambda: listing.topics(state, by_pattern),
        "clients: 1,000": lambda: listing.clients(state, Question("q", Ask.CLIENTS)),
        "subscriptions: 1,000": lambda: listing.subscriptions(state, Question("q", Ask.SUBSCRIPTIONS)),
        "plan: **, first answer": lambda: plan_shard(state, SHARD, planned, wide),
        "plan: **, a further one": lambda: plan_shard(state, SHARD, planned, going_on),
    }
    figures = {}
    for name, answer in answers.items():
        first, second = milliseconds(lambda answer=answer: orjson.dumps(answer()), 2, time.process_time)  # type: ignore[misc]
        figures[name] = {"first ms": first, "second ms": second, "bytes": len(orjson.dumps(answer()))}
    show(figures, f"CPU, {topics:,} topics", as_json=options.json)


if __name__ == "__main__":
    main()
