"""A parent of RocketMQ that lies on two brokers, of which one is killed and comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streaming.adapters.rocketmq import admin
from tests.integration.test_rocketmq import announced, watching
from tests.support.processes import eventually
from tests.support.rocketmq import does, send
from tests.support.split_rocketmq import SplitRocketMQ

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.running_job import Streams

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

SEEN_SECONDS = 60
"""A new broker is looked for every 30 s."""


class Announced:
    """What is expected to be announced, in any order of one step."""

    def __init__(self, streams: Streams) -> None:
        self._streams, self._expected = streams, list[str]()

    def then(self, *events: str) -> None:
        """Wait until exactly these have come in addition."""
        self._expected += sorted(events)
        assert eventually(lambda: self._events(len(events)) == self._expected, SEEN_SECONDS, 0.1), self._events(0)

    def _events(self, last: int) -> list[str]:
        events = [f"{event['event']} {event['liteTopic']}" for event in announced(self._streams)]
        split = len(self._expected) - last
        return events[:split] + sorted(events[split:])


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
                does(address, lambda link: admin.delete_lite_topic(link, "orders", "on_both"))
                log.then("DELETED on_both")
            with watching(rocketmq, streams, "--once") as process:
                assert process.wait(SEEN_SECONDS) == 0
            log.then()
