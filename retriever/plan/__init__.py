"""`retriever plan`: predicts the CPU time, disk, memory and query cost of a corpus from a sample."""
