"""Notes about clients, and the requests that ends repeat, as plain values and back."""

from collections.abc import Iterable, Mapping
from typing import Any

from streaming.events.model import LITE, Action, End, Notation, Place, SelectorSpec, SubscriptionRequest
from streaming.state.notes import ClientNotes, QuotaVerdict, Repeated, Versions
from streaming.subscription.subscribers import ClientKey

RepeatedKey = tuple[ClientKey, int]
"""A client, and the number of a part of its end."""

_REPEATED_FIELDS = SubscriptionRequest._fields.index("later")
"""Fields of an end or a repeated request; only what forgets has more."""


def note_fields(notes: Mapping[ClientKey, ClientNotes | None]) -> list[Any]:
    """Return notes as plain values."""
    return list(notes.items())


def notes_of(fields: Iterable[Any]) -> dict[ClientKey, ClientNotes | None]:
    """Return the notes in plain values."""
    return {ClientKey(*key): None if each is None else _notes(*each) for key, each in fields}


def repeated_values(repeated: Mapping[RepeatedKey, Repeated | None]) -> list[Any]:
    """Return repeated requests as plain values."""
    return [(key, None if each is None else (each[0], _values(each[1]))) for key, each in repeated.items()]


def repeated_of(fields: Iterable[Any]) -> dict[RepeatedKey, Repeated | None]:
    """Return the repeated requests in plain values."""
    return {
        (ClientKey(*key), number): None if each is None else (Place(*each[0]), request_of(*each[1]))
        for (key, number), each in fields
    }


def request_of(*fields: Any) -> SubscriptionRequest:
    """Return the request whose plain values these are."""
    values = dict(zip(SubscriptionRequest._fields, fields, strict=False))
    notation, selector, ends = values["notation"], values["selector"], values["ends"]
    values["action"] = Action(values["action"])
    values["notation"] = LITE if notation is None else Notation(*notation)
    values["selector"] = selector and SelectorSpec(*selector)
    values["ends"] = ends and {mode: End(Place(*place), *rest) for mode, (place, *rest) in ends.items()}
    return SubscriptionRequest(**values)


def _values(request: SubscriptionRequest) -> tuple[Any, ...]:
    short = request._replace(notation=None, as_of=None) if request.notation is LITE else request._replace(as_of=None)  # type: ignore[arg-type]
    return short if request.forgets else short[:_REPEATED_FIELDS]


def _notes(*fields: Any) -> ClientNotes:
    notes = ClientNotes(*fields)
    return notes._replace(verdicts=tuple(_verdict(*each) for each in notes.verdicts))


def _verdict(*fields: Any) -> QuotaVerdict:
    verdict = QuotaVerdict(*fields)
    versions = None if verdict.versions is None else Versions(*verdict.versions)
    selector = None if verdict.selector is None else SelectorSpec(*verdict.selector)
    return verdict._replace(versions=versions, selector=selector)
