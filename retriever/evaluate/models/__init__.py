"""The encoders of the benchmarks: any BERT, and the un-tuned BERT of our tables."""
