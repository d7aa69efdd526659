"""`reexpand rebuild`: its options, its note, what its job writes, and when it has read everything."""

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from streaming.cli import main
from streaming.cli.checkpoint import _job_command
from streaming.config import Settings, load
from streaming.errors import CheckpointMismatch, CheckpointUnfinished, RebuildRefused, UpdatesUnknown
from streaming.kafka import facts
from streaming.kafka.facts import NotedTopic, Offsets
from streaming.operations import rebuild as session
from streaming.operations.rebuild import ROUNDS, Followed, Plan, followed, settling
from streaming.records.model import Stream
from streaming.records.record import KafkaRecord
from streaming.spark import checkpoint, notes, provision, sinks
from streaming.spark.checkpoint import Agreement, QueryProgress
from streaming.spark.expand import _output_frames
from streaming.spark.notes import REBUILD, RebuildNote, Stage
from streaming.spark.query import InputProgress
from streaming.worker.rows import Output, OutputKind
from streaming.worker.signature import Signer
from tests.support.events import replace


@pytest.mark.parametrize("options", [[], ["--former", "/old", "--without-former"]])
def test_it_must_know_of_the_former_checkpoint(options: list[str]) -> None:
    result = CliRunner().invoke(main, ["rebuild", "--bootstrap-servers", "b:1", "--checkpoint", "/new", *options])
    assert result.exit_code == 2
    assert "--without-former if the former checkpoint is lost" in result.output


def test_the_job_starts_with_the_same_options() -> None:
    given = {
        "checkpoint": "/a folder", "shards": ("p=2", "q=3"), "accept_loss": True, "allow_inner_multi": False,
        "route_depth": None,
    }  # fmt: skip
    assert _job_command(Path("c.toml"), given) == (
        "reexpand run --config c.toml --checkpoint '/a folder' --shards p=2 --shards q=3 --no-allow-inner-multi"
    )


class Files:
    """Files of a checkpoint, in memory."""

    def __init__(self, *_: object, **content: bytes) -> None:
        self.content = {name.replace("_", "."): data for name, data in content.items()}

    def exists(self, name: str) -> bool:
        return name in self.content

    def read(self, name: str) -> bytes:
        return self.content[name]

    def write(self, name: str, content: bytes) -> None:
        self.content[name] = content


@pytest.fixture
def settings() -> Settings:
    return load({"bootstrap_servers": "b:1", "checkpoint": "/new"})


def noted(note: RebuildNote | None) -> Any:
    """Files with a note."""
    files = Files()
    as_any: Any = files
    if note is not None:
        note.write(as_any)
    return as_any


@pytest.mark.parametrize("content", [b"", b"[]", b'{"stage": "other"}', b'{"stage": "reading", "more": 1}'])
def test_a_note_is_read_as_it_was_written_or_refused(content: bytes) -> None:
    note = RebuildNote(Stage.COMPLETE, "updates", "{}", 1, 2, 3, 4.5, "/next")
    assert RebuildNote.read(noted(note), "/new") == note
    assert RebuildNote.read(noted(None), "/new") is None
    files: Any = Files()
    files.write(REBUILD, content)
    with pytest.raises(CheckpointMismatch, match="`reexpand rebuild`"):
        RebuildNote.read(files, "/new")


@pytest.mark.rule("unusable-checkpoint")
@pytest.mark.parametrize(
    ("note", "said"),
    [
        (None, None),
        (RebuildNote(Stage.COMPLETE), None),
        (RebuildNote(Stage.READING), "Run the same `reexpand rebuild` again"),
        (RebuildNote(Stage.ADOPTING), "stage: adopting"),
        (RebuildNote(Stage.CORRECTING), "stage: correcting"),
        (RebuildNote(Stage.REPLACED, successor="/next"), "Start the job with --checkpoint /next"),
    ],
)
def test_a_job_starts_only_on_what_is_complete(
    note: RebuildNote | None, said: str | None, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "CheckpointFiles", lambda *_: noted(note))
    no_spark: Any = None
    with nullcontext() if said is None else pytest.raises(CheckpointUnfinished, match=said):
        notes.check_usable(no_spark, settings)


def test_a_rebuild_begins_in_a_new_folder_or_goes_on(settings: Settings) -> None:
    from_inputs, from_state = Plan("/old"), Plan("/old", from_state=True)
    assert session._taken_up(noted(None), settings, from_inputs) == RebuildNote(Stage.READING, settings.updates)
    assert session._taken_up(noted(None), settings, from_state) == RebuildNote(Stage.ADOPTING, settings.updates)
    for plan, under_way in (
        (from_inputs, RebuildNote(Stage.CORRECTING, settings.updates)),
        (from_state, RebuildNote(Stage.ADOPTING, settings.updates)),
        (from_state, RebuildNote(Stage.READING, settings.updates, "{}")),
    ):
        assert session._taken_up(noted(under_way), settings, plan) == under_way
        other = from_inputs if plan.from_state else from_state
        with pytest.raises(RebuildRefused, match=r"with(out)? --from-state\. Continue the same way"):
            session._taken_up(noted(under_way), settings, other)
    as_of_a_job: Any = Files(reexpand_json=b"{}")
    for files, said in (
        (as_of_a_job, "is the checkpoint of a job"),
        (noted(RebuildNote(Stage.REPLACED, successor="/next")), "was replaced by /next"),
        (noted(RebuildNote(Stage.READING, "others")), "for the updates topic others"),
    ):
        with pytest.raises(RebuildRefused, match=said):
            session._taken_up(files, settings, from_inputs)


SETTINGS = load({"bootstrap_servers": "b:1", "checkpoint": "/c"})
INPUTS = {SETTINGS.clock, SETTINGS.group_events, SETTINGS.subscription_events}


def outputs() -> Generator[Output, None, str]:
    output = Output()
    output.add_dead_letter("not-json", KafkaRecord(b"d", b"letter"))
    output.add(OutputKind.UPDATES, KafkaRecord(b"u", b"update"))
    for stream in (Stream.CLOCK, Stream.GROUPS, Stream.SUBSCRIPTIONS):
        output.add(OutputKind.INPUT + stream, KafkaRecord(b"i", b"record"))
    yield output
    return "state"


@pytest.mark.parametrize("silent", [False, True])
def test_updates_dead_letters_and_counts_are_dropped(silent: bool) -> None:  # noqa: FBT001
    frames = _output_frames(outputs(), sinks.topics(SETTINGS, silent=silent))
    (frame,) = frames
    found = set(frame["topic"])
    assert found == (INPUTS if silent else {*INPUTS, SETTINGS.updates, SETTINGS.dead_letters, None})


TOPICS = facts.names(SETTINGS).values()
ADMIN: Any = SimpleNamespace(
    names=lambda: set(TOPICS),
    ids=lambda names: dict.fromkeys(names, "id"),
    configurations=lambda *_: {},
    spans=lambda names: tuple({name: {0: offset} for name in names} for offset in (0, 10)),
    last_sources=lambda _: {facts.EntryPlace(SETTINGS.topic_events, 0, 9)},  # the last record
    markers=lambda _: {},
)
"""Kafka that has all topics, with ten records in each."""


@pytest.mark.parametrize("begun", [False, True])
def test_it_takes_the_updates_topic_as_it_is(begun: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    """Updates of another checkpoint, and updates because of records that it has not read."""
    offsets = {SETTINGS.topic_events: {0: 5}}
    progress = QueryProgress(begun, offsets, offsets)
    monkeypatch.setattr(checkpoint, "progress", lambda *_: progress)
    nothing: Any = None
    provided = provision.provide(nothing, SETTINGS, ADMIN, Agreement("id", 1), progress, rebuilding=True)
    assert provided["updates"] == NotedTopic(SETTINGS.updates, "id")
    with pytest.raises(UpdatesUnknown, match="`reexpand rebuild`"):
        provision.provide(nothing, SETTINGS, ADMIN, Agreement("id", 1), progress)


NOTHING = Followed(own=False, steps=False)
OWN = Followed(own=True, steps=False)
STEP = Followed(own=True, steps=True)


class Query:
    """A query over one input; `end` is where it ends, `at` is how far it was read."""

    def __init__(self, followed: Iterable[Followed] = ()) -> None:
        self.end, self.at, self.told = 10, 0, False
        self.looks: list[tuple[int, int]] = []
        self.progress: list[tuple[str, int, int | None]] = []
        self._followed = iter(followed)
        reading = InputProgress(lambda: {"t": {0: self.end}}, lambda: {"t": {0: self.at}}, lambda: self.told)
        self.may_end = settling(reading, self._look, lambda *each: self.progress.append(each))

    def _look(self, start: Offsets, end: Offsets, /) -> Followed:
        self.looks.append((start["t"][0], end["t"][0]))
        return next(self._followed, NOTHING)

    def reads_all(self) -> bool:
        """Read up to the end, and ask."""
        self.at = self.end
        return self.may_end()

    def has_told(self) -> "Query":
        """Read all that was there, the tick included, so that the next call looks for the first time."""
        assert not self.reads_all()
        self.told = True
        assert not self.reads_all()
        assert not self.reads_all()
        return self


def test_it_waits_for_what_was_there_for_a_tick_and_for_what_follows_from_it() -> None:
    """The tick stands behind what was there, and what follows from it behind the tick."""
    query = Query()
    query.end, query.at, query.told = 20, 9, True
    assert not query.may_end()
    assert query.progress == [("inputs", 9, 10)]
    query.told = False
    for _ in range(3):
        assert not query.reads_all()
    query.told, query.end = True, 21  # the tick
    assert not query.reads_all()
    query.at = 20
    assert not query.may_end()
    query.at, query.end = 21, 23  # what follows from the tick
    assert not query.may_end()
    query.at, query.end = 22, 25
    assert not query.may_end()
    assert query.looks == []
    assert query.reads_all()
    assert query.looks == [(21, 23)]


def test_it_goes_on_as_long_as_the_job_writes_to_itself() -> None:
    query = Query([OWN, OWN, NOTHING]).has_told()
    ends = []
    for end in (12, 14, 16):
        ends.append(query.reads_all())
        query.end = end
    assert ends == [False, False, True]
    assert query.looks == [(10, 10), (10, 10), (10, 12)]


@pytest.mark.parametrize(("wrote", "rounds"), [([OWN] * 100, ROUNDS), ([STEP] * 30 + [OWN], 31)])
def test_beside_producers_some_rounds_are_enough_but_wide_changes_are_carried_out(
    wrote: list[Followed], rounds: int
) -> None:
    query = Query(wrote).has_told()
    assert [query.reads_all() for _ in range(rounds)] == [False] * (rounds - 1) + [True]


SIGNER = Signer(b"secret")
REQUEST = str(replace("t")).replace("'", '"').encode()


@pytest.mark.parametrize(
    ("topic", "value", "wanted"),
    [
        ("clock", b'{"tick":7}', NOTHING),
        ("clock", b'{"alarm":7,"parentTopic":"p","shard":0}', OWN),
        ("clock", b'{"wake":7,"parentTopic":"p","shard":0}', OWN),
        ("clock", b'{"wake":0,"parentTopic":"p","shard":0}', STEP),
        ("requests", REQUEST, NOTHING),
        ("requests", None, NOTHING),
        ("requests", SIGNER.sign(REQUEST), OWN),
        ("requests", Signer(b"other").sign(REQUEST), NOTHING),
    ],
)
def test_records_of_the_job_are_told_from_those_of_others(topic: str, value: bytes | None, wanted: Followed) -> None:
    class Reader:
        def read(self, spans: Mapping[Any, Any]) -> Iterator[list[SimpleNamespace]]:
            assert {(where.topic, *span) for where, span in spans.items()} == {("clock", 2, 9), ("requests", 0, 3)}
            yield [SimpleNamespace(topic=lambda: topic, value=lambda: value, partition=lambda: 0, offset=lambda: 5)]

    reader: Any = Reader()
    end = {"clock": {0: 9}, "requests": {0: 3}, "topics": {0: 4}}
    assert followed(reader, ("clock", {"requests"}), lambda: SIGNER, {"clock": {0: 2}}, end) == wanted
