"""Settings of the job, from the command line, the environment, a file, or defaults, in this order."""

import difflib
import ipaddress
import json
import logging
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from tomllib import TOMLDecodeError
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import Field, PositiveInt, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from streaming.errors import ConfigInvalid

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

log = logging.getLogger("reexpand")

Delivery = Literal["exactly-once", "at-least-once"]
"""Delivery guarantee for consumers of committed records."""

TOPIC_NAME: Final = r"^[a-zA-Z0-9._-]{1,249}$"
"""Regular expression of the names of Kafka topics."""

TopicName = Annotated[str, Field(pattern=TOPIC_NAME)]

_PREFIX: Final = "REEXPAND_"
"""Prefix of the environment variables of the settings."""

_FILE_VARIABLE: Final = "REEXPAND_CONFIG"
"""Environment variable with the path of the TOML file."""

_LARGEST_PORT: Final = 65_535

_SIZE: Final = re.compile(r"(\d{1,9})([kmg])", re.IGNORECASE | re.ASCII)
_SHIFTS: Final = {"k": 10, "m": 20, "g": 30}
"""Powers of two of the units of sizes, which are those of Java."""

_OTHER_VARIABLES: Final = (_FILE_VARIABLE, "REEXPAND_HTTP_TOKEN", "REEXPAND_LOG_FORMAT")
"""Environment variables that are not settings."""

_MISSPELT: Final = 0.75
"""`difflib` similarity above which an unknown variable is reported as a misspelt setting."""


class Address(NamedTuple):
    """Host and port to listen on; port 0 takes a free one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """True if only this machine reaches it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def listen(self) -> socket.socket:
        """Return a listening socket; the kernel queues connections until a server accepts them.

        Raises:
            OSError: the address cannot be listened on.
        """
        family, kind, protocol, _, place = socket.getaddrinfo(
            self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(place)
            listening.listen()
        except OSError:
            listening.close()
            raise
        return listening

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address | None:
    """Return the address of `HOST:PORT`; None for `off`.

    Raises:
        ValueError: it is neither.
    """
    if text == "off":
        return None
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    is_port = port.isascii() and port.isdecimal() and int(port) <= _LARGEST_PORT
    if not (bare and is_port) or host not in (bare, f"[{bare}]"):
        raise ValueError(f"must be HOST:PORT, as 127.0.0.1:9464, or off, not {text!r}")
    return Address(bare, int(port))


class Settings(BaseSettings):
    """Settings of the job.

    | how | example |
    |---|---|
    | command line | `reexpand run --bootstrap-servers broker:9092 --checkpoint /var/lib/reexpand --shards orders=16` |
    | environment | `REEXPAND_BOOTSTRAP_SERVERS=broker:9092`, `REEXPAND_SHARDS=orders=16,sensors=4` |
    | file | `reexpand run --config reexpand.toml` with `bootstrap_servers = "broker:9092"` and a table `[shards]` |

    Shards of several sources are merged by parent. An empty variable of an optional setting, such as
    `REEXPAND_GROUPS=`, counts as unset.
    """

    model_config = SettingsConfigDict(env_prefix=_PREFIX, extra="forbid", frozen=True)

    bootstrap_servers: str = Field(
        min_length=1, description="Addresses of Kafka brokers, host:port[,host:port...]; required."
    )
    checkpoint: str = Field(min_length=1, description="Directory or URI of the job's state, one per job; required.")
    topic_events: TopicName = Field("lite-topic-events", description="Input: created and deleted topics.")
    subscription_events: TopicName = Field("lite-subscription-events", description="Input: subscription requests.")
    group_events: TopicName = Field("lite-group-events", description="Input: group attributes.")
    clock: TopicName = Field("lite-clock", description="Ticks and alarms, written and read by the job.")
    updates: TopicName = Field("lite-subscription-updates", description="Output: changes of each subscriber's topics.")
    dead_letters: TopicName = Field("lite-dead-letters", description="Output: rejected entries.")
    answers: TopicName = Field("lite-answers", description="Answers to queries on the job's live state.")
    shards: dict[str, PositiveInt] = Field(
        default_factory=dict, description="Number of shards of a large parent topic; others have 1; repeatable."
    )
    route_depth: int = Field(
        1, ge=0, description="Number of leading segments that select the shard of a topic; 0: all segments."
    )
    allow_inner_multi: bool = Field(default=False, description="Allow ** inside a pattern.")
    shuffle_partitions: PositiveInt | None = Field(
        None, description="State partitions; default: the number of processors, at most 8; fixed by the checkpoint."
    )
    max_offsets_per_trigger: PositiveInt = Field(100_000, description="Maximum number of records in a micro-batch.")
    trigger_interval_ms: int = Field(
        0, ge=0, description="Time between micro-batches; 0: as soon as there are records."
    )
    pace_cpu: float = Field(0.35, ge=0, description="Cores that micro-batches may use at a low rate; 0: no limit.")
    tick_interval_ms: int = Field(
        10_000, ge=0, description="Interval of ticks, which expire topics and clients; 0: no ticks."
    )
    client_timeout_ms: int = Field(
        0, ge=0, description="Time without requests after which a client is unsubscribed; 0: never."
    )
    delivery: Delivery = Field(
        "exactly-once", description="exactly-once, in Kafka transactions, or at-least-once, which may repeat records."
    )
    max_value_bytes: PositiveInt = Field(
        1_000_000, description="Maximum size of an input record's value, in bytes; larger values become dead letters."
    )
    max_requests: PositiveInt = Field(1_024, le=1_024, description="Maximum number of requests in one record.")
    max_entries: PositiveInt = Field(20_000, description="Maximum number of names and patterns in one request.")
    max_name_bytes: PositiveInt = Field(
        16_384, le=16_384, description="Maximum length of a name or pattern, in bytes of JSON."
    )
    state_cache_bytes: int = Field(
        1_073_741_824, ge=0, description="Memory for decoded states in each Python worker, in bytes."
    )
    rocksdb_bytes: int = Field(
        268_435_456, ge=67_108_864, description="Memory of Spark's state stores per JVM, in bytes."
    )
    heap_bytes: int | None = Field(
        None, ge=536_870_912, description="Heap of the JVMs of the driver and of each executor, in bytes."
    )
    cap_requests: bool = Field(
        default=False,
        description="Cap a request beyond its client's quota instead of rejecting it, even on parents with one shard.",
    )
    accept_loss: bool = Field(default=False, description="Start a new checkpoint although inputs have lost records.")
    master: str | None = Field(None, description="Spark master; default: all processors of this machine.")
    groups: Path | None = Field(
        None, description="TOML file of group attributes, which are written to the group events at each start."
    )
    kafka_options: Path | None = Field(
        None, description="File of Kafka client options with credentials, one key=value per line."
    )
    http: str = Field("127.0.0.1:9464", description="Address of metrics and health, HOST:PORT; off: none.")
    http_token_file: Path | None = Field(
        None, description="File of the token required by all pages except metrics and health."
    )
    stall_seconds: int = Field(
        30, ge=0, description="Time without progress on one key after which its Python worker is killed; 0: never."
    )
    hang_seconds: PositiveInt = Field(
        300, description="Time after which a micro-batch counts as hung, and /healthz fails."
    )

    @field_validator("http")
    @classmethod
    def _check_address(cls, text: str) -> str:
        parse_address(text)
        return text

    @field_validator(
        "max_value_bytes", "max_name_bytes", "state_cache_bytes", "rocksdb_bytes", "heap_bytes", mode="before"
    )
    @classmethod
    def _read_size(cls, value: Any) -> Any:
        found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
        return int(found[1]) << _SHIFTS[found[2].lower()] if found else value

    @field_validator("kafka_options", "groups", "http_token_file")
    @classmethod
    def _check_readable(cls, path: Path | None) -> Path | None:
        if path is not None and not os.access(path, os.R_OK):
            raise ValueError(f"{path} cannot be read")
        if path is not None and path.is_dir():
            raise ValueError(f"{path} is a folder, not a file")
        return path

    @field_validator("shards")
    @classmethod
    def _check_parents(cls, shards: dict[str, int]) -> dict[str, int]:
        if not all(parent.strip() for parent in shards):
            raise ValueError("the name of a parent topic is blank")
        return shards

    @model_validator(mode="after")
    def _check_topics(self) -> Self:
        names = [*self.inputs, self.updates, self.dead_letters, self.answers]
        if len(set(names)) < len(names):
            raise ValueError(f"the seven Kafka topics must differ: {', '.join(names)}")
        return self

    @property
    def inputs(self) -> tuple[str, str, str, str]:
        """Kafka topics of the input streams: groups, subscriptions, topics, clock."""
        return self.group_events, self.subscription_events, self.topic_events, self.clock

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - part of the interface
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - part of the interface
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - part of the interface
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources in order of precedence: command line, environment, file."""
        sources = (init_settings, _EnvironmentSource(settings_cls))
        file = _file()
        return sources if file is None else (*sources, TomlConfigSettingsSource(settings_cls, file))


class _EnvironmentSource(EnvSettingsSource):
    """Environment, with empty variables as unset, and shards as pairs or JSON."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return the value of a variable, or None if it is unset."""
        value, key, is_complex = super().get_field_value(field, field_name)
        return (None if value == "" and _may_be_absent(field_name) else value), key, is_complex

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:  # noqa: ARG002 - only `shards` has a structure
        """Parse shards: `orders=16,sensors=4` or a JSON object."""
        if value.lstrip().startswith("{"):
            try:
                return json.loads(value)
            except ValueError as error:
                raise ConfigInvalid(f"{field_name} is not valid JSON: {error} (from {_variable(field_name)})") from None
        pairs = [pair.rpartition("=") for pair in value.split(",")]
        if not all(parent for parent, _, _ in pairs):
            raise ConfigInvalid(
                f"{field_name} must be pairs such as orders=16,sensors=4, or a JSON object, not {value!r} "
                f"(from {_variable(field_name)})"
            )
        return {parent.strip(): count for parent, _, count in pairs}


def load(given: Mapping[str, Any], context: tuple[Path, Mapping[str, Any]] | None = None) -> Settings:
    """Load and check the settings.

    Args:
        given: settings of the command line; None for a missing option.
        context: file and settings of a context, which override the environment.

    Raises:
        ConfigInvalid: a setting is missing or invalid; the message lists all of them, with their sources.
    """
    _warn_of_misspelt_variables()
    given = {name: value for name, value in given.items() if value is not None}
    place, values = context or (None, {})
    sources = {**dict.fromkeys(values, str(place)), **{name: _option(name) for name in given}}
    shards = [each["shards"] for each in (values, given) if isinstance(each.get("shards"), Mapping)]
    merged = {"shards": {parent: count for each in shards for parent, count in each.items()}} if shards else {}
    try:
        return Settings(**{**values, **given, **merged})
    except ValidationError as error:
        raise ConfigInvalid("; ".join(_explain(details, sources) for details in error.errors())) from None
    except TOMLDecodeError as error:
        raise ConfigInvalid(f"{_file()} is not valid TOML: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigInvalid(f"{_file()} cannot be read: {reason}") from None


def _file() -> Path | None:
    name = os.environ.get(_FILE_VARIABLE)
    if not name:
        return None
    if not Path(name).is_file():
        raise ConfigInvalid(f"{name} is not a file (from {_FILE_VARIABLE} or --config)")
    return Path(name)


def _option(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"


def _variable(setting: str) -> str:
    return f"{_PREFIX}{setting.upper()}"


def _may_be_absent(setting: str) -> bool:
    default = Settings.model_fields[setting].get_default(call_default_factory=True)
    return default is None or default == {}


def _warn_of_misspelt_variables() -> None:
    settings = [*map(_variable, Settings.model_fields), *_OTHER_VARIABLES]
    names = [name.removeprefix(_PREFIX) for name in settings]
    for variable in sorted(os.environ):
        prefix, name = variable[: len(_PREFIX)].upper(), variable[len(_PREFIX) :].upper()
        if prefix == _PREFIX and name not in names:
            for near in difflib.get_close_matches(name, names, n=1, cutoff=_MISSPELT):
                log.warning("%s is not a setting and is ignored; did you mean %s%s?", variable, _PREFIX, near)


_RULES: Final = {
    "int_": "must be a whole number",
    "float_": "must be a number",
    "bool_": "must be true or false",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must be the name of a Kafka topic, 1 to 249 letters, digits, '.', '_' or '-'",
    "path_type": "must be the path of a file",
    "dict_type": "must be a number of shards for each parent topic, such as orders = 16",
}
"""Message templates by pydantic's error type, or by its prefix."""


def _explain(details: "ErrorDetails", sources: Mapping[str, str]) -> str:
    """Format an error with the name and the source of the setting."""
    kind = details["type"]
    if not details["loc"]:  # an error of several settings
        return str(details["ctx"]["error"])
    name, setting = ".".join(map(str, details["loc"])), str(details["loc"][0])
    if kind == "missing":
        return f"{setting} is required: give {_option(setting)}, {_variable(setting)}, or {setting} in the TOML file"
    source = sources.get(setting) or _source(setting)
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(setting, Settings.model_fields, n=1)
        return f"{name} is not a setting (from {source})" + (f"; did you mean {near[0]}?" if near else "")
    if kind == "value_error":
        return f"{name}: {details['ctx']['error']} (from {source})"
    bounds = details.get("ctx", {})
    if kind == "greater_than":
        rule = f"must be at least {bounds['gt'] + 1}"
    else:
        template = next((text for type_, text in _RULES.items() if kind.startswith(type_)), None)
        rule = details["msg"] if template is None else template.format_map(bounds)
    return f"{name} {rule}, not {details['input']!r} (from {source})"


def _source(setting: str) -> str:
    """Return the variable or file that a setting's value is from."""
    values = {name.upper(): value for name, value in os.environ.items()}
    value = values.get(_variable(setting))
    if setting in Settings.model_fields and value is not None and not (value == "" and _may_be_absent(setting)):
        return _variable(setting)
    return str(_file())
