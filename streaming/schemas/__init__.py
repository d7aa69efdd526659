"""Schemas of all records, generated from one set of models: JSON Schema, Avro and AsyncAPI."""
