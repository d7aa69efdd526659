"""A checkpoint on S3-compatible storage: a real server, the real job, and what Python writes beside Spark."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random

import pytest

from streaming.config import Settings
from tests.support.brokers import SharedBroker
from tests.support.histories import Profile, expected, history, large_state
from tests.support.processes import eventually
from tests.support.running_job import POLL_SECONDS, SETTLE_SECONDS, Streams, running
from tests.support.s3_server import BUCKET, s3_server
from tests.support.verbs import assert_verified

pytestmark = pytest.mark.long


@dataclass
class StreamsOnS3(Streams):
    """Streams whose checkpoint has a URI; the path is where the server has its files."""

    @cached_property
    def settings(self) -> Settings:
        """The job's settings, with the URI."""
        return super().settings.model_copy(update={"checkpoint": f"s3a://{BUCKET}/{self.checkpoint.name}"})


def test_a_checkpoint_on_s3_outlives_its_drivers(
    broker: SharedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed twice, once with a micro-batch to repeat, then taken over by a driver that stood by; then compared.

    The workers share snapshots of the large state on this machine.
    """
    before, records = large_state("p", 12_000), history(Random(22), 900, Profile(dialects=True))
    third, here = len(records) // 3, tmp_path / "here"
    here.mkdir()
    with s3_server(tmp_path) as server, monkeypatch.context() as patch:
        for name, value in {**server.variables, "TMPDIR": str(here)}.items():
            patch.setenv(name, value)
        streams = StreamsOnS3(broker.bootstrap_servers, server.folder / "checkpoint").create()
        feed, log = streams.producer(), tmp_path / "job.log"
        for record in before:
            feed.send(record.stream, record.value, "p")
        with running(streams, log) as job:
            feed.send_slowly(records[:third])
            assert eventually(lambda: bool(streams.updates()), SETTLE_SECONDS, POLL_SECONDS), job.said()
            job.kill()
            job.forget_last_commit()
        with running(streams, log) as job:
            feed.send_slowly(records[third : 2 * third])
            job.kill()
        with running(streams, log, "--standby"):
            feed.send_slowly(records[2 * third :])
            streams.becomes(expected([[*before, *records]]).relation())
        assert any(path.is_file() for path in (streams.checkpoint / "parts").rglob("*")), "the state has no parts"
        assert list(here.rglob("snapshot-*"))
        streams.assert_repeated_updates_are_equal()
        assert_verified(streams)
