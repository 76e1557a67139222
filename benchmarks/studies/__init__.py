"""Experiments behind design decisions, with the variants that lost."""
