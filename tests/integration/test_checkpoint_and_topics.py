"""A checkpoint whose Kafka topics are not those that it knows: refused, and the way out leads to the relation."""

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import KafkaException, Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.errors import JobError, RecordsLost, ReexpandError, TopicReplaced, UpdatesUnknown
from streaming.kafka import facts
from streaming.kafka.permissions import partition_names
from streaming.kafka.topics import configure
from streaming.records.model import Stream
from streaming.spark import attend, checkpoint
from streaming.spark.attend import TopicWatch
from streaming.spark.failures import text_of
from streaming.spark.kafka_admin import KafkaAdmin
from streaming.spark.lease import Lease
from tests.support.brokers import StartBroker
from tests.support.processes import eventually
from tests.support.running_job import (
    POLL_SECONDS,
    PRODUCERS_TIME,
    SETTLE_SECONDS,
    OpenTransactions,
    Streams,
    refused,
    running,
)
from tests.support.running_query import begun
from tests.support.scene import Scene
from tests.support.topics import delete, left_open, recreate, remove_records, topics


@dataclass
class Jobs:
    """Jobs on the topics of a test, all in one Spark. `changed` settings differ from those of the streams."""

    spark: SparkSession
    streams: Streams
    changed: dict[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        return self.streams.settings.model_copy(update={"shuffle_partitions": 1, **self.changed})

    def works(self, *, accept_topics: bool = False) -> set[str]:
        """Process all records, and return the topics that the client receives."""
        with begun(self.spark, self.settings, accept_topics=accept_topics) as query:
            query.processAllAvailable()
        last = {message.key(): message.value() for message in self.streams.read(self.settings.updates)}
        updates = [orjson.loads(value) for value in last.values() if value]
        return {update["liteTopic"] for update in updates if update["op"] == "ADD"}

    def goes_on(self) -> None:
        """Create a third topic, and check that the client receives all three."""
        born(self.streams, "t3")
        assert self.works() == {"t1", "t2", "t3"}

    def refuses(self, kind: type[ReexpandError], *words: str) -> str:
        before = topics(self.streams)
        with pytest.raises(kind) as caught, begun(self.spark, self.settings):
            pytest.fail("it has started")
        said = str(caught.value)
        for word in words:
            assert word in said
        assert topics(self.streams) == before
        return said

    def anew(self, **changed: Any) -> "Jobs":
        """The way out that the texts name: another checkpoint and another updates topic."""
        checkpoint_2 = f"{self.streams.checkpoint}-2"
        changed = {"checkpoint": checkpoint_2, "updates": f"{self.streams.prefix}-updates-2", **changed}
        return Jobs(self.spark, self.streams, {**self.changed, **changed})


@pytest.fixture
def jobs(spark: SparkSession, streams: Streams) -> Iterator[Jobs]:
    """A job that has told a client of two topics, t1 and t2."""
    scene = Scene(streams)
    scene.group("g", "p")
    scene.asks("c", "g", "p", "*")
    scene.born("p", "t1", "t2")
    scene.sent()
    jobs = Jobs(spark, streams)
    assert jobs.works() == {"t1", "t2"}
    yield jobs
    for query in spark.streams.active:  # one that should not have started
        query.stop()


def born(streams: Streams, *names: str) -> None:
    scene = Scene(streams)
    scene.born("p", *names)
    scene.sent()


@pytest.mark.long
def test_the_identity_names_all_topics(jobs: Jobs) -> None:
    """Those of an older release do not: they learn the topics at their next start."""
    file = jobs.streams.checkpoint / "reexpand.json"
    identity = orjson.loads(file.read_bytes())
    assert {role: topic["name"] for role, topic in identity["topics"].items()} == {
        role: getattr(jobs.settings, role) for role in facts.ROLES
    }
    assert len({topic["id"] for topic in identity["topics"].values()}) == len(identity["topics"])
    file.write_bytes(orjson.dumps({name: value for name, value in identity.items() if name != "topics"}))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    jobs.goes_on()
    assert orjson.loads(file.read_bytes()) == identity


def test_an_identity_that_cannot_be_written_stays_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """An empty file would be refused by each further start."""
    files = checkpoint.CheckpointFiles(spark, str(tmp_path / "checkpoint"))
    files.write("reexpand.json", b"former")
    no_bytes: Any = object()
    with pytest.raises(Exception, match="object"):
        files.write("reexpand.json", no_bytes)
    assert files.read("reexpand.json") == b"former"
    files.write("reexpand.json", b"new")
    assert files.read("reexpand.json") == b"new"
    assert {file.name for file in (tmp_path / "checkpoint").iterdir()} <= {"reexpand.json", ".reexpand.json.crc"}


def test_an_identity_is_created_once(spark: SparkSession, tmp_path: Path) -> None:
    """Two drivers that find a new checkpoint have given it an id each."""
    files = checkpoint.CheckpointFiles(spark, str(tmp_path / "checkpoint"))
    files.create("reexpand.json", b"of the first driver")
    with pytest.raises(FileExistsError):
        files.create("reexpand.json", b"of the second driver")
    assert files.read("reexpand.json") == b"of the first driver"


@pytest.mark.rule("lost-topic")
def test_a_recreated_input_is_refused(jobs: Jobs) -> None:
    """It has grown past the offset that was read: Spark would read on in the middle."""
    topic = jobs.settings.topic_events
    recreate(jobs.streams, topic)
    names = {f"n{number}" for number in range(20)}
    born(jobs.streams, *names)
    said = jobs.refuses(TopicReplaced, f"the topic {topic} was deleted and created again")
    assert "--checkpoint for a new folder and --updates for a new topic" in said
    assert jobs.anew().works() == names


@pytest.mark.rule("lost-topic")
def test_a_deleted_topic_is_refused(jobs: Jobs) -> None:
    """It is not created for a checkpoint that has read or written it, except for dead letters."""
    settings = jobs.settings
    delete(jobs.streams, settings.updates, settings.dead_letters)
    jobs.refuses(TopicReplaced, f"the topic {settings.updates} does not exist", "Run `reexpand rebuild`")
    jobs.streams.create()
    assert jobs.anew(updates=settings.updates).works() == {"t1", "t2"}  # an empty topic is as good as a new one


@pytest.mark.long
def test_dead_letters_may_be_deleted(jobs: Jobs) -> None:
    delete(jobs.streams, jobs.settings.dead_letters)
    jobs.goes_on()


@pytest.mark.long
def test_restored_topics_are_used_once_they_are_accepted(jobs: Jobs) -> None:
    """Kafka gives them other ids; that they hold what the former ones held is known to the operator alone."""
    names = [jobs.settings.topic_events, jobs.settings.updates]
    records = [message for name in names for message in jobs.streams.read(name)]
    recreate(jobs.streams, *names)
    jobs.refuses(TopicReplaced, *(f"the topic {name} was deleted and created again" for name in names))
    jobs.refuses(TopicReplaced, "start once with --accept-topics")
    with pytest.raises(TopicReplaced, match="ends at offset 0"):  # not yet restored
        jobs.works(accept_topics=True)
    producer = Producer({"bootstrap.servers": jobs.streams.bootstrap_servers})
    for each in records:
        producer.produce(each.topic() or "", each.value(), each.key(), each.partition() or 0)
    assert producer.flush(60) == 0
    jobs.works(accept_topics=True)
    jobs.goes_on()


def test_another_updates_topic_is_refused(jobs: Jobs) -> None:
    """Only what changes would be written to it."""
    wanted = f"belongs to the updates topic {jobs.settings.updates}, not to other-updates"
    Jobs(jobs.spark, jobs.streams, {"updates": "other-updates"}).refuses(TopicReplaced, wanted, "Set updates back to")
    jobs.goes_on()


@pytest.mark.long
def test_another_kafka_is_refused(jobs: Jobs, own_broker: StartBroker) -> None:
    """Nothing is created there; back on its own Kafka the checkpoint goes on."""
    address = own_broker().bootstrap_servers
    other = Jobs(jobs.spark, Streams(address, jobs.streams.checkpoint, jobs.streams.prefix))
    said = f"Kafka at {address} has none of the topics of the checkpoint {jobs.settings.checkpoint}"
    other.refuses(TopicReplaced, said, "Set bootstrap_servers back")
    other.streams.create()
    other.refuses(TopicReplaced, said, "Set bootstrap_servers back")
    jobs.goes_on()


@pytest.mark.rule("lost-checkpoint")
def test_a_new_checkpoint_is_refused_for_updates_of_a_former_one(jobs: Jobs) -> None:
    """A row that the former one removed later would stay."""
    shutil.rmtree(jobs.streams.checkpoint)
    jobs.refuses(UpdatesUnknown, f"the updates topic {jobs.settings.updates} contains updates of another one")
    assert Jobs(jobs.spark, jobs.streams, {"updates": f"{jobs.streams.prefix}-updates-2"}).works() == {"t1", "t2"}


@pytest.mark.rule("lost-checkpoint")
def test_an_older_copy_of_the_checkpoint_is_refused(jobs: Jobs) -> None:
    """What came and went since would be nothing to it, and its ADDs would stay."""
    folder = jobs.streams.checkpoint
    copy = shutil.copytree(folder, folder.with_name("copy"))
    jobs.works()  # a copy of a job that has had nothing to do since is not older
    jobs.goes_on()
    latest = folder.rename(folder.with_name("latest"))
    copy.rename(folder)
    jobs.refuses(
        UpdatesUnknown,
        f"because of {jobs.settings.topic_events}[",
        "older copy",
        "the latest checkpoint",
        "`reexpand rebuild`",
    )
    shutil.rmtree(folder)
    latest.rename(folder)
    scene = Scene(jobs.streams)
    scene.gone("p", "t3")
    scene.sent()
    assert jobs.works() == {"t1", "t2"}


@pytest.mark.rule("lost-checkpoint")
def test_a_copy_older_by_a_micro_batch_without_updates_is_refused(jobs: Jobs) -> None:
    """Its next micro-batch has the number of one that is written, and would be skipped."""
    folder = jobs.streams.checkpoint
    copy = shutil.copytree(folder, folder.with_name("copy"))
    feed = jobs.streams.producer()
    feed.send(Stream.TOPICS, b"{", "p")
    feed.flush()
    jobs.works()
    shutil.rmtree(folder)
    copy.rename(folder)
    born(jobs.streams, "t3")
    jobs.refuses(UpdatesUnknown, "is written", "older copy", "`reexpand rebuild`")


@pytest.mark.rule("end-before-commit")
@pytest.mark.long
def test_a_micro_batch_that_was_not_committed_is_repeated(jobs: Jobs) -> None:
    """Its updates are written, and the checkpoint knows of them."""
    jobs.goes_on()
    last = max((jobs.streams.checkpoint / "query/commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    assert jobs.works() == {"t1", "t2", "t3"}


@pytest.mark.rule("removed-unread")
def test_records_that_were_removed_unread_are_reported(jobs: Jobs) -> None:
    """Neither the checkpoint nor a new one goes on without a word; with --accept-loss a new one does."""
    topic = jobs.settings.topic_events
    born(jobs.streams, "t3")
    remove_records(jobs.streams, topic, 3)
    born(jobs.streams, "t4")
    jobs.refuses(RecordsLost, f"{topic}, partition ", "offsets 2 to 2", "add --accept-loss")
    jobs.anew().refuses(
        RecordsLost, "is new, and the inputs are not complete", f"{topic}, partition ", "offsets 0 to 2"
    )
    other = jobs.anew(accept_loss=True)
    assert other.works() == {"t4"}
    born(jobs.streams, "t5")
    assert other.anew(accept_loss=False).works() == {"t4", "t5"}


@pytest.mark.long
def test_a_clock_without_its_beginning_is_complete(jobs: Jobs) -> None:
    """Old ticks are of no use to a new checkpoint."""
    scene = Scene(jobs.streams)
    scene.tick(1)
    scene.sent()
    remove_records(jobs.streams, jobs.settings.clock, 1)
    assert jobs.anew().works() == {"t1", "t2"}


@pytest.mark.long
def test_a_new_checkpoint_is_refused_on_compacted_inputs(jobs: Jobs) -> None:
    """Events share their keys, so that compaction removes what still counts. A running job is only warned."""
    topic = jobs.settings.group_events
    configure(jobs.streams.bootstrap_servers, {topic: {"cleanup.policy": "compact"}})
    jobs.works()
    jobs.anew().refuses(RecordsLost, f"{topic} is compacted", "--accept-loss")
    assert jobs.anew(accept_loss=True).works() == {"t1", "t2"}


@pytest.mark.long
def test_each_unsuitable_setting_of_a_topic_is_a_warning(jobs: Jobs, caplog: pytest.LogCaptureFixture) -> None:
    settings = jobs.settings
    changes = {settings.clock: {"retention.ms": "1000000000"}, settings.group_events: PRODUCERS_TIME}
    configure(jobs.streams.bootstrap_servers, {**changes, settings.updates: {"cleanup.policy": "compact,delete"}})
    jobs.works()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [warning.partition(": ")[0] for warning in warnings] == [
        f"the topic {settings.group_events} has message.timestamp.type=CreateTime instead of LogAppendTime",
        f"the topic {settings.clock} has retention.ms=1000000000 instead of -1",
        f"the topic {settings.updates} has cleanup.policy=compact,delete instead of compact",
    ]
    assert all("; `reexpand topics --fix` fixes it" in warning for warning in warnings)


@pytest.fixture
def topic_watch(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> Iterator[TopicWatch]:
    """A watch on the topics of a job, which looks at once."""
    monkeypatch.setattr(attend, "LOOK_SECONDS", 0.2)
    topics = checkpoint.agree(jobs.spark, jobs.settings).topics
    with KafkaAdmin(jobs.spark, jobs.settings) as admin:
        yield TopicWatch(jobs.spark, jobs.settings, admin, topics)


def sees(topic_watch: TopicWatch, seconds: float) -> str | None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            topic_watch.look()
        except JobError as error:
            return str(error)
        time.sleep(0.05)
    return None


@pytest.mark.rule("lost-topic")
@pytest.mark.long
@pytest.mark.parametrize("role", ["group_events", "updates"])
def test_a_topic_that_is_created_anew_while_the_job_runs(jobs: Jobs, topic_watch: TopicWatch, role: str) -> None:
    topic = facts.names(jobs.settings)[role]
    assert sees(topic_watch, 2) is None
    recreate(jobs.streams, topic)
    assert f"the topic {topic} was deleted and created again" in (sees(topic_watch, 10) or "")


@pytest.mark.rule("lost-topic")
@pytest.mark.long
def test_a_topic_that_is_deleted_while_the_job_runs(jobs: Jobs, topic_watch: TopicWatch) -> None:
    delete(jobs.streams, jobs.settings.dead_letters)
    assert sees(topic_watch, 2) is None
    delete(jobs.streams, jobs.settings.topic_events)
    assert f"the topic {jobs.settings.topic_events} does not exist" in (sees(topic_watch, 10) or "")


@pytest.mark.long
@pytest.mark.parametrize("happens", [delete, recreate])
def test_the_clock_goes_while_the_job_runs(
    jobs: Jobs, topic_watch: TopicWatch, happens: Callable[[Streams, str], None]
) -> None:
    """Spark itself may try to read it for minutes."""
    clock = jobs.settings.clock
    happens(jobs.streams, clock)
    assert f"the topic {clock} was deleted, or created again, while the job ran" in (sees(topic_watch, 10) or "")


def failure(jobs: Jobs, happens: Callable[[], None]) -> str:
    with begun(jobs.spark, jobs.settings) as query:
        happens()
        with pytest.raises(StreamingQueryException) as caught:
            query.awaitTermination(90)
        return text_of(caught.value)


@pytest.mark.long
def test_spark_fails_because_of_a_topic(jobs: Jobs, topic_watch: TopicWatch) -> None:
    """Our sentence is shown, without advice about options that the job does not have."""
    topic = jobs.settings.topic_events
    born(jobs.streams, "t3")
    text = failure(jobs, lambda: recreate(jobs.streams, topic))
    said = str(topic_watch.explain(text))
    assert f"the topic {topic} was deleted and created again" in said
    assert "failOnDataLoss" not in said


@pytest.mark.rule("removed-unread")
@pytest.mark.long
def test_spark_fails_because_of_records_removed_unread(jobs: Jobs, topic_watch: TopicWatch) -> None:
    slow = Jobs(jobs.spark, jobs.streams, {"trigger_interval_ms": 10_000})

    def happens() -> None:
        time.sleep(2)  # the first micro-batch finds nothing
        born(jobs.streams, "t3", "t4")
        remove_records(jobs.streams, jobs.settings.topic_events, 3)

    text = failure(slow, happens)
    said = str(topic_watch.explain(text))
    assert "records were removed from Kafka before the job has read them" in said
    assert "failOnDataLoss" not in said


def test_the_job_ends_with_a_sentence(streams: Streams, tmp_path: Path) -> None:
    """While it runs, and at the next start; nothing else is said."""
    Scene(streams).born("p", "t1")
    topic = streams.settings.updates
    log = tmp_path / "job.log"
    with running(streams, log) as job:
        assert eventually(streams.are_read, SETTLE_SECONDS, POLL_SECONDS)
        recreate(streams, topic)
        assert job.process.wait(SETTLE_SECONDS) == 2
        said = job.said()
    for text in (said, refused(streams, log)):
        assert f"Error: the topic {topic} was deleted and created again" in text
        assert "Traceback" not in text
        assert "\tat " not in text


def test_what_a_dead_driver_left_open_is_ended(spark: SparkSession, streams: Streams) -> None:
    """Otherwise nobody reads on behind it until the broker aborts it, after 15 minutes."""
    (name,) = partition_names("c", 1)
    with (
        left_open(streams, streams.settings.updates, name) as producer,
        OpenTransactions(streams) as transactions,
        KafkaAdmin(spark, streams.settings) as admin,
    ):
        assert eventually(transactions.exist, 30, POLL_SECONDS)
        admin.end_transactions([name])
        assert eventually(lambda: not transactions.exist(), 30, POLL_SECONDS)
        with pytest.raises(KafkaException, match="fenced"):
            producer.commit_transaction(30)
    assert streams.read(streams.settings.updates) == []


@pytest.mark.rule("abandoned-transactions")
@pytest.mark.parametrize("driver", ["ended", pytest.param("silent", marks=pytest.mark.long), "alive"])
def test_what_the_driver_of_a_lost_checkpoint_left_open_is_ended(jobs: Jobs, driver: str) -> None:
    """Nobody else would, since its id is lost as well. A driver that lives ends by itself what it has begun."""
    lost = checkpoint.agree(jobs.spark, jobs.settings).checkpoint_id
    shutil.rmtree(jobs.streams.checkpoint)
    anew = jobs.anew()
    (name,) = partition_names(lost, 1)
    with left_open(jobs.streams, jobs.settings.topic_events, name), Lease(jobs.spark, jobs.settings, lost) as lease:
        born(jobs.streams, "t3")
        if driver != "ended":
            lease.acquire(take_over=False)
        if driver == "silent":
            lease._stop.set()
        assert anew.works() == ({"t1", "t2"} if driver == "alive" else {"t1", "t2", "t3"})


def test_a_new_checkpoint_begins_while_a_dead_driver_has_something_open(jobs: Jobs) -> None:
    """Of a job with other topics, so that nobody knows here whether it lives."""
    with left_open(jobs.streams, jobs.settings.clock, "of-another-job"):
        assert jobs.anew().works() == {"t1", "t2"}
