"""Comparisons of this project with others, and the studies behind its design; run by `python -m benchmarks`."""
