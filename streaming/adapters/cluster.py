"""Kafka as seen by a watcher of its topics: those that exist, with their ids."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from streaming.adapters.topic_events import ANSWER_SECONDS, NoAnswer, TopicEvents
from streaming.adapters.watch import Listing, Presence, RoundRobin, listing

if TYPE_CHECKING:
    from concurrent.futures import Future

_IDS_PER_REQUEST = 500
"""Number of topic ids in one request; 500 ids take some 12 ms of CPU."""

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""Topic id from a broker without topic ids."""

_PRESENCES = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: Presence.ABSENT,
    KafkaError.UNKNOWN_TOPIC_ID: Presence.ABSENT,
    KafkaError.LEADER_NOT_AVAILABLE: Presence.PRESENT,  # just created, or its broker is down
}


class KafkaCluster(TopicEvents):
    """Kafka cluster whose topics are watched, with the topic events of one parent."""

    def __init__(
        self, bootstrap_servers: str, events: str, parent: str, options: Mapping[str, str], stop: threading.Event
    ) -> None:
        super().__init__(bootstrap_servers, events, parent, options, stop)
        self._id_requests = RoundRobin(_IDS_PER_REQUEST)
        self._internal: set[str] = set()

    def list_topics(
        self, selected: Callable[[str], bool], known: Mapping[str, str | None], doubtful: Iterable[str]
    ) -> Listing:
        """List the selected topics that exist.

        Args:
            selected: predicate of topic names.
            known: announced topics, with their ids.
            doubtful: topics with an id to ask for now, in addition to unknown topics.

        Raises:
            NoAnswer: no answer came, or it is not credible.
        """
        found = listing(self._list(), lambda name: name not in self._internal and selected(name), self._events)
        if found is None:
            raise NoAnswer(f"the answer lacks the topic {self._events}, so it may lack others")
        urgent = [*(name for name in found.topics if name not in known), *doubtful]
        names = self._id_requests.next(found.topics.keys(), urgent)
        return found.identified(self._ids(names)) if names else found

    def _list(self) -> dict[str, Presence]:
        return {name: _presence(error) for name, error in self._topics().items()}

    def _ids(self, names: list[str]) -> dict[str, str | Presence]:
        found: dict[str, str | Presence] = {}
        for name, answer in self._described(names).items():
            if answer.exception() is None and answer.result().is_internal:
                self._internal.add(name)
            found[name] = Presence.ABSENT if name in self._internal else _id(answer.result)
        return found

    def _described(self, names: list[str]) -> "dict[str, Future[Any]]":
        return self._admin.describe_topics(TopicCollection(names), request_timeout=ANSWER_SECONDS)


def _presence(error: KafkaError | None) -> Presence:
    return Presence.PRESENT if error is None else _PRESENCES.get(error.code(), Presence.UNCLEAR)


def _id(result: Callable[[], Any]) -> str | Presence:
    try:
        found = str(result().topic_id)
    except KafkaException as error:
        return _presence(error.args[0])
    return Presence.PRESENT if found == _NO_ID else found
