"""Experiments behind design decisions, including the variants that were rejected."""
