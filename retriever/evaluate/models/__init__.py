"""The encoders of the benchmarks: any BERT, the un-tuned BERT of our tables, and averaged GloVe vectors."""
