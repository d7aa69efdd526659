"""Parser of subscription requests."""

from collections.abc import Mapping
from typing import Any

from matcher.dialects import DIALECTS
from matcher.errors import MatcherError
from matcher.selectors import compile as compile_selector
from streaming.errors import Rejected
from streaming.records.json_fields import (
    excerpt,
    json_object,
    optional_integer,
    optional_place,
    required_name,
    required_place,
    required_text,
    type_of,
)
from streaming.records.model import (
    LITE,
    MAX_DETAILS,
    Action,
    End,
    Notation,
    Place,
    Reason,
    SelectorSpec,
    SubscriptionRequest,
)

_OWN_FIELDS = frozenset(("asOf", "expired", "ends", "later", "through", "continues", "laterCount", "forgets", "piece"))
"""Fields for the job alone."""


def parse_subscription(payload: bytes | None) -> SubscriptionRequest:
    """Parse one entry of a subscription record.

    Raises:
        Rejected: the payload is not a valid entry.
    """
    return read_subscription(json_object(payload))


def read_subscription(record: dict[str, Any]) -> SubscriptionRequest:
    """Read one entry of a subscription record from its fields.

    The entries of its set are returned unchecked: the group decides if they are names or patterns.

    Raises:
        Rejected: the fields are not valid.
    """
    if "subscriptionSet" in record:
        raise Rejected(Reason.WRONG_TYPE, "subscriptionSet must be an array of objects, at least one")
    return _request(record)


def _request(record: dict[str, Any], *, repeated: bool = False) -> SubscriptionRequest:
    action = _action(record)
    client_id, group = required_name(record, "clientId"), required_name(record, "group")
    on_all_parents = action is Action.COMPLETE_REMOVE and _is_blank(record.get("topic"))
    request = SubscriptionRequest(
        "" if on_all_parents else required_name(record, "topic"),
        group,
        client_id,
        action,
        _entries(record, action),
        optional_integer(record, "version") if "version" in record else None,
        _offset_option(record),
        _notation(record),
        _selector(record, stored=repeated),
    )
    if _OWN_FIELDS.isdisjoint(record):
        return request
    return request._replace(
        as_of=optional_place(record, "asOf"),
        expired=record.get("expired") is True,
        ends=_ends(record),
        later=_later(record),
        through=optional_place(record, "through"),
        continues=record.get("continues") is True,
        later_count=optional_integer(record, "laterCount"),
        forgets=record.get("forgets") is True,
        piece=_piece(record),
    )


def parse_repeated(text: str, end: SubscriptionRequest) -> tuple[Place, SubscriptionRequest]:
    """Parse a request that the records of an end repeat in pieces.

    Args:
        text: all pieces, joined.
        end: one of the records.

    Raises:
        Rejected: the text is not a valid request.
    """
    fields = json_object(text.encode())
    names = {"clientId": end.client_id, "group": end.group, "topic": end.parent}
    return required_place(fields, "place"), _request({**fields, **names})


def _piece(record: dict[str, Any]) -> tuple[int, str] | None:
    piece = record.get("piece")
    if piece is None:
        return None
    if not (isinstance(piece, list) and list(map(type, piece)) == [int, str]):
        raise Rejected(Reason.WRONG_TYPE, "piece must be an array of a number and a text")
    return piece[0], piece[1]


def _ends(record: dict[str, Any]) -> Mapping[str, End] | None:
    """Return the end of a client that the job wrote, by mode."""
    ends = record.get("ends")
    if ends is None:
        return None
    if not (isinstance(ends, dict) and all(isinstance(end, dict) for end in ends.values())):
        raise Rejected(Reason.WRONG_TYPE, "ends must be an object of objects")
    return {
        mode: End(
            required_place(end, "place"),
            optional_integer(end, "version"),
            optional_integer(end, "known"),
            end.get("forgets") is True,
        )
        for mode, end in ends.items()
    }


def _later(record: dict[str, Any]) -> tuple[tuple[Place, SubscriptionRequest], ...]:
    """Return the requests that the job repeats after the end of a client."""
    later = record.get("later") or []
    if not (isinstance(later, list) and all(isinstance(request, dict) for request in later)):
        raise Rejected(Reason.WRONG_TYPE, "later must be an array of objects")
    if any("later" in request for request in later):
        raise Rejected(Reason.WRONG_TYPE, "the requests in later must not have later themselves")
    common = {name: record.get(name) for name in ("clientId", "group", "topic")}
    return tuple(
        (required_place(request, "place"), _request({**request, **common}, repeated=True)) for request in later
    )


def _action(record: dict[str, Any]) -> Action:
    action = required_text(record, "action")
    if action not in Action.__members__:
        raise Rejected(
            Reason.UNKNOWN_ACTION, f"action is {excerpt(action)}; it must be one of {', '.join(Action.__members__)}"
        )
    return Action(action)


def _entries(record: dict[str, Any], action: Action) -> tuple[str, ...]:
    """Return the entries of the set without repetitions."""
    entries = record.get("liteTopicSet")
    if entries is None and action is Action.COMPLETE_REMOVE:
        return ()
    if entries is None:
        raise Rejected(
            Reason.MISSING_FIELD, "liteTopicSet is missing; in a wildcard group [] subscribes to every topic"
        )
    if not (isinstance(entries, list) and all(isinstance(entry, str) for entry in entries)):
        raise Rejected(Reason.WRONG_TYPE, "liteTopicSet must be an array of strings")
    return tuple(dict.fromkeys(entries))


def _offset_option(record: dict[str, Any]) -> Mapping[str, Any] | None:
    option = record.get("offsetOption")
    if option is None:
        return None
    if not isinstance(option, dict):
        raise Rejected(Reason.WRONG_TYPE, f"offsetOption must be an object, not {type_of(option)}")
    kind = required_text(option, "type", "offsetOption.")
    if kind not in ("POLICY", "OFFSET", "TAIL_N", "TIMESTAMP"):
        raise Rejected(
            Reason.OUT_OF_RANGE, f"offsetOption.type is {excerpt(kind)}; it must be POLICY, OFFSET, TAIL_N or TIMESTAMP"
        )
    return {"type": kind, "value": optional_integer(option, "value", prefix="offsetOption.")}


def _notation(record: dict[str, Any]) -> Notation:
    dialect = record.get("dialect")
    if dialect is None:
        dialect = "lite"
    elif not isinstance(dialect, str) or dialect not in DIALECTS:
        raise Rejected(
            Reason.UNKNOWN_DIALECT, f"dialect is {excerpt(dialect)}; it must be one of {', '.join(DIALECTS)}"
        )
    policy, policies = record.get("policy"), DIALECTS[dialect].policies
    if policy is not None and policy not in policies:
        allowed = ", ".join(policies) or "no match policies"
        raise Rejected(Reason.OUT_OF_RANGE, f"policy is {excerpt(policy)}; dialect {dialect} has {allowed}")
    delivery = record.get("delivery")
    if delivery not in (None, "per-client", "per-subscription"):
        raise Rejected(
            Reason.OUT_OF_RANGE, f"delivery is {excerpt(delivery)}; it must be per-client or per-subscription"
        )
    per_subscription = dialect == "wamp" if delivery is None else delivery == "per-subscription"
    notation = Notation(dialect, policy, per_subscription)
    return LITE if notation == LITE else notation


def _selector(record: dict[str, Any], *, stored: bool) -> SelectorSpec | None:
    value = record.get("selector")
    if value is None:
        return None
    if not isinstance(value, dict):
        raise Rejected(Reason.WRONG_TYPE, f"selector must be an object, not {type_of(value)}")
    selector = SelectorSpec(required_text(value, "type", "selector."), required_text(value, "expression", "selector."))
    if len(selector.text) > MAX_DETAILS:
        raise Rejected(Reason.OUT_OF_RANGE, f"selector.expression is longer than {MAX_DETAILS:,} characters")
    try:
        compile_selector(*selector, stored=stored)
    except (MatcherError, ValueError) as error:  # a user-defined kind may raise any ValueError
        raise Rejected(Reason.INVALID_SELECTOR, str(error)) from None
    except Exception as error:
        message = f"the selector kind {excerpt(selector.kind)} raised {type(error).__name__} for this expression"
        raise Rejected(Reason.INVALID_SELECTOR, message) from error
    return selector


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())
