"""Read and download the evaluation sets, TREC run files and published figures."""
