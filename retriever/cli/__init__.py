"""The `retriever` command."""
