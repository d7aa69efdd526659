"""Pattern consumer as a process; prints each message, `TOPIC BODY`, before it is acknowledged.

python -m tests.support.lite_consumer ENDPOINTS GROUP PARENT KAFKA SUBSCRIPTIONS GROUPS UPDATES PATTERN

It uses TLS and a login if `ROCKETMQ_LOGIN` is `USER:PASSWORD`.
"""

import os
import sys
import time

from streaming.errors import LiteSubscriptionRefused
from streaming.rocketmq.consumer import Topics, WildcardLiteConsumer


def main() -> None:
    """Print messages until killed; restart while RocketMQ is unavailable, as a supervisor does."""
    while True:
        try:
            receive()
        except LiteSubscriptionRefused as error:
            sys.stderr.write(f"{error}\n")
            time.sleep(1)


def receive() -> None:
    endpoints, group, parent, kafka, *topics, pattern = sys.argv[1:]
    user, _, password = os.environ.get("ROCKETMQ_LOGIN", "").partition(":")
    consumer = WildcardLiteConsumer(
        endpoints, group, parent, kafka, listener=show, attributes={}, topics=Topics(*topics), repeat_seconds=5,
        credentials=(user, password), tls=bool(user),
    )  # fmt: skip
    with consumer:
        consumer.subscribe(pattern)
        sys.stdin.read()


def show(message: object) -> None:
    sys.stdout.write(f"{message.lite_topic} {message.body.decode()}\n")  # type: ignore[attr-defined]
    sys.stdout.flush()


if __name__ == "__main__":
    main()
