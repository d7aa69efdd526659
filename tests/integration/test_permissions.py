"""Each permission of the list is necessary: without it something fails, and says what is missing."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from cloudevents.core.bindings.kafka import to_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from confluent_kafka import KafkaError

from streaming.client import SubscriptionClient, UpdatesUnreadable, client_options
from streaming.client.pattern_consumer import PatternConsumer
from streaming.config import load
from streaming.errors import ReexpandError
from streaming.kafka.clients import reason
from streaming.kafka.permissions import PERMISSIONS, Grant, Permission, grants
from streaming.kafka.specs import answers_spec
from streaming.kafka.topics import TopicSpec, create_topics
from streaming.oracle import Effective
from tests.support.guarded_streams import GROUP, REQUEST, TOPIC, GuardedStreams, wait_for
from tests.support.processes import eventually
from tests.support.running_job import SETTLE_SECONDS
from tests.support.secured import SecuredBroker
from tests.support.update_records import forged
from tests.support.verbs import reexpand

pytestmark = pytest.mark.long

LONG = b"x" * 70_000
"""Damaged record, of which a dead letter holds the beginning only."""


class Case(NamedTuple):
    """Permission of one of its resources, by number."""

    permission: Permission
    number: int

    def grant(self, guarded: GuardedStreams) -> Grant:
        before = PERMISSIONS[: PERMISSIONS.index(self.permission)]
        number = sum(len(each.resources) for each in before if each.role == self.permission.role) + self.number
        return grants(self.permission.role, guarded.streams.settings, guarded.parent)[number]

    def __str__(self) -> str:
        role, resources = self.permission.role.replace(" ", "-"), self.permission.resources
        return f"{role}-{self.permission.operation}-{resources[self.number]}"


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
    warning = " a tick cannot be written: " if is_tick else "Error: "
    if (grant.name, grant.operation) == (guarded.streams.settings.updates, "READ"):  # a first start reads no updates
        with guarded.job(options, *more) as job:
            job.wait_ready()
            assert eventually(lambda: guarded.streams.ends(grant.name)[0] > 0, SETTLE_SECONDS)
            assert job.stop() == 0
    with guarded.job(options, *more) as job:
        said = wait_for(job, warning)
    assert warning in said
    assert str(grant) in said.partition(warning)[2].splitlines()[0]
    assert "/streaming/" not in said  # PySpark may log a broken pipe, but no traceback is the job's own


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
    create_topics(streams.bootstrap_servers, [TopicSpec(parent), TopicSpec(f"{parent}-delivered")])
    streams.write(streams.settings.updates, *forged("ADD", Effective(parent, "g", "c", "t")))
    streams.write(parent, (b"t", b"message"))
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
    with found.job(found.user("job")) as job:
        job.wait_ready()
        assert eventually(
            lambda: found.streams.are_read() and len(found.streams.dead_letters()) == 3, SETTLE_SECONDS, 1
        )
        assert job.stop() == 0
    return found


VERBS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "advise": (("advise",), ("advise",)),
    "verify": (("verify",), ("verify", "--checkpoint", "CHECKPOINT")),
    "verify --repair": (("verify", "verify --repair"), ("verify", "--checkpoint", "CHECKPOINT", "--repair")),
    "dlq list": (("dlq list",), ("dlq", "list")),
    "dlq replay": (("dlq list", "dlq replay"), ("dlq", "replay", "--all")),
    "tail": (("tail",), ("tail", "--once")),
    "watch-kafka": (("watch-kafka",), ("watch-kafka", "--once", "--parent", "PARENT")),
}
"""Roles and words of the verbs."""

SENT = {
    "group_events": ("group", "billing", "--parent", "orders", "--wildcard"),
    "subscription_events": ("subscription", "eu__*", "--client", "c1", "--group", "billing", "--parent", "orders"),
    "topic_events": ("topic", "eu__1", "--parent", "orders"),
}
"""Words of `send`, by the topic that they need."""

ASKING: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "explain": (
        ("explain",),
        ("explain", "--client", "c1", "--topic", "eu__1", "--parent", "orders", "--timeout", "60"),
    ),
    "send --wait": (("send", "send --wait"), ("send", *SENT["topic_events"], "--wait", "--timeout", "60")),
    "cloudevents accept": (("cloudevents accept",), ("cloudevents", "accept", "PARENT", "--once")),
    "cloudevents emit": (("cloudevents emit",), ("cloudevents", "emit", "PARENT", "--once")),
}
"""The same of verbs that need a running job, or write to its inputs."""


def run_verb(role: str, worked: GuardedStreams, without: Grant | None) -> "subprocess.CompletedProcess[str]":
    roles, words = VERBS[role]
    stand_ins = {"CHECKPOINT": str(worked.streams.checkpoint), "PARENT": worked.parent}
    streams, topic = worked.streams, worked.streams.settings.dead_letters
    if role == "verify --repair":  # of a surplus row
        streams.write(streams.settings.updates, *forged("ADD", Effective("orders", "g", "c", "t")))
    if role == "dlq replay":  # another test may have replayed the dead letters
        streams.write(topic, *{each.key() or b"": each.value() for each in streams.read(topic) if each.value()}.items())
    options = worked.user(*roles, without=without)
    return worked.verb(*(stand_ins.get(word, word) for word in words), options=options)


@pytest.mark.parametrize("case", [case for case in cases(*VERBS) if case.permission.operation != "DESCRIBE"], ids=str)
def test_a_verb_needs_each_of_its_permissions(case: Case, worked: GuardedStreams) -> None:
    grant = case.grant(worked)
    if case.permission.role == "watch-kafka":  # it writes nothing without a topic to announce
        create_topics(worked.streams.bootstrap_servers, [TopicSpec(f"{worked.parent}-new")])
    assert_refused(run_verb(case.permission.role, worked, grant), grant)


@pytest.mark.parametrize(
    "role", ["advise", "verify", "tail", "dlq list", "verify --repair", "watch-kafka", "dlq replay"]
)
def test_the_permissions_of_a_verb_suffice(role: str, worked: GuardedStreams) -> None:
    """Where another test has left a surplus row, `verify` has exit code 1 for it."""
    done = run_verb(role, worked, None)
    assert done.returncode in ((0, 1) if role == "verify" else (0,)), done.stderr
    assert "does not allow" not in done.stderr


def test_compact_inputs_needs_its_permissions_which_suffice(secured_broker: SecuredBroker, tmp_path: Path) -> None:
    worked, copy = worked_off(secured_broker, tmp_path), tmp_path / "backup"
    words = worked.streams.options("checkpoint")
    reexpand("backup", *words, copy)
    words = ["compact-inputs", *words, "--backup", str(copy), "--yes"]
    for case in cases("compact-inputs"):
        grant = case.grant(worked)
        refused = worked.verb(*words, options=worked.user("compact-inputs", without=grant))
        assert refused.returncode != 0
        assert f"{grant.name!r}" in refused.stderr
        assert "docs/security.md" in refused.stderr
    done = worked.verb(*words, options=worked.user("compact-inputs"))
    assert done.returncode == 0, done.stderr


def test_the_permissions_to_quarantine_suffice(secured_broker: SecuredBroker, tmp_path: Path) -> None:
    """Of an unread entry; without the group, the end of the driver cannot be checked."""
    worked = worked_off(secured_broker, tmp_path)
    topic = worked.streams.settings.topic_events
    end = worked.streams.ends(topic)[0]
    assert worked.send(worked.user("producer of topic events"), "topic_events", TOPIC) is None
    words = ["quarantine", "add", "--checkpoint", str(worked.streams.checkpoint), f"{topic}[0]@{end}"]
    (group,) = [case for case in cases("quarantine add") if case.permission.kind == "GROUP"]
    refused = worked.verb(*words, options=worked.user("quarantine add", without=group.grant(worked)))
    assert refused.returncode == 2
    assert "--driver-has-ended" in refused.stderr
    done = worked.verb(*words, options=worked.user("quarantine add"))
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


@pytest.fixture(scope="module")
def answering(secured_broker: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedStreams]:
    """Topics with records, one of CloudEvents, and a job that runs."""
    found = GuardedStreams(secured_broker, tmp_path_factory.mktemp("answering"))
    found.streams.create(1)
    create_topics(found.streams.bootstrap_servers, [answers_spec(found.streams.settings), TopicSpec(found.parent)])
    feed(found)
    attributes = {"type": "reexpand.topic-event", "source": "/test", "datacontenttype": "application/json"}
    event = to_structured(CloudEvent(attributes, TOPIC), JSONFormat())
    admin = found.administrator()
    admin.produce(found.parent, event.value, headers=list(event.headers.items()))
    assert admin.flush(60) == 0
    with found.job(found.user("job", "job that answers")) as job:
        job.wait_ready()
        assert "get no answers" not in job.said()
        yield found
        assert job.stop() == 0


def ask(role: str, answering: GuardedStreams, without: Grant | None = None) -> "subprocess.CompletedProcess[str]":
    roles, words = ASKING[role]
    options = answering.user(*roles, without=without)
    return answering.verb(*(answering.parent if word == "PARENT" else word for word in words), options=options)


@pytest.mark.parametrize("case", cases(*ASKING), ids=str)
def test_who_asks_needs_each_permission(case: Case, answering: GuardedStreams) -> None:
    grant = case.grant(answering)
    assert_refused(ask(case.permission.role, answering, grant), grant)


@pytest.mark.parametrize("role", ASKING)
def test_the_permissions_of_who_asks_suffice(role: str, answering: GuardedStreams) -> None:
    done = ask(role, answering)
    assert done.returncode == 0, done.stderr
    assert "does not allow" not in done.stderr


def test_the_permissions_to_explain_suffice_for_plans_and_lists(answering: GuardedStreams, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    record.write_bytes(orjson.dumps(TOPIC))
    options = answering.user("explain")
    parent = ("--parent", "orders", "--timeout", "60")
    for words in (("plan", str(record), *parent[2:]), *((kind, "list", *parent) for kind in ("clients", "groups"))):
        done = answering.verb(*words, options=options)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("case", cases("send"), ids=str)
def test_send_needs_the_topic_of_its_kind_alone(case: Case, answering: GuardedStreams) -> None:
    grant = case.grant(answering)
    for setting, words in SENT.items():
        done = answering.verb("send", *words, options=answering.user("send", without=grant))
        if getattr(answering.streams.settings, setting) == grant.name:
            assert_refused(done, grant)
        else:
            assert done.returncode == 0, done.stderr


def test_a_job_that_may_not_answer_says_so(guarded: GuardedStreams) -> None:
    create_topics(guarded.streams.bootstrap_servers, [answers_spec(guarded.streams.settings)])
    (case,) = cases("job that answers")
    with guarded.job(guarded.user("job")) as job:
        said = wait_for(job, "get no answers from this job: ")
        assert str(case.grant(guarded)) in said.partition("get no answers from this job: ")[2].splitlines()[0]
        job.wait_ready()


def consumed(guarded: GuardedStreams, options: Path) -> bytes | None:
    """Read a record of a topic with a `PatternConsumer`; the test says in place of the job that it is the client's."""
    topic, settings = f"{guarded.parent}-one", guarded.streams.settings
    create_topics(guarded.streams.bootstrap_servers, [TopicSpec(topic)])
    guarded.streams.write(topic, (b"", b"record"))
    guarded.streams.write(settings.updates, *forged("ADD", Effective("kafka", "billing", "c1", topic)))
    names = {name: getattr(settings, name) for name in ("updates", "subscription_events", "group_events")}
    given: dict[str, Any] = {"group": "billing", "client_id": "c1", "topics": names}
    given["options"] = client_options(options)
    with PatternConsumer(guarded.address, [topic], **given) as consumer:
        message = consumer.poll(SETTLE_SECONDS)
        consumer.commit()
        return None if message is None else message.value()


@pytest.mark.parametrize("case", cases("PatternConsumer"), ids=str)
def test_a_pattern_consumer_needs_each_of_its_permissions(case: Case, guarded: GuardedStreams) -> None:
    grant = case.grant(guarded)
    with pytest.raises(ReexpandError) as caught:
        consumed(guarded, guarded.user("PatternConsumer", without=grant))
    missing = grant._replace(name=f"{grant.name}one") if grant.is_prefix else grant
    assert f"does not allow this user {missing}; docs/security.md" in str(caught.value)


def test_the_permissions_of_a_pattern_consumer_suffice(guarded: GuardedStreams) -> None:
    assert consumed(guarded, guarded.user("PatternConsumer")) == b"record"


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
        "quarantine add",
        "job that answers",
        "send",
        "PatternConsumer",
    }
    assert {case.permission.role for case in CASES} == {*tested, "dispatcher", *VERBS, *ASKING}
    settings = load({"bootstrap_servers": "b:1", "checkpoint": "/c"})
    assert sum(len(grants(role, settings)) for role in {each.role for each in PERMISSIONS}) == len(CASES)
