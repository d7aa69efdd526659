"""A consumer of a pattern as a process of its own: prints each message, `TOPIC BODY`, before it is acknowledged.

python -m tests.support.lite_consumer ENDPOINTS GROUP PARENT KAFKA SUBSCRIPTIONS GROUPS UPDATES PATTERN
"""

import sys

from streaming.consumers.rocketmq import Topics, WildcardLiteConsumer


def main() -> None:
    """Print messages until killed."""
    endpoints, group, parent, kafka, *topics, pattern = sys.argv[1:]
    consumer = WildcardLiteConsumer(
        endpoints, group, parent, kafka, listener=show, attributes={}, topics=Topics(*topics), repeat_seconds=5
    )
    with consumer:
        consumer.subscribe(pattern)
        sys.stdin.read()


def show(message: object) -> None:
    """Print a message."""
    sys.stdout.write(f"{message.lite_topic} {message.body.decode()}\n")  # type: ignore[attr-defined]
    sys.stdout.flush()


if __name__ == "__main__":
    main()
