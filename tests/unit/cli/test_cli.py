"""The `reexpand` command as a whole: summaries, version, exit codes and log; `jars` and `local`."""

import json
import logging
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn, Self

import pytest
from click.testing import CliRunner, Result

import streaming
from streaming.cli import main, root
from streaming.cli.output import set_up
from streaming.errors import ExtraMissing
from streaming.local import jars

ADDRESS = "127.0.0.1:20001"


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No Java, no logging and no signal handler for the tests that follow."""
    monkeypatch.setattr("streaming.cli.run.provide_java", lambda: None)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    former = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, former)
    logging.getLogger("reexpand").setLevel(logging.NOTSET)


class FakeBroker:
    """Broker that ends by itself, or by Ctrl-C, as soon as it is waited for."""

    bootstrap_servers = ADDRESS
    log_file = "broker.log"
    interrupted = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stand for `Broker.__exit__`."""

    def wait(self) -> None:
        """Stand for `Broker.wait`."""
        if self.interrupted:
            raise KeyboardInterrupt


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> type[FakeBroker]:
    monkeypatch.setattr("streaming.local.broker.Broker", FakeBroker)
    monkeypatch.setattr("streaming.kafka.topics.create_topics", lambda *_: [])
    return FakeBroker


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def interrupt(*_: Any, **__: Any) -> NoReturn:
    raise KeyboardInterrupt


def test_no_summary_is_cut_and_the_version_is_that_of_the_package() -> None:
    """On a terminal of 80 columns."""
    summaries = run("--help").output.partition("Commands:\n")[2].splitlines()
    assert len(summaries) == len(main.commands)
    assert [line for line in summaries if not re.fullmatch(r"  [a-z-]+ +[A-Z].*\w\.", line)] == []
    assert [line for line in summaries if "..." in line] == []
    assert run("--version").output == f"reexpand, version {streaming.__version__}\n"
    with pytest.raises(AttributeError, match="module 'streaming' has no attribute 'nothing'"):
        _ = streaming.nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "interrupted"),
    [
        (["run", "--bootstrap-servers", "b:1", "--checkpoint", "/c"], "streaming.spark.service.run"),
        (["topics", "--bootstrap-servers", "b:1"], "streaming.kafka.topics.configurations"),
        (["jars"], "streaming.local.jars.fetch"),
        (["local"], "streaming.kafka.topics.create_topics"),
        (["watch-kafka", "--bootstrap-servers", "b:1"], "streaming.adapters.watch_kafka.run"),
        (["advise", "--bootstrap-servers", "b:1"], "streaming.operations.advise.inventory.from_kafka"),
        (["match", "a", "a"], "matcher.explain"),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
@pytest.mark.usefixtures("broker", "no_java")
def test_ctrl_c_has_one_exit_code(arguments: list[str], interrupted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """130, where no verb has said otherwise, and no word about it."""
    monkeypatch.setattr(interrupted, interrupt)
    result = run(*arguments)
    assert (result.exit_code, result.output.strip()) == (130, "")


@pytest.mark.parametrize("verb", [["match", "a", "a"], ["--version"], ["validate", "a"]], ids=lambda verb: verb[0])
def test_an_output_that_cannot_be_written_is_a_sentence(verb: list[str]) -> None:
    command = [sys.executable, "-c", "from streaming.cli import main; main(prog_name='reexpand')", *verb]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (result.returncode, result.stderr) == (1, "Error: the output cannot be written: No space left on device\n")


@pytest.mark.parametrize(
    ("arguments", "level"),
    [
        (["jars"], logging.INFO),
        (["-v", "jars"], logging.DEBUG),
        (["jars", "-v"], logging.DEBUG),
        (["jars", "--verbose"], logging.DEBUG),
    ],
)
def test_verbose_stands_before_or_after_the_verb(
    arguments: list[str], level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "fetch", lambda **_: None)
    result = run(*arguments)
    assert result.exit_code == 0
    assert result.stdout == f"The jars of Spark's Kafka connector and of the broker are in {jars.LOCAL.folder}.\n"
    assert logging.getLogger("reexpand").level == level


@pytest.mark.parametrize(
    ("home", "checkpoint"),
    [
        (".reexpand/kafka", ".reexpand/kafka-checkpoint"),
        ("/data/one", "/data/one-checkpoint"),
        ("my broker", "'my broker-checkpoint'"),
    ],
)
@pytest.mark.usefixtures("broker")
def test_the_next_command_has_a_checkpoint_of_this_broker(home: str, checkpoint: str) -> None:
    """Beside its folder: the job fails on the checkpoint of another broker."""
    result = run("local", "--home", home)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"Kafka listens on {ADDRESS}; data in {home}; Ctrl-C stops it.",
        f"Next: reexpand run --bootstrap-servers {ADDRESS} --checkpoint {checkpoint}",
    ]
    told = json.loads(run("local", "--home", home, "--json").stdout)
    assert told == {"bootstrapServers": ADDRESS, "data": home, "checkpoint": checkpoint.strip("'")}


def test_a_broker_that_ends_by_itself_is_an_error(broker: type[FakeBroker], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "interrupted", False)
    result = run("local")
    assert (result.exit_code, result.stderr) == (1, "Error: The broker ended unexpectedly. Its log is broker.log.\n")


def test_the_demo_on_rocketmq_is_refused_before_anything_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """With other options of the demo, and without the extra that it needs."""

    def missing() -> NoReturn:
        raise ExtraMissing("Install it: pip install 'reexpand[rocketmq]'")

    monkeypatch.setattr("streaming.rocketmq.demo.official_client", missing)
    for options, said in (
        (["--cluster"], "--rocketmq cannot be combined with --cluster or --keep"),
        (["--keep"], "--rocketmq cannot be combined with --cluster or --keep"),
        ([], "Error: Install it: pip install 'reexpand[rocketmq]'\n"),
    ):
        result = run("demo", "--rocketmq", *options)
        assert result.exit_code == 2
        assert said in result.output


def test_a_verb_names_the_extra_of_its_own_name() -> None:
    """Although another one contains it, too."""
    missing = root.missing_extra(ModuleNotFoundError(name="cloudevents.core"), "cloudevents")
    assert "pip install 'reexpand[cloudevents]'" in str(missing)


def test_a_line_of_the_log_has_a_time_with_its_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it is written for a terminal. In JSON it has the fields of the line as well, and numbers stay numbers."""
    handlers: list[logging.Handler] = []
    monkeypatch.setattr(logging, "basicConfig", lambda **options: handlers.extend(options["handlers"]))
    monkeypatch.setattr("streaming.cli.output._form", ["text"])
    record = logging.LogRecord("reexpand", logging.WARNING, "", 0, "%d of %s", (3, "ä"), None)
    record.micro_batch = 7
    set_up(verbose=False)
    set_up(verbose=False, form="json")
    line, text = json.loads(handlers[1].format(record)), handlers[0].format(record)
    zoned = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d"
    assert re.fullmatch(rf"{zoned} WARNING 3 of ä", text)
    assert re.fullmatch(zoned, line.pop("time"))
    assert line == {"event": "3 of ä", "level": "warning", "logger": "reexpand", "micro_batch": 7}


def test_an_error_is_a_line_of_the_log_where_that_is_json(caplog: pytest.LogCaptureFixture) -> None:
    """Before the verb, after it, and by the environment."""
    for words, environment in (
        (("--log-format", "json", "run"), {}),
        (("run", "--log-format", "json"), {}),
        (("run",), {"REEXPAND_LOG_FORMAT": "json"}),
    ):
        result = CliRunner().invoke(main, [*words], env=environment)
        assert (result.exit_code, result.stderr) == (2, "")
        assert caplog.records[-1].levelno == logging.ERROR
        assert caplog.messages.pop().startswith("bootstrap_servers is required")
        caplog.clear()
    assert CliRunner().invoke(main, ["run"]).stderr.startswith("Error: bootstrap_servers is required")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["status", "--http", "127.0.0.1:1", "--timeout", "nan"], 2),
        (["status", "--http", "127.0.0.1:1", "--timeout", "inf"], 2),
        (["status", "--http", "a b:80"], 1),
        (["status", "--http", f"{'a' * 70}:80"], 1),
        (["top", "--interval", "nan"], 2),
        (["top", "-n", "99999999999999999999"], 2),
        (["topics", "list", "--bootstrap-servers", "127.0.0.1:1", "--watch", "nan"], 2),
        (["topics", "list", "--bootstrap-servers", "127.0.0.1:1", "--limit", "99999999999999999999"], 2),
        (["topics", "--bootstrap-servers", "127.0.0.1:1", "--partitions", "300000"], 2),
        (["tail", "--bootstrap-servers", "127.0.0.1:1", "--count", "99999999999999999999"], 2),
        (["explain", "--bootstrap-servers", "127.0.0.1:1", "--client", "c", "--topic", "%LMQ%$a"], 2),
        (["dlq", "show", "--bootstrap-servers", "127.0.0.1:1", f"a[0]@{'9' * 5_000}"], 2),
        (["schema", "--folder", "/dev/null/x"], 1),
        (["cloudevents", "accept", "--bootstrap-servers", "127.0.0.1:1", "\udcff"], 2),
        (["cloudevents", "accept", "--bootstrap-servers", "127.0.0.1:1", "lite-answers"], 2),
        (["cloudevents", "emit", "--bootstrap-servers", "127.0.0.1:1", "lite-subscription-updates"], 2),
    ],
)
def test_a_value_that_cannot_be_is_a_sentence(words: list[str], code: int) -> None:
    result = CliRunner().invoke(main, words)
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code == code
    assert "Error: " in result.stderr
