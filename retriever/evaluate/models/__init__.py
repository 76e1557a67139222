"""The encoders that evaluations compare: any BERT, the un-tuned one, averaged GloVe vectors."""
