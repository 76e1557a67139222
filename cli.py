"""Run the `retriever` command from a checkout: `python cli.py …`."""

from retriever.cli.entry import main

if __name__ == "__main__":
    main()
