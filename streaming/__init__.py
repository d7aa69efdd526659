"""The service: pattern subscriptions kept expanded by a Spark Structured Streaming job on Kafka.

The classes and `matcher` are imported on first use, so that each needs only its own extra:

| name | purpose |
|---|---|
| `SubscriptionClient` | follow the relation that the job writes |
| `PatternConsumer` | consume Kafka topics by pattern |
| `WildcardLiteConsumer` | consume lite topics of RocketMQ by pattern |
| `Inspector` | query the live state of a job |
| `matcher` | match, validate and index patterns |
| `errors` | all exceptions; the names below are those that the classes above raise |
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from streaming import errors
from streaming.errors import (
    CallbackFailed,
    ClientError,
    ConfigInvalid,
    ConsumerClosed,
    ConsumerError,
    InspectError,
    LiteSubscriptionRefused,
    NotCommitted,
    NotPlaced,
    NotReady,
    PatternsRefused,
    QuestionRefused,
    ReexpandError,
    TopicsUnreadable,
    TopicUnreadable,
    Unanswered,
    UpdatesUnreadable,
)

if TYPE_CHECKING:
    import matcher
    from streaming.client import SubscriptionClient
    from streaming.client.pattern_consumer import PatternConsumer
    from streaming.inspect import Inspector
    from streaming.rocketmq.consumer import WildcardLiteConsumer

    __version__: str

__all__ = [
    "CallbackFailed",
    "ClientError",
    "ConfigInvalid",
    "ConsumerClosed",
    "ConsumerError",
    "InspectError",
    "Inspector",
    "LiteSubscriptionRefused",
    "NotCommitted",
    "NotPlaced",
    "NotReady",
    "PatternConsumer",
    "PatternsRefused",
    "QuestionRefused",
    "ReexpandError",
    "SubscriptionClient",
    "TopicUnreadable",
    "TopicsUnreadable",
    "Unanswered",
    "UpdatesUnreadable",
    "WildcardLiteConsumer",
    "__version__",
    "errors",
    "matcher",
]

_HOMES: Final = {
    "Inspector": "streaming.inspect",
    "PatternConsumer": "streaming.client.pattern_consumer",
    "SubscriptionClient": "streaming.client",
    "WildcardLiteConsumer": "streaming.rocketmq.consumer",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Import a public name, or read the version of the installed distribution."""
        if name == "__version__":
            # The image's build imports this package before it is installed.
            from importlib.metadata import version  # noqa: PLC0415

            return version("reexpand")
        if name == "matcher":
            return import_module(name)
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)
