"""Spark session with the options of the job, and the reason for each."""

import logging
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from tempfile import gettempdir
from types import MappingProxyType
from urllib.parse import urlparse

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.errors import SparkUnavailable
from streaming.kafka.options import SECRET_NAMES
from streaming.local import classes
from streaming.local import jars as local_jars
from streaming.local.java import OPTIONS_VARIABLE
from streaming.local.process import scratch_folder
from streaming.spark import arrow, launch
from streaming.spark.gateway import java_class
from streaming.storage import s3
from streaming.storage.folder import private_folder

log = logging.getLogger("reexpand")

MAX_DEFAULT_PARTITIONS = 8
"""Largest default number of state partitions of a new checkpoint."""

_LOG_CONFIGURATION = Path(__file__).parent / "log4j2.properties"
_LOG_CONFIGURATION_JSON = _LOG_CONFIGURATION.with_name("log4j2-json.properties")

_ROCKSDB = "spark.sql.streaming.stateStore.rocksdb"

_SOCKETS = "spark.python.unix.domain.socket"
_SOCKET_FOLDER_CHARACTERS = 60
"""A socket's path may have 103 characters on some systems, of which Spark's names have 42."""

_LOCAL_DIRS = "SPARK_LOCAL_DIRS"
_JAVA_FOLDER = "-Djava.io.tmpdir"

_BASE = {
    # State larger than the heap, and a micro-batch that writes changes instead of whole snapshots.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{_ROCKSDB}.changelogCheckpointing.enabled": "true",
    # One bound for the caches and write buffers of all state partitions of a JVM, in place of 136 MB for each.
    f"{_ROCKSDB}.boundedMemoryUsage": "true",
    # Tasks interpret projections until `Codegen.java` chooses compiled ones after a large micro-batch.
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Without timeouts a micro-batch without data has nothing to do.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Each state value has its own checksum, and each file checksum costs one more file per task and micro-batch.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # Over TCP each task waits 40 ms for nothing: Nagle's algorithm holds Spark's second write back until the first
    # is acknowledged, and the Python worker delays that, because it has nothing to send yet.
    f"{_SOCKETS}.enabled": "true",
    # Number of output rows after which Python hands them to the JVM. With many updates a row has 16 KiB, and
    # some 75 KiB if they are written by column: 40 or 190 MB. With a smaller number, the rows of more keys are split
    # over two Arrow batches, each of which costs PySpark half a millisecond.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2500",
    # Java's collector treats arrays of half a megabyte and more separately. With Spark's 4 MB for each of the three
    # broadcasts of a micro-batch, it marked the whole heap every two seconds at 20 events per second without a budget.
    "spark.broadcast.blockSize": "256k",
    # Interval at which an idle query asks Kafka for new records: 0.13 cores with Spark's 10 ms, 0.07 with this.
    "spark.sql.streaming.pollingDelay": "25ms",
    "spark.ui.showConsoleProgress": "false",
    # Executors import this package, and not another package of that name in their working folder.
    f"spark.executorEnv.{launch.SAFE_PATH}": "1",
    # Spark's own pattern does not match all options of Kafka's clients that hold secrets.
    "spark.redaction.regex": SECRET_NAMES,
}

_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}

_LOCAL = {
    **_LOOPBACK,
    # Tasks are retried as on a cluster: a Python worker that dies must not end the query.
    "spark.master": "local[*,4]",
    # Workers are forks of a process that has done their imports. On clusters the package may come another way.
    "spark.python.daemon.module": "streaming.spark.daemon",
    # Spark sets it for queries only. Other tasks would have another environment, and a daemon of their own.
    "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
    "spark.ui.enabled": "false",
    # Spark keeps what that interface would show: 22 MB with its defaults of 1,000 each.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.sql.ui.retainedExecutions": "20",
}

_JAVA_OPTIONS = "-Dlog4j2.configurationFile={file} -Dreexpand.log.level={level} -Dreexpand.log.told={told}"

_LOCAL_PATHS = {"spark.hadoop.fs.defaultFS": "file:///"}
"""Local paths for a local job on a local checkpoint, even if `HADOOP_CONF_DIR` names another file system."""

_CLUSTER = {
    # It has no login, and shows the plan of each query and the names of all topics.
    "spark.ui.enabled": "false",
}
"""Options on a cluster, unless Spark's own configuration has them."""

_AUTHENTICATED = {
    # Driver and executors authenticate with a secret, which Spark makes for each application, and encrypt their
    # traffic: tasks hold the options of Kafka's clients.
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
}
"""Further options if Spark makes and spreads the secret by itself. A standalone cluster needs it on each machine."""

_LOCAL_FILES = {
    # Without Hadoop's native library a local file system starts a process, `chmod`, for each file and its checksum:
    # some 60 in a micro-batch with the default manager of checkpoint files, 8 with this manager.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}

_FILE_SYSTEM = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
"""Hadoop's local file system with checksums, except that Java sets the permissions: no process is started any more."""
_FILE_SYSTEM_JAR = "hadoop-bare-naked-local-fs"

_CLASS_PATH = "spark.driver.extraClassPath"

_OPTION = re.compile(r"\s*([^\s#!=:]+)(?:\s*[=:]\s*|\s+)(.*?)\s*")
"""Line of a file of Java properties."""


def logs_json() -> bool:
    """Return True if the log of this process is JSON, so that Spark's is as well."""
    formatters = (type(handler.formatter) for handler in logging.getLogger().handlers)
    return any(kind.__name__ == "ProcessorFormatter" for formatter in formatters for kind in formatter.__mro__)


def options(
    settings: Settings,
    shuffle_partitions: int,
    jars: Sequence[Path] = (),
    jars_of_s3: Sequence[Path] = (),
    configured: Mapping[str, str] = MappingProxyType({}),
    *,
    scratch: Path | None = None,
) -> dict[str, str]:
    """Return the options of the session.

    Without `master` it is local, unless spark-submit set one. `configured` has the options of Spark's own
    configuration, `jars` those that Spark lacks (see `streaming.local.jars`); the archive of classes is made without
    those of S3. `scratch` is a folder for temporary files.
    """
    chosen = {**_BASE, "spark.sql.shuffle.partitions": str(shuffle_partitions), "spark.app.name": "reexpand"}
    chosen[f"{_ROCKSDB}.maxMemoryUsageMB"] = str(settings.rocksdb_bytes >> 20)
    if settings.heap_bytes is not None:
        heap = f"{settings.heap_bytes >> 20}m"
        chosen |= {"spark.driver.memory": heap, "spark.executor.memory": heap}
    if is_local(settings):
        chosen |= _LOCAL
    elif _is_on_this_machine(settings):
        chosen |= _LOOPBACK
    chosen |= _guarded(settings, configured)
    if not launch.is_submitted():
        is_verbose = logging.getLogger("reexpand").isEnabledFor(logging.DEBUG)
        java_options = _JAVA_OPTIONS.format(
            file=_LOG_CONFIGURATION_JSON if logs_json() else _LOG_CONFIGURATION,
            level="warn" if is_verbose else "error",
            told="warn" if is_verbose else "off",
        )
        archive = classes.archive_options(jars) if is_local(settings) else []
        temporary = [] if scratch is None else [shlex.quote(f"{_JAVA_FOLDER}={scratch}")]
        chosen |= {
            "spark.driver.extraJavaOptions": " ".join([java_options, *archive, *temporary]),
            "spark.executor.extraJavaOptions": java_options,
        }
    if settings.master is not None:
        chosen["spark.master"] = settings.master
    if scratch is not None:
        folders = (str(scratch), gettempdir(), "/tmp")  # noqa: S108 - Spark's default
        chosen[f"{_SOCKETS}.dir"] = next(each for each in folders if len(each) <= _SOCKET_FOLDER_CHARACTERS)
    chosen |= _places(settings, jars, jars_of_s3)
    if urlparse(settings.checkpoint).scheme in ("", "file"):
        chosen |= _LOCAL_FILES | (_LOCAL_PATHS if is_local(settings) else {})
        if _CLASS_PATH in chosen and any(jar.name.startswith(_FILE_SYSTEM_JAR) for jar in jars):
            chosen["spark.hadoop.fs.file.impl"] = _FILE_SYSTEM
    if s3.is_on_s3(settings.checkpoint):
        address = s3.S3Address.of()
        chosen |= address.for_spark() | address.for_executors()
    return chosen


def _places(settings: Settings, jars: Sequence[Path], jars_of_s3: Sequence[Path]) -> dict[str, str]:
    """Return the options by which Spark finds jars."""
    chosen: dict[str, str] = {}
    sent = [*jars, *jars_of_s3]
    if jars and is_local(settings) and not launch.is_submitted():
        # Spark reads files before it loads `spark.jars`, and the archive has only classes of the class path.
        chosen[_CLASS_PATH] = os.pathsep.join(str(jar.resolve()) for jar in jars)
        sent = [*jars_of_s3]
    if sent:
        chosen["spark.jars"] = ",".join(jar.resolve().as_uri() for jar in sent)
    return chosen


def _guarded(settings: Settings, configured: Mapping[str, str]) -> dict[str, str]:
    master = settings.master or configured.get("spark.master", "")
    if is_local(settings) or master.startswith("local"):
        return {}
    # spark-submit may have begun without a secret, and the shuffle service of a cluster would need it as well.
    has_own = launch.is_submitted() or configured.get("spark.shuffle.service.enabled") == "true"
    by_itself = master.startswith(("yarn", "k8s")) and not has_own
    wanted = _CLUSTER | (_AUTHENTICATED if by_itself else {})
    return {name: value for name, value in wanted.items() if name not in configured}


def _configured() -> dict[str, str]:
    """Return the options of Spark's own configuration, from spark-submit or `spark-defaults.conf`."""
    if launch.is_submitted():
        SparkContext._ensure_initialized()  # noqa: SLF001 - the gateway, which SparkConf asks
        return dict(SparkConf().getAll())
    folder = os.environ.get("SPARK_CONF_DIR") or f"{os.environ.get('SPARK_HOME', '')}/conf"
    try:
        lines = Path(folder, "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    found = (_OPTION.fullmatch(line) for line in lines)
    return {option[1]: option[2] for option in found if option}


def is_local(settings: Settings) -> bool:
    """Return whether Spark runs in one JVM on this machine; spark-submit chooses by itself."""
    if settings.master is None:
        return not launch.is_submitted()
    return settings.master.startswith("local")


def _is_on_this_machine(settings: Settings) -> bool:
    return is_local(settings) or urlparse(settings.master or "").hostname in ("127.0.0.1", "localhost")


def brought() -> list[Path]:
    """Return the jars of the job that Spark lacks; none if spark-submit has them. Download or make them if needed."""
    return [] if launch.is_submitted() else [*local_jars.spark(), classes.sink()]


def default_partitions() -> int:
    """Return the default number of state partitions: one task for each processor of this machine, up to a maximum."""
    return min(os.cpu_count() or 1, MAX_DEFAULT_PARTITIONS)


def start_java(settings: Settings, shuffle_partitions: int, jars: Sequence[Path] = ()) -> tuple[dict[str, str], bool]:
    """Start Spark's JVM, unless it runs; return the options of the session, and whether the JVM was started with them.

    Raises `SparkUnavailable` if it ends at once, or if `SPARK_HOME` is no Spark of this release.
    """
    if not launch.is_submitted():
        launch.prepare(local=is_local(settings))
    if _is_on_this_machine(settings):
        # For parts without a separate option, such as the web interface.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    of_s3 = local_jars.s3() if s3.is_on_s3(settings.checkpoint) and not launch.is_submitted() else []
    configured = {} if is_local(settings) else _configured()
    scratch = _scratch() if is_local(settings) and not launch.is_submitted() else None
    if scratch is not None:
        os.environ[_LOCAL_DIRS] = str(scratch)
    chosen = options(settings, shuffle_partitions, jars, of_s3, configured, scratch=scratch)
    return chosen, launch.start(chosen)


def build(
    settings: Settings,
    shuffle_partitions: int,
    jars: Sequence[Path] = (),
    *,
    begun: Callable[[SparkContext], None] = lambda _: None,
) -> SparkSession:
    """Start Spark, or return the running session; S3 gets the jars it needs.

    `begun` is called as soon as tasks can run, a second before there is a session.

    Raises `SparkUnavailable` as `start_java` does, or if the master does not exist, or does not answer within a minute.
    """
    chosen, has_them = start_java(settings, shuffle_partitions, jars)
    given = {} if has_them else chosen
    arrow.spare_pandas()
    try:
        context = SparkContext.getOrCreate(SparkConf().setAll(list(given.items())))
        begun(context)
        with _without_machine_learning(context) if _CLASS_PATH in chosen else nullcontext():
            return SparkSession.builder.config(map={**given}).getOrCreate()
    except Py4JJavaError as error:
        reason = "; ".join(_reasons(error))
        raise SparkUnavailable(
            f"Spark does not start with the master {settings.master or 'of its configuration'}: {reason}. "
            "Check its address, and that it runs."
        ) from error


@contextmanager
def _without_machine_learning(context: SparkContext) -> Iterator[None]:
    """Let Spark make a session without the functions of its machine learning."""
    thread = java_class(context, "java.lang.Thread").currentThread()
    loader = thread.getContextClassLoader()
    thread.setContextClassLoader(java_class(context, "reexpand.WithoutMachineLearning")(loader))
    try:
        yield
    finally:
        thread.setContextClassLoader(loader)


@cache
def _scratch() -> Path | None:
    """Return the folder for temporary files, which a killed JVM leaves; None if the options of Spark choose one."""
    names = (OPTIONS_VARIABLE, "JAVA_TOOL_OPTIONS", launch.ARGUMENTS)
    chosen = {*_configured(), *re.split(r"[\s='\"]", " ".join(os.environ.get(name, "") for name in names))}
    parent = os.environ.get(_LOCAL_DIRS) or gettempdir()
    if not chosen.isdisjoint((_JAVA_FOLDER, "spark.local.dir")) or "," in parent:
        return None
    folder = private_folder(Path(parent))
    with suppress(OSError):
        return folder and scratch_folder(folder / "spark")
    return None


def _reasons(error: Py4JJavaError) -> Iterator[str]:
    """Yield the first line of a Java error, and of its last cause, which must be fixed."""
    first = last = error.java_exception
    while (cause := last.getCause()) is not None:
        last = cause
    for each in (first,) if last is first else (first, last):
        yield str(each.getMessage()).partition("\n")[0].rstrip(".")
