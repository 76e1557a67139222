"""The measures: rank correlations, retrieval effectiveness, confidence intervals, word overlap."""
