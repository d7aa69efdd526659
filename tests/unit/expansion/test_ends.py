"""Ends of clients on all parents that arrive late: together with what the client asked for since."""

from functools import partial

import pytest

from streaming.operations.adoption import reshard
from streaming.records.model import VERSION_RETENTION_MS, Stream
from streaming.records.routing import Routing
from streaming.records.updates import Cause
from streaming.state import Shard
from streaming.tuning import Tuning
from streaming.worker.worker import Worker
from tests.support.events import EXCLUSIVE, WILD, Event, add, created, encoded, leave, quota, replace, told
from tests.support.simulator import Record, Simulation
from tests.support.story import Story, removed
from tests.support.world import World

LEASE_MS = 10_000


class Job(World):
    """A job whose requests come one millisecond after the other."""

    def __init__(self, room: int = -1, end_bytes: int = 262_144, lease_ms: int = LEASE_MS) -> None:
        self.simulation = Simulation(client_timeout_ms=lease_ms)
        self.simulation.worker = Worker(self.simulation.config, Tuning(end_bytes=end_bytes))
        super().__init__(self.simulation, quota(room), created("a", tags="x"), created("b", tags="y"))

    def run(self, *requests: Event, after_ms: int = 1) -> None:
        self.batch(*requests, at=self.simulation.now + after_ms)

    def run_once(self, *requests: Event) -> list[Record]:
        """Apply requests in one micro-batch, and return what the job wrote to itself."""
        self.simulation.now += 1
        self.simulation.run_once(self.records(*requests, at=self.simulation.now))
        echoes, self.simulation.echoes = self.simulation.echoes, []
        return echoes

    @property
    def held(self) -> list[str]:
        return sorted(row.lite_topic for row in self.simulation.relation)


leaves = partial(leave, parent="")
"""The end of a client on all parents."""


@pytest.mark.rule("records-of-an-end", "repeated-end")
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("end_bytes", [262_144, 200, 40])
def test_the_records_of_an_end_mean_what_one_record_would(end_bytes: int, times: int) -> None:
    """The second part has the version that made that of the first part an older one. Each may be read twice."""
    job = Job(end_bytes=end_bytes)
    job.run(replace("x"))
    for echo in job.run_once(leaves(), replace("a", version=1), add("b", version=2)):
        for _ in range(times):
            job.simulation.run_once([echo])
    assert job.held == ["a", "b"]


@pytest.mark.rule("end-on-all-parents")
@pytest.mark.parametrize(("order", "held"), [((0, 1), ["b"]), ((1, 0), [])])
def test_an_end_and_a_request_of_one_record_are_applied_in_order(order: tuple[int, int], held: list[str]) -> None:
    job = Job()
    job.run(replace("a"))
    entries = [leaves(), add("b")]
    value = encoded({"subscriptionSet": [entries[each] for each in order]})
    job.simulation.run([Record(Stream.SUBSCRIPTIONS, value, 0, 2, job.simulation.now)])
    assert job.held == held


@pytest.mark.rule("records-of-an-end")
def test_an_end_larger_than_a_record_of_kafka_means_what_one_record_would() -> None:
    """Of the size of the defaults: two requests of 144 kB, and one of 1 MB."""
    names = [f"{number:03}{'n' * 141}" for number in range(1_000)]
    job = Job()
    job.run(replace("x"))
    long = [f"{number:03}{'n' * 16_000}" for number in range(60)]
    echoes = job.run_once(leaves(), replace("a", *names, version=1), add("b", *names, version=2), add(*long, version=3))
    assert len(echoes) > 5
    assert max(len(echo.value or b"") for echo in echoes) < 300_000
    for echo in echoes:
        job.simulation.run_once([echo])
    assert job.held == ["a", "b"]
    assert not job.simulation.updates[2:], "nothing was taken back meanwhile"


@pytest.mark.rule("refused-version")
def test_a_version_that_a_quota_refused_does_not_make_later_ones_stale() -> None:
    """Neither that of the end, nor that of a request after it."""
    job = Job(1)
    job.run(replace("a", version=5))
    job.run(replace("*", version=9), leaves(version=7), add("b", version=8))
    assert (job.held, job.simulation.refused) == (["b"], [2])


@pytest.mark.rule("refused-version")
def test_a_version_that_a_quota_refused_is_not_known_when_the_lease_ends() -> None:
    job = Job(1)
    job.run(replace("*", version=4))
    job.run(replace("b", version=2), after_ms=LEASE_MS + 1)
    assert (job.held, job.simulation.refused) == (["b"], [1])


@pytest.mark.parametrize(("lease_ms", "held"), [(LEASE_MS, ["b"]), (0, [])])
def test_a_version_that_a_quota_refused_is_forgotten_with_the_others(lease_ms: int, held: list[str]) -> None:
    """Without a lease the client stays in session, because it left with a version below the refused one."""
    job = Job(1, lease_ms=lease_ms)
    for request in (replace("a", version=1), replace("*", version=4), leave(version=3)):
        job.run(request)
    job.run(replace("b", version=2), after_ms=VERSION_RETENTION_MS + 1)
    assert (job.held, job.simulation.refused) == (held, [2])


@pytest.mark.rule("judged-again")
def test_a_request_is_judged_by_the_selector_of_its_own_time() -> None:
    """It matched one topic then, and matches two by the selector of a later request."""
    job = Job(1)
    job.run(replace("a", tag="x"))
    job.run(leaves(), replace("*"), replace("a", client="d", tag="*"))
    assert sorted((row.client_id, row.lite_topic) for row in job.simulation.relation) == [("c", "a"), ("d", "a")]
    assert job.simulation.refused == []


@pytest.mark.rule("judged-again")
def test_a_revoked_selector_decides_on_no_request_of_another_client() -> None:
    """By that selector the other client asked for one topic, and without it for two."""
    job = Job(1)
    job.run(replace("x", version=1))
    stale = add("z", version=1, tag="x")
    job.run(leaves(version=2), stale, replace("*", client="d"))
    assert (job.held, job.simulation.refused) == ([], [4])


@pytest.mark.rule("revoked-selector")
def test_a_formerly_stale_request_sets_no_selector_that_a_later_request_has_replaced() -> None:
    """The later request repeats the selector in force, since the stale request had set none."""
    job = Job(lease_ms=0)
    job.run(add("*", client="d", tag="x"), add("v", version=5))
    job.run(leaves(version=5))
    job.run(replace("*", client="d"), after_ms=VERSION_RETENTION_MS + 1_000)
    job.run(add("z", version=1, tag="y"), replace("*", client="d", tag="x"))
    assert job.held == ["a"]


@pytest.mark.rule("end-on-all-parents")
def test_any_number_of_repeated_requests_stay_before_the_next_request_of_another_client() -> None:
    """The number of a repeated request is between those of its neighbors, and never equal to one."""
    job = World(Simulation(), EXCLUSIVE, created("y"))
    job.batch(replace("y", "w", client="z"))
    again = [add("w", client="z"), replace("y", "w", client="z")]
    job.batch(leaves(client="z"), *again[:1] * 60, *again[1:], replace("y", client="d"), *again)
    assert job.rows == {"d y"}


@pytest.mark.rule("judged-again")
def test_a_request_that_took_something_away_and_is_stale_after_the_end_leaves_no_room() -> None:
    job = Job(1)
    job.run(replace("x", version=5))
    job.run(leaves(version=7), add("a"), leave(version=6), add("b"))
    assert (job.held, job.simulation.refused) == (["a"], [5])


def test_the_log_of_a_group_moves_with_its_state() -> None:
    """Requests get the numbers that follow from what is remembered."""
    story = Story(quota(1), *map(created, "ab"))
    story.then(*map(replace, "xyz"), add("*"))
    (former,) = story.state.repeated.values()
    (later,) = reshard([story.state], [Shard("p")])[0].repeated.values()
    assert former.judged is not None
    assert later == former._replace(judged=later.judged)
    assert later.judged is not None
    assert later.judged.former is not None
    assert (former.judged.order, later.judged.order) == (4, 2)
    assert [block.order for block in later.judged.former.wildcard.blocks] == [1]
    (state,) = reshard([story.state], [Shard("p", 0, Routing({"p": 2}))]).values()
    moved = Story(shard=Shard("p", 0, Routing({"p": 2})))
    moved.state = state
    moved.then(add("z"))
    assert not moved.state.repeated, "of several shards none refuses a request"


@pytest.mark.rule("judged-again")
def test_a_refusal_that_the_end_lifts_takes_its_dead_letter_back() -> None:
    job = Job(1)
    job.run(replace("a"))
    echoes = job.run_once(leaves(), add("b"))
    assert (job.held, job.simulation.refused) == (["a"], [3])
    job.simulation.run(echoes)
    assert (job.held, job.simulation.refused) == (["b"], [])


@pytest.mark.rule("judged-again")
def test_a_request_that_is_refused_after_the_end_has_a_dead_letter() -> None:
    """It only repeated what its client held beyond the quota."""
    job = Job(2)
    job.run(replace("*"))
    job.run(quota(1))
    job.run(leaves(), replace("*"))
    assert (job.held, job.simulation.refused) == ([], [3])
    (letter,) = [each for each in job.simulation.dead_letters if each["source"]["offset"] == 3]
    assert '"liteTopicSet":["*"]' in letter["original"]


@pytest.mark.rule("repeated-end")
def test_an_end_that_is_read_again_after_the_next_end_revives_nothing() -> None:
    """Also not the client of which nothing else is remembered."""
    story = Story(WILD, replace("a"), *map(created, "ab"))
    first = told(story.offset + 1, (story.offset + 2, add("b")))
    story.offset += 1
    story.then(add("b"))
    story.then(first)
    assert story.held() == ["b"]
    assert story.then(told(story.offset + 1)) == {removed("b", "b", cause=Cause.UNSUBSCRIBED)}
    assert story.then(first) == set()
    assert story.held() == []
    assert not story.state.clients
    assert story.then(leave(), first) == set()


def test_records_that_a_former_release_wrote_are_understood() -> None:
    """It went up to the same request in each part, and wrote all again in a longer record."""
    for in_parts in (True, False):
        story = Story(WILD, replace("x"), *map(created, "ab"))
        end, a, b = (story.offset + number for number in (1, 2, 3))
        story.offset += 1
        story.then(add("a", version=1), add("b", version=2))
        first = told(end, (a, add("a", version=1)), laterCount=1)
        longer = told(end, (a, add("a", version=1)), (b, add("b", version=2)), laterCount=2)
        rest = {**longer, "later": longer["later"][1:], "continues": True}
        for record in ({**first, "through": longer["through"]}, rest) if in_parts else (first, longer):
            story.then(record)
        assert story.held() == ["a", "b"], in_parts
        assert not story.state.repeated
