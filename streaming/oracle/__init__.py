"""The relation by its definition: slow, obvious, and independent of `streaming.expansion.expansion`."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from streaming.errors import Rejected
from streaming.oracle.definition import Effective, Oracle, Placed
from streaming.records.model import Place
from streaming.records.parsing import parse_group_event, parse_subscription, parse_topic_event

__all__ = ["Effective", "Oracle", "replay"]

E = TypeVar("E")


def replay(
    topics: Iterable[bytes | None], requests: Iterable[bytes | None], groups: Iterable[bytes | None]
) -> set[Effective]:
    """Return the relation after raw entries, each stream in its own order; invalid entries are left out.

    The entries form one micro-batch without a clock. No topic exists before the last request, so a quota only caps and
    never refuses a request. Use `Oracle` if quotas or time matter.
    """
    oracle = Oracle()
    oracle.batch(
        _placed(parse_topic_event, topics), _placed(parse_subscription, requests), _placed(parse_group_event, groups)
    )
    return oracle.relation()


def _placed(parse: Callable[[bytes | None], E], payloads: Iterable[bytes | None]) -> Placed[E]:
    """Yield the valid entries, parsed, each at the place of its turn."""
    for offset, payload in enumerate(payloads):
        with suppress(Rejected):
            yield Place(0, offset, 0), parse(payload)
