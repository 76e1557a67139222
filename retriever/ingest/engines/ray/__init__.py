"""Ingestion on a Ray cluster: a reader on the machine of this process, and workers with one encoder each."""
