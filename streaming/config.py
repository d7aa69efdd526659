"""The one configuration of the service: command line over environment over file over defaults."""

import os
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, PositiveInt, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from streaming.errors import ConfigInvalid

TopicName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]


class Settings(BaseSettings):
    """Settings of the job.

    | how | example |
    |---|---|
    | command line | `reexpand run --bootstrap-servers broker:9092 --checkpoint /var/lib/reexpand` |
    | environment | `REEXPAND_BOOTSTRAP_SERVERS=broker:9092` |
    | file | `reexpand run --config reexpand.toml` with `bootstrap_servers = "broker:9092"` |
    """

    model_config = SettingsConfigDict(env_prefix="REEXPAND_", extra="forbid", frozen=True)

    bootstrap_servers: str = Field(min_length=1, description="Kafka brokers, host:port[,host:port...]")
    checkpoint: str = Field(min_length=1, description="directory or URI of the job's state; one job, one checkpoint")
    topic_events: TopicName = Field("lite-topic-events", description="input: topics created and deleted")
    subscription_events: TopicName = Field("lite-subscription-events", description="input: subscription requests")
    group_events: TopicName = Field("lite-group-events", description="input: group attributes")
    clock: TopicName = Field("lite-clock", description="ticks and alarms; the job writes and reads them itself")
    updates: TopicName = Field("lite-subscription-updates", description="output: who receives which topic")
    dead_letters: TopicName = Field("lite-dead-letters", description="output: entries that could not be applied")
    shards: dict[str, PositiveInt] = Field(default_factory=dict, description="shards of large parents; others have 1")
    route_depth: int = Field(1, ge=0, description="leading segments that decide a topic's shard; 0 for all")
    allow_inner_multi: bool = Field(default=False, description="allow ** inside a pattern")
    shuffle_partitions: PositiveInt | None = Field(
        None, description="state partitions; default: the processors, 8 at most; fixed by the checkpoint"
    )
    max_offsets_per_trigger: PositiveInt = Field(100_000, description="most records that one micro-batch reads")
    trigger_interval_ms: int = Field(0, ge=0, description="time between micro-batches; 0: as data comes")
    tick_interval_ms: int = Field(
        10_000, ge=0, description="time between looks at the clock, by which topics and clients end; 0: never"
    )
    client_timeout_ms: int = Field(0, ge=0, description="a client that has not asked for so long is ended; 0: never")
    master: str | None = Field(None, description="Spark master; default: all processors here")
    groups: Path | None = Field(None, description="TOML file of group attributes, written to the group events at start")
    kafka_options: Path | None = Field(
        None, description="file of Kafka client options, one key=value a line; the place for credentials"
    )

    @field_validator("kafka_options", "groups")
    @classmethod
    def _readable(cls, path: Path | None) -> Path | None:
        if path is not None and not os.access(path, os.R_OK):
            raise ValueError(f"{path} cannot be read")
        return path

    @field_validator("shards")
    @classmethod
    def _named(cls, shards: dict[str, int]) -> dict[str, int]:
        if not all(parent.strip() for parent in shards):
            raise ValueError("a parent topic is blank")
        return shards

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [*self.inputs, self.updates, self.dead_letters]
        if len(set(names)) < len(names):
            raise ValueError(f"the six Kafka topics must differ: {', '.join(names)}")
        return self

    @property
    def inputs(self) -> tuple[str, str, str, str]:
        """Kafka topics of the input streams: groups, subscriptions, topics, clock."""
        return self.group_events, self.subscription_events, self.topic_events, self.clock

    def client_options(self) -> dict[str, str]:
        """Kafka client options beyond the bootstrap servers.

        Raises:
            ConfigInvalid: a line of the file is not `key=value`; the message does not repeat it.
        """
        options: dict[str, str] = {}
        if self.kafka_options is None:
            return options
        try:
            lines = self.kafka_options.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigInvalid(f"{self.kafka_options} cannot be read: {type(error).__name__}") from None
        for number, line in enumerate(lines, 1):
            text = line.strip()
            if not text or text.startswith(("#", "!")):
                continue
            key, separator, value = text.partition("=")
            if not separator or not key.strip():
                raise ConfigInvalid(f"{self.kafka_options}, line {number}: expected key=value")
            options[key.strip()] = value.strip()
        return options

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - part of the interface
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - part of the interface
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Command line, then environment, then the file named by the command line."""
        file = os.environ.get("REEXPAND_CONFIG")
        sources = (init_settings, env_settings)
        if file is None:
            return sources
        if not Path(file).is_file():
            raise FileNotFoundError("there is no such file")
        return (*sources, TomlConfigSettingsSource(settings_cls, Path(file)))


def load(given: dict[str, Any]) -> Settings:
    """The settings in force; `given` holds those of the command line, None for the ones not given.

    Raises:
        ConfigInvalid: naming each setting that is missing or wrong.
    """
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        lines = [
            f"{'.'.join(map(str, item['loc']))}: {item['msg']}".removeprefix(": ")
            for item in error.errors(include_input=False)
        ]
        raise ConfigInvalid("; ".join(lines)) from None
    except (OSError, ValueError) as error:  # the file
        raise ConfigInvalid(f"{os.environ.get('REEXPAND_CONFIG')}: {error}") from None
