"""The placement of entries on keys (parent, shard) in the JVM.

The JVM reads no more of the JSON than it needs to place an entry; Python reads all of it and decides. Entries that
cannot be placed go to the key (`COORDINATOR`, `UNROUTABLE`), which reports why, and the beginnings of oversize values
to the key (`COORDINATOR`, `OVERSIZE`). State that spans parents has separate keys, (`COORDINATOR`, bucket).
`streaming.records.routing` and `coordinator.bucket_of` compute the same in Python.
"""

import secrets

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from streaming.config import Settings
from streaming.coordinator import BUCKETS, COORDINATOR, OVERSIZE, UNROUTABLE
from streaming.records.model import BIND_TOPIC, MAX_NAME_BYTES
from streaming.records.routing import SEPARATOR
from streaming.records.writing import MAX_ORIGINAL_BYTES
from streaming.worker.bounds import REPETITION_BYTES
from streaming.worker.signature import SIGN_FIELD, SUFFIX_BYTES

PIECE_BYTES = 65_536
"""Size in bytes above which a payload goes to Python in pieces, each a row.

An Arrow batch is bounded by a number of rows, so this bounds its bytes. It does not bound the bytes of a key: Spark
holds all rows of a key in a micro-batch in one buffer, of at most 2 GB.
"""

SIGNED_BYTES = 1_048_576
"""Size in bytes of the longest record that the job writes to its inputs with Kafka's default `max.request.size`."""

BEGINNING_BYTES = MAX_ORIGINAL_BYTES - 32
"""Size in bytes of the beginning of a value that is too large; its dead letter has no more."""

SIZE = "size"
"""Column with the size of the whole value, of a source that cuts long values."""

_ROUTES = "array<struct<parent: string, shard: int, entry: int, payload: binary, piece: int>>"
_EVENTS = (
    "array<struct<parentTopic: string, liteTopic: string, lmqName: string, subscriptionSet: array<string>, "
    f"group: string, attributes: struct<`{BIND_TOPIC}`: string>, "
    "tick: bigint, alarm: bigint, wake: bigint, shard: int>>"
)
"""Schema of the fields for the placement of all streams' entries, in an array (see `route`)."""
_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
_LMQ_NAME = r"(?s)^%LMQ%\$([^$]*)\$(.*)$"


def route(records: DataFrame, settings: Settings) -> DataFrame:
    """Return a row for each entry and each of its keys: parent, shard, the columns of an input row, and piece.

    The piece is 0 for a whole payload; the pieces of a long payload are numbered from 1.

    Args:
        records: Kafka records, with the column `SIZE` if long values may be cut.
        settings: settings of the job.
    """
    groups, subscriptions, topics, _ = settings.inputs
    topic = F.col("topic")
    stream = F.when(topic == topics, 2).when(topic == subscriptions, 1).when(topic == groups, 0).otherwise(3)
    size = F.col(SIZE) if SIZE in records.columns else F.coalesce(F.length("value"), F.lit(0))
    is_large = size > settings.max_value_bytes
    # A value that looks like the job's own goes to Python, which checks the signature before anything else.
    looks_signed = (
        topic.isin(groups, subscriptions)
        & (size <= longest_value(settings))
        & (F.substring("value", -SUFFIX_BYTES, len(SIGN_FIELD)) == F.lit(SIGN_FIELD))
    )
    too_large = is_large & ~F.coalesce(looks_signed, F.lit(False))
    text = F.when(~too_large, F.try_validate_utf8(F.col("value").cast("string")))
    # Each record is parsed as the first element of an array whose second element holds an unforeseeable number. A
    # record that is not exactly one JSON value breaks the array or moves that number, so it is not taken as whole.
    fence = secrets.randbits(62)
    fenced = F.from_json(F.concat(F.lit("["), text, F.lit(f',{{"tick":{fence}}}]')), _EVENTS, _STRICT)
    # One parser serves all streams, because Spark plans it in each micro-batch. It is a separate step, because
    # Spark would otherwise parse a record again for each field that is read.
    parsed = records.select(
        "topic",
        stream.cast("tinyint").alias("stream"),
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("timestamp"),
        "value",
        size.alias(SIZE),
        is_large.alias("is_large"),
        too_large.alias("too_large"),
        (F.get(fenced, F.lit(1))["tick"] == fence).alias("whole"),
        F.get(fenced, F.lit(0)).alias("event"),
    )
    event = parsed["event"]
    placed = (
        F.when(topic == topics, _topic_routes(event, settings))
        .when(topic == subscriptions, _subscription_routes(event, settings))
        .when(topic == groups, _group_routes(event, settings))
        .otherwise(_clock_routes(event))
    )
    # The job writes no sets, so the entries of a long set are not its own, with any end of their record.
    is_forged = parsed["is_large"] & F.coalesce(F.size(event["subscriptionSet"]) > 0, F.lit(False))
    unplaced = F.when(parsed["too_large"] | is_forged, _oversize_route()).otherwise(
        _record_route(F.lit(COORDINATOR), F.lit(UNROUTABLE))
    )
    routes = F.coalesce(F.when(parsed["whole"] & ~is_forged, placed), unplaced)
    routes = F.when(parsed[SIZE] <= PIECE_BYTES, routes).otherwise(_in_pieces(routes))
    return parsed.select("stream", "partition", "offset", "timestamp", F.inline(routes.cast(_ROUTES)))


def longest_value(settings: Settings) -> int:
    """Return the size in bytes of the longest value of which more than the beginning is used."""
    return max(settings.max_value_bytes + REPETITION_BYTES, SIGNED_BYTES)


def _is_short(name: Column) -> Column:
    """Return whether a name can be valid: each piece of a payload repeats its parent's name."""
    return F.length(name) <= MAX_NAME_BYTES


def _topic_routes(event: Column, settings: Settings) -> Column:
    """Place a topic event on the shard of its topic; null for a parent that cannot be valid."""
    parent = F.coalesce(event["parentTopic"], F.regexp_extract(event["lmqName"], _LMQ_NAME, 1), F.lit(COORDINATOR))
    if not settings.shards:
        return F.when(_is_short(parent), _record_route(parent, F.lit(0)))
    topic = F.coalesce(event["liteTopic"], F.regexp_extract(event["lmqName"], _LMQ_NAME, 2), F.lit(""))
    segments = F.split(topic, SEPARATOR, settings.route_depth + 1)
    prefix = F.array_join(F.slice(segments, 1, settings.route_depth), SEPARATOR) if settings.route_depth else topic
    shard = F.pmod(F.crc32(prefix.cast("binary")), _shard_count(parent, settings))
    return F.when(_is_short(parent), _record_route(parent, shard))


def _subscription_routes(event: Column, settings: Settings) -> Column:
    """Place each entry of a request on the coordinator's bucket of its group and on all shards of its parent."""
    text = F.col("value").cast("string")
    entries = event["subscriptionSet"]

    def entry_routes(numbered: Column) -> Column:
        entry, position = numbered["entry"], numbered["position"]
        parent = F.get_json_object(entry, "$.topic")
        # Without a parent, an entry concerns the client alone, and only the coordinator sees it.
        no_parent = parent.isNull() | ~_is_short(parent) | parent.rlike(r"^\s*$")
        bucket = _bucket(F.get_json_object(entry, "$.group"))
        payload = F.coalesce(entry, F.lit("null")).cast("binary")
        number = 2 * position + no_parent.cast("int")
        on_coordinator = F.array(_route(F.lit(COORDINATOR), bucket, number, payload))
        on_shards = _shard_routes(parent, number, payload, settings)
        return F.when(no_parent, on_coordinator).otherwise(F.concat(on_coordinator, on_shards))

    # Of a field that is in the record twice, Python would see only the value that the JVM has read. The record goes
    # there as a whole, to be reported, and so does a record that is too long.
    fields = F.json_object_keys(text)
    is_sound = (F.size(entries) <= settings.max_requests) & (F.size(fields) == F.size(F.array_distinct(fields)))
    requests = F.when(F.size(entries) > 0, F.when(is_sound, entries)).otherwise(F.array(text))
    numbered = F.transform(requests, lambda entry, position: F.struct(entry.alias("entry"), position.alias("position")))
    nulls = F.filter(numbered, lambda each: each["entry"].isNull())
    # A null takes five bytes, and its row some hundred. So the first null represents all.
    kept = F.concat(F.filter(numbered, lambda each: each["entry"].isNotNull()), F.slice(nulls, 1, 1))
    return F.flatten(F.transform(kept, entry_routes))


def _group_routes(event: Column, settings: Settings) -> Column:
    """Place a group event on the coordinator's bucket of the group and on all shards of its parent."""
    parent = F.coalesce(event["attributes"].getField(BIND_TOPIC), event["parentTopic"])
    no_parent = parent.isNull() | ~_is_short(parent) | (parent == COORDINATOR)
    on_coordinator = _record_route(F.lit(COORDINATOR), _bucket(event["group"]))
    on_shards = _shard_routes(parent, F.lit(0), F.col("value"), settings)
    return F.when(no_parent, on_coordinator).otherwise(F.concat(on_coordinator, on_shards))


def _clock_routes(event: Column) -> Column:
    """Place a tick on all buckets of the coordinator, an alarm on one, a wake on its shard; null for anything else."""
    parent = event["parentTopic"]
    all_buckets = F.transform(
        F.sequence(F.lit(0), F.lit(BUCKETS - 1)),
        lambda bucket: _route(F.lit(COORDINATOR), bucket, (bucket > 0).cast("int"), F.col("value")),
    )
    return (
        F.when(event["tick"].isNotNull(), all_buckets)
        .when(event["alarm"].isNotNull() & parent.isNotNull(), _record_route(F.lit(COORDINATOR), _bucket(parent)))
        .when(
            event["wake"].isNotNull() & _is_short(parent) & event["shard"].isNotNull(),
            _record_route(parent, event["shard"]),
        )
    )


def _bucket(name: Column) -> Column:
    return F.coalesce(F.pmod(F.crc32(name.cast("binary")), F.lit(BUCKETS)), F.lit(UNROUTABLE))


def _shard_routes(parent: Column, entry: Column, payload: Column, settings: Settings) -> Column:
    """Return a route to each shard of a parent."""
    if not settings.shards:
        return F.array(_route(parent, F.lit(0), entry, payload))
    last = _shard_count(parent, settings) - 1
    return F.transform(F.sequence(F.lit(0), last), lambda shard: _route(parent, shard, entry, payload))


def _record_route(parent: Column, shard: Column) -> Column:
    """Return the single route of a whole record."""
    return F.array(_route(parent, shard, F.lit(0), F.col("value")))


def _oversize_route() -> Column:
    """Return the single route of a value that is too large: its size and its beginning."""
    size = F.concat(F.col(SIZE).cast("string"), F.lit("\n")).cast("binary")
    payload = F.concat(size, F.substring("value", 1, BEGINNING_BYTES))
    return F.array(_route(F.lit(COORDINATOR), F.lit(OVERSIZE), F.lit(0), payload))


def _in_pieces(routes: Column) -> Column:
    """Return routes whose payloads are short: several for a long payload."""

    def pieces_of(route: Column) -> Column:
        last = F.floor((F.length(route["payload"]) - 1) / PIECE_BYTES)
        return F.transform(F.sequence(F.lit(0), F.greatest(last, F.lit(0))), lambda number: piece_of(route, number))

    def piece_of(route: Column, number: Column) -> Column:
        piece = F.substring(route["payload"], number * PIECE_BYTES + 1, F.lit(PIECE_BYTES))
        return F.struct(
            route["parent"], route["shard"], route["entry"], piece.alias("payload"), (number + 1).alias("piece")
        )

    return F.flatten(F.transform(routes.cast(_ROUTES), pieces_of))


def _route(parent: Column, shard: Column, entry: Column, payload: Column) -> Column:
    return F.struct(
        parent.alias("parent"),
        shard.cast("int").alias("shard"),
        entry.cast("int").alias("entry"),
        payload.alias("payload"),
        F.lit(0).alias("piece"),
    )


def _shard_count(parent: Column, settings: Settings) -> Column:
    counts_by_parent = F.create_map(*(F.lit(part) for pair in settings.shards.items() for part in pair))
    return F.coalesce(F.element_at(counts_by_parent, parent), F.lit(1))
