"""Explanations from the live state of a running job, and from the updates alone where no job answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.console.budget import shown_steps
from streaming.console.sources import Check, Explained, Explainer
from streaming.errors import InspectError
from streaming.inspect import Explanation, Inspector, wording

if TYPE_CHECKING:
    from streaming.client.rows import Subscriber
    from streaming.config import Settings

BASIS: Final = "Answered by the running job, from its live state."

_ANSWER_SECONDS: Final = 5.0
"""Time in seconds that a reader of the page waits for the job."""

_ENTRIES: Final = 12
"""Number of entries that are shown: those that match first."""


class JobExplainer:
    """Explainer that asks the job.

    Args:
        settings: addresses, topics and client options of the job.
        otherwise: explainer where no job answers.
    """

    def __init__(self, settings: Settings, otherwise: Explainer) -> None:
        self._settings = settings
        self._otherwise = otherwise

    def explain(self, subscriber: Subscriber, lite_topic: str) -> Explained:
        """Explain one pair; the history is that of the updates."""
        seen = self._otherwise.explain(subscriber, lite_topic)
        try:
            with Inspector(self._settings, _ANSWER_SECONDS) as inspector:
                found = inspector.explain(
                    subscriber.client_id, lite_topic, parent=subscriber.parent, group=subscriber.group
                )
        except InspectError as error:
            return seen._replace(basis=f"{seen.basis} The job was asked for more: {error}.")
        return _shown(found[0])._replace(history=seen.history)


def _shown(found: Explanation) -> Explained:
    pair = found.pair
    verb = "receives" if found.received else "does not receive"
    checks = [Check(name, None, f"{text}.") for name, text in wording.facts(found)]
    entries = sorted(pair.entries, key=lambda entry: not entry.matches)[:_ENTRIES]
    for entry in entries:
        kind = "name" if entry.dialect is None else entry.dialect
        place = f" It was sent by {entry.place}." if entry.place else ""
        steps = shown_steps(entry.steps)
        checks.append(Check("entry", entry.matches, f"{entry.entry} ({kind}): {entry.reason}.{place}", steps))
    checks += (Check("hint", None, hint.text) for hint in found.hints)
    decided = f" Decided by {pair.decided_by}." if pair.decided_by else ""
    return Explained(found.received, f"{pair.client} {verb} {pair.topic}: {pair.reason}.{decided}", BASIS, checks)
