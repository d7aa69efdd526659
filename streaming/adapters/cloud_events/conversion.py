"""Records of the job from CloudEvents and into them, one by one; independent of Kafka's clients."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from cloudevents.core.bindings.kafka import (
    CE_PREFIX,
    KafkaMessage,
    from_binary,
    from_structured,
    to_binary,
    to_structured,
)
from cloudevents.core.exceptions import BaseCloudEventException
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from streaming.errors import NotConverted, Rejected
from streaming.events.json_fields import MAX_DEPTH, depth
from streaming.events.topic_events import parse_lmq_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PREFIX: Final = "reexpand."
"""Beginning of the types of all events."""

INPUTS: Final = {
    f"{PREFIX}topic-event": "topic_events",
    f"{PREFIX}subscription-event": "subscription_events",
    f"{PREFIX}group-event": "group_events",
}
"""Settings that name the topics of the inputs, by the type of the event."""

_JSON: Final = "application/json"
_CONTENT_TYPE: Final = "content-type"
_STRUCTURED: Final = "application/cloudevents"
_STRUCTURED_JSON: Final = (_STRUCTURED, f"{_STRUCTURED}+json")


class Converted(NamedTuple):
    """Record of an input.

    Attributes:
        setting: setting that names its topic.
        key: its key.
        value: its value.
    """

    setting: str
    key: str
    value: bytes


def to_input(headers: Mapping[str, bytes], value: bytes | None) -> Converted:
    """Return the input in a CloudEvent, in binary or structured mode.

    In binary mode the value is taken as it is, so the job sees each of its bytes.

    Raises:
        NotConverted: it is no CloudEvent, or none with an input of the job.
    """
    is_binary = not _is_structured(headers)
    if depth(value or b"") > MAX_DEPTH:
        raise NotConverted(f"it nests deeper than {MAX_DEPTH} levels")
    try:
        message = KafkaMessage(dict(headers), None, value or b"")
        event = from_binary(message, JSONFormat()) if is_binary else from_structured(message, JSONFormat())
    except (BaseCloudEventException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotConverted(f"it is no CloudEvent: {error}") from None
    kind = event.get_type()
    if kind not in INPUTS:
        raise NotConverted(f"its type is {kind!r}; it can be one of: {', '.join(INPUTS)}")
    data = event.get_data()
    try:
        content = json.loads(value or b"") if is_binary else data
    except ValueError as error:
        raise NotConverted(f"its data is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise NotConverted("its data is no JSON object")
    plain = (value or b"") if is_binary else json.dumps(content, separators=(",", ":")).encode()
    return Converted(INPUTS[kind], _key(content), plain)


def _is_structured(headers: Mapping[str, bytes]) -> bool:
    """Return True if the value is a whole event.

    The content type decides (Kafka binding, section 3): structured events may have the headers of binary mode as well.
    Without any of these headers the value can only be a whole event.

    Raises:
        NotConverted: the format of the event is not JSON.
    """
    names = {name.lower(): value for name, value in headers.items()}
    content_type = names.get(_CONTENT_TYPE, b"").partition(b";")[0].strip().lower().decode(errors="replace")
    if content_type.startswith(_STRUCTURED):
        if content_type not in _STRUCTURED_JSON:
            raise NotConverted(f"its content type is {content_type!r}; of whole events only {_STRUCTURED}+json is read")
        return True
    return not any(name.startswith(CE_PREFIX) for name in names)


def _key(content: Mapping[str, Any]) -> str:
    """Return the key that keeps inputs in order: the parent of a topic event, else the group."""
    requests = content.get("subscriptionSet")
    entry = requests[0] if isinstance(requests, list) and requests and isinstance(requests[0], dict) else content
    found = entry.get("group") or entry.get("parentTopic")
    if found is None and isinstance(entry.get("lmqName"), str):
        try:
            found = parse_lmq_name(entry["lmqName"])[0]
        except Rejected:
            found = None
    return found if isinstance(found, str) else ""


class Wrapper:
    """Makes CloudEvents of updates and dead letters.

    Args:
        structured: the event is the value; else its attributes are headers, and the value stays as it is.
    """

    def __init__(self, *, structured: bool = False) -> None:
        self._structured = structured

    def update(self, key: bytes, value: bytes) -> KafkaMessage:
        """Return the event of an update: its id is the `eventId`, its subject the topic."""
        return self._message(key, value, "update", lambda record: (record["eventId"], record["liteTopic"]))

    def dead_letter(self, key: bytes, value: bytes) -> KafkaMessage:
        """Return the event of a dead letter: its id is its key, its subject the reason."""
        return self._message(key, value, "dead-letter", lambda record: (key.decode(), record["reason"]))

    def _message(
        self, key: bytes, value: bytes, kind: str, names: Callable[[dict[str, Any]], tuple[str, str]]
    ) -> KafkaMessage:
        record = json.loads(value)
        source, (identity, subject) = record["source"], names(record)
        attributes = {
            "specversion": "1.0",
            "id": identity,
            "source": f"/reexpand/{quote(str(source['topic']))}",
            "type": f"{PREFIX}{kind}",
            "subject": subject,
            "time": datetime.fromtimestamp(source["timestamp"] / 1_000, UTC),
            "datacontenttype": _JSON,
            "dataschema": f"urn:reexpand:{kind}",
            "partitionkey": key.decode(),
        }
        convert = to_structured if self._structured else to_binary
        data = record if self._structured else value
        return convert(CloudEvent(attributes, data), JSONFormat(), key_mapper=lambda _: key)
