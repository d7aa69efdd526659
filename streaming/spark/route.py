"""The placement of entries on keys (parent, shard) in the JVM.

The JVM reads no more of the JSON than it needs to place an entry; Python reads all of it and decides. Entries that
cannot be placed go to the key (`COORDINATOR`, `UNROUTABLE`), which reports why, and the beginnings of oversize values
to the key (`COORDINATOR`, `OVERSIZE`). State that spans parents has separate keys, (`COORDINATOR`, bucket).
`streaming.records.routing` and `coordinator.bucket_of` compute the same in Python.
"""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import ArrayType, StructType

from streaming.config import Settings
from streaming.records.model import MAX_NAME_BYTES
from streaming.records.writing import MAX_ORIGINAL_BYTES
from streaming.spark.gateway import java_class
from streaming.worker.bounds import REPETITION_BYTES

PIECE_BYTES = 65_536
"""Size in bytes above which a payload goes to Python in pieces, each a row.

An Arrow batch is bounded by a number of rows, so this bounds its bytes.
"""

MICRO_BATCH_BYTES = 250_000_000
"""Size in bytes of the values of a micro-batch.

Spark holds all rows of a key in a micro-batch in one buffer, of at most 2 GB, and a worker holds them decoded.
"""

_SHARDS_WITH_ALL_BYTES = 8
"""Number of shards of a parent up to which a micro-batch may have all of these bytes."""

SIGNED_BYTES = 1_048_576
"""Size in bytes of the longest record that the job writes to its inputs with Kafka's default `max.request.size`."""

BEGINNING_BYTES = MAX_ORIGINAL_BYTES - 32
"""Size in bytes of the beginning of a value that is too large; its dead letter has no more."""

SIZE = "size"
"""Column with the size of the whole value, of a source that cuts long values."""

_PLACES = ArrayType(
    StructType()
    .add("stream", "integer")
    .add("parent", "string")
    .add("shard", "integer")
    .add("last", "integer")
    .add("entry", "integer")
    .add("payload", "binary")
    .add("piece", "integer")
)
"""Type of the rows of a record; each is for all shards from `shard` to `last`."""


def route(records: DataFrame, settings: Settings) -> DataFrame:
    """Return a row for each entry and each of its keys.

    It has parent, shard, the columns of an input row, and piece: 0 for a whole payload; the pieces of a long payload
    are numbered from 1. The column `SIZE` of the records says that long values may be cut.
    """
    size = F.col(SIZE) if SIZE in records.columns else F.coalesce(F.length("value"), F.lit(0))
    places = _places(records.sparkSession, settings, F.col("topic"), F.col("value"), size)
    routed = records.select("partition", "offset", F.unix_millis("timestamp").alias("timestamp"), F.inline(places))
    if not settings.shards:
        return routed.drop("last")
    # A separate step: an array of all shards would multiply a long record in memory.
    shards = F.explode(F.sequence("shard", "last")).alias("shard")
    return routed.select(*(shards if name == "shard" else name for name in routed.columns if name != "last"))


def _places(spark: SparkSession, settings: Settings, *columns: Column) -> Column:
    """Return a column with the places of records, whose Kafka topic, value and size are given."""
    numbers = {
        "depth": settings.route_depth,
        "bound": settings.max_value_bytes,
        "signed_bound": longest_value(settings),
        "requests": settings.max_requests,
        "name_characters": MAX_NAME_BYTES,
        "piece_bytes": PIECE_BYTES,
        "beginning_bytes": BEGINNING_BYTES,
    }
    route = java_class(spark, "reexpand.Route")(list(settings.inputs), dict(settings.shards), numbers)
    kind = java_class(spark, "org.apache.spark.sql.types.DataType").fromJson(_PLACES.json())
    # PySpark calls Java functions only by a name, for which Spark loads its SQL parser.
    return Column(route.rows(*(each._jc for each in columns), kind))  # noqa: SLF001 - PySpark does not expose it


def micro_batch_bytes(settings: Settings) -> int:
    """Return the size in bytes of the values of a micro-batch; fewer if many shards repeat them on Spark's disk."""
    repeated = max(settings.shards.values(), default=1) // _SHARDS_WITH_ALL_BYTES
    return MICRO_BATCH_BYTES // min(max(repeated, 1), 10)


def longest_value(settings: Settings) -> int:
    """Return the size in bytes of the longest value of which more than the beginning is used."""
    return max(settings.max_value_bytes + REPETITION_BYTES, SIGNED_BYTES)
