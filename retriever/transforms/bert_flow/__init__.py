"""`bert-flow`: BERT-flow as published (Li et al. 2020)."""
