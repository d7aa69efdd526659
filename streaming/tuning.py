"""Sizes and thresholds for splitting the work, each with its measurement."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    """Sizes and thresholds of a worker. They do not affect results.

    Attributes:
        columnar_min_topics: topics of one key above which they are evaluated by column. One topic by column takes 2.2
            times as long as one by one, 32 take 0.83 times, 1,000 take 0.25 times.
        array_min_topics: topics above which arrays of patterns replace look-ups: 1,500 topics and 100 patterns
            take 1.1 instead of 3.6 us per topic.
        array_build_topics: topics per pattern that pay for building the arrays: 15 to 30 us per pattern, against some
            2.5 us saved per topic.
        backfill_topics: topics of one client in one step of a backfill; about half a second including Spark.
        inline_bytes: journal bytes that stay in Spark's state value; 1 MB there costs 25 ms each time it is touched.
        journal_slack_bytes: journal bytes that a compaction must save, in addition to half of the journal.
        retained_micro_batches: micro-batches for which an unused part is kept; Spark keeps as many states.
        snapshot_min_bytes: journal bytes above which a shard has snapshots: with 900 kB (3,000 topics, 20,000 patterns)
            a new worker takes 11 to 16 instead of 73 to 81 ms for 100 topics, and at first 7 to 9 instead of 3 to 4.
        updates_per_chunk: updates that are collected before their bytes are counted.
        output_row_bytes: bytes of updates in an output row; a row costs PySpark as much as 20 updates the worker.
        column_row_bytes: bytes of updates in an output row by column; the row has a sixth of them.
        end_bytes: bytes of requests in one record of a client's end; Kafka accepts 1 MB by default.
        piece_bytes: bytes of output rows that the worker sends at once.
    """

    columnar_min_topics: float = 32
    array_min_topics: int = 96
    array_build_topics: int = 8
    backfill_topics: int = 20_000
    inline_bytes: int = 16_384
    journal_slack_bytes: int = 4_096
    retained_micro_batches: int = 100
    snapshot_min_bytes: int = 262_144
    updates_per_chunk: int = 1_000
    output_row_bytes: int = 16_384
    column_row_bytes: int = 512 * 1024
    end_bytes: int = 262_144
    piece_bytes: int = 4 * 1024 * 1024


DEFAULT_TUNING = Tuning()
