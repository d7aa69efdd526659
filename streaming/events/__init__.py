"""Input events: models, parsing, routing."""
