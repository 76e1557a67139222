"""The documents of a collection on a plane, like beside like."""
