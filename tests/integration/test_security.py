"""The job and the verbs on a broker that requires TLS, credentials, and a permission for everything."""

import re
from pathlib import Path

import pytest
import trustme

from streaming.client import SubscriptionClient, client_options
from tests.support.guarded_streams import (
    GROUP,
    PARENT,
    PATIENCE_SECONDS,
    REQUEST,
    TOPIC,
    GuardedStreams,
    command_lines,
    texts,
)
from tests.support.processes import eventually
from tests.support.running_job import SETTLE_SECONDS, Job
from tests.support.secured import SecuredBroker


@pytest.fixture
def event_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder into which Spark writes what it shows in its web interface."""
    folder, configuration = tmp_path / "events", tmp_path / "spark"
    folder.mkdir()
    configuration.mkdir()
    (configuration / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.dir {folder}\nspark.eventLog.rolling.enabled false\n"
        "spark.eventLog.compress false\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(configuration))
    return folder


def assert_nothing_leaked(guarded: GuardedStreams, job: Job, event_log: Path) -> None:
    """Look for passwords and keys in log, checkpoint, Spark's event log, command lines and output topics."""
    streams = guarded.streams
    seen = {
        **texts([job.log, streams.checkpoint, event_log]),
        "command lines": command_lines(job.process.pid),
        "dead letters": repr(streams.dead_letters()).encode(),
        "updates": repr(streams.updates()).encode(),
    }
    assert b"reexpand" in seen["command lines"]
    assert any(b"SparkListenerSQLExecutionStart" in text for text in seen.values())
    secrets = guarded.secrets
    assert secrets
    assert [name for name, text in seen.items() if any(secret in text for secret in secrets)] == []


def test_the_job_runs_with_a_password_and_the_least_permissions(guarded: GuardedStreams, event_log: Path) -> None:
    """It reads, expands, writes in transactions, ticks and keeps its lease, and shows no secret anywhere."""
    with guarded.job(guarded.user("job"), "--verbose") as job:
        job.wait_ready()
        for role, setting, value in (
            ("owner of groups", "group_events", GROUP),
            ("client", "subscription_events", REQUEST),
            ("producer of topic events", "topic_events", TOPIC),
            ("producer of topic events", "topic_events", b"{"),
        ):
            assert guarded.send(guarded.user(role), setting, value) is None
        options = client_options(guarded.user("follower"))
        with SubscriptionClient(guarded.address, guarded.streams.settings.updates, options=options) as client:
            assert eventually(lambda: client.topics(PARENT, "billing", "c1") == {"eu__1"}, SETTLE_SECONDS)
        clock = guarded.streams.settings.clock
        assert eventually(lambda: guarded.streams.ends(clock)[0] > 1, SETTLE_SECONDS)
        listed = guarded.verb("dlq", "list", options=guarded.user("dlq list"))
        assert (listed.returncode, "not-json" in listed.stdout) == (0, True), listed.stderr
        assert_nothing_leaked(guarded, job, event_log)
        assert job.stop() == 0
        refused = [line for line in job.said().splitlines() if "does not allow" in line]
        assert ["get no answers" in line for line in refused] == [True]  # that is a role of its own


@pytest.mark.long
def test_the_job_and_a_verb_run_with_certificates(
    guarded: GuardedStreams, secured_broker: SecuredBroker, event_log: Path
) -> None:
    """The job has its key in the values of its options, which Spark sees; the verb names a file."""
    user = f"{guarded.streams.prefix}-certified"
    secured_broker.allow(user, guarded.needed("job", "verify"))
    with guarded.job(secured_broker.with_certificate_inside(user), "--verbose", certificate=True) as job:
        job.wait_ready()
        writer = guarded.user("owner of groups", "client", "producer of topic events")
        for setting, value in (("group_events", GROUP), ("subscription_events", REQUEST), ("topic_events", TOPIC)):
            assert guarded.send(writer, setting, value) is None
        assert eventually(lambda: bool(guarded.streams.updates()), SETTLE_SECONDS, 0.5)
        assert eventually(guarded.streams.are_read, SETTLE_SECONDS, 0.5)
        assert_nothing_leaked(guarded, job, event_log)
        options = secured_broker.with_certificate(user)
        words = ("verify", "--checkpoint", str(guarded.streams.checkpoint))
        verified = guarded.verb(*words, options=options, certificate=True)
        assert verified.returncode == 0, verified.stderr
        assert job.stop() == 0


@pytest.mark.long
@pytest.mark.parametrize("wrong", ["password", "authority"])
def test_a_connection_that_fails_is_said_without_the_secret(
    wrong: str, guarded: GuardedStreams, tmp_path: Path
) -> None:
    """By the job and by a verb: the broker refuses the password, or the client the broker's certificate."""
    options = guarded.user("job", "dlq list")
    if wrong == "password":
        (options.parent / f"{options.name.removesuffix('-scram.properties')}.password").write_text(
            "canary-of-another\n"
        )
        guarded.know("canary-of-another")
    else:
        trust = trustme.CA()
        trust.cert_pem.write_to_path(str(tmp_path / "other.pem"))
        options.write_text(f"{options.read_text()}ssl.truststore.location={tmp_path / 'other.pem'}\n")
    with guarded.job(options, "--verbose") as job:
        assert job.process.wait(PATIENCE_SECONDS) == 1
        listed = guarded.verb("dlq", "list", options=options)
        assert listed.returncode == 1
        for said in (job.said(), listed.stderr):
            (line,) = [line for line in said.splitlines() if line.startswith("Error: ")]
            assert re.search(r"[Aa]uthentication failed|certificat|PKIX", line), line
            assert "Traceback" not in said
            assert not any(secret.decode() in said for secret in guarded.secrets)
