"""Snapshots of large states: when a worker uses them, and what is left of them."""

import os
import zlib
from collections.abc import Callable, Iterator
from itertools import count, pairwise
from pathlib import Path

import msgpack
import numpy as np
import pytest

from streaming.state import ShardState
from streaming.state.counts import HeldCounts
from streaming.storage import snapshots as module
from streaming.storage.archive import Folder, _KeyFolder
from streaming.storage.journal import Journal, Position
from streaming.storage.snapshots import _TYPES, Content, Snapshots
from streaming.tuning import Tuning
from streaming.worker.rows import InputRow
from streaming.worker.worker import Worker, WorkerConfig
from tests.support.events import created, deleted, quota, replace, wildcard
from tests.support.simulator import TOPICS as NAMES
from tests.support.states import GROUPS, SUBSCRIPTIONS, TOPICS, row, work

ARRAYS = {name: np.arange(3).astype(number) for name, number in _TYPES.items() if name != "others"}
CONTENT = Content(ARRAYS, [1, {"two": "three"}])


@pytest.fixture(scope="module", autouse=True)
def few_topics() -> Iterator[None]:
    """Let five topics be enough for a table."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streaming.state.snapshot._FEW_TOPICS", 5)
        yield


def at(end: int) -> Position:
    return Position(end, bytes([end]) * 16)


def files(snapshots: Snapshots) -> list[str]:
    return sorted(each.name.split("-")[1] for each in snapshots.folder.glob("snapshot-*"))


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    return Snapshots(tmp_path / "key")


def test_a_snapshot_is_read_as_it_was_written(snapshots: Snapshots) -> None:
    assert snapshots.write(at(9), CONTENT, None)
    found = snapshots.read(at(9))
    assert found is not None
    assert found.others == (1, {"two": "three"})
    assert {name: array.tolist() for name, array in found.arrays.items()} == {
        name: array.tolist() for name, array in ARRAYS.items()
    }
    assert snapshots.read(at(8)) is None


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _flipped(data: bytes) -> bytes:
    return data[:-25] + bytes([data[-25] ^ 1]) + data[-24:]


def _zeroed(data: bytes) -> bytes:
    return bytes(len(data))


@pytest.fixture
def restart(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Reboot the machine."""
    starts = count(1)

    def restart() -> None:
        start = bytes([next(starts)]) * 16
        monkeypatch.setattr(module, "_boot_id", lambda: start)

    return restart


@pytest.mark.parametrize("damage", [_cut, _flipped, _zeroed, lambda _: b"", lambda data: data[:5]])
def test_a_damaged_snapshot_is_removed(
    damage: Callable[[bytes], bytes], snapshots: Snapshots, restart: Callable[[], None]
) -> None:
    assert snapshots.write(at(9), CONTENT, None)
    (path,) = snapshots.folder.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    restart()
    assert snapshots.read(at(9)) is None
    assert not path.exists()


def test_a_snapshot_with_unreadable_values_is_removed(snapshots: Snapshots) -> None:
    """Though it is known to be intact."""
    assert snapshots.write(at(9), CONTENT, None)
    (path,) = snapshots.folder.iterdir()
    packed = msgpack.packb(CONTENT.others)
    path.write_bytes(path.read_bytes().replace(packed, b"\xc1" * len(packed)))
    assert snapshots.read(at(9)) is None
    assert not path.exists()


def test_a_snapshot_is_verified_once_after_a_start_of_the_machine(
    snapshots: Snapshots, restart: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    verified, crc32 = list[int](), zlib.crc32

    def counted(data: bytes) -> int:
        verified.append(len(data))
        return crc32(data)

    monkeypatch.setattr("zlib.crc32", counted)
    assert snapshots.write(at(9), CONTENT, None)
    (path,) = snapshots.folder.iterdir()
    verified.clear()
    assert snapshots.read(at(9)) is not None
    assert verified == []
    size = path.stat().st_size
    for _ in range(2):
        restart()
        assert snapshots.read(at(9)) is not None
        assert snapshots.read(at(9)) is not None
    assert len(verified) == 2
    assert path.stat().st_size == size


def test_without_a_number_of_the_start_a_snapshot_is_always_verified(
    snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_boot_id", lambda: module._UNKNOWN)
    assert snapshots.write(at(9), CONTENT, None)
    assert snapshots.read(at(9)) is not None
    (path,) = snapshots.folder.iterdir()
    path.write_bytes(_flipped(path.read_bytes()))
    assert snapshots.read(at(9)) is None


def test_the_former_snapshot_stays_and_older_ones_go(snapshots: Snapshots) -> None:
    for end in (1, 2):
        assert snapshots.write(at(end), CONTENT, at(end - 1))
    assert files(snapshots) == ["1", "2"]
    for name, age in ((".snapshot-7.1", 7_200), (".snapshot-8.1", 60)):
        path = snapshots.folder / name
        path.touch()
        now = path.stat().st_mtime
        os.utime(path, (now - age, now - age))
    other = snapshots.folder / "0123456789abcdef0123456789abcdef-77"
    other.touch()
    assert snapshots.write(at(3), CONTENT, at(2))
    assert files(snapshots) == ["2", "3"]
    assert [each.name for each in snapshots.folder.glob(".*")] == [".snapshot-8.1"]
    snapshots.clear()
    assert files(snapshots) == []
    assert other.exists()


def test_a_snapshot_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    assert not Snapshots(tmp_path / "key").write(at(9), CONTENT, None)
    assert Snapshots(tmp_path / "key").latest(Journal()) is None


class Job:
    """A shard, and workers that take turns; a snapshot is due for so many bytes of its journal."""

    def __init__(self, folder: Path, least: int = 200, inline: int = 200) -> None:
        self.config = WorkerConfig(NAMES, archives=Folder(str(folder)))
        self.tuning = Tuning(snapshot_min_bytes=least, inline_bytes=inline, retained_micro_batches=2)
        self.value: bytes | None = None
        self.batch = 0
        self.snapshots = Folder(str(folder)).snapshots("p", 0)

    def worker(self) -> Worker:
        return Worker(self.config, self.tuning)

    def run(self, worker: Worker, *rows: InputRow) -> list[str]:
        """Run a micro-batch; return the topics of its updates."""
        self.batch += 1
        self.value, output = work("p", 0, rows, self.value, worker, batch=self.batch)
        return sorted(update["liteTopic"] for update in output.payloads_of("add") + output.payloads_of("remove"))

    def read(self) -> Worker:
        """Return a worker that has read the journal, and no snapshot."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Snapshots, "latest", lambda *_: None)
            worker = self.worker()
            self.run(worker, row(TOPICS, deleted("none")))
        return worker

    def create(self, worker: Worker, *names: str) -> list[str]:
        return self.run(worker, *(row(TOPICS, created(name), offset) for offset, name in enumerate(names)))

    @property
    def journal(self) -> Journal:
        assert self.config.archives is not None
        return Journal.open(self.value, self.config.archives.of("p", 0))

    def files(self) -> list[str]:
        assert self.snapshots is not None
        return files(self.snapshots)


def shard_of(worker: Worker) -> ShardState:
    """Return the only state that a worker has decoded."""
    ((_, shard, _),) = worker.states._kept.values()
    assert isinstance(shard, ShardState)
    return shard


TEN = [f"topic__{number}" for number in range(10)]


def subscribed(tmp_path: Path, least: int = 200) -> Job:
    """A job whose one client has the pattern topic__*, and which knows ten topics."""
    job = Job(tmp_path, least)
    worker = job.worker()
    job.run(worker, row(GROUPS, wildcard()), row(SUBSCRIPTIONS, replace("topic__*")))
    assert job.create(worker, *TEN) == TEN
    return job


def read_from(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note from which byte the parts of states are read."""
    starts: list[int] = []
    former = _KeyFolder.read

    def read(self: _KeyFolder, name: str, start: int = 0) -> bytes:
        starts.append(start)
        return former(self, name, start)

    monkeypatch.setattr(_KeyFolder, "read", read)
    return starts


def test_a_new_worker_reads_a_snapshot_in_place_of_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = subscribed(tmp_path)
    assert len(job.files()) == 1
    starts = read_from(monkeypatch)
    worker = job.worker()
    assert job.create(worker, "topic__3", "topic__x") == ["topic__x"]
    assert job.run(worker, row(TOPICS, deleted("topic__3")), row(TOPICS, deleted("topic__x"), 1)) == [
        "topic__3",
        "topic__x",
    ]
    assert 0 not in starts
    assert job.create(job.worker(), "topic__3", "topic__4", "topic__x") == ["topic__3", "topic__x"]


def test_a_new_worker_knows_the_counts_of_quotas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It need not count the topics of all clients."""
    job = Job(tmp_path)
    worker = job.worker()
    job.run(worker, row(GROUPS, quota(11)), row(SUBSCRIPTIONS, replace("topic__*")))
    assert job.create(worker, *TEN) == TEN
    others = [f"other__{number}" for number in range(20)]
    assert job.create(worker, "topic__x", "topic__y", *others) == ["topic__x"]  # counted, and then a snapshot is due
    monkeypatch.setattr(HeldCounts, "count_all", None)
    worker = job.worker()
    assert job.create(worker, "topic__z") == []
    assert job.run(worker, row(TOPICS, deleted("topic__3"))) == ["topic__3", "topic__y"]
    assert job.create(worker, "topic__3") == []


def test_topics_of_a_snapshot_take_no_memory_of_the_worker(tmp_path: Path) -> None:
    workers = []
    for least in (200, 1_000_000):
        job = Job(tmp_path / f"{least}", least)
        job.create(worker := job.worker(), *(f"topic__{number:030}" for number in range(500)))
        workers.append(worker)
    mapped, decoded = (worker.states.memory_bytes for worker in workers)
    assert mapped < 0.3 * decoded


def test_a_short_journal_has_no_snapshot(tmp_path: Path) -> None:
    assert subscribed(tmp_path, least=1_000).files() == []


def test_a_shard_with_many_clients_and_few_topics_has_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path)
    requests = (replace(f"topic__{n}", client=f"c{n}") for n in range(10))
    job.run(job.worker(), row(GROUPS, wildcard()), *(row(SUBSCRIPTIONS, each, n) for n, each in enumerate(requests)))
    assert len(job.files()) == 1
    starts = read_from(monkeypatch)
    worker = job.worker()
    assert job.create(worker, *TEN, "topic__x") == TEN
    assert 0 not in starts
    settled = shard_of(worker).settled
    assert settled is not None
    assert not settled.clients.recent


def test_workers_share_a_snapshot_and_keep_their_indexes(tmp_path: Path) -> None:
    """A state that both have decoded takes over the arrays of the other worker at the position of its snapshot."""
    job = subscribed(tmp_path)
    one, other = job.worker(), job.worker()
    for worker in (one, other):
        job.create(worker, "topic__1", "topic__y")  # reads the snapshot
    known = job.files()
    targets = shard_of(other)._targets
    while job.files() == known:
        job.create(one, f"topic__{len(shard_of(one).topics)}")
    assert job.create(other, "topic__y", "topic__x") == ["topic__x"]
    assert one.states._mapped == other.states._mapped
    assert shard_of(other)._targets is targets
    assert job.create(one, "topic__x", "topic__z") == ["topic__z"]
    assert shard_of(one) == shard_of(job.read())


def test_a_snapshot_that_cannot_be_written_is_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When as much is appended as between two snapshots. Until then the worker reads the snapshots of other workers."""
    job = subscribed(tmp_path)
    worker, known, attempts = job.worker(), job.files(), list[int]()
    names = map("topic__{}".format, count(20))

    def fail(_: Snapshots, position: Position, *__: object) -> bool:
        attempts.append(position.end)
        return False

    with monkeypatch.context() as full:
        full.setattr(Snapshots, "write", fail)
        while len(attempts) < 3:
            (name,) = job.create(worker, next(names))
            assert name in shard_of(worker).topics
    assert all(later - earlier >= 200 for earlier, later in pairwise(attempts))
    assert job.files() == known
    while job.files() == known:
        job.create(worker, next(names))
    assert job.journal.position.end - attempts[-1] < 2 * 200
    assert worker.states._mapped.keys() == {("p", 0)}
    assert shard_of(worker) == shard_of(job.read())


@pytest.mark.parametrize(
    ("broken", "has_snapshot"), [("snapshot_content", False), ("settle", False), ("settle", True), ("restore", True)]
)
def test_a_defect_of_snapshots_costs_no_entry(
    broken: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    has_snapshot: bool,
) -> None:
    """A worker reads and keeps the state without snapshots from then on, whatever the defect has changed before."""
    job = subscribed(tmp_path, least=200 if has_snapshot else 1_000_000)
    job.tuning = Tuning(snapshot_min_bytes=200, inline_bytes=200, retained_micro_batches=2)

    def fail(shard: ShardState, *_: object) -> None:
        shard.topics.clear()
        raise ZeroDivisionError

    monkeypatch.setattr("streaming.storage.store.SHORTCUT_ERRORS", (Exception,))
    with monkeypatch.context() as defect:
        defect.setattr(f"streaming.state.{broken}", fail)
        worker = job.worker()
        names = [f"topic__{number}" for number in range(100, 140)]
        assert [job.create(worker, name) for name in names] == [[name] for name in names]
        assert job.create(worker, names[0], TEN[0]) == []
    assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [ZeroDivisionError]
    assert shard_of(worker) == shard_of(job.read())


def test_a_part_that_cannot_be_read_is_no_defect_of_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task fails, and its repetition uses the snapshot."""
    job = subscribed(tmp_path)
    one, other = job.worker(), job.worker()
    for worker in (one, other):
        job.create(worker, "topic__1", "topic__y")
    known, number = job.files(), count(20)
    while job.files() == known:
        job.create(one, f"topic__{next(number)}")

    def fail(*_: object) -> Iterator[object]:
        raise FileNotFoundError

    monkeypatch.setattr("streaming.storage.store.SHORTCUT_ERRORS", (Exception,))
    with monkeypatch.context() as away:
        away.setattr(Journal, "changes", fail)
        with pytest.raises(FileNotFoundError):
            job.create(other, "topic__x")
    assert job.create(other, "topic__x") == ["topic__x"]
    assert one.states._mapped == other.states._mapped


def test_another_snapshot_is_due_after_as_many_bytes_as_the_smallest_has(tmp_path: Path) -> None:
    job = subscribed(tmp_path)
    worker, former, written = job.worker(), job.journal.position.end, job.files()
    for number in count(10):
        size = job.journal.position.end
        job.create(worker, f"topic__{number}")
        if job.files() != written:
            break
    assert size < former + 200 <= job.journal.position.end


def test_many_new_topics_need_not_wait_for_as_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers that keep them decoded would need more memory than a snapshot costs."""
    monkeypatch.setattr("streaming.state.snapshot._NEW_TOPICS", 7)
    job = Job(tmp_path, least=1_000)
    worker, names = job.worker(), (f"topic__{number:030}" for number in count())
    sizes = list[int]()
    while len(sizes) < 3:
        known = job.files()
        job.create(worker, next(names))
        if job.files() != known:
            sizes.append(len(shard_of(worker).topics))
    first, second, third = sizes
    assert (second - first, third - second) == (7, 7)


def test_few_topics_wait_for_as_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot would leave them decoded."""
    monkeypatch.setattr("streaming.state.snapshot._NEW_TOPICS", 1)
    monkeypatch.setattr("streaming.state.snapshot._FEW_TOPICS", 1_000)
    job = Job(tmp_path, least=1_000)
    job.create(job.worker(), *(f"topic__{number:030}" for number in range(50)))
    known, worker = job.files(), job.worker()
    assert len(known) == 1
    job.create(worker, *(f"other__{number:030}" for number in range(10)))
    assert job.files() == known


def test_a_shard_that_became_small_leaves_no_arrays_in_memory(tmp_path: Path) -> None:
    """Which would keep a file on the disk that is removed, and be slow for their size."""
    job = Job(tmp_path, least=2_000)
    worker, many = job.worker(), [f"topic__{number}" for number in range(1_000)]
    job.run(worker, row(GROUPS, wildcard()), row(SUBSCRIPTIONS, replace("topic__*")))
    assert len(job.create(worker, *many)) == 1_000
    assert shard_of(worker).settled is not None
    job.run(worker, *(row(TOPICS, deleted(name), offset) for offset, name in enumerate(many[3:])))
    assert job.journal.position.end < 2_000
    assert worker.states._kept == {}
    assert worker.states.memory_bytes == 0
    assert job.create(worker, *many[:4]) == many[3:4]
    assert shard_of(worker).settled is None


def test_a_snapshot_of_another_history_is_not_used(tmp_path: Path) -> None:
    """As after a restore of an older copy, whose journal goes on in another way."""
    job = subscribed(tmp_path)
    former = job.value
    job.create(job.worker(), *(f"other__{number}" for number in range(20)), "topic__x")
    assert len(job.files()) == 2
    job.value = former
    assert job.create(job.worker(), "topic__x", "topic__1") == ["topic__x"]


def test_a_damaged_snapshot_is_as_good_as_none(tmp_path: Path) -> None:
    job = subscribed(tmp_path)
    for path in tmp_path.rglob("snapshot-*"):
        path.write_bytes(path.read_bytes()[:-20])
    assert job.create(job.worker(), *TEN, "topic__x") == ["topic__x"]


def test_a_compacted_journal_has_snapshots_of_its_own(tmp_path: Path) -> None:
    job = subscribed(tmp_path)
    worker = job.worker()
    former = job.files()
    job.run(worker, *(row(TOPICS, deleted(name), offset) for offset, name in enumerate(TEN)))
    sizes = []
    for number in range(200):
        job.create(worker, long := f"topic__{number}__" + "x" * 90)
        job.run(worker, row(TOPICS, deleted(long)))
        sizes.append(job.journal.position.end)
    assert any(later < earlier for earlier, later in pairwise(sizes))
    assert job.snapshots is not None
    assert job.snapshots.latest(job.journal) is not None
    assert set(former).isdisjoint(job.files())
    assert job.create(job.worker(), *TEN) == TEN


@pytest.mark.parametrize("inline", [0, 200, 10_000])
def test_no_snapshot_is_left_of_a_shard_that_is_gone(inline: int, tmp_path: Path) -> None:
    job = Job(tmp_path, least=100, inline=inline)
    worker = job.worker()
    job.create(worker, *TEN)
    assert len(job.files()) == 1
    job.run(worker, *(row(TOPICS, deleted(name), offset) for offset, name in enumerate(TEN)))
    assert job.journal.position.end == 0
    assert job.files() == []


def test_without_room_the_job_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And does not try again with each micro-batch."""
    tries: list[Position] = []

    def full(_: Snapshots, position: Position, *__: object) -> bool:
        tries.append(position)
        return False

    monkeypatch.setattr(Snapshots, "write", full)
    job = Job(tmp_path)
    worker = job.worker()
    job.run(worker, row(GROUPS, wildcard()), row(SUBSCRIPTIONS, replace("topic__*")))
    assert job.create(worker, *TEN) == TEN
    assert job.create(worker, *TEN, "topic__x") == ["topic__x"]
    assert len(tries) == 1


def test_the_snapshots_of_a_remote_checkpoint_are_in_a_private_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else can prepare, read or change it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found, other = (Folder(f"s3a://bucket/{name}").snapshots("p", 0) for name in ("one", "two"))
    assert found is not None
    assert other is not None
    assert found.folder != other.folder
    assert found.write(at(9), CONTENT, None)
    assert found.read(at(9)) is not None
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    assert Folder("s3a://bucket/one").snapshots("p", 0) is None
    folder.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").chmod(0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    assert Folder("s3a://bucket/one").snapshots("p", 0) is None
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    assert Folder("s3a://bucket/one").snapshots("p", 0) is None
