"""Dialects by name."""

from typing import Final

from matcher.dialects.base import Dialect
from matcher.dialects.lite import Lite
from matcher.dialects.mqtt import Mqtt
from matcher.dialects.nats import Nats
from matcher.dialects.wamp import Wamp
from matcher.errors import UnknownDialect

__all__ = ["DIALECTS", "Dialect", "get_dialect"]

DIALECTS: Final[dict[str, Dialect]] = {dialect.name: dialect for dialect in (Lite(), Mqtt(), Nats(), Wamp())}


def get_dialect(name: str | Dialect) -> Dialect:
    """Return the dialect of this name; return a dialect of your own as it is.

    Raises:
        UnknownDialect: no dialect has this name.
    """
    if isinstance(name, Dialect):
        return name
    try:
        return DIALECTS[name]
    except KeyError:
        raise UnknownDialect(name, DIALECTS) from None
