"""Each permission of the list is necessary: without it something fails, and says what is missing."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError

from streaming.client import SubscriptionClient, UpdatesUnreadable, client_options
from streaming.config import load
from streaming.kafka.clients import reason
from streaming.kafka.permissions import PERMISSIONS, Grant, Permission, grants
from streaming.kafka.topics import TopicSpec, create_topics
from tests.support.guarded_streams import GROUP, REQUEST, TOPIC, GuardedStreams, wait_for
from tests.support.processes import eventually
from tests.support.running_job import REEXPAND, SETTLE_SECONDS
from tests.support.secured import SecuredBroker

pytestmark = pytest.mark.long

LONG = b"x" * 70_000
"""Damaged record, of which a dead letter holds the beginning only."""


class Case(NamedTuple):
    """A permission of one resource.

    Attributes:
        permission: the permission.
        number: number of the resource in it.
    """

    permission: Permission
    number: int

    def grant(self, guarded: GuardedStreams) -> Grant:
        """Return the grant in the names of a test."""
        before = PERMISSIONS[: PERMISSIONS.index(self.permission)]
        number = sum(len(each.resources) for each in before if each.role == self.permission.role) + self.number
        return grants(self.permission.role, guarded.streams.settings, guarded.parent)[number]

    def __str__(self) -> str:
        role, _, resources, operation, _ = self.permission
        return f"{role.replace(' ', '-')}-{operation}-{resources[self.number]}"


CASES = [Case(each, number) for each in PERMISSIONS for number in range(len(each.resources))]


def cases(*roles: str) -> list[Case]:
    return [case for case in CASES if case.permission.role in roles]


def feed(guarded: GuardedStreams) -> None:
    """Write what makes the job use all of its permissions: an update, the end of a client, dead letters."""
    writer = guarded.user("owner of groups", "client", "producer of topic events")
    events: dict[str, dict[str, Any]] = {"group_events": GROUP, "subscription_events": REQUEST, "topic_events": TOPIC}
    for setting, event in events.items():
        assert guarded.send(writer, setting, event) is None
        assert guarded.send(writer, setting, LONG) is None


@pytest.mark.parametrize("case", cases("job"), ids=str)
def test_the_job_needs_each_of_its_permissions(case: Case, guarded: GuardedStreams, tmp_path: Path) -> None:
    """A tick that cannot be written is a warning, since the next one says as much; everything else ends the job."""
    grant = case.grant(guarded)
    groups = tmp_path / "groups.toml"
    groups.write_text('["billing"]\n"lite.bind.topic" = "orders"\n"lite.sub.wildcard" = true\n')
    options = guarded.user("job", without=grant)
    feed(guarded)
    more = ("--groups", str(groups), "--client-timeout-ms", "2000")
    is_tick = (grant.name, grant.operation) == (guarded.streams.settings.clock, "WRITE")
    warning = " a tick cannot be written: " if is_tick else "\nError: "
    job = guarded.job(options, *more)
    try:
        if (grant.name, grant.operation) == (
            guarded.streams.settings.updates,
            "READ",
        ):  # a first start reads no updates
            job.wait_ready()
            assert eventually(lambda: guarded.streams.ends(grant.name)[0] > 0, SETTLE_SECONDS)
            assert job.stop() == 0
            job.close()
            job = guarded.job(options, *more)
        said = wait_for(job, warning)
        assert warning in said
        assert str(grant) in said.partition(warning)[2].splitlines()[0]
        assert "/streaming/" not in said  # PySpark may tell of a broken pipe, but no traceback is the job's own
    finally:
        job.close()


def assert_refused(done: "subprocess.CompletedProcess[str]", grant: Grant) -> None:
    assert done.returncode != 0
    assert f"does not allow this user {grant}; docs/security.md" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("case", cases("topics", "topics --fix"), ids=str)
def test_topics_needs_each_of_its_permissions(case: Case, secured_broker: SecuredBroker, tmp_path: Path) -> None:
    """It creates some topics, and looks at others."""
    guarded = GuardedStreams(secured_broker, tmp_path)
    grant = case.grant(guarded)
    settings = guarded.streams.settings
    if grant.operation == "CREATE":
        present = []
    else:
        policy = "delete" if grant.operation == "ALTER_CONFIGS" and grant.name == settings.updates else "compact"
        retention = {"retention.ms": "5000", "cleanup.policy": policy if grant.name == settings.updates else "delete"}
        present = [TopicSpec(grant.name, config=retention)]
    create_topics(secured_broker.broker.bootstrap_servers, present)
    roles = ("topics", "topics --fix") if case.permission.role == "topics --fix" else ("topics",)
    options = guarded.user(*roles, without=grant)
    assert_refused(guarded.verb("topics", *(["--fix"] if len(roles) > 1 else []), options=options), grant)


@pytest.mark.parametrize("case", cases("producer of topic events", "client", "owner of groups"), ids=str)
def test_producers_need_their_permission(case: Case, guarded: GuardedStreams) -> None:
    grant = case.grant(guarded)
    error = guarded.send(guarded.user(case.permission.role, without=grant), grant.name, b"{}")
    assert isinstance(error, KafkaError)
    assert str(grant) in reason(error, grant)
    assert guarded.send(guarded.user(case.permission.role), grant.name, b"{}") is None


@pytest.mark.parametrize("case", cases("follower"), ids=str)
def test_a_follower_needs_its_permission(case: Case, guarded: GuardedStreams) -> None:
    grant = case.grant(guarded)
    options = client_options(guarded.user("follower", without=grant))
    with SubscriptionClient(guarded.address, guarded.streams.settings.updates, options=options) as client:
        with pytest.raises(UpdatesUnreadable) as caught:
            client.wait_ready(SETTLE_SECONDS)
        assert str(grant) in str(caught.value)


@pytest.mark.parametrize("case", cases("dispatcher"), ids=str)
def test_a_dispatcher_needs_each_of_its_permissions(case: Case, guarded: GuardedStreams) -> None:
    grant = case.grant(guarded)
    done = dispatched(guarded, guarded.user("dispatcher", without=grant))
    assert_refused(done, grant)


def dispatched(guarded: GuardedStreams, options: Path) -> "subprocess.CompletedProcess[str]":
    """Run the dispatcher on a message to a client, until it fails or has delivered it."""
    streams, parent = guarded.streams, guarded.parent
    update = {"op": "ADD", "parentTopic": parent, "group": "g", "clientId": "c", "liteTopic": "t", "patterns": ["t"]}
    create_topics(streams.bootstrap_servers, [TopicSpec(parent), TopicSpec(f"{parent}-delivered")])
    admin = guarded.administrator()
    admin.produce(streams.settings.updates, *guarded.as_record(update))
    admin.produce(parent, b"message", b"t")
    assert admin.flush(30) == 0
    command = [sys.executable, "-m", "streaming.examples.dispatcher", "--bootstrap-servers", guarded.address]
    words = ["--parent", parent, "--updates", streams.settings.updates, "--kafka-options", str(options)]
    process = subprocess.Popen([*command, *words], stderr=subprocess.PIPE, text=True)
    eventually(lambda: process.poll() is not None or streams.ends(f"{parent}-delivered")[0] > 0, SETTLE_SECONDS, 0.5)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, "", errors)


@pytest.fixture(scope="module")
def worked(secured_broker: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> GuardedStreams:
    """Topics with records, and the checkpoint of a job that has read them."""
    return worked_off(secured_broker, tmp_path_factory.mktemp("worked"))


def worked_off(secured_broker: SecuredBroker, folder: Path) -> GuardedStreams:
    found = GuardedStreams(secured_broker, folder)
    found.streams.create(1)
    feed(found)
    job = found.job(found.user("job"))
    try:
        job.wait_ready()
        assert eventually(
            lambda: found.streams.are_read() and len(found.streams.dead_letters()) == 3, SETTLE_SECONDS, 1
        )
        assert job.stop() == 0
    finally:
        job.close()
    return found


VERBS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "advise": (("advise",), ("advise",)),
    "verify": (("verify",), ("verify", "--checkpoint", "CHECKPOINT")),
    "verify --repair": (("verify", "verify --repair"), ("verify", "--checkpoint", "CHECKPOINT", "--repair")),
    "dlq list": (("dlq list",), ("dlq", "list")),
    "dlq replay": (("dlq list", "dlq replay"), ("dlq", "replay", "--all")),
    "watch-kafka": (("watch-kafka",), ("watch-kafka", "--once", "--parent", "PARENT")),
}
"""Roles and words of the verbs."""


def run_verb(role: str, worked: GuardedStreams, without: Grant | None) -> "subprocess.CompletedProcess[str]":
    roles, words = VERBS[role]
    stand_ins = {"CHECKPOINT": str(worked.streams.checkpoint), "PARENT": worked.parent}
    if role == "verify --repair":  # a surplus row, which it is to take away
        admin = worked.administrator()
        update = {
            "op": "ADD",
            "parentTopic": "orders",
            "group": "g",
            "clientId": "c",
            "liteTopic": "t",
            "patterns": ["t"],
        }
        admin.produce(worked.streams.settings.updates, *worked.as_record(update))
        assert admin.flush(30) == 0
    options = worked.user(*roles, without=without)
    return worked.verb(*(stand_ins.get(word, word) for word in words), options=options)


@pytest.mark.parametrize("case", [case for case in cases(*VERBS) if case.permission.operation != "DESCRIBE"], ids=str)
def test_a_verb_needs_each_of_its_permissions(case: Case, worked: GuardedStreams) -> None:
    grant = case.grant(worked)
    assert_refused(run_verb(case.permission.role, worked, grant), grant)


@pytest.mark.parametrize("role", ["advise", "verify", "dlq list", "verify --repair", "watch-kafka", "dlq replay"])
def test_the_permissions_of_a_verb_suffice(role: str, worked: GuardedStreams) -> None:
    """Where another test has left a surplus row, `verify` has exit code 1 for it."""
    done = run_verb(role, worked, None)
    assert done.returncode in ((0, 1) if role == "verify" else (0,)), done.stderr
    assert "does not allow" not in done.stderr


def test_compact_inputs_needs_its_permissions_which_suffice(secured_broker: SecuredBroker, tmp_path: Path) -> None:
    worked, copy = worked_off(secured_broker, tmp_path), tmp_path / "backup"
    words = ["--checkpoint", str(worked.streams.checkpoint)]
    subprocess.run([REEXPAND, "backup", *words, str(copy)], check=True, capture_output=True, timeout=120)
    words = ["compact-inputs", *words, "--backup", str(copy), "--yes"]
    for case in cases("compact-inputs"):
        grant = case.grant(worked)
        refused = worked.verb(*words, options=worked.user("compact-inputs", without=grant))
        assert refused.returncode != 0
        assert f"{grant.name!r}" in refused.stderr
        assert "docs/security.md" in refused.stderr
    done = worked.verb(*words, options=worked.user("compact-inputs"))
    assert done.returncode == 0, done.stderr


def test_watch_kafka_announces_only_what_it_may_describe(worked: GuardedStreams) -> None:
    (case,) = [case for case in cases("watch-kafka") if case.permission.operation == "DESCRIBE"]
    create_topics(worked.streams.bootstrap_servers, [TopicSpec(f"{worked.parent}-seen")])
    announced = [
        f"{worked.parent}-seen" in run_verb("watch-kafka", worked, without).stdout
        for without in (case.grant(worked), None)
    ]
    assert announced == [False, True]


def test_the_permissions_of_topics_and_of_the_dispatcher_suffice(
    secured_broker: SecuredBroker, guarded: GuardedStreams, tmp_path: Path
) -> None:
    assert dispatched(guarded, guarded.user("dispatcher")).returncode == 0
    fresh = GuardedStreams(secured_broker, tmp_path)
    options = fresh.user("topics", "topics --fix")
    assert fresh.verb("topics", options=options).returncode == 0
    assert fresh.verb("topics", "--fix", options=options).returncode == 0


def test_every_case_is_in_a_test() -> None:
    """A role that is added to the list gets a test."""
    tested = {
        "job",
        "topics",
        "topics --fix",
        "producer of topic events",
        "client",
        "owner of groups",
        "follower",
        "compact-inputs",
    }
    assert {case.permission.role for case in CASES} == {*tested, "dispatcher", *VERBS}
    settings = load({"bootstrap_servers": "b:1", "checkpoint": "/c"})
    assert sum(len(grants(role, settings)) for role in {each.role for each in PERMISSIONS}) == len(CASES)
