"""What a collection is, on one page: counts, what made it, what was measured of it, and how its space looks."""
