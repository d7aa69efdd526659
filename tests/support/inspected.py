"""Inspector of a simulated job, without Spark and Kafka."""

import json
import time
from collections.abc import Collection

from streaming.coordinator import COORDINATOR
from streaming.errors import QuestionRefused
from streaming.inspect import Inspector
from streaming.inspect.asking import KeyAnswer
from streaming.records.model import Stream
from streaming.records.routing import placed
from streaming.storage.journal import Key
from streaming.worker.inquiry.questions import Question
from streaming.worker.rows import InputRow, OutputKind
from streaming.worker.worker import Worker
from tests.support.simulator import NUMBER, Simulation
from tests.support.states import work


class SimulatedInquirer:
    """Inquirer that passes its records to the workers of a simulated job, and counts the questions."""

    def __init__(self, job: Simulation) -> None:
        self.job = job
        self.questions = 0

    def ask(self, question: Question, keys: Collection[Key]) -> dict[Key, KeyAnswer]:
        self.questions += 1
        found = {}
        for key in keys:
            record = question.for_coordinator() if key[0] == COORDINATOR else question.for_shard(*key)
            for parent, number, entry, payload in placed(Stream.CLOCK, record.value, self.job.routing):
                if (parent, number) == key:
                    row = InputRow(NUMBER[Stream.CLOCK], 0, 0, entry, int(time.time() * 1_000), payload)
                    former = self.job.states.get(key)
                    data, written = work(*key, [row], former, Worker(self.job.config))
                    assert data == former
                    assert written.kinds == [OutputKind.ANSWER]
                    value = json.loads(written.payloads[0] or b"")
                    if "error" in value:
                        raise QuestionRefused(value["error"])
                    found[key] = KeyAnswer(value["answer"], value.get("shards", 1), value.get("depth", 1))
        return found


def inspector_of(job: Simulation) -> tuple[Inspector, SimulatedInquirer]:
    inspector = Inspector("127.0.0.1:1")
    inquirer = SimulatedInquirer(job)
    inspector._inquirer = inquirer  # type: ignore[assignment]
    return inspector, inquirer
