"""Search by meaning, by words and by both, and list the metadata fields that can be used as filters."""
