"""The ten tasks in txtai 9. `notes` is a txtai index with content."""

import asyncio

import pandas
from txtai import Embeddings

from ten_tasks import DOCUMENTS, FRAME, NEW, TEXTS, embed


def own_vectors(folder):
    notes = Embeddings(method="external", transform=embed, content=True)
    notes.index([(document["id"], document, None) for document in DOCUMENTS])
    notes.save(folder)
    return notes.search("budget", 3)


def frame_in(folder):
    notes = Embeddings(method="external", transform=embed, content=True)
    notes.index([(row["id"], row, None) for row in FRAME.to_dict("records")])
    notes.save(folder)
    return notes.search("budget", 3)


def filter(notes):
    return notes.search("select id, text, score from txtai where similar('budget') and year >= 2020", 3)


def hybrid(folder):
    notes = Embeddings(method="external", transform=embed, content=True, hybrid=True)
    notes.index([(document["id"], document, None) for document in DOCUMENTS])
    return notes.search("budget", 3)


async def asynchronous(notes):
    return await asyncio.to_thread(notes.search, "budget", 3)


def serve(folder):
    """txtai reads a configuration file, so its lines count too. It can serve no function of the caller's."""
    config = f"path: {folder}"
    return ["CONFIG=app.yml", "uvicorn", "txtai.api:app"], config


def langchain(notes):
    from langchain_core.runnables import RunnableLambda

    return RunnableLambda(lambda query: notes.search(query, 3)).invoke("budget")


def delete(notes):
    notes.delete(["print"])


def update(notes):
    notes.upsert([(NEW["id"], NEW, None)])


def export(notes, path):
    rows = notes.search("select id, text from txtai", len(TEXTS))
    pandas.DataFrame(rows).assign(vector=embed([row["text"] for row in rows])).to_parquet(path)
