"""The encoders of the benchmarks: any BERT, the un-tuned one, and averaged GloVe vectors."""
