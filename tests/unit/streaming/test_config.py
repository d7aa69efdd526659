"""Settings: where they come from, and what is said of those that are wrong."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streaming.cli import main
from streaming.config import Settings, load
from streaming.errors import CheckpointMismatch, ConfigInvalid, ReexpandError
from streaming.kafka.options import java_options
from streaming.records.model import MAX_NAME_BYTES, Place
from streaming.spark import service

NEEDED = ("--bootstrap-servers", "broker:9092", "--checkpoint", "/checkpoint")
SECRET = "p4ssw0rd"  # noqa: S105 - to be looked for in messages
Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Spark, no Java, no logging set up for the tests that follow."""
    monkeypatch.setattr("streaming.cli.run.provide_java", lambda: None)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, no_java: None) -> list[Settings]:  # noqa: ARG001
    """The settings with which jobs were started."""
    jobs: list[Settings] = []
    monkeypatch.setattr(service, "run", lambda settings, **_: jobs.append(settings))
    return jobs


@pytest.fixture
def run(started: list[Settings]) -> Run:
    def invoke(*arguments: str) -> Result:
        before = len(started)
        result = CliRunner().invoke(main, ["run", *arguments])
        assert (result.exit_code == 0) == (len(started) > before), result.output
        return result

    return invoke


def test_the_largest_name_is_the_one_that_an_update_has_room_for() -> None:
    assert load({"bootstrap_servers": "b:1", "checkpoint": "/c"}).max_name_bytes == MAX_NAME_BYTES
    with pytest.raises(ConfigInvalid, match=r"max_name_bytes must be at most 16384, not '16385'"):
        load({"bootstrap_servers": "b:1", "checkpoint": "/c", "max_name_bytes": "16385"})


def test_each_request_of_a_record_has_a_position_of_its_own() -> None:
    """Requests that share one would count as the same when an end is read."""
    most = load({"bootstrap_servers": "b:1", "checkpoint": "/c"}).max_requests
    positions = [Place(0, offset, 0, entry).position for offset in (0, 1) for entry in range(most)]
    assert sorted(set(positions)) == positions
    with pytest.raises(ConfigInvalid, match=r"max_requests must be at most 1024, not '1025'"):
        load({"bootstrap_servers": "b:1", "checkpoint": "/c", "max_requests": "1025"})


@pytest.mark.parametrize(
    ("text", "size"), [("2g", 2 << 30), ("600M", 600 << 20), ("1048576k", 1 << 30), ("600000000", 600_000_000)]
)
def test_a_size_may_have_a_unit(text: str, size: int, run: Run, started: list[Settings]) -> None:
    """On the command line, and in a variable."""
    run(*NEEDED, "--heap-bytes", text)
    assert started.pop().heap_bytes == size
    run(*NEEDED, "--rocksdb-bytes", text)
    assert started.pop().rocksdb_bytes == size


@pytest.mark.parametrize("text", ["2t", "2 g", "g", "-2g", "1.5g", "2gb", ""])
def test_another_unit_is_refused(text: str, run: Run) -> None:
    assert_refused(run(*NEEDED, "--state-cache-bytes", text), "state_cache_bytes must be a whole number", repr(text))


def test_a_choice_is_in_the_help(run: Run) -> None:
    result = CliRunner().invoke(main, ["run", "--help"])
    assert "--delivery [exactly-once|at-least-once]" in result.output
    assert "--heap-bytes SIZE" in result.output
    assert_refused(run(*NEEDED, "--delivery", "twice"), "--delivery", "'exactly-once', 'at-least-once'")


def test_a_missing_setting_is_told_before_spark_is_imported() -> None:
    code = "import sys; from streaming.cli import main; main(['run'], standalone_mode=False)"
    code = f"try:\n    {code}\nfinally:\n    print(sorted({{'pyspark', 'uvicorn', 'numpy'}} & sys.modules.keys()))"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REEXPAND_")}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "bootstrap_servers is required" in result.stderr
    assert result.stdout == "[]\n"


def assert_refused(result: Result, *said: str) -> None:
    """One sentence, exit code 2."""
    assert result.exit_code == 2
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    assert [part for part in said if part not in result.output] == [], result.output


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", "lite-subscription-updates"),
        ("file", "of-file"),
        ("environment", "of-environment"),
        ("environment file", "of-environment"),
        ("option", "of-option"),
        ("option file", "of-option"),
        ("option environment", "of-option"),
        ("option environment file", "of-option"),
    ],
)
def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    given: str, expected: str, started: list[Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And all of them over the default."""
    arguments = [*NEEDED]
    if "option" in given:
        arguments += ["--updates", "of-option"]
    if "environment" in given:
        monkeypatch.setenv("REEXPAND_UPDATES", "of-environment")
    if "file" in given:
        toml = tmp_path / "reexpand.toml"
        toml.write_text('updates = "of-file"\n')
        arguments += ["--config", str(toml)]
    assert CliRunner().invoke(main, ["run", *arguments]).exit_code == 0
    assert started[0].updates == expected


@pytest.mark.parametrize("source", ["file", "environment"])
def test_all_settings_can_come_from_one_source(
    source: str, run: Run, started: list[Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"bootstrap_servers": "b:1", "checkpoint": "/c", "route_depth": "2", "allow_inner_multi": "true"}
    if source == "file":
        toml = tmp_path / "reexpand.toml"
        texts = ("bootstrap_servers", "checkpoint")
        lines = [f"{name} = {value!r}" if name in texts else f"{name} = {value}" for name, value in values.items()]
        toml.write_text("\n".join([*lines, "[shards]", "orders = 16"]))
        run("--config", str(toml))
    else:
        for name, value in {**values, "shards": '{"orders": 16}'}.items():
            monkeypatch.setenv(f"REEXPAND_{name.upper()}", value)
        run()
    settings = started[0]
    assert (settings.bootstrap_servers, settings.checkpoint, settings.route_depth) == ("b:1", "/c", 2)
    assert (settings.shards, settings.allow_inner_multi) == ({"orders": 16}, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            (),
            [
                "bootstrap_servers is required: give --bootstrap-servers, REEXPAND_BOOTSTRAP_SERVERS, or ",
                "bootstrap_servers in the TOML file; checkpoint is required: give --checkpoint, ",
            ],
        ),
        (
            (*NEEDED, "--bootstrap-servers", ""),
            ["bootstrap_servers must not be empty, not '' (from --bootstrap-servers)"],
        ),
        ((*NEEDED, "--route-depth", "-1"), ["route_depth must be at least 0, not '-1' (from --route-depth)"]),
        ((*NEEDED, "--route-depth", "deep"), ["route_depth must be a whole number, not 'deep' (from --route-depth)"]),
        ((*NEEDED, "--max-offsets-per-trigger", "0"), ["max_offsets_per_trigger must be at least 1, not '0'"]),
        ((*NEEDED, "--shuffle-partitions", "0"), ["shuffle_partitions must be at least 1, not '0'"]),
        ((*NEEDED, "--pace-cpu", "half"), ["pace_cpu must be a number, not 'half'"]),
        ((*NEEDED, "--trigger-interval-ms", "1.5"), ["trigger_interval_ms must be a whole number, not '1.5'"]),
        ((*NEEDED, "--updates", "two words"), ["updates must be the name of a Kafka topic, 1 to 249 letters"]),
        ((*NEEDED, "--dead-letters", "x" * 250), ["dead_letters must be the name of a Kafka topic"]),
        (
            (*NEEDED, "--kafka-options", "/does/not/exist"),
            ["kafka_options: /does/not/exist cannot be read (from --kaf"],
        ),
        ((*NEEDED, "--groups", "/"), ["groups: / is a folder, not a file (from --groups)"]),
        ((*NEEDED, "--updates", "lite-clock"), ["Error: the seven Kafka topics must differ: lite-group-events, "]),
        ((*NEEDED, "--config", "/does/not/exist"), ["--config", "does not exist"]),
        ((*NEEDED, "--route-deep", "1"), ["No such option", "--route-deep"]),
        ((*NEEDED, "--shards", "orders"), ["--shards", "PARENT=N, as in orders=16"]),
        ((*NEEDED, "--shards", "=3"), ["--shards", "PARENT=N"]),
        ((*NEEDED, "--shards", "orders=many"), ["shards.orders must be a whole number, not 'many' (from --shards)"]),
        ((*NEEDED, "--shards", "orders="), ["shards.orders must be a whole number, not ''"]),
        ((*NEEDED, "--shards", "orders=0"), ["shards.orders must be at least 1, not '0'"]),
        ((*NEEDED, "--shards", " =1"), ["shards: the name of a parent topic is blank"]),
    ],
)
def test_a_wrong_setting_is_named(arguments: tuple[str, ...], said: list[str], run: Run) -> None:
    assert_refused(run(*arguments), *said)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'upadtes = "u"', ["upadtes is not a setting (from FILE); did you mean updates?"]),
        (b'password = "p4ssw0rd"', ["password is not a setting (from FILE)\n"]),
        (b"route_depth = -1", ["route_depth must be at least 0, not -1 (from FILE)"]),
        (b"route_depth = 1.5", ["route_depth must be a whole number, not 1.5 (from FILE)"]),
        (b"updates = 1", ["updates must be text, not 1 (from FILE)"]),
        (b"groups = 1", ["groups must be the path of a file, not 1 (from FILE)"]),
        (b'allow_inner_multi = "maybe"', ["allow_inner_multi must be true or false, not 'maybe' (from FILE)"]),
        (
            b"shards = 3",
            ["shards must be a number of shards for each parent topic, such as orders = 16, not 3 (from FILE)"],
        ),
        (b"[shards]\norders = 0", ["shards.orders must be at least 1, not 0 (from FILE)"]),
        (b"route_depth = \n", ["FILE is not valid TOML: ", "line 1, column 15"]),
        (b'updates = "\xff"', ["FILE cannot be read: it is not UTF-8"]),
    ],
)
def test_a_wrong_setting_of_the_file_is_named(content: bytes, said: list[str], run: Run, tmp_path: Path) -> None:
    """With the file; a value that is no setting may be a secret, and is not repeated."""
    toml = tmp_path / "reexpand.toml"
    toml.write_bytes(content)
    result = run(*NEEDED, "--config", str(toml))
    assert_refused(result, *(part.replace("FILE", str(toml)) for part in said))
    assert SECRET not in result.output


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ROUTE_DEPTH", "deep", "route_depth must be a whole number, not 'deep' (from REEXPAND_ROUTE_DEPTH)"),
        (
            "SHARDS",
            "orders",
            "shards must be pairs such as orders=16,sensors=4, or a JSON object, not 'orders' (from REEXPAND",
        ),
        (
            "SHARDS",
            "orders=16,",
            "shards must be pairs such as orders=16,sensors=4, or a JSON object, not 'orders=16,' (from",
        ),
        ("SHARDS", "orders=x", "shards.orders must be a whole number, not 'x' (from REEXPAND_SHARDS)"),
        ("SHARDS", "{", "shards is not valid JSON: "),
        ("UPDATES", "", "updates must be the name of a Kafka topic"),
        ("CONFIG", "/does/not/exist", "/does/not/exist is not a file (from REEXPAND_CONFIG or --config)"),
    ],
)
def test_a_wrong_setting_of_the_environment_is_named(
    name: str, value: str, said: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"REEXPAND_{name}", value)
    assert_refused(run(*NEEDED), said)


@pytest.mark.parametrize(
    ("environment", "pairs", "shards"),
    [
        ("orders=16", [], {"orders": 16}),
        ("orders=16, sensors=4", [], {"orders": 16, "sensors": 4}),
        ("a=b=3", [], {"a=b": 3}),
        ('{"a,b": 2}', [], {"a,b": 2}),
        ("", [], {}),
        ("", ["orders=16", "sensors=4"], {"orders": 16, "sensors": 4}),
        ("", ["a=b=3"], {"a=b": 3}),
        ("", ["orders=1", "orders=2"], {"orders": 2}),
        ("", ["%RETRY% x=1"], {"%RETRY% x": 1}),
    ],
)
def test_shards_are_pairs_or_json(
    environment: str,
    pairs: list[str],
    shards: dict[str, int],
    *,
    run: Run,
    started: list[Settings],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Split at the last `=`; of one parent the last counts. JSON only in the environment."""
    monkeypatch.setenv("REEXPAND_SHARDS", environment)
    run(*NEEDED, *(part for pair in pairs for part in ("--shards", pair)))
    assert started[0].shards == shards


def test_shards_of_all_sources_are_merged(
    run: Run, started: list[Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one parent, the command line wins over the environment, and that over the file."""
    toml = tmp_path / "reexpand.toml"
    toml.write_text("[shards]\na = 1\nb = 1\nc = 1\n")
    monkeypatch.setenv("REEXPAND_SHARDS", "a=2,b=2")
    run(*NEEDED, "--config", str(toml), "--shards", "a=3", "--shards", "d=3")
    assert started[0].shards == {"a": 3, "b": 2, "c": 1, "d": 3}


@pytest.mark.parametrize("environment", ["true", "false"])
def test_a_flag_of_the_command_line_wins_too(
    environment: str, run: Run, started: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REEXPAND_ALLOW_INNER_MULTI", environment)
    run(*NEEDED)
    run(*NEEDED, "--allow-inner-multi")
    run(*NEEDED, "--no-allow-inner-multi")
    assert [settings.allow_inner_multi for settings in started] == [environment == "true", True, False]


@pytest.mark.parametrize("name", ["GROUPS", "KAFKA_OPTIONS", "MASTER", "SHUFFLE_PARTITIONS", "CONFIG"])
def test_an_empty_variable_of_a_setting_that_may_be_absent_is_none(
    name: str, run: Run, started: list[Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a compose file that passes variables on; the file's value then holds."""
    monkeypatch.setenv(f"REEXPAND_{name}", "")
    run(*NEEDED)
    toml = tmp_path / "reexpand.toml"
    toml.write_text('master = "local[1]"\n')
    run(*NEEDED, "--config", str(toml))
    assert [(settings.groups, settings.kafka_options, settings.master) for settings in started] == [
        (None, None, None),
        (None, None, "local[1]"),
    ]


@pytest.mark.parametrize(
    ("variable", "warnings"),
    [
        ("REEXPAND_UPADTES", ["REEXPAND_UPADTES is not a setting and is ignored; did you mean REEXPAND_UPDATES?"]),
        ("REEXPAND_SHARD", ["REEXPAND_SHARD is not a setting and is ignored; did you mean REEXPAND_SHARDS?"]),
        ("REEXPAND_CONFG", ["REEXPAND_CONFG is not a setting and is ignored; did you mean REEXPAND_CONFIG?"]),
        ("reexpand_updates", []),
        ("REEXPAND_KAFKA_PORT", []),  # of docker-compose.yml
        ("REEXPAND_TEST_BROKER", []),
        ("REEXPAND_EXAMPLES", []),
        ("UPADTES", []),
    ],
)
def test_a_misspelt_variable_is_warned_of(
    variable: str, warnings: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(variable, "x")
    load({"bootstrap_servers": "b:1", "checkpoint": "/c"})
    assert caplog.messages == warnings


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize(
    ("error", "code"), [(ReexpandError("what happened"), 1), (CheckpointMismatch("what happened"), 2)]
)
def test_an_error_of_the_job_is_a_sentence_and_an_exit_code(
    error: ReexpandError, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Settings, **__: Any) -> None:
        raise error

    monkeypatch.setattr(service, "run", fail)
    result = CliRunner().invoke(main, ["run", *NEEDED])
    assert (result.exit_code, result.output) == (code, "Error: what happened\n")


def settings_with(path: Path, **given: Any) -> Settings:
    return load({"bootstrap_servers": "b:1", "checkpoint": "/c", "kafka_options": str(path), **given})


def test_kafka_options_are_read_from_a_file(tmp_path: Path) -> None:
    """Comments, blank lines and blanks around keys and values are left out; values may hold `=`.

    A log line of the settings shows the path only.
    """
    file = tmp_path / "client.properties"
    file.write_text(
        "# credentials\n! another comment\n\n  security.protocol = SASL_SSL \n"
        f"sasl.jaas.config=Module required password={SECRET};\nempty=\n"
    )
    assert java_options(settings_with(file)) == {
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": f"Module required password={SECRET};",
        "empty": "",
    }
    assert java_options(load({"bootstrap_servers": "b:1", "checkpoint": "/c"})) == {}
    assert SECRET not in repr(settings_with(file))


@pytest.mark.parametrize("line", [SECRET, f"={SECRET}", f" = {SECRET}"])
def test_a_wrong_line_of_the_secret_file_is_numbered_but_not_repeated(line: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"security.protocol=SASL_SSL\n\n{line}\n")
    with pytest.raises(ConfigInvalid, match=r"client.properties, line 3: expected key=value") as error:
        java_options(settings_with(file))
    assert SECRET not in str(error.value)
    assert error.value.exit_code == 2


@pytest.mark.rule("order-of-inputs")
def test_input_streams_stand_in_the_order_in_which_they_are_read(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.touch()
    settings = settings_with(file, topic_events="t", subscription_events="s", group_events="g", clock="c")
    assert settings.inputs == ("g", "s", "t", "c")
