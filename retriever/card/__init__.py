"""A card describes a collection on one page: its contents, how it was made, and what was measured."""
