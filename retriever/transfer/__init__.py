"""Copy collections to another place, and export them for other software."""
