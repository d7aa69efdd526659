"""Single checks, both indexes and flat arrays give what the definition of each dialect gives."""

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from matcher.index.texts import _form_of
from tests.fuzz.patterns import batches, patterns


@pytest.mark.rule("lite-wildcards", "mqtt-wildcards", "nats", "wamp")
@pytest.mark.parametrize("target", [patterns, batches])
@pytest.mark.parametrize("bounds", ["as is", "small"])
def test_any_patterns_and_topics_match_by_definition(
    target: Callable[[bytes], None], bounds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any additions and removals, and with bounds so small that a few segments exceed them."""
    if bounds == "small":
        for module in ("node", "patterns", "topics"):
            monkeypatch.setattr(f"matcher.index.{module}.MAX_DEPTH", 2)
        monkeypatch.setattr("matcher.index.topics._SHORT", 5)
        monkeypatch.setattr("matcher.index.patterns.BLOCK_BITS", 12)
        monkeypatch.setattr("matcher.index.texts.MAX_FORMS", 2)
        monkeypatch.setattr("matcher.index.texts.MAX_SEGMENTS", 2)
        monkeypatch.setattr("matcher.index.texts._form_of", _form_of.__wrapped__)
        monkeypatch.setattr("matcher.batch.postings._SHIFT", np.uint64(59))
        monkeypatch.setattr("matcher.batch.postings._CHARACTERS_AT_ONCE", 9)
        monkeypatch.setattr("matcher.batch.postings._ROWS_AT_ONCE", 2)
        monkeypatch.setattr("matcher.batch.postings._INDEXED_AT_ONCE", 2)
        monkeypatch.setattr("matcher.batch.postings._FILTERED", 1)
        monkeypatch.setattr("matcher.batch.postings.MAX_POSITIONS", 3)
    random = Random(0)
    for _ in range(2_000):
        target(random.randbytes(random.randrange(400)))
