"""A parent of RocketMQ that lies on two brokers, of which one is killed and comes back."""

from itertools import islice
from pathlib import Path

import pytest

from streaming.rocketmq import admin
from tests.support.processes import eventually
from tests.support.rocketmq import does, send
from tests.support.rocketmq_watcher import announced, watching
from tests.support.running_job import Streams
from tests.support.split_rocketmq import SplitRocketMQ

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

SEEN_SECONDS = 60
"""A new broker is looked for every 30 s."""


class Announced:
    """What is expected to be announced, in any order of one step."""

    def __init__(self, streams: Streams) -> None:
        self._streams, self._steps = streams, list[list[str]]()

    def then(self, *events: str) -> None:
        """Wait until exactly these have come in addition."""
        self._steps.append(sorted(events))
        assert eventually(self._have_come, SEEN_SECONDS, 0.1), ", ".join(self._events())

    def _events(self) -> list[str]:
        return [f"{event['event']} {event['liteTopic']}" for event in announced(self._streams)]

    def _have_come(self) -> bool:
        events = iter(self._events())
        return all(sorted(islice(events, len(step))) == step for step in self._steps) and not list(events)


def test_a_topic_lives_as_long_as_one_of_its_brokers_has_it(streams: Streams, tmp_path: Path) -> None:
    with SplitRocketMQ(tmp_path / "rocketmq") as rocketmq:
        other, address = rocketmq.another_broker("other")
        with other:
            for broker in (rocketmq.broker, address):
                admin.create(broker, ["orders"], {})
                does(broker, lambda link: send(link, "orders", "on_both"))
            does(address, lambda link: send(link, "orders", "on_other"))
            log = Announced(streams)
            with watching(rocketmq, streams):
                log.then("CREATED on_both", "CREATED on_other")
                does(rocketmq.broker, lambda link: admin.delete_lite_topic(link, "orders", "on_both"))
                does(rocketmq.broker, lambda link: send(link, "orders", "on_first"))
                log.then("CREATED on_first")

                other.kill()
                does(rocketmq.broker, lambda link: send(link, "orders", "meanwhile"))
                log.then("CREATED meanwhile")
                other.start()
                does(address, lambda link: send(link, "orders", "afterwards"))
                log.then("CREATED afterwards")
            rocketmq.name_server_part.kill()
            other.kill()
            rocketmq.name_server_part.start()
            other.start()
            with watching(rocketmq, streams):  # the first broker has not registered yet, so its topics are waited for
                does(address, lambda link: send(link, "orders", "early"))
                # The life that was announced has ended, and the other one is younger: it may be another one.
                log.then("CREATED early", "CREATED on_both", "DELETED on_both")
                does(rocketmq.broker, lambda link: send(link, "orders", "late"))
                log.then("CREATED late")
                does(address, lambda link: admin.delete_lite_topic(link, "orders", "on_both"))
                log.then("DELETED on_both")
            with watching(rocketmq, streams, "--once") as process:
                assert process.wait(SEEN_SECONDS) == 0
            log.then()
