"""AsyncAPI 3 document of the job: its channels, the messages on them, and who sends them."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final, NamedTuple

from streaming.config import Settings
from streaming.schemas.json_schema import json_schemas

_BINDING: Final = "0.5.0"
"""Version of AsyncAPI's binding for Kafka."""


class _Channel(NamedTuple):
    """A Kafka topic of the job.

    Attributes:
        setting: setting with its name.
        action: action of the job: it receives inputs, and sends outputs.
        message: name of the schema of its values.
        key: schema of its keys; a name, or JSON Schema.
    """

    setting: str
    action: str
    message: str
    key: str | dict[str, Any]


_CHANNELS: Final = (
    _Channel("topic_events", "receive", "topic-event", {"type": "string", "description": "The parent."}),
    _Channel("subscription_events", "receive", "subscription-event", {"type": "string", "description": "The group."}),
    _Channel("group_events", "receive", "group-event", {"type": "string", "description": "The group."}),
    _Channel("clock", "send", "clock-record", {"type": "string", "description": "The parent, or `tick`."}),
    _Channel("updates", "send", "update", "update-key"),
    _Channel("dead_letters", "send", "dead-letter", "dead-letter-key"),
)


def asyncapi() -> dict[str, Any]:
    """Return the document, with the default names of the topics."""
    schemas: dict[str, Any] = {}
    for name, schema in json_schemas().items():
        schemas |= schema.pop("$defs", {})
        schemas[name] = {key: value for key, value in schema.items() if key not in ("$schema", "$id")}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "reexpand",
            "version": version("reexpand"),
            "description": "Wildcard topic subscriptions that keep themselves expanded. The job receives topics, "
            "requests and groups, and sends which client receives which topic.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": {each.setting: _channel(each) for each in _CHANNELS},
        "operations": {f"{each.action}-{each.setting}": _operation(each) for each in _CHANNELS},
        "components": {
            "messages": {each.message: _message(each, schemas) for each in _CHANNELS},
            "schemas": _relocated(schemas),
        },
    }


def _channel(channel: _Channel) -> dict[str, Any]:
    field = Settings.model_fields[channel.setting]
    return {
        "address": str(field.default),
        "description": field.description,
        "messages": {channel.message: {"$ref": f"#/components/messages/{channel.message}"}},
        "bindings": {"kafka": {"topic": str(field.default), "bindingVersion": _BINDING}},
    }


def _operation(channel: _Channel) -> dict[str, Any]:
    return {
        "action": channel.action,
        "channel": {"$ref": f"#/channels/{channel.setting}"},
        "messages": [{"$ref": f"#/channels/{channel.setting}/messages/{channel.message}"}],
    }


def _message(channel: _Channel, schemas: dict[str, Any]) -> dict[str, Any]:
    schema = schemas[channel.message]
    key = schemas[channel.key] if isinstance(channel.key, str) else channel.key
    return {
        "name": channel.message,
        "title": schema["title"],
        "summary": schema["description"],
        "contentType": "application/json",
        "payload": {"$ref": f"#/components/schemas/{channel.message}"},
        "bindings": {"kafka": {"key": key, "bindingVersion": _BINDING}},
    }


def _relocated(value: Any) -> Any:
    """Return schemas whose references lead to the components of the document."""
    if isinstance(value, dict):
        return {
            key: each.replace("#/$defs/", "#/components/schemas/") if key == "$ref" else _relocated(each)
            for key, each in value.items()
        }
    return [_relocated(each) for each in value] if isinstance(value, list) else value
