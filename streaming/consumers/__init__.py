"""Consumers with patterns in place of names."""
