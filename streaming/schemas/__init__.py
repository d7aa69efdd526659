"""Schemas of all records: JSON Schema, Avro and AsyncAPI, made of one set of models, beside the files made of them."""
