"""The Kafka broker is away, or silent."""

import time

from tests.chaos.model import Struck, fault
from tests.chaos.stage import Stage, shortened
from tests.support.running_job import Job, Streams

ABSENT_SECONDS = 30
DOWN_SECONDS = 150
PAUSE_SECONDS = 45


@fault("broker-restarted", "the broker is stopped in order, and started", survivable=True)
def _(stage: Stage) -> Struck:
    proof = stage.strikes(stage.broker.stop, stage.broker.start, kafka=False)
    stage.broker.start()
    return stage.survives(proof)


@fault("broker-killed", "SIGKILL to the broker, three times, started again each time", survivable=True)
def _(stage: Stage) -> Struck:
    proof = stage.strikes(stage.broker.kill, stage.broker.start, kafka=False)
    stage.broker.start()
    for _ in range(2):
        time.sleep(3)
        stage.broker.kill()
        stage.broker.start()
    return stage.survives(proof)


@fault("broker-silent", f"SIGSTOP to the broker for {PAUSE_SECONDS} s", survivable=True)
def _(stage: Stage) -> Struck:
    proof = stage.strikes(stage.broker.pause, stage.broker.resume, kafka=False)
    time.sleep(PAUSE_SECONDS)
    stage.broker.resume()
    return stage.survives(proof)


@fault("broker-down", f"the broker is killed, and down for {DOWN_SECONDS} s", "start the job if it has ended")
def _(stage: Stage) -> Struck:
    proof = stage.strikes(stage.broker.kill, stage.broker.start, kafka=False)
    time.sleep(DOWN_SECONDS)
    stage.broker.start()
    return stage.survives(proof)


@fault("broker-late", f"the job is started {ABSENT_SECONDS} s before the broker")
def _(stage: Stage) -> Struck:
    proof = stage.strikes(stage.running.kill)
    stage.load.hold()
    stage.broker.stop()
    job = stage.launch()
    stage.replace_job(job)
    time.sleep(ABSENT_SECONDS)
    stage.broker.start()
    stage.load.go()
    job.wait_ready()
    return Struck(proof, "waits for it, and goes on")


@fault("broker-never", "a start with an address at which nobody answers", "mend the address or the network")
def _(stage: Stage) -> Struck:
    proof = stage.strikes(stage.running.kill)
    nowhere = Streams("127.0.0.1:1", stage.streams.checkpoint, stage.streams.prefix)
    begun = time.monotonic()
    with Job(nowhere, stage.folder / "nowhere.log", *stage.options) as job:
        sentence = stage.ends_with(job, 1, "127.0.0.1:1", seconds=240)
    seconds = time.monotonic() - begun
    stage.start()
    return Struck(proof, f"exit 1 after {seconds:.0f} s: {shortened(sentence)}")
