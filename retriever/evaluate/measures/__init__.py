"""Measures: rank correlations, confidence intervals and word overlap."""
