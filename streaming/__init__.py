"""The service: pattern subscriptions kept expanded by a Spark Structured Streaming job on Kafka.

The public names of the library are imported on first use, so that each needs only its own extra:

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

if TYPE_CHECKING:
    import matcher
    from streaming import errors
    from streaming.client import SubscriptionClient
    from streaming.client.pattern_consumer import PatternConsumer
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

_MODULES: Final = {"errors": "streaming.errors", "matcher": "matcher"}
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
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "__version__":
            # The image's build imports this package before it is installed.
            from importlib.metadata import version  # noqa: PLC0415

            return version("reexpand")
        if name in _MODULES:
            return import_module(_MODULES[name])
        return getattr(import_module(_HOMES.get(name, "streaming.errors")), name)
