"""Topics of the job are lost, replaced, or hold what somebody else wrote."""

from collections.abc import Callable

from tests.chaos.load import HOT, PARENTS, topic
from tests.chaos.model import Struck, fault
from tests.chaos.stage import SETTLE_SECONDS, Stage, shortened
from tests.support.processes import eventually
from tests.support.running_job import POLL_SECONDS
from tests.support.topics import create, delete, recreate, remove_records
from tests.support.update_records import forged

REFUSED = 2
"""Exit code where topics and checkpoint do not fit each other."""

OVER = "[start over](delivery.md#starting-over)"
ALL = 2**62
"""An offset behind all records."""


def _refused_then_anew(stage: Stage, text: str, *options: str) -> str:
    """Check that a start is refused with a text, start over, and return what was said."""
    sentence = stage.is_refused(REFUSED, text)
    stage.load.go()
    stage.starts_anew(*options)
    return f"refused, exit 2: {shortened(sentence)}; started anew"


@fault(
    "input-recreated-stopped",
    "the topic events are deleted and created again while the job is stopped, and grow past the offset that it read",
    OVER,
)
def _(stage: Stage) -> Struck:
    proof = stage.strikes(stage.running.kill)
    stage.load.hold()
    name = stage.streams.settings.topic_events
    read = stage.streams.ends(name)
    recreate(stage.streams, name)
    stage.load.feed = stage.streams.producer()  # one that knows nothing of the former topic
    longer = min(end for end in read.values() if end) + 1
    for parent in sorted(PARENTS):
        stage.load.send([topic(parent, f"grown__{number}") for number in range(longer)])
    grown = stage.streams.ends(name)
    assert any(grown[number] > end > 0 for number, end in read.items()), "the new topic is too short"
    return Struck(proof, _refused_then_anew(stage, f"the topic {name} was deleted and created again"))


@fault("input-recreated-running", "the topic events are deleted and created again while the job runs", OVER)
def _(stage: Stage) -> Struck:
    name = stage.streams.settings.topic_events
    return _ends_while_running(stage, name, lambda: recreate(stage.streams, name))


@fault("updates-deleted-running", "the updates topic is deleted while the job runs", OVER)
def _(stage: Stage) -> Struck:
    name = stage.streams.settings.updates
    return _ends_while_running(stage, name, lambda: delete(stage.streams, name))


def _ends_while_running(stage: Stage, name: str, happens: Callable[[], None]) -> Struck:
    proof = stage.proof()
    stage.load.hold()
    happens()
    said = stage.ends_with(stage.running, REFUSED, f"the topic {name}", in_a_task=True)  # which works on it
    create(stage.streams, name)
    stage.is_refused(REFUSED, f"the topic {name}")
    stage.starts_anew()
    stage.load.go()
    return Struck(proof, f"ends within seconds and refuses each start, exit 2: {shortened(said)}; started anew")


@fault("updates-deleted-stopped", "the updates topic is deleted while the job is stopped", OVER)
def _(stage: Stage) -> Struck:
    proof = stage.strikes(stage.running.kill)
    name = stage.streams.settings.updates
    delete(stage.streams, name)
    with stage.launch() as job:
        sentence = stage.ends_with(job, REFUSED, f"the topic {name} does not exist")
    stage.starts_anew()
    return Struck(proof, f"refused, exit 2: {shortened(sentence)}; started anew")


@fault(
    "updates-restored-empty",
    "the updates topic is deleted, and created again by somebody; its id is accepted",
    "`reexpand verify --repair`",
)
def _(stage: Stage) -> Struck:
    proof = stage.proof()
    stage.quiet()
    stage.stop()
    name = stage.streams.settings.updates
    recreate(stage.streams, name)
    sentence = stage.is_refused(REFUSED, f"the topic {name} was deleted and created again")
    stage.reads_updates_anew()
    code, said = stage.command("verify", "--repair")
    assert code == 0, said
    stage.start("--accept-topics")
    stage.load.go()
    return Struck(
        proof,
        f"refused, exit 2: {shortened(sentence)}; `verify --repair` writes the relation, `--accept-topics` goes on",
    )


@fault(
    "updates-tampered",
    "somebody writes 50 wrong ADDs and 50 wrong REMOVEs to the updates topic beside the job",
    "`reexpand verify --repair`",
)
def _(stage: Stage) -> Struck:
    proof = stage.proof()

    def are_many() -> bool:
        stage.judge.committed.catch_up()
        return sum(row.parent == HOT for row in stage.judge.committed.relation()) >= 50

    assert eventually(are_many, SETTLE_SECONDS, POLL_SECONDS), "too few rows"
    rows = sorted(row for row in stage.judge.committed.relation() if row.parent == HOT)[:50]
    wrong = [record for row in rows for record in (*forged("REMOVE", row), *forged("ADD", row._replace(client_id="x")))]
    stage.streams.write(stage.streams.settings.updates, *wrong)
    stage.quiet()
    before = stage.judge.compare(0)
    assert before.missing, "nothing was wrong"
    assert before.surplus, "nothing was wrong"
    code, said = stage.command("verify")
    assert code == 1, f"verify finds nothing: {said}"
    code, said = stage.command("verify", "--repair")
    assert code == 0, said
    stage.load.go()
    return Struck(
        proof,
        f"{before.missing} missing, {before.surplus} surplus; `verify` names them, exit 1; `--repair` mends them",
    )


@fault(
    "unread-removed",
    "records that the job has not read are removed from an input, as by retention",
    f"{OVER} with `--accept-loss`",
)
def _(stage: Stage) -> Struck:
    stage.strikes(stage.running.kill)
    stage.burst(2_000)
    stage.load.hold()
    proof = stage.proof()
    remove_records(stage.streams, stage.streams.settings.topic_events, ALL)
    outcome = _refused_then_anew(stage, "--accept-loss", "--accept-loss")
    return Struck(proof, outcome)


@fault("dead-letters-deleted", "the dead letters are deleted while the job is stopped")
def _(stage: Stage) -> Struck:
    proof = stage.strikes(stage.running.kill)
    delete(stage.streams, stage.streams.settings.dead_letters)
    stage.start()
    return Struck(proof, "created again, goes on")


@fault("clock-deleted", "the clock topic is deleted while the job runs", "start the job")
def _(stage: Stage) -> Struck:
    proof = stage.proof()
    name = stage.streams.settings.clock
    delete(stage.streams, name)
    sentence = stage.ends_with(stage.running, 1, f"the topic {name}")
    stage.start()
    return Struck(proof, f"exit 1: {shortened(sentence)}; next start goes on")
