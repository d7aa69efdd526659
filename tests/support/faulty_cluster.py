"""A local Spark cluster whose workers hang, and start again after a crash."""

import signal

from streaming.local.cluster import _WORKER_REGISTERED, SparkCluster


class FaultyCluster(SparkCluster):
    """A cluster for tests of a job during faults of its workers."""

    def start_worker(self, number: int) -> None:
        """Restart a killed worker as `start` does. A running job gets an executor there."""
        self._launch_worker(number)
        self._wait_for(f"worker-{number}", _WORKER_REGISTERED)

    def pause_worker(self, number: int) -> None:
        """Freeze a worker and its executors, as a hanging machine would, until `resume_worker`."""
        self._processes[f"worker-{number}"].send_group(signal.SIGSTOP)

    def resume_worker(self, number: int) -> None:
        """Resume a paused worker."""
        self._processes[f"worker-{number}"].send_group(signal.SIGCONT)
