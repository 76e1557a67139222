"""Verify, repair and salvage."""
