"""Dialects by name.

A dialect is one module of this package with one subclass of `Dialect`; nothing else lists it.
"""

from importlib import import_module
from inspect import isabstract, isclass
from pkgutil import iter_modules
from typing import Final

from matcher.dialects.base import Dialect
from matcher.errors import UnknownDialect

__all__ = ["DIALECTS", "POLICIES", "SEPARATORS", "Dialect", "get_dialect"]

DEFAULT: Final = "lite"
"""Name of the default dialect."""


def _load() -> dict[str, Dialect]:
    """Return one instance of each dialect of this package by name, the default dialect first."""
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    kinds = {
        kind for module in modules for kind in vars(module).values() if isclass(kind) and issubclass(kind, Dialect)
    }
    dialects = [kind() for kind in kinds if not isabstract(kind)]
    return {dialect.name: dialect for dialect in sorted(dialects, key=lambda each: (each.name != DEFAULT, each.name))}


DIALECTS: Final = _load()

SEPARATORS: Final = tuple(dict.fromkeys(dialect.separator for dialect in DIALECTS.values()))
"""Separators of all dialects, each once."""

POLICIES: Final = tuple(dict.fromkeys(policy for dialect in DIALECTS.values() for policy in dialect.policies))
"""Match policies of all dialects, each once."""


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
