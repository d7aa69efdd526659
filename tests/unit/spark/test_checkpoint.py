"""What a checkpoint fixes, when it is written, and what is said of a checkpoint that does not fit."""

import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from streaming.config import Settings, load
from streaming.errors import CheckpointInUse, CheckpointMismatch
from streaming.kafka.facts import START_OVER, NotedTopic
from streaming.spark import checkpoint, session
from streaming.storage import journal
from tests.unit.spark.conftest import Files

SPARK: Any = None
TOPICS = {"updates": NotedTopic("lite-subscription-updates", "id-1"), "clock": NotedTopic("lite-clock", "id-2")}


def settings(folder: Path, **given: Any) -> Settings:
    return load({"bootstrap_servers": "b:1", "checkpoint": str(folder), **given})


def begin(folder: Path, **given: Any) -> Settings:
    """The settings of a checkpoint whose query has begun."""
    made = settings(folder, **given)
    checkpoint.fix(SPARK, made, checkpoint.agree(SPARK, made), TOPICS)
    (folder / "query").mkdir()
    return made


def log(folder: Path, name: str, **offsets: dict[int, int]) -> None:
    """Write a file of the query's, whose last line is offsets."""
    file = folder / "query" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b'\0v1\n{"batchWatermarkMs":0}\n' + orjson.dumps(offsets, option=orjson.OPT_NON_STR_KEYS))


def refusal(folder: Path, **given: Any) -> str:
    with pytest.raises(CheckpointMismatch) as caught:
        checkpoint.agree(SPARK, settings(folder, **given))
    return str(caught.value)


def test_a_new_checkpoint_takes_any_settings_until_the_query_begins(folder: Path) -> None:
    """A start that fails before has fixed nothing."""
    assert checkpoint.agree(SPARK, settings(folder, shuffle_partitions=3)).shuffle_partitions == 3
    assert not folder.exists()
    assert checkpoint.agree(SPARK, settings(folder)).shuffle_partitions == session.default_partitions()
    begin(folder, shuffle_partitions=5)
    assert checkpoint.agree(SPARK, settings(folder)).shuffle_partitions == 5


@pytest.mark.rule("other-setting")
def test_each_setting_that_differs_is_named(folder: Path) -> None:
    begin(folder, shards={"p": 2}, shuffle_partitions=2)
    said = refusal(folder, shards={"p": 3}, shuffle_partitions=4, clock="other")
    assert "shards is {'p': 3}, the checkpoint has {'p': 2}" in said
    assert "shuffle_partitions is 4, the checkpoint has 2" in said
    assert "clock is 'other', the checkpoint has 'lite-clock'" in said
    assert "route_depth" not in said


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[]", b"\xff"])
def test_an_identity_that_cannot_be_read_is_named_with_the_way_out(folder: Path, content: bytes) -> None:
    """As a file system may leave it that lost power."""
    begin(folder)
    (folder / "reexpand.json").write_bytes(content)
    said = refusal(folder)
    assert said.startswith(f"{folder}/reexpand.json cannot be read: ")
    assert f"Restore the file from a copy of the checkpoint, or {START_OVER}" in said


def test_a_query_without_an_identity_is_not_taken_for_a_new_checkpoint(folder: Path) -> None:
    """Under other shards its state would be looked for where it is not."""
    begin(folder, shards={"p": 2})
    (folder / "reexpand.json").unlink()
    said = refusal(folder, shards={"p": 5})
    assert said.startswith(f"{folder}/reexpand.json is missing, ")
    assert "Restore the file" in said


@pytest.mark.rule("simultaneous-starts")
def test_of_two_drivers_on_a_new_checkpoint_one_is_refused(folder: Path) -> None:
    """Each has given it an id, and looks at it in the end."""
    made = settings(folder)
    first, second = checkpoint.agree(SPARK, made), checkpoint.agree(SPARK, made)
    checkpoint.fix(SPARK, made, first, TOPICS)
    with pytest.raises(CheckpointInUse, match="another driver has just started"):
        checkpoint.fix(SPARK, made, second, TOPICS)
    checkpoint.fix(SPARK, made, first, TOPICS)


def test_a_new_checkpoint_that_appears_at_the_last_moment_is_that_of_another_driver(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = settings(folder)
    first, second = checkpoint.agree(SPARK, made), checkpoint.agree(SPARK, made)
    checkpoint.fix(SPARK, made, first, TOPICS)
    monkeypatch.setattr(Files, "exists", lambda *_: False)
    with pytest.raises(CheckpointInUse, match="another driver has just started"):
        checkpoint.fix(SPARK, made, second, TOPICS)


def test_a_former_format_becomes_this_one_when_the_query_begins(folder: Path) -> None:
    """Not earlier: as long as nothing is written, the former release can read it."""
    made = begin(folder)
    file = folder / "reexpand.json"
    values = orjson.loads(file.read_bytes())
    former = {**values, "format": journal.READ_FORMATS[0]}
    file.write_bytes(orjson.dumps(former))
    agreed = checkpoint.agree(SPARK, made)
    assert orjson.loads(file.read_bytes()) == former
    checkpoint.fix(SPARK, made, agreed, TOPICS)
    assert orjson.loads(file.read_bytes()) == values
    file.write_bytes(orjson.dumps({**values, "format": journal.FORMAT + 1}))
    assert "format" in refusal(folder)


def test_the_topics_of_a_checkpoint_are_no_settings(folder: Path) -> None:
    """A checkpoint of an older release has none, and gets them at its next start."""
    made = begin(folder)
    agreed = checkpoint.agree(SPARK, made)
    assert agreed.topics == TOPICS
    checkpoint.fix(SPARK, made, agreed, {})
    assert checkpoint.agree(SPARK, made).topics == {}
    checkpoint.fix(SPARK, made, agreed, TOPICS)
    assert checkpoint.agree(SPARK, made) == agreed


def test_the_query_goes_on_behind_a_topic_that_was_made_anew(folder: Path) -> None:
    """Where its last micro-batch begins, and where it was to end; other topics and further lines stay as they are."""
    made = begin(folder)
    log(folder, "sources/0/0", clock={0: 90}, t={0: 2})
    log(folder, "offsets/0", clock={0: 100}, t={0: 5})
    checkpoint.move(SPARK, made, "clock", {0: 3})
    wanted = checkpoint.QueryProgress(
        begun=True, read={"clock": {0: 3}, "t": {0: 2}}, planned={"clock": {0: 3}, "t": {0: 5}}, micro_batches=1
    )
    assert checkpoint.progress(SPARK, made) == wanted
    log(folder, "commits/0")
    log(folder, "offsets/1", clock={0: 120}, t={0: 6})
    before = (folder / "query/offsets/1").read_text().splitlines()[:-1]
    checkpoint.move(SPARK, made, "clock", {0: 4, 1: 0})
    assert checkpoint.progress(SPARK, made).read == {"clock": {0: 4, 1: 0}, "t": {0: 5}}
    assert checkpoint.progress(SPARK, made).planned == {"clock": {0: 4, 1: 0}, "t": {0: 6}}
    assert (folder / "query/offsets/1").read_text().splitlines()[:-1] == before


def test_progress_is_what_the_query_has_read_and_planned(folder: Path) -> None:
    """Numbers of micro-batches are ordered as numbers."""
    made = begin(folder)
    assert checkpoint.progress(SPARK, made) == checkpoint.QueryProgress()
    log(folder, "sources/0/0", t={0: 2})
    log(folder, "offsets/9", t={0: 5})
    assert checkpoint.progress(SPARK, made) == checkpoint.QueryProgress(
        begun=True, read={"t": {0: 2}}, planned={"t": {0: 5}}, micro_batches=10
    )
    log(folder, "offsets/10", t={0: 7}, u={3: 1})
    log(folder, "commits/8")
    log(folder, "commits/9")
    wanted = checkpoint.QueryProgress(True, {"t": {0: 5}}, {"t": {0: 7}, "u": {3: 1}}, 11)
    assert checkpoint.progress(SPARK, made) == wanted
    log(folder, "commits/10")
    assert checkpoint.progress(SPARK, made).read == wanted.planned


@pytest.mark.parametrize("content", [b"", b"v1\n{}\n[]", b"v1\n{}\n{", None])
def test_an_offset_log_that_cannot_be_read_is_named(folder: Path, content: bytes | None) -> None:
    """A missing file as well: without it, all records would count as unread."""
    made = begin(folder)
    log(folder, "sources/0/0")
    log(folder, "offsets/0")
    file = folder / "query" / ("sources/0/0" if content is None else "offsets/0")
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(CheckpointMismatch) as caught:
        checkpoint.progress(SPARK, made)
    assert str(caught.value).startswith(f"{file} cannot be read: ")


@pytest.mark.parametrize(
    ("given", "wanted", "uri"),
    [
        ("state", "{cwd}/state", "file://{cwd}/state"),
        ("./a b/../state/", "{cwd}/a b/../state", "file://{cwd}/a b/../state"),
        ("/a b/%c", "/a b/%c", "file:///a b/%c"),
        ("file:///var/lib/state", "file:///var/lib/state", "file:///var/lib/state"),
        ("file:/c", "file:/c", "file:/c"),
        ("s3a://bucket/state", "s3a://bucket/state", "s3a://bucket/state"),
        ("hdfs:///c", "hdfs:///c", "hdfs:///c"),
    ],
)
def test_a_local_checkpoint_is_absolute_and_a_uri_for_hadoop(given: str, wanted: str, uri: str) -> None:
    """Executors have working folders of their own."""
    cwd = os.getcwd()  # noqa: PTH109 - the other way to say it
    assert checkpoint.absolute(given) == wanted.format(cwd=cwd)
    assert checkpoint.for_java(given) == uri.format(cwd=cwd)
