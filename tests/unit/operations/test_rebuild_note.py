"""The note of a rebuild, and what it keeps from starting."""

from typing import Any

import pytest

from streaming.config import Settings, load
from streaming.errors import CheckpointMismatch, CheckpointUnfinished, RebuildRefused
from streaming.operations import rebuild as session
from streaming.operations.rebuild import Plan
from streaming.spark import notes
from streaming.spark.notes import REBUILD, RebuildNote, Stage


class Files:
    """Files of a checkpoint, in memory."""

    def __init__(self, *_: object, **content: bytes) -> None:
        self.content = {name.replace("_", "."): data for name, data in content.items()}

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        return name in self.content

    def read(self, name: str) -> bytes:
        """The content of a file."""
        return self.content[name]

    def write(self, name: str, content: bytes) -> None:
        """Replace the content of a file."""
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


def test_it_is_read_as_it_was_written() -> None:
    note = RebuildNote(Stage.COMPLETE, "updates", "{}", 1, 2, 3, 4.5, "/next")
    assert RebuildNote.read(noted(note), "/new") == note
    assert RebuildNote.read(noted(None), "/new") is None


@pytest.mark.parametrize("content", [b"", b"[]", b'{"stage": "other"}', b'{"stage": "reading", "more": 1}'])
def test_one_that_cannot_be_read_is_refused(content: bytes) -> None:
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
    if said is None:
        notes.check_usable(no_spark, settings)
        return
    with pytest.raises(CheckpointUnfinished, match=said):
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
