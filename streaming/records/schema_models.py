"""Models of all records, from which the schemas are generated. The job itself parses with `streaming.records`."""

# ruff: noqa: N815 - fields are named as in the records

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, RootModel

from matcher.dialects import DIALECTS, POLICIES
from streaming.records.json_fields import INT64, OWN_FIELDS
from streaming.records.model import MAX_DETAILS, MAX_NAME_BYTES, MAX_TTL_MS, Action, Reason, Stream
from streaming.records.op import Cause, Op

Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_NAME_BYTES, pattern=r"\S")]
"""Name of a topic, client or group."""

Int64: TypeAlias = Annotated[int, Field(ge=-INT64, le=INT64 - 1)]
ABSENT: Final[Any] = None
"""Default of fields that may be missing, but not null."""

Count: TypeAlias = Annotated[int, Field(ge=0, le=INT64 - 1)]
Place: TypeAlias = Annotated[int, Field(ge=-1, le=INT64 - 1)]
Text: TypeAlias = Annotated[str, Field(max_length=MAX_DETAILS)]


def _with(*fields: str) -> dict[str, Any]:
    """Return the condition that fields are present and not null."""
    return {"required": list(fields), "properties": {field: {"not": {"type": "null"}} for field in fields}}


def _without_own(stream: Stream) -> dict[str, Any]:
    """Return the condition that fields for the job alone set nothing."""
    own = OWN_FIELDS[stream].items()
    are_set = [{"required": [name], "properties": {name: {"not": {"enum": list(unset)}}}} for name, unset in own]
    return {"not": {"anyOf": are_set}}


_WITH_POLICIES: Final[Any] = [name for name, dialect in DIALECTS.items() if dialect.policies]
_POLICY: Final = f"Match policy, in dialect {' or '.join(_WITH_POLICIES)}."


class TopicEventSchema(BaseModel):
    """Creation or deletion of a lite topic, named by parentTopic and liteTopic, or by lmqName."""

    model_config = ConfigDict(
        title="topic event", json_schema_extra={"anyOf": [_with("parentTopic", "liteTopic"), _with("lmqName")]}
    )

    event: Literal["CREATED", "DELETED"]
    parentTopic: Name | None = Field(None, description="The parent topic.")
    liteTopic: Name | None = Field(None, description="The lite topic.")
    lmqName: Annotated[str, Field(pattern=r"^%LMQ%\$[^$]*[^$\s][^$]*\$.*\S")] | None = Field(
        None, description="Both in the form of a broker: %LMQ%$PARENT$TOPIC."
    )
    timestamp: Int64 | None = Field(None, description="Time of the event in ms since the epoch.")
    tags: Text | None = Field(None, description="One tag, for selectors.")
    properties: dict[str, str] | None = Field(None, description="Properties, for selectors.")
    ttlMs: Annotated[int, Field(ge=1, le=MAX_TTL_MS)] | None = Field(
        None, description="Time after `timestamp` at which the topic ends by itself, in ms."
    )


class SelectorSchema(BaseModel):
    """Condition on the creation of a topic."""

    model_config = ConfigDict(title="selector")

    type: str = Field(description="TAG, SQL92, or a kind of another package.")
    expression: Text = Field(description="Text of the condition.")


class OffsetOptionSchema(BaseModel):
    """Start position of a client."""

    model_config = ConfigDict(title="offset option")

    type: Literal["POLICY", "OFFSET", "TAIL_N", "TIMESTAMP"]
    value: Int64 | None = None


class SubscriptionRequestSchema(BaseModel):
    """Request of one client on one parent topic."""

    model_config = ConfigDict(
        title="subscription request",
        json_schema_extra={
            **_without_own(Stream.SUBSCRIPTIONS),
            "if": {"properties": {"action": {"const": Action.COMPLETE_REMOVE}}},
            "else": {"allOf": [_with("liteTopicSet", "topic"), {"properties": {"topic": {"pattern": r"\S"}}}]},
            "dependentSchemas": {
                "policy": {
                    "anyOf": [
                        {"properties": {"policy": {"type": "null"}}},
                        {"required": ["dialect"], "properties": {"dialect": {"enum": _WITH_POLICIES}}},
                    ]
                }
            },
        },
    )

    action: Action
    clientId: Name
    group: Name
    topic: Annotated[str, Field(max_length=MAX_NAME_BYTES)] | None = Field(
        None, description="The parent topic; blank in a COMPLETE_REMOVE on all parents."
    )
    liteTopicSet: list[str] | None = Field(None, description="Entries: patterns in a wildcard group, else names.")
    version: Int64 | None = Field(None, description="A request below the last applied version is stale.")
    dialect: Literal[*DIALECTS] | None = Field(None, description="Language of the patterns; lite by default.")  # type: ignore[valid-type]
    policy: Literal[*POLICIES] | None = Field(None, description=_POLICY)  # type: ignore[valid-type]
    delivery: Literal["per-client", "per-subscription"] | None = Field(
        None, description="One row for all entries that match, or one for each."
    )
    selector: SelectorSchema | None = None
    offsetOption: OffsetOptionSchema | None = None


class SubscriptionSetSchema(BaseModel):
    """Several requests in one record, as RocketMQ sends them."""

    model_config = ConfigDict(title="subscription set")

    subscriptionSet: Annotated[list[SubscriptionRequestSchema], Field(min_length=1)]


class SubscriptionEventSchema(RootModel[SubscriptionSetSchema | SubscriptionRequestSchema]):
    """One request, or several in one record."""

    model_config = ConfigDict(title="subscription event")


class GroupAttributesSchema(BaseModel):
    """Attributes of a group."""

    model_config = ConfigDict(
        title="group attributes",
        json_schema_extra={
            "additionalProperties": {"type": ["string", "number", "boolean"]},
            "if": {"minProperties": 1},
            "then": {"required": ["lite.bind.topic"]},
        },
    )

    bind_topic: Name = Field(ABSENT, alias="lite.bind.topic", description="Parent of the group.")
    wildcard: str | float | bool = Field(
        ABSENT, alias="lite.sub.wildcard", description="Present, with any value: the entries are patterns."
    )
    model: Annotated[str, Field(pattern=r"^([sS][hH][aA][rR][eE][dD]|[eE][xX][cC][lL][uU][sS][iI][vV][eE])$")] = Field(
        ABSENT, alias="lite.sub.model", description="Shared (default) or Exclusive."
    )
    quota: Annotated[str, Field(pattern=r"^(-1|[0-9]{1,18})$")] | Annotated[int, Field(ge=-1, lt=10**18)] = Field(
        ABSENT, alias="lite.sub.client.quota", description="Number of topics that a client may hold; -1 for no limit."
    )
    reset_exclusive: str | float | bool = Field(
        ABSENT, alias="lite.sub.reset.offset.exclusive", description="true: an evicted client starts over."
    )
    reset_unsubscribe: str | float | bool = Field(
        ABSENT, alias="lite.sub.reset.offset.unsubscribe", description="true: a client that leaves starts over."
    )


class GroupEventSchema(BaseModel):
    """New attributes of a group; empty attributes delete the stored ones."""

    model_config = ConfigDict(title="group event", json_schema_extra=_without_own(Stream.GROUPS))

    group: Name
    attributes: GroupAttributesSchema
    parentTopic: Name | None = Field(
        None, description="Parent whose group empty attributes delete; all parents by default."
    )


class ClockRecordSchema(BaseModel):
    """Tick, alarm or wake of the clock; only the job writes it."""

    model_config = ConfigDict(
        title="clock record",
        json_schema_extra={
            "oneOf": [_with("tick"), _with("alarm", "parentTopic", "shard"), _with("wake", "parentTopic", "shard")]
        },
    )

    tick: Int64 | None = Field(None, description="The time.")
    alarm: Int64 | None = Field(None, description="Time for which a shard has set an alarm.")
    wake: Int64 | None = Field(None, description="Time that wakes a shard.")
    parentTopic: Name | None = None
    shard: Int64 | None = None


class SourceSchema(BaseModel):
    """Place of an entry in Kafka."""

    model_config = ConfigDict(title="source")

    topic: str
    partition: Place = Field(description="-1 in a repair of a row without a record.")
    offset: Place
    entry: Count = Field(description="Index of the entry in its record.")
    timestamp: Int64 = Field(description="Time of the record in ms since the epoch.")


class UpdateSchema(BaseModel):
    """Change of the relation: a subscriber receives a topic from now on, or no longer."""

    model_config = ConfigDict(title="update")

    op: Op
    parentTopic: str
    group: str
    clientId: str
    liteTopic: str
    lmqName: str = Field(description="%LMQ%$PARENT$TOPIC.")
    patterns: list[str] = Field(description="Entries that match; none for a client subscribed to every topic.")
    cause: Cause
    version: Int64 | None = Field(description="Version of the client's last applied request.")
    eventId: str = Field(description="The same in each repetition of the update.")
    source: SourceSchema = Field(description="Entry that caused the update.")
    share: str = Field(ABSENT, description="Name of an MQTT shared subscription.")
    filter: str = Field(ABSENT, description="Topic filter of an MQTT shared subscription.")
    subscription: str = Field(ABSENT, description="Entry with its own row, as dialect:policy:text.")
    offsetOption: OffsetOptionSchema = Field(ABSENT, description="On an ADD: start position that the client requested.")
    resetOffset: bool = Field(ABSENT, description="On a REMOVE: the client's offsets must be reset.")
    bitmap: Annotated[str, Field(pattern="^[0-9a-f]*$")] = Field(
        ABSENT, description="On an ADD: Bloom filter of the groups whose SQL92 selectors agree."
    )


class UpdateKeySchema(RootModel[Annotated[list[str], Field(min_length=4, max_length=5)]]):
    """Key of an update: parent, group, client, topic, and a subscription with its own row."""

    model_config = ConfigDict(title="key of an update")


class DeadLetterSchema(BaseModel):
    """Entry that cannot be applied, with the reason."""

    model_config = ConfigDict(title="dead letter")

    reason: Reason
    message: str = Field(description="The reason in a sentence.")
    source: SourceSchema = Field(description="Place of the entry.")
    original: str | None = Field(description="The entry, or its beginning; null for a record without value.")
    originalEncoding: Literal["utf-8", "base64"]
    originalBytes: Count = Field(description="Size of the entry.")
    truncated: bool = Field(description="True if `original` is only the beginning.")


class DeadLetterKeySchema(RootModel[Annotated[list[Any], Field(min_length=4, max_length=4)]]):
    """Key of a dead letter: topic, partition, offset and index of its entry."""

    model_config = ConfigDict(
        title="key of a dead letter",
        json_schema_extra=dict[str, Any](prefixItems=[{"type": "string"}, *[{"type": "integer", "minimum": 0}] * 3]),
    )


MODELS: Final[dict[str, type[BaseModel]]] = {
    "topic-event": TopicEventSchema,
    "subscription-event": SubscriptionEventSchema,
    "group-event": GroupEventSchema,
    "clock-record": ClockRecordSchema,
    "update": UpdateSchema,
    "update-key": UpdateKeySchema,
    "dead-letter": DeadLetterSchema,
    "dead-letter-key": DeadLetterKeySchema,
}
"""Models by the names of their schemas."""
