"""Collections copied to another place, and exported for other software."""
