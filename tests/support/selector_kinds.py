"""Selector kinds of other packages."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest

from matcher import selectors


@contextmanager
def offered(name: str, kind: type[Any]) -> Iterator[None]:
    """Install a package that offers a selector kind, until the block ends."""
    points = EntryPoints([EntryPoint(name, f"{kind.__module__}:{kind.__name__}", selectors.GROUP)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EntryPoint, "load", lambda _: kind)
        patch.setattr(selectors, "entry_points", lambda *, group: points.select(group=group))
        _forget()
        yield
    _forget()


def _forget() -> None:
    for known in (selectors._factory, selectors._offered):
        known.cache_clear()
