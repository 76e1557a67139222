"""The measures: rank correlations, confidence intervals, word overlap."""
