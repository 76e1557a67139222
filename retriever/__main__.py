"""Run the `retriever` command as `python -m retriever`."""

from retriever.cli.entry import main

main()
