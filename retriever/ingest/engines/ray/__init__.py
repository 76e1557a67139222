"""Ingestion on a Ray cluster: a reader beside this process, and workers with one encoder each."""
