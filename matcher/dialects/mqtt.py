"""MQTT topic filters: `/` separates levels, `+` is one level, a final `#` zero or more.

Rules: MQTT 5.0 section 4.7, and libmosquitto 2.0.11, whose recorded answers are tests/conformance/vectors/mqtt.json:

- Levels may be empty: `+/+` matches `/`, and `a/+` matches `a/`.
- `a/#` matches `a` itself.
- A wildcard in the first level matches no topic that begins with `$`; a `$` further right has no special meaning.
- A filter or topic is at most 65,535 bytes of UTF-8 and holds no NUL.
- `$share/NAME/FILTER` is a shared subscription (section 4.8.2), which matches with its filter. Its name has at least
  one character, and no wildcard. Any other text that begins with `$share/` is invalid. mosquitto's broker removes
  prefix and name before it calls libmosquitto, so the recorded answers to such texts do not count.
"""

from typing import ClassVar, Final, NamedTuple

from matcher.dialects import Dialect, Flaw
from matcher.pattern import ONE, Pattern, Segment, Tail

_MAX_BYTES: Final = 65_535
_SHARE: Final = "$share/"
_SHARE_FORM: Final = f"write {_SHARE}NAME/FILTER"
_TOO_LONG: Final = f"longer than {_MAX_BYTES:,} bytes of UTF-8"


class SharedSubscription(NamedTuple):
    """Subscription whose messages are divided among the members of a group (MQTT 5.0 section 4.8.2)."""

    group: str
    filter: str


def shared(text: str) -> SharedSubscription | None:
    """Parse `$share/GROUP/FILTER`; return None for any other filter, and for a malformed share."""
    if not text.startswith(_SHARE) or _flaw_of_share(text) is not None:
        return None
    return SharedSubscription(*text.removeprefix(_SHARE).split("/", 1))


def is_malformed_share(text: str) -> bool:
    """Return True for a text that begins with `$share/` and is no shared subscription."""
    return text.startswith(_SHARE) and _flaw_of_share(text) is not None


class Mqtt(Dialect):
    """MQTT 3.1.1 and 5.0."""

    name: ClassVar[str] = "mqtt"
    separator: ClassVar[str] = "/"
    wildcards: ClassVar[str] = "+#"
    catch_all: ClassVar[str] = "#"
    whole_wildcards: ClassVar[bool] = True
    reserved: ClassVar[str] = "$"
    rest_may_be_empty: ClassVar[bool] = True
    forbidden_characters: ClassVar[str] = "+#\0"
    max_bytes: ClassVar[int | None] = _MAX_BYTES

    def parse(self, text: str, *, policy: str | None = None, allow_inner_multi: bool = False) -> Pattern:
        """Parse a topic filter."""
        self._refuse_options(policy, allow_inner_multi=allow_inner_multi)
        flaw = _flaw_of_text(text) or _flaw_of_share(text)
        if flaw is not None:
            raise self._invalid(text, *flaw)
        share = shared(text)
        topic_filter = text if share is None else share.filter
        start = len(text) - len(topic_filter)
        parts = topic_filter.split("/")
        if "+" not in topic_filter and "#" not in topic_filter:
            return Pattern(text, tuple(parts), literal=topic_filter)
        tail = Tail.END
        if parts[-1] == "#":
            parts.pop()
            tail = Tail.ANY
        segments: list[Segment] = []
        for index, part in enumerate(parts):
            if part == "+":
                segments.append(ONE)
            elif part == "#":
                hint = "move it to the end, or write '+' here"
                raise self._invalid(text, start + self._start(parts, index), "'#' is not the last level", hint)
            elif "+" in part or "#" in part:
                wildcard = "+" if "+" in part else "#"
                position = start + self._start(parts, index) + part.index(wildcard)
                reason = f"{wildcard!r} is next to other characters in {part[:40]!r}"
                hint = f"a wildcard takes a whole level: write {wildcard!r} alone, or leave it out"
                raise self._invalid(text, position, reason, hint)
            else:
                segments.append(part)
        return Pattern(text, tuple(segments), tail)

    def split(self, topic: str) -> list[str] | None:
        """Split at `/`; return None for a topic with a wildcard, a NUL or too many bytes."""
        if "+" in topic or "#" in topic or "\0" in topic or not topic:
            return None
        if (len(topic) > _MAX_BYTES or not topic.isascii()) and _flaw_of_text(topic) is not None:
            return None
        return topic.split("/")

    def flaw_of_topic(self, topic: str) -> Flaw | None:
        """Return the first flaw by the rules of `mosquitto_pub_topic_check`; NUL is a flaw as well."""
        for position, character in enumerate(topic):
            if character in "+#":
                return Flaw(position, f"{character!r} in a topic", "only filters have wildcards: leave it out")
        return _flaw_of_text(topic)


def _flaw_of_share(text: str) -> Flaw | None:
    """Return the first flaw of a shared subscription; None for other texts."""
    if not text.startswith(_SHARE):
        return None
    name, slash, topic_filter = text.removeprefix(_SHARE).partition("/")
    if not name:
        return Flaw(len(_SHARE), "a share without a name", _SHARE_FORM)
    for position, character in enumerate(name, len(_SHARE)):
        if character in "+#":
            return Flaw(position, f"{character!r} in the name of a share", "leave it out of the name")
    if not topic_filter:
        return Flaw(len(text), "a share without a topic filter", _SHARE_FORM)
    if topic_filter.startswith(_SHARE):
        return Flaw(len(_SHARE) + len(name + slash), "a share within a share", f"{_SHARE_FORM}, once")
    return None


def _flaw_of_text(text: str) -> Flaw | None:
    """Return the first flaw by the rules that filters and topics share."""
    if not text:
        return Flaw(0, "the text is empty", "give at least one character")
    if "\0" in text:
        return Flaw(text.index("\0"), "NUL", "leave it out")
    if text.isascii():
        return Flaw(_MAX_BYTES, _TOO_LONG, "shorten it") if len(text) > _MAX_BYTES else None
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        return Flaw(error.start, "a lone surrogate, which UTF-8 cannot hold", "leave it out")
    if size <= _MAX_BYTES:
        return None
    return Flaw(len(text.encode()[:_MAX_BYTES].decode(errors="ignore")), _TOO_LONG, "shorten it")
