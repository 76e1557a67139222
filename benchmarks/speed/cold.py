"""Run one search from a cold start, as a user's script would: python -m benchmarks.speed.cold SYSTEM STORE MODEL QUERY

It imports the system, opens the store, embeds the query with sentence-transformers, and prints the hits. For our
system, `retriever search` is used instead.
"""

import sys
from pathlib import Path

from benchmarks.speed.rivals import Queries, rival


def main() -> None:
    system, store, model, query = sys.argv[1:]
    opened = rival(system, Path(store), model)
    opened.open()
    for found in opened.search(Queries([query]), 10)[0]:
        print(found.id, found.text)


if __name__ == "__main__":
    main()
