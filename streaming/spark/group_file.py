"""Group attributes from a TOML file, for deployments without a broker to keep them.

    ["billing"]
    "lite.bind.topic" = "orders"
    "lite.sub.wildcard" = true

Each start of the job writes them to the group stream as ordinary events; attributes that already hold change nothing.
"""

import logging
import tomllib
from collections.abc import Mapping
from pathlib import Path

import orjson
from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.errors import ConfigInvalid, Rejected
from streaming.records.parsing import parse_group_event
from streaming.spark.producer import Producer

log = logging.getLogger("reexpand")


def read(path: Path | None) -> dict[str, bytes]:
    """Return the group events of a file by group; an empty dict when there is no file.

    Raises:
        ConfigInvalid: the file is not TOML, or the attributes of a group are not valid; the message names the group.
    """
    if path is None:
        return {}
    try:
        groups = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{path} cannot be read: {type(error).__name__}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigInvalid(f"{path} is not TOML: {error}") from None
    events: dict[str, bytes] = {}
    for group, attributes in groups.items():
        try:
            event = orjson.dumps({"group": group, "attributes": attributes})
            parse_group_event(event)
        except (Rejected, TypeError) as error:
            raise ConfigInvalid(f"{path}, group {group!r}: {error}") from None
        events[group] = event
    return events


def publish(spark: SparkSession, settings: Settings, events: Mapping[str, bytes]) -> None:
    """Write group events to the group stream.

    Raises:
        NotWritten: Kafka did not take an event.
    """
    if not events:
        return
    with Producer(spark, settings) as producer:
        for group, event in events.items():
            producer.send(settings.group_events, group, event.decode())
    log.info("wrote the attributes of %d groups", len(events))
