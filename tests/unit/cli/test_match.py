"""`reexpand match`, `expand` and `validate`: what they print, and how they end."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, cast

import pytest
from click.testing import CliRunner, Result

import streaming
from streaming.cli import main

TOPICS = "pay__refund\npay\npay__refund__sent\nhr__audit\npay__refund\n"
ENDINGS = [
    # arguments, exit code, part of what is printed
    (["match", "pay__*", "pay__refund"], 0, "match\n"),
    (["match", "pay__*", "pay"], 1, "no match\n"),
    (["match", "pay__*", ""], 1, "no match\n"),
    (["match", "pay*", "pay"], 2, "Error: invalid pattern 'pay*' at segment 1 (character 3): "),
    (["match", "a"], 2, "Missing argument 'TOPIC'"),
    (["match", "--dialect", "stomp", "a", "a"], 2, "'stomp' is not one of"),
    (["match", "--policy", "exact", "a", "a"], 2, "dialect 'lite' has no match policies"),
    (["match", "--dialect", "nats", "--allow-inner-multi", "a", "a"], 2, "has no inner multi-segment wildcard"),
    (["match", "--dialect", "wamp", "--policy", "prefix", "com.my", "com.myapp"], 0, "match\n"),
    (["match", "--dialect", "wamp", "com..x", "com..x"], 2, "Error: invalid pattern 'com..x' at segment 2"),
    (["expand", "--dialect", "wamp", "com..x"], 2, "Error: invalid pattern 'com..x' at segment 2"),
    (["match", "--allow-inner-multi", "a__**__c", "a__b__c"], 0, "match\n"),
    (["match", "--explain", "a__*", "a__b"], 0, "match: every segment fits\n  pattern  topic  verdict\n"),
    (["match", "--explain", "a__*", "b__b"], 1, "no match: segment 1 of the topic, 'b', is not 'a'\n"),
    (["match", "--explain", "--dialect", "mqtt", "#", "$SYS/x"], 1, "hidden"),
    (["match", "--dialect", "mqtt", "$share/s/+/c", "a/c"], 0, "match\n"),
    (["match", "--dialect", "mqtt", "$share/s/+/c", "$share/s/a/c"], 1, "no match\n"),
    (["match", "--dialect", "mqtt", "$share/s", "$share/s"], 2, "write $share/NAME/FILTER"),
    (["expand", "--dialect", "mqtt", "$share/s/+", "x/#"], 0, "pay__refund\npay\npay__refund__sent\nhr__audit\n"),
    (["expand", "pay__*"], 0, "pay__refund\npay__refund\n"),
    (["expand", "pay__**", "hr__*"], 0, "pay__refund\npay__refund__sent\nhr__audit\npay__refund\n"),
    (["expand", "nothing__*"], 1, ""),
    (["expand", "pay__*", "a*"], 2, "Error: invalid pattern 'a*'"),
    (["expand", "--policy", "exact", "a"], 2, "has no match policies"),
    (["expand"], 2, "Missing argument"),
    (["validate", "pay__*", "pay"], 0, "valid pattern 'pay__*'\nvalid pattern 'pay'\n"),
    (["validate", "pay", "a*"], 1, "valid pattern 'pay'\ninvalid pattern 'a*' at segment 1 (character 1): "),
    (["validate", "--dialect", "mqtt", "a/#/x"], 1, "write '+' here"),
    (["validate", "--dialect", "mqtt", "$share/s/a", "$share//a"], 1, "(character 7): a share without a name"),
    (["validate", "--dialect", "wamp", "--policy", "wildcard", "a..b"], 0, "valid"),
    (["validate", "--policy", "exact", "a"], 2, "has no match policies"),
    (["validate"], 2, "Missing argument"),
]
INVALID = {
    "pattern": "a__",
    "valid": False,
    "segment": 2,
    "position": 3,
    "reason": "the segment is empty",
    "hint": "write a name, '*' or '**' there",
}
JSON: list[tuple[list[str], list[dict[str, object]]]] = [
    # arguments, the objects printed
    (["match", "a__*", "a__b"], [{"pattern": "a__*", "topic": "a__b", "matched": True}]),
    (
        ["match", "--explain", "a", "b"],
        [
            {
                "pattern": "a",
                "topic": "b",
                "matched": False,
                "outcome": "segment",
                "reason": "segment 1 of the topic, 'b', is not 'a'",
                "steps": [{"pattern": "a", "topic": "b", "fits": False, "verdict": "differs"}],
            }
        ],
    ),
    (["expand", "hr__*", "hr__audit"], [{"topic": "hr__audit", "patterns": ["hr__audit", "hr__*"]}]),
    (["validate", "a", "a__"], [{"pattern": "a", "valid": True}, INVALID]),
    (["match", "a__", "a"], [{**INVALID, "topic": "a", "matched": None}]),
    (["match", "--explain", "a__", "a"], [{**INVALID, "topic": "a", "matched": None}]),
]
LINES = [
    # standard input, what `expand 'a__*'` prints
    (b"a__b", b"a__b\n"),
    (b"a__b\r\na__c\r\n", b"a__b\na__c\n"),
    (b"\n\na__b\n\n", b"a__b\n"),
    (b"a__\xff\n", b"a__\xff\n"),
    ("a__ü\n".encode(), "a__ü\n".encode()),
    (b"a__" + b"x" * 200_000 + b"\na__b\n", b"a__" + b"x" * 200_000 + b"\na__b\n"),
    (b"", b""),
]


def run(*arguments: str, stdin: str | bytes = TOPICS) -> Result:
    return CliRunner().invoke(main, arguments, input=stdin)


@pytest.mark.parametrize(("arguments", "code", "output"), ENDINGS)
def test_exit_codes_are_those_of_grep(arguments: list[str], code: int, output: str) -> None:
    """0 for yes, 1 for no, 2 for what cannot be asked; and never a traceback."""
    result = run(*arguments)
    assert result.exit_code == code
    assert output in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert bool(result.stderr) == (code == 2)


@pytest.mark.parametrize(("arguments", "expected"), JSON)
def test_json_is_one_object_a_line(arguments: list[str], expected: list[dict[str, object]]) -> None:
    result = run(*arguments, "--json")
    assert [json.loads(line) for line in result.stdout.splitlines()] == expected
    assert (result.exit_code == 2) == ("matched" in expected[0] and expected[0]["matched"] is None)


@pytest.mark.parametrize(("given", "expected"), LINES)
def test_lines_are_read_as_they_come(given: bytes, expected: bytes) -> None:
    """Whatever ends them, however long they are, and whatever bytes they hold."""
    assert run("expand", "a__*", stdin=given).stdout_bytes == expected


@pytest.fixture
def expanding() -> subprocess.Popen[bytes]:
    """`reexpand expand` as a process of its own."""
    command = [sys.executable, "-m", "streaming.cli", "expand", "a__*"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_topic_is_printed_before_the_next_is_read(expanding: subprocess.Popen[bytes]) -> None:
    """As behind `tail -f`."""
    with expanding:
        stdin, stdout = cast("IO[bytes]", expanding.stdin), cast("IO[bytes]", expanding.stdout)
        for topic in (b"a__b\n", b"a__c\n"):
            stdin.write(b"other\n" + topic)
            stdin.flush()
            assert stdout.readline() == topic
        stdin.close()
        assert expanding.wait() == 0


def test_a_reader_that_leaves_ends_it_quietly(expanding: subprocess.Popen[bytes]) -> None:
    """As before `head -1`: nothing on standard error, and the match was found."""
    with expanding:
        stdin, stdout = cast("IO[bytes]", expanding.stdin), cast("IO[bytes]", expanding.stdout)
        stdin.write(b"a__b\n")
        stdin.flush()
        stdout.readline()
        stdout.close()
        stdin.write(b"a__b\n")
        stdin.flush()
        assert expanding.wait() == 0
        assert cast("IO[bytes]", expanding.stderr).read() == b""


@pytest.mark.parametrize(
    ("redirection", "sentence"),
    [("<&-", "standard input is closed"), ("< topics > /dev/full", "the topics cannot be written")],
)
def test_a_broken_stream_is_told(tmp_path: Path, redirection: str, sentence: str) -> None:
    """In one sentence, with exit code 2."""
    (tmp_path / "topics").write_text("a__b\n")
    command = f"exec {sys.executable} -m streaming.cli expand 'a__*' {redirection}"
    environment = {**os.environ, "PYTHONPATH": str(Path(streaming.__file__).parents[1])}
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert sentence in done.stderr
    assert ("Usage:" in done.stderr) == (redirection == "<&-")
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_only_click_is_imported() -> None:
    """So that an answer takes no longer than Python and click do."""
    code = (
        "import sys\n"
        "for name in ('pyspark', 'confluent_kafka', 'numpy', 'pandas', 'pyarrow', 'pydantic', 'rich', 'orjson'):\n"
        "    sys.modules[name] = None\n"
        "from streaming.cli import main\n"
        "main(['match', 'a__*', 'a__b'])\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
