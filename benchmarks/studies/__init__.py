"""Experiments behind design decisions, with what lost."""
