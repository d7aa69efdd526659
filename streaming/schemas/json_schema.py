"""JSON Schema (draft 2020-12) of the models."""

from __future__ import annotations

from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema

from streaming.schemas.models import MODELS

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


def json_schemas() -> dict[str, dict[str, Any]]:
    """Return the schemas by their names."""
    return {name: json_schema(name) for name in MODELS}


def json_schema(name: str) -> dict[str, Any]:
    """Return the schema of this name."""
    schema = MODELS[name].model_json_schema(by_alias=True, schema_generator=_Generator)
    head = {"$schema": DRAFT, "$id": f"urn:reexpand:{name}", "title": schema.pop("title")}
    return {**head, "description": schema.pop("description"), **schema}


class _Generator(GenerateJsonSchema):
    """Generator that leaves out the titles of fields, which repeat their names, and defaults of null."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - part of the interface
        """Return False."""
        return False

    def default_schema(self, schema: Any) -> dict[str, Any]:
        """Return the schema of a field without its default."""
        return self.generate_inner(schema["schema"])
