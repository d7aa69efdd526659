"""Sample traffic: tenants whose order topics come and go, and clients that follow them by patterns.

It runs until SIGTERM or Ctrl-C, so that a job, a dashboard or a console has something to show.
"""
# ruff: noqa: D301 - click wants the character \b, not its two letters, above what it must not wrap

import itertools
import signal
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from random import Random

import click

from streaming.errors import ConfigInvalid, KafkaUnavailable
from streaming.examples.scenario import ORDERS, Step, appears, subscribes, vanishes, wildcard_group
from streaming.kafka.reach import wait_for_broker
from streaming.kafka.writer import Writer
from streaming.records.model import Stream

TENANTS = ("acme", "globex", "initech", "umbrella")
REGIONS = ("ap", "eu", "us")
STEPS = ("created", "paid", "shipped")
GROUPS = {"billing": "*__{tenant}__*__paid", "dashboard": "*__{tenant}__**", "logistics": "*__{tenant}__*__shipped"}
"""Groups, and the pattern of each of their clients; one client of a group for each tenant."""

LIVE_TOPICS = 400
"""Number of topics from which on the oldest one ends with each new one."""
_REPEAT_EVERY = 50
"""Number of topic events between two requests of clients, which repeat their sets as a lease asks."""


def events(random: Random) -> Iterator[Step]:
    """Yield the sample: groups and clients first, then topics without an end."""
    for group in GROUPS:
        yield wildcard_group(group, ORDERS)
    clients = list(itertools.product(GROUPS, TENANTS))
    for group, tenant in clients:
        yield _request(group, tenant)
    live: deque[str] = deque()
    for number in itertools.count():
        topic = "__".join((random.choice(REGIONS), random.choice(TENANTS), f"{number:06}", random.choice(STEPS)))
        yield appears(ORDERS, topic)
        live.append(topic)
        if len(live) > LIVE_TOPICS:
            yield vanishes(ORDERS, live.popleft())
        if number % _REPEAT_EVERY == 0:
            yield _request(*random.choice(clients))


def _request(group: str, tenant: str) -> Step:
    return subscribes(f"{tenant}-{group}", group, ORDERS, GROUPS[group].format(tenant=tenant))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--bootstrap-servers", required=True, envvar="REEXPAND_BOOTSTRAP_SERVERS",
    help="Kafka brokers, host:port[,host:port...].",
)  # fmt: skip
@click.option("--rate", type=click.FloatRange(0.1, 10_000), default=5.0, show_default=True, help="Events per second.")
@click.option("--seed", type=int, default=1, show_default=True, help="Another number makes other traffic.")
@click.option("--count", type=click.IntRange(1), default=None, help="Number of events; without it there is no end.")
@click.option(
    "--heartbeat-file", type=click.Path(dir_okay=False, path_type=Path), help="File to touch while Kafka takes events."
)
def main(bootstrap_servers: str, rate: float, seed: int, count: int | None, heartbeat_file: Path | None) -> None:
    """Send sample events to the job's inputs until SIGTERM or Ctrl-C.

    Exit code 1 if Kafka does not answer or does not take the events.

    \b
    Example:
      python -m streaming.examples.traffic --bootstrap-servers broker:9092 --rate 20
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    names = "lite-group-events", "lite-subscription-events", "lite-topic-events"
    topics = dict(zip((Stream.GROUPS, Stream.SUBSCRIPTIONS, Stream.TOPICS), names, strict=True))
    try:
        wait_for_broker(bootstrap_servers, is_over=stop.is_set)
        writer = Writer(bootstrap_servers, {}, KafkaUnavailable)
        for sent, event in enumerate(itertools.islice(events(Random(seed)), count)):  # noqa: S311 - no secret
            if stop.wait(1 / rate):
                break
            if writer.wait(0) == 0 and sent and heartbeat_file:
                heartbeat_file.touch()
            writer.send(topics[event.stream], event.value, event.key.encode())
        writer.flush(10)
    except (ConfigInvalid, KafkaUnavailable) as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
