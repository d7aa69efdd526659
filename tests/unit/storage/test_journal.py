"""Journals of changes: all that was written is read, from any position, be it in the value or in the archive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.errors import StateCorrupted, StateFormatUnknown
from streaming.storage.journal import READ_FORMATS, START, Journal, Position, flaw_of_part
from streaming.tuning import DEFAULT_TUNING, Tuning
from tests.support.states import Memory

INLINE = 200
RETAINED = 3
VERSION_BYTE = 2


SMALL = Tuning(inline_bytes=INLINE, retained_micro_batches=RETAINED, journal_slack_bytes=300)
"""Small limits, so that parts are soon written and soon removed."""


class Story:
    """A value over many micro-batches: a list that grows by words; a blank word empties it."""

    def __init__(self) -> None:
        self.archive = Memory()
        self.words: list[str] = []
        self.stored: bytes | None = None
        self.batch = 0

    @property
    def journal(self) -> Journal:
        """The journal as the next micro-batch opens it."""
        return Journal.open(self.stored, self.archive, self.batch, SMALL)

    def then(self, word: str) -> None:
        """Apply one micro-batch."""
        self.batch += 1
        self.words = [*self.words, word] if word else []
        renewed = self.journal.append([word], lambda: self.words) if word else self.journal.cleared()
        again = self.journal.append([word], lambda: self.words) if word else self.journal.cleared()
        self.stored = renewed.stored
        assert again.stored == self.stored, "a repeated micro-batch writes the same"
        assert renewed == self.journal, "what is stored is what there is"


def read(found: Journal, after: Position = START) -> list[str]:
    """Return the words of a journal behind a position."""
    return [word for change in found.changes(after) for word in change]


words = st.lists(st.one_of(st.text("ab", min_size=1, max_size=150), st.just("")), max_size=60)


@given(words)
def test_what_was_written_is_read(told: list[str]) -> None:
    """A worker may have read a part of it before, and Spark may go back to an earlier state.

    A worker starts again only when the journal is compacted, not when segments move into parts. Replaced parts stay
    for some micro-batches.
    """
    story = Story()
    positions: list[tuple[Position, list[str]]] = []
    former: list[tuple[bytes | None, list[str]]] = []
    for word in told:
        before, begun = story.journal.position, story.journal.compact_bytes
        story.then(word)
        assert read(story.journal) == story.words
        if before.end and word and story.journal.compact_bytes == begun:
            assert story.journal.continues(before)
            assert read(story.journal, before) == [word]
        positions.append((story.journal.position, story.words))
        for position, known in positions:
            if position.end and story.journal.continues(position):
                assert known + read(story.journal, position) == story.words
        former.append((story.stored, story.words))
        for stored, known in former[-RETAINED:]:
            assert read(Journal.open(stored, story.archive, tuning=SMALL)) == known
        assert len(story.stored or b"") < INLINE + 60 * (8 + RETAINED * 8)
    for _ in range(RETAINED + 1):
        story.then("")
    assert (story.stored, story.archive) == (None, {})


def test_there_are_few_parts_and_each_byte_is_written_a_few_times() -> None:
    class Counting(Memory):
        written = 0

        def write(self, name: str, data: bytes) -> None:
            Counting.written += len(data)
            super().write(name, data)

    story = Story()
    story.archive = Counting()
    for _ in range(2_000):
        story.batch += 1
        story.words.append("word" * 10)
        story.stored = story.journal.append([story.words[-1]], lambda: story.words).stored
        assert len(story.journal.parts) <= 10
    assert Counting.written < 12 * story.journal.position.end


def test_a_journal_of_additions_is_never_compacted() -> None:
    """This holds from its first part on, when the head has the compact size."""
    story = Story()
    found = Journal(story.archive, tuning=SMALL).append(["a" * 250], lambda: ["a" * 250])
    for _ in range(500):
        found = Journal.open(found.append(["b" * 40], pytest.fail, 40).stored, story.archive, tuning=SMALL)
    assert len(read(found)) == 501


def test_added_and_removed_segments_do_not_accumulate() -> None:
    """However often this happens, a journal has at most about twice its compact size."""
    story = Story()
    found = Journal(story.archive, tuning=SMALL)
    for _ in range(200):
        for lasting in (100, -100):
            longer = found.append(["a" * 100], lambda: ["whole"], lasting)
            found = Journal.open(longer.stored, story.archive, tuning=SMALL)
            assert found.position.end <= 2 * 200 + 300 + 124


def test_without_an_archive_all_stays_in_the_value() -> None:
    found = Journal(tuning=SMALL)
    said: list[str] = []
    for _ in range(20):
        said.append("a" * 100)
        found = Journal.open(found.append(said[-1:], lambda: list(said)).stored, tuning=SMALL)
        assert found.parts == ()
    assert read(found) == said


@pytest.mark.parametrize(
    ("data", "error", "said"),
    [
        (b"", StateCorrupted, "lacks its header; restore the checkpoint"),
        (b"not a state value at all", StateCorrupted, "lacks its header; restore the checkpoint"),
        (
            b"rx\x63" + bytes(16),
            StateFormatUnknown,
            "has format 99, this release reads 3 to 7; use the release that wrote it",
        ),
    ],
)
def test_the_message_names_the_remedy(data: bytes, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        Journal.open(data)


@pytest.fixture
def large() -> Story:
    """A value with segments in parts and in itself."""
    story = Story()
    for _ in range(10):
        story.then("word" * 15)
    assert story.journal.parts
    assert story.journal.tail
    return story


@pytest.mark.rule("damaged-state")
def test_any_changed_byte_is_found(large: Story) -> None:
    """A changed, missing or surplus byte of the value, or of a part, fails a checksum or the length.

    A changed version that this release does not read may be that of another release.
    """
    stored = large.stored or b""
    for at, byte in enumerate(stored):
        for other in {*range(256)} - {byte} if at == VERSION_BYTE else {byte ^ 1, byte ^ 64, byte ^ 255}:
            broken = stored[:at] + bytes([other]) + stored[at + 1 :]
            is_unknown = at == VERSION_BYTE and other not in READ_FORMATS
            with pytest.raises(StateFormatUnknown if is_unknown else StateCorrupted):
                list(Journal.open(broken, large.archive).changes())
    segment = Journal().append(["word"], list).stored or b""
    for damaged in (*(segment[:length] for length in range(len(segment))), segment + b"\0", stored + b"\0"):
        with pytest.raises(StateCorrupted):
            list(Journal.open(damaged, large.archive).changes())
    for name, data in large.archive.items():
        if any(part.name == name for part in large.journal.parts):
            for broken_part in (data[:-1], data + b"x", bytes([data[0] ^ 1]) + data[1:], data[:-1] + b"?"):
                with pytest.raises(StateCorrupted):
                    list(Journal.open(stored, Memory({**large.archive, name: broken_part})).changes())


@pytest.mark.rule("damaged-state")
def test_a_part_that_is_missing_is_named(large: Story) -> None:
    with pytest.raises(StateCorrupted, match=large.journal.parts[0].name):
        list(Journal.open(large.stored, Memory()).changes())
    with pytest.raises(StateCorrupted, match="which Python cannot reach now"):
        list(Journal.open(large.stored).changes())


@pytest.mark.parametrize("segments", [1, 2])
def test_a_damaged_part_is_found_without_others_but_for_the_body_of_its_first_segment(segments: int) -> None:
    """The digest of that one covers the part before it as well."""
    memory = Memory()
    change = ["y" * 2 * DEFAULT_TUNING.inline_bytes]
    journal = Journal(memory).append(change, lambda: change)
    for _ in range(segments - 1):
        journal = journal.append(change, list, len(change[0]))
    name, data = max(memory.items(), key=lambda each: len(each[1]))
    assert flaw_of_part(name, data) is None
    first = len(data) // segments - 16
    for place in (0, -1, *([-17, first + 30] if segments > 1 else [])):
        damaged = bytearray(data)
        damaged[place] ^= 1
        assert flaw_of_part(name, bytes(damaged)), place
    assert flaw_of_part(name, data[:-1])
