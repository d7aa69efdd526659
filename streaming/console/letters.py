"""The last dead letters of a job, read in a thread, with limited memory."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Message

from streaming.console.looking import Looking
from streaming.errors import TopicUnreadable
from streaming.kafka import letters as dead
from streaming.kafka.facts import EntryPlace
from streaming.kafka.reader import Partition, Span, TopicReader
from streaming.records.model import Reason

KEPT: Final = 1_000
"""Maximum number of kept dead letters."""

_CHARACTERS: Final = 2_048
"""Maximum number of kept characters of an entry, and of a message."""

_LIMIT: Final = "raise the limit that the message names, if it is a setting"
_FIXES: Final[Mapping[str, str]] = {
    Reason.OUT_OF_RANGE: _LIMIT,
    Reason.NAME_TOO_LONG: _LIMIT,
    Reason.VALUE_TOO_LARGE: _LIMIT,
    Reason.INVALID_SELECTOR: "install the kind of selector, if it is of another package",
    Reason.GROUP_BOUND_ELSEWHERE: "bind the group to this parent",
    Reason.QUOTA_EXCEEDED: "raise the quota",
    Reason.QUOTA_CAPPED: "raise the quota",
    Reason.QUARANTINED: "fix what killed or hung the worker",
    Reason.NOT_APPLICABLE: "install a release with the fix",
}
"""What to do before an entry can be replayed, by reason. An entry with any other reason is rejected again."""


class LetterTail(Looking):
    """Reader of new dead letters, as a context manager. Thread-safe.

    Args:
        bootstrap_servers: addresses of brokers.
        topic: topic of the dead letters.
        options: additional librdkafka options.
    """

    def __init__(self, bootstrap_servers: str, topic: str, options: Mapping[str, str]) -> None:
        super().__init__(bootstrap_servers, options, f"follows {topic}")
        self._topic = topic
        self._held: dict[EntryPlace, dict[str, Any]] = {}
        self._cut = 0
        self._error = ""
        self._next: dict[Partition, int] = {}

    def page(self, reason: str, start: int, size: int) -> dict[str, Any]:
        """Return dead letters with a reason, or all if it is empty, newest first, for the page.

        `total` is the number of these dead letters, and `counts` the number of all dead letters by reason. `cut` older
        dead letters are not kept. `error` is the reason why new dead letters cannot be read now, if any.
        """
        with self._lock:
            held, cut, error = list(self._held.values()), self._cut, self._error
        chosen = [letter for letter in held if not reason or letter["reason"] == reason]
        chosen.sort(key=lambda letter: -letter["time"])
        counts = Counter(letter["reason"] for letter in held)
        return {
            "letters": chosen[start : start + size],
            "total": len(chosen),
            "counts": counts,
            "cut": cut,
            "error": error,
        }

    def _look(self, reader: TopicReader) -> None:
        try:
            self._read(reader)
            error = ""
        except TopicUnreadable as unreadable:
            error = str(unreadable)
        with self._lock:
            self._error = error

    def _read(self, reader: TopicReader) -> None:
        spans = {}
        for partition, (start, end) in reader.spans([self._topic]).items():
            at = self._next.get(partition, end + 1)
            if at > end:  # the first time, or if the topic was recreated
                at = max(start, end - KEPT)
                self._cut += at - start
            spans[partition] = Span(at, end)
        for block in reader.read(spans):
            with self._lock:
                for letter_id, value, message in dead.records(block):
                    self._keep(letter_id, value, message)
        self._next = {partition: span.end for partition, span in spans.items()}

    def _keep(self, letter_id: EntryPlace, value: Mapping[str, Any] | None, message: Message) -> None:
        self._held.pop(letter_id, None)
        if value is None:
            return
        if len(self._held) >= KEPT:
            del self._held[next(iter(self._held))]
            self._cut += 1
        original = str(value.get("original") or "")
        self._held[letter_id] = {
            "id": str(letter_id),
            "reason": str(value.get("reason")),
            "message": str(value.get("message"))[:_CHARACTERS],
            "original": original[:_CHARACTERS],
            "encoding": value.get("originalEncoding"),
            "bytes": value.get("originalBytes"),
            "truncated": bool(value.get("truncated")) or len(original) > _CHARACTERS,
            "fix": _FIXES.get(str(value.get("reason")), ""),
            "time": message.timestamp()[1],
        }
