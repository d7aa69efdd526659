"""The placement of entries on keys (parent, shard) in the JVM.

The JVM reads no more of the JSON than it needs to place an entry; Python reads all of it and decides. Entries that
cannot be placed go to the key (`COORDINATOR`, `UNROUTABLE`), which reports why, and the beginnings of oversize values
to the key (`COORDINATOR`, `OVERSIZE`). State that spans parents has separate keys, (`COORDINATOR`, bucket).
`streaming.records.routing` and `coordinator.bucket_of` compute the same in Python.
"""

import secrets
from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from streaming.config import Settings
from streaming.coordinator import BUCKETS, COORDINATOR, OVERSIZE, UNROUTABLE
from streaming.records.model import BIND_TOPIC, MAX_NAME_BYTES, Stream
from streaming.records.routing import SEPARATOR
from streaming.records.writing import MAX_ORIGINAL_BYTES
from streaming.worker.bounds import REPETITION_BYTES
from streaming.worker.rows import STREAMS
from streaming.worker.signature import SIGN_FIELD, SUFFIX_BYTES

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

_ROUTES = "array<struct<parent: string, shard: int, last: int, entry: int, payload: binary, piece: int>>"
"""Schema of the routes of a record; each is to a shard, and to those behind it up to the last."""

_EVENTS = (
    "array<struct<parentTopic: string, liteTopic: string, lmqName: string, subscriptionSet: array<string>, "
    f"group: string, attributes: struct<`{BIND_TOPIC}`: string>, "
    "tick: bigint, alarm: bigint, wake: bigint, shard: int>>"
)
"""Schema of the fields for the placement of all streams' entries, in an array (see `route`)."""
_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
_LMQ_NAME = r"(?s)^%LMQ%\$([^$]*)\$(.*)$"


def route(records: DataFrame, settings: Settings) -> DataFrame:
    """Return a row for each entry and each of its keys.

    It has parent, shard, the columns of an input row, and piece: 0 for a whole payload; the pieces of a long payload
    are numbered from 1. The column `SIZE` of the records says that long values may be cut.
    """
    groups, subscriptions, *_ = settings.inputs
    topic = F.col("topic")
    size = F.col(SIZE) if SIZE in records.columns else F.coalesce(F.length("value"), F.lit(0))
    # A value that looks like the job's own goes to Python, which checks the signature before anything else.
    looks_signed = (
        topic.isin(groups, subscriptions)
        & (size <= longest_value(settings))
        & (F.substring("value", -SUFFIX_BYTES, len(SIGN_FIELD)) == F.lit(SIGN_FIELD))
    )
    text = F.when((size <= settings.max_value_bytes) | looks_signed, F.try_validate_utf8(F.col("value").cast("string")))
    # Each record is parsed as the first element of an array whose second element holds an unforeseeable number. A
    # record that is not exactly one JSON value breaks the array or moves that number, so it is not taken as whole.
    fence = secrets.randbits(62)
    # One parser serves all streams, because Spark plans it in each micro-batch. It is a separate step, because
    # Spark would otherwise parse a record again for each field that is read.
    parsed = records.select(
        (F.array_position(F.array(*map(F.lit, settings.inputs)), topic) - 1).cast("int").alias("stream"),
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("timestamp"),
        "value",
        size.alias(SIZE),
        F.from_json(F.concat(F.lit("["), text, F.lit(f',{{"tick":{fence}}}]')), _EVENTS, _STRICT).alias("fenced"),
    )
    stream, event, is_large = F.col("stream"), F.get("fenced", F.lit(0)), F.col(SIZE) > settings.max_value_bytes
    placed = F.when(
        F.get("fenced", F.lit(1))["tick"] == fence,
        F.when(stream == STREAMS.index(Stream.TOPICS), _topic_routes(event, settings))
        .when(stream == STREAMS.index(Stream.SUBSCRIPTIONS), _subscription_routes(event, is_large, settings))
        .when(stream == STREAMS.index(Stream.GROUPS), _group_routes(event, settings))
        .otherwise(_clock_routes(event)),
    )
    # The name of a parent is repeated in each piece of a payload, so only names that can be valid are places.
    placed = F.filter(placed, lambda route: F.length(route["parent"]) <= MAX_NAME_BYTES)
    unplaced = F.when(is_large, _oversize_route()).otherwise(_record_route(F.lit(COORDINATOR), F.lit(UNROUTABLE)))
    routes = _once(placed, lambda found: F.when(F.size(found) > 0, found).otherwise(unplaced))
    pieces = F.flatten(F.transform(routes.cast(_ROUTES), _pieces))
    routed = parsed.select("stream", "partition", "offset", "timestamp", F.inline(pieces))
    if not settings.shards:
        return routed.drop("last")
    # A separate step: an array of all shards would multiply a long record in memory.
    shards = F.explode(F.sequence("shard", "last")).alias("shard")
    return routed.select(*(shards if name == "shard" else name for name in routed.columns if name != "last"))


def micro_batch_bytes(settings: Settings) -> int:
    """Return the size in bytes of the values of a micro-batch; fewer if many shards repeat them on Spark's disk."""
    repeated = max(settings.shards.values(), default=1) // _SHARDS_WITH_ALL_BYTES
    return MICRO_BATCH_BYTES // min(max(repeated, 1), 10)


def longest_value(settings: Settings) -> int:
    """Return the size in bytes of the longest value of which more than the beginning is used."""
    return max(settings.max_value_bytes + REPETITION_BYTES, SIGNED_BYTES)


def _once(value: Column, body: Callable[[Column], Column]) -> Column:
    """Return a column made from a value that is planned and computed once, however often the column uses it."""
    return F.get(F.transform(F.array(value), body), F.lit(0))


def _topic_routes(event: Column, settings: Settings) -> Column:
    parent = F.coalesce(event["parentTopic"], F.regexp_extract(event["lmqName"], _LMQ_NAME, 1), F.lit(COORDINATOR))
    if not settings.shards:
        return _record_route(parent, F.lit(0))
    topic = F.coalesce(event["liteTopic"], F.regexp_extract(event["lmqName"], _LMQ_NAME, 2), F.lit(""))
    segments = F.split(topic, SEPARATOR, settings.route_depth + 1)
    prefix = F.array_join(F.slice(segments, 1, settings.route_depth), SEPARATOR) if settings.route_depth else topic
    return _record_route(parent, F.pmod(F.crc32(prefix.cast("binary")), _shard_count(parent, settings)))


def _subscription_routes(event: Column, is_large: Column, settings: Settings) -> Column:
    """Place each entry of a request on the coordinator's bucket of its group and on all shards of its parent.

    Null for a large set: the job writes no sets, so it is not the job's own, whatever the end of its record.
    """
    text = F.col("value").cast("string")
    entries = event["subscriptionSet"]

    def entry_of(entry: Column, position: Column) -> Column:
        return F.struct(
            entry.alias("entry"),
            position.alias("position"),
            F.get_json_object(entry, "$.topic").alias("parent"),
        )

    def entry_routes(each: Column) -> Column:
        # Without a parent, an entry concerns the client alone, and only the coordinator sees it.
        has_parent, number = each["parent"].rlike(r"\S"), 2 * each["position"]
        bucket = _bucket(F.get_json_object(each["entry"], "$.group"))
        payload = F.coalesce(each["entry"], F.lit("null")).cast("binary")
        on_coordinator = _route(F.lit(COORDINATOR), bucket, F.when(has_parent, number).otherwise(number + 1), payload)
        on_shards = _shard_routes(F.when(has_parent, each["parent"]), number, payload, settings)
        return F.concat(F.array(on_coordinator), on_shards)

    # Of a field that is in the record twice, Python would see only the value that the JVM has read. The record goes
    # there as a whole, to be reported, and so does a record that is too long.
    has_once = _once(F.json_object_keys(text), lambda fields: F.size(fields) == F.size(F.array_distinct(fields)))
    is_sound = ~is_large & (F.size(entries) <= settings.max_requests) & has_once
    requests = F.when(F.size(entries) > 0, F.when(is_sound, entries)).otherwise(F.array(text))
    # A null takes five bytes, and its row some hundred. So the first null represents all.
    nulls = F.transform(entries, lambda entry: entry.isNull())
    kept = _once(
        F.array_position(nulls, True) - 1,
        lambda first: F.filter(
            F.transform(requests, entry_of), lambda each: each["entry"].isNotNull() | (each["position"] == first)
        ),
    )
    return F.flatten(F.transform(kept, entry_routes))


def _group_routes(event: Column, settings: Settings) -> Column:
    """Place a group event on the coordinator's bucket of the group and on all shards of its parent."""
    parent = F.coalesce(event["attributes"].getField(BIND_TOPIC), event["parentTopic"])
    on_coordinator = _record_route(F.lit(COORDINATOR), _bucket(event["group"]))
    on_shards = _shard_routes(F.when(parent != COORDINATOR, parent), F.lit(0), F.col("value"), settings)
    return F.concat(on_coordinator, on_shards)


def _clock_routes(event: Column) -> Column:
    """Place a tick on all buckets of the coordinator, an alarm on one, a wake on its shard; null for anything else."""
    parent = event["parentTopic"]
    all_buckets = F.transform(
        F.sequence(F.lit(0), F.lit(BUCKETS - 1)),
        lambda bucket: _route(F.lit(COORDINATOR), bucket, (bucket > 0).cast("int"), F.col("value")),
    )
    return (
        F.when(event["tick"].isNotNull(), all_buckets)
        .when(event["alarm"].isNotNull(), _record_route(F.lit(COORDINATOR), _bucket(parent)))
        .when(event["wake"].isNotNull() & event["shard"].isNotNull(), _record_route(parent, event["shard"]))
    )


def _bucket(name: Column) -> Column:
    return F.coalesce(F.pmod(F.crc32(name.cast("binary")), F.lit(BUCKETS)), F.lit(UNROUTABLE))


def _shard_routes(parent: Column, entry: Column, payload: Column, settings: Settings) -> Column:
    """Return the route to all shards of a parent; a route without a parent is no place."""
    last = _shard_count(parent, settings) - 1 if settings.shards else F.lit(0)
    return F.array(_route(parent, F.lit(0), entry, payload, last=last))


def _record_route(parent: Column, shard: Column) -> Column:
    return F.array(_route(parent, shard, F.lit(0), F.col("value")))


def _oversize_route() -> Column:
    """Return the single route of a value that is too large: its size and its beginning."""
    size = F.concat(F.col(SIZE).cast("string"), F.lit("\n")).cast("binary")
    payload = F.concat(size, F.substring("value", 1, BEGINNING_BYTES))
    return F.array(_route(F.lit(COORDINATOR), F.lit(OVERSIZE), F.lit(0), payload))


def _pieces(route: Column) -> Column:
    """Return the routes of a record's route: itself, or a route for each piece if the record is long."""
    last = F.floor((F.length(route["payload"]) - 1) / PIECE_BYTES)

    def piece_of(number: Column) -> Column:
        piece = F.substring(route["payload"], number * PIECE_BYTES + 1, F.lit(PIECE_BYTES))
        return route.withField("payload", piece).withField("piece", (number + 1).cast("int"))

    pieces = F.transform(F.sequence(F.lit(0), F.greatest(last, F.lit(0))), piece_of)
    return F.when(F.col(SIZE) <= PIECE_BYTES, F.array(route)).otherwise(pieces)


def _route(parent: Column, shard: Column, entry: Column, payload: Column, last: Column | None = None) -> Column:
    return F.struct(
        parent.alias("parent"),
        shard.cast("int").alias("shard"),
        (shard if last is None else last).cast("int").alias("last"),
        entry.cast("int").alias("entry"),
        payload.alias("payload"),
        F.lit(0).alias("piece"),
    )


def _shard_count(parent: Column, settings: Settings) -> Column:
    counts_by_parent = F.create_map(*(F.lit(part) for pair in settings.shards.items() for part in pair))
    return F.coalesce(F.element_at(counts_by_parent, parent), F.lit(1))
