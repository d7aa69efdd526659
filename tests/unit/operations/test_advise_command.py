"""`reexpand advise` with files, and its errors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streaming.cli import main
from streaming.operations.advise import rule
from streaming.records.routing import Routing
from tests.support.events import created, deleted, encoded, replace

TOPICS = [f"eu__tenant{number}__created" for number in range(25_000)]


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make shards smaller than advised."""
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setattr(rule, "TOPICS_PER_SHARD", 10_000)


def advise(*arguments: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(main, ["advise", *arguments], input=stdin)


def told(*arguments: str, stdin: bytes = b"") -> dict[str, Any]:
    """Return the output of `--json`."""
    result = advise("--json", *arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def lines(*values: bytes | str) -> bytes:
    return b"".join((value.encode() if isinstance(value, str) else value) + b"\n" for value in values)


@pytest.fixture
def file_of(tmp_path: Path) -> Callable[..., str]:
    """Return a function that writes lines to the file of patterns."""

    def write(*values: bytes | str) -> str:
        (tmp_path / "patterns").write_bytes(lines(*values))
        return str(tmp_path / "patterns")

    return write


@pytest.fixture
def patterns(file_of: Callable[..., str]) -> str:
    """Two patterns, and a line without one."""
    return file_of("eu__tenant7__*", "", "*__tenant7__**")


def test_plain_lines_of_one_parent(patterns: str) -> None:
    found = told("--parent", "the shop", "--topics", "-", "--patterns", patterns, "--cores", "3", stdin=lines(*TOPICS))
    (parent,) = found["parents"]
    assert found["flags"] == ["--shards", "the shop=4", "--route-depth", "2", "--shuffle-partitions", "3"]
    assert (found["shards"], found["routeDepth"], found["kafkaPartitions"]) == ({"the shop": 4}, 2, 3)
    assert (parent["topics"], parent["patterns"], parent["clients"], parent["replicas"]) == (25_000, 2, 1, 2.5)
    routing = Routing({"the shop": 4}, 2)
    in_shards = [routing.shard_of("the shop", name) for name in TOPICS]
    assert parent["fullestShard"] == max(map(in_shards.count, range(4)))
    assert len(parent["candidates"]) == 5 * 7
    assert {(each["routeDepth"], each["shards"]) for each in parent["candidates"]} >= {(0, 64), (1, 1)}


def test_records_of_several_parents_as_the_inputs_have_them(file_of: Callable[..., str]) -> None:
    file = file_of(encoded(replace("a__*")), encoded(replace("t", parent="q", client="d")))
    events = lines(encoded(created()), encoded(created("u")), encoded(created(parent="q")), encoded(deleted()))
    found = told("--topics", "-", "--patterns", file, stdin=events)
    parents = [(each["parent"], each["topics"], each["patterns"]) for each in found["parents"]]
    assert parents == [("p", 1, 1), ("q", 1, 1)]
    assert (found["flags"][:2], found["warnings"]) == (["--route-depth", "1"], [])


def test_words_and_tables(patterns: str) -> None:
    """One table, and each command to copy on a line of its own, quoted for a shell."""
    result = advise("--parent", "the [b]shop", "--topics", "-", "--patterns", patterns, "--cores", "3",
        stdin=lines(*TOPICS))  # fmt: skip
    assert result.exit_code == 0
    output = result.stdout.splitlines()
    assert any(line.startswith("the [b]shop  25,000 ") for line in output)
    assert any("; depth 2: " in line for line in output)
    assert "--shards 'the [b]shop=4'" in output
    assert "reexpand run --shards 'the [b]shop=4' --route-depth 2 --shuffle-partitions 3 ..." in output
    assert "reexpand topics --partitions 3 ..." in output
    for said in ("part of a checkpoint's identity", "shard are in 1 of 2 patterns", "each grants 500"):
        assert said in result.stdout


def test_only_the_first_of_many_parents_reasons_and_notes_are_shown(
    file_of: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command to copy is complete."""
    events = [encoded(created(str(n), parent=f"p{parent:02}")) for parent in range(30) for n in range(parent)]
    output = advise("--topics", "-", stdin=lines(*events)).stdout.splitlines()
    assert [line.split()[0] for line in output if line.startswith("p")][1:] == [f"p{n}" for n in range(29, 9, -1)]
    assert "and 9 more" in output
    assert "    the default; no parent has more than 10,000 topics, so each has one shard" in output
    monkeypatch.setattr(rule, "TOPICS_PER_SHARD", 1)
    events = [encoded(created(f"{n}", parent=f"p{parent}")) for parent in range(30) for n in range(2)]
    file = file_of(*(encoded(replace("t", parent=f"p{parent}", client=f"c{parent}")) for parent in range(30)))
    output = advise("--topics", "-", "--patterns", file, stdin=lines(*events)).stdout.splitlines()
    assert sum(line.startswith("--shards ") for line in output) == 20
    assert sum(line.startswith("Note: ") for line in output) == 20
    assert {"and 10 more", "and 10 more notes (--json has all)"} <= set(output)
    assert output[-1].count("--shards p") == 30


def test_inner_wildcards_are_patterns_where_the_job_takes_them(
    file_of: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an option or, as for all settings, by the environment."""
    arguments = ("--parent", "p", "--topics", "-", "--patterns", file_of("a__**__b", "c"))

    def count(*more: str) -> int:
        return int(told(*arguments, *more, stdin=b"t\n")["parents"][0]["patterns"])

    assert (count(), count("--allow-inner-multi")) == (1, 2)
    monkeypatch.setenv("REEXPAND_ALLOW_INNER_MULTI", "true")
    assert count() == 2


def test_what_is_empty_asks_for_nothing_and_what_is_not_valid_is_reported(file_of: Callable[..., str]) -> None:
    """An empty set of patterns would ask for everything."""
    found = told("--parent", "p", "--topics", "-", "--patterns", file_of(""), stdin=b"t\r\n\n u\n")
    (parent,) = found["parents"]
    assert (parent["topics"], parent["clients"], found["warnings"]) == (2, 0, [])
    found = told("--topics", "-", stdin=lines("eu__created", encoded(created()), b"\xff"))
    assert found["parents"][0]["topics"] == 1
    (warning,) = found["warnings"]
    assert warning.startswith("2 entries are invalid and left out (topics, partition 0, record 1: the value is not")


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "said"),
    [
        ((), b"", 2, ["bootstrap_servers is required: give --bootstrap-servers, REEXPAND_BOOTSTRAP_SERVERS, or"]),
        (("--topics", "/does/not/exist"), b"", 2, ["--topics", "/does/not/exist"]),
        (("--patterns", "-"), b"", 2, ["--patterns and --parent go with --topics"]),
        (("--parent", "p"), b"", 2, ["--patterns and --parent go with --topics"]),
        (("--topics", "-", "--patterns", "-"), b"", 2, ["only one of --topics and --patterns"]),
        (("--topics", "-", "--bootstrap-servers", "b:1"), b"", 2, ["either --topics, or Kafka"]),
        (("--topics", "-", "--parent", " "), b"t\n", 2, ["--parent is blank"]),
        (("--topics", "-", "--parent", "p"), b"t\n\xff\n", 2, ["line 2 is not UTF-8"]),
        (("--topics", "-", "--cores", "0"), b"", 2, ["--cores"]),
        (("--topics", "-"), b"", 1, ["there are no topics to advise on\n"]),
        (("--topics", "-"), b"eu__created\n", 1, ["there are no topics to advise on; 1 entry is invalid"]),
    ],
)
def test_what_is_wrong_is_a_sentence_and_an_exit_code(
    arguments: tuple[str, ...], stdin: bytes, code: int, said: list[str]
) -> None:
    result = advise(*arguments, stdin=stdin)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert [part for part in said if part not in result.stderr] == []
