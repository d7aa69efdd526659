"""The watcher's loop: its waits, its ends, and its messages."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException

from streaming import config
from streaming.adapters import topic_events, watch_kafka
from streaming.adapters.topic_events import NoAnswer, Stopped
from streaming.adapters.watch import Listing, Presence, TopicChange, Watch, encode, in_words, topic_filter
from streaming.adapters.watch_kafka import KafkaCluster, Options
from streaming.cli import main
from streaming.errors import ConfigInvalid, WatchFailed
from streaming.kafka import reach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

FAST = Options(interval=0)
SETTINGS = config.load({"bootstrap_servers": "127.0.0.1:1", "checkpoint": "checkpoint", "topic_events": "events"})


class FakeCluster:
    """Gives prepared answers, and requests a stop after the last."""

    bootstrap_servers = "broker:9092"
    parent = "kafka"

    def __init__(self, answers: Iterable[Listing | None], history: list[TopicChange] | None = None) -> None:
        self.answers = iter(answers)
        self.past = history or []
        self.stop = threading.Event()

    def read_back(self, watch: Watch) -> None:
        for change in self.past:
            watch.fold(change)

    def list_topics(self, *_: Any) -> Listing:
        answer = next(self.answers, "end")
        if answer == "end":
            self.stop.set()
        if not isinstance(answer, Listing):
            raise NoAnswer("it is away")
        return answer

    def announce(self, changes: list[TopicChange], _: int) -> list[bytes]:
        return [encode(change, self.parent, 1) for change in changes]


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_kafka, "_START_SECONDS", 0.0)
    monkeypatch.setattr(topic_events, "_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(watch_kafka, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(topic_events, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)


def said(fake: FakeCluster, options: Options = FAST) -> list[str]:
    """Return the announcements up to the stop, or until everything is announced."""
    lines: list[str] = []
    watcher = watch_kafka._Watcher(
        cast("KafkaCluster", fake), topic_filter([]), lambda event: lines.append(in_words(event))
    )
    if options.once:
        watcher.run(options, fake.stop)
    else:
        with pytest.raises(Stopped):
            watcher.run(options, fake.stop)
    return lines


def seen(*names: str) -> Listing:
    return Listing(dict.fromkeys(names))


def test_only_the_difference_to_what_was_announced_before_is_announced() -> None:
    fake = FakeCluster([seen("a", "c")] * 3, [TopicChange(True, "a"), TopicChange(True, "b")])
    assert said(fake) == ["CREATED c", "DELETED b"]


def test_once_ends_when_nothing_is_in_doubt() -> None:
    fake = FakeCluster([seen("a")] * 100, [TopicChange(True, "a"), TopicChange(True, "b")])
    assert said(fake, FAST._replace(once=True)) == ["DELETED b"]
    assert len(list(fake.answers)) == 98


def test_answers_that_do_not_come_are_survived_and_said_once_each_time(caplog: pytest.LogCaptureFixture) -> None:
    """And they restart the count of answers in a row."""
    away = None
    fake = FakeCluster([seen("a", "b"), seen("a"), away, away, seen("a"), away, seen("a"), seen("a")])
    with caplog.at_level(logging.INFO, "reexpand"):
        assert said(fake) == ["CREATED a", "CREATED b", "DELETED b"]
    again = ["broker:9092 does not answer: it is away", "broker:9092 answers again"]
    assert caplog.messages[1:-1] == again * 2
    assert caplog.messages[0] == "ready: watching 2 Kafka topics of broker:9092 as parent kafka"


@pytest.mark.parametrize(
    ("answers", "once"), [([None, None], True), ([None, None], False), ([seen("a"), None], True)], ids=str
)
def test_it_gives_up_without_a_first_answer_and_with_once_without_any(
    answers: list[Listing | None], *, once: bool
) -> None:
    fake = FakeCluster(answers, [TopicChange(True, "a"), TopicChange(True, "b")])
    with pytest.raises(WatchFailed, match=r"^Kafka at broker:9092 cannot be watched: it is away\. Check"):
        said(fake, FAST._replace(once=once))


@pytest.mark.parametrize(
    ("code", "presence"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Presence.ABSENT),
        (KafkaError.LEADER_NOT_AVAILABLE, Presence.PRESENT),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Presence.UNCLEAR),
        (KafkaError._TRANSPORT, Presence.UNCLEAR),
        (KafkaError._TIMED_OUT, Presence.UNCLEAR),
    ],
)
def test_an_error_about_a_topic_deletes_it_only_if_the_topic_is_unknown(code: int, presence: Presence) -> None:
    """A broker without topic ids only reports that the topic exists."""

    def result() -> None:
        raise KafkaException(KafkaError(code))

    assert watch_kafka._presence(KafkaError(code)) is presence
    assert watch_kafka._id(result) is presence
    without_ids = SimpleNamespace(topic_id=watch_kafka._NO_ID)
    assert watch_kafka._id(lambda: without_ids) is Presence.PRESENT


def test_a_wrong_client_option_is_refused_and_a_stop_does_not_wait_for_a_broker() -> None:
    stop = threading.Event()
    with pytest.raises(ConfigInvalid, match=r"^the Kafka client cannot be set up: No such configuration property"):
        KafkaCluster(SETTINGS, "kafka", {"nonsense": "1"}, stop)
    stop.set()
    with pytest.raises(WatchFailed, match=r"^Stopped before all topic events were written \(2 left\)"):
        KafkaCluster(SETTINGS, "kafka", {}, stop).announce([TopicChange(True, "a"), TopicChange(False, "b")], 1)


def test_a_misspelt_topic_of_the_events_is_not_created(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = KafkaCluster(SETTINGS, "kafka", {}, threading.Event())
    monkeypatch.setattr(watched, "_topics", lambda: ["event", "orders"])
    with pytest.raises(ConfigInvalid, match="has no topic events, but event: set topic_events to that one"):
        watched.read_back(Watch())


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        ([], 2, "bootstrap_servers is required: give --bootstrap-servers, "),
        (["--bootstrap-servers", "127.0.0.1:1", "--parent", " "], 2, "--parent is blank"),
        (["--bootstrap-servers", "127.0.0.1:1", "--include", "a..b"], 2, "invalid pattern 'a..b'"),
        (["--bootstrap-servers", "127.0.0.1:1", "--interval", "0"], 2, "Invalid value for '--interval'"),
        (
            ["--bootstrap-servers", "127.0.0.1:1"],
            1,
            "no Kafka broker answers at 127.0.0.1:1 within 1 s: 127.0.0.1:1: ",
        ),
        (["--bootstrap-servers", "127.0.0.1"], 2, "bootstrap_servers must be host:port"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    options: list[str], code: int, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "WAIT_SECONDS", 1.0)
    result = CliRunner().invoke(main, ["watch-kafka", *options])
    assert result.exit_code == code
    assert sentence in result.output
    assert "Traceback" not in result.output


def test_client_options_are_those_of_the_jobs_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the names of librdkafka; the file of the command line wins over that of the environment."""
    given: list[Options] = []
    monkeypatch.setattr(watch_kafka, "run", lambda _settings, options, _announced: given.append(options))
    ours, mine = tmp_path / "ours", tmp_path / "mine"
    ours.write_text("ssl.truststore.type=PEM\nssl.truststore.location=/ca.pem\n")
    mine.write_text("# secret\nssl.key.password=x=y\n")
    monkeypatch.setenv("REEXPAND_KAFKA_OPTIONS", str(ours))
    monkeypatch.setenv("REEXPAND_BOOTSTRAP_SERVERS", "broker:9092")
    for options in ([], ["--kafka-options", str(mine)]):
        assert CliRunner().invoke(main, ["watch-kafka", *options]).exit_code == 0
    assert [options.client for options in given] == [{"ssl.ca.location": "/ca.pem"}, {"ssl.key.password": "x=y"}]
    assert given[0]._replace(client={}) == Options()


def test_internal_is_what_kafka_says_is_internal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic of that kind is asked about once; a name that begins with `__` decides nothing."""
    watched = KafkaCluster(SETTINGS, "kafka", {}, threading.Event())
    asked: list[list[str]] = []

    def ids(names: Any, **_: Any) -> dict[str, Future[Any]]:
        asked.append(names.topic_names)
        found: dict[str, Future[Any]] = {}
        for name in names.topic_names:
            found[name] = Future()
            found[name].set_result(SimpleNamespace(topic_id=name, is_internal=name == "__audit"))
        return found

    monkeypatch.setattr(watched, "_topics", lambda: dict.fromkeys(["events", "__audit", "__debezium-heartbeat.x"]))
    monkeypatch.setattr(watched, "_admin", SimpleNamespace(describe_topics=ids))
    for _ in range(2):
        found = watched.list_topics(topic_filter(["events"]), {}, [])
        assert dict(found.topics) == {"__debezium-heartbeat.x": "__debezium-heartbeat.x"}
    assert sorted(asked[0]) == ["__audit", "__debezium-heartbeat.x"]
    assert asked[1:] == [["__debezium-heartbeat.x"]]


def test_all_topics_of_the_job_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the answers to questions as well."""
    settings = config.load({"bootstrap_servers": "127.0.0.1:1", "checkpoint": "checkpoint"})
    kept: list[Callable[[str], bool]] = []

    def watcher(_: Any, selected: Callable[[str], bool], __: Any) -> SimpleNamespace:
        kept.append(selected)
        return SimpleNamespace(run=lambda *_: None)

    monkeypatch.setattr(watch_kafka, "wait_for_broker", lambda *_, **__: None)
    monkeypatch.setattr(watch_kafka, "_Watcher", watcher)
    watch_kafka.run(settings, watch_kafka.Options(), lambda _: None)
    own = [*settings.inputs, settings.updates, settings.dead_letters, settings.answers]
    assert [name for name in [*own, "orders"] if kept[0](name)] == ["orders"]
