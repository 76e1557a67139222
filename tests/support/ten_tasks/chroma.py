"""The ten tasks in Chroma 1. `notes` is a collection of it."""

import chromadb
import pandas

from ten_tasks import DOCUMENTS, FRAME, NEW, TEXTS, embed


def own_vectors(folder):
    notes = chromadb.PersistentClient(folder).create_collection("notes", embedding_function=None)
    ids, years = [one["id"] for one in DOCUMENTS], [{"year": one["year"]} for one in DOCUMENTS]
    notes.add(ids, embeddings=embed(TEXTS), metadatas=years, documents=TEXTS)
    return notes.query(query_embeddings=embed(["budget"]), n_results=3)


def frame_in(folder):
    notes = chromadb.PersistentClient(folder).create_collection("notes", embedding_function=None)
    texts, years = FRAME["text"].tolist(), FRAME[["year"]].to_dict("records")
    notes.add(FRAME["id"].tolist(), embeddings=embed(texts), metadatas=years, documents=texts)
    return notes.query(query_embeddings=embed(["budget"]), n_results=3)


def filter(notes):
    return notes.query(query_embeddings=embed(["budget"]), n_results=3, where={"year": {"$gte": 2020}})


hybrid = None
"""Chroma ranks by words only in its cloud."""


async def asynchronous(port):
    client = await chromadb.AsyncHttpClient(port=port)
    notes = await client.get_collection("notes")
    return await notes.query(query_embeddings=embed(["budget"]), n_results=3)


def serve(folder):
    return ["chroma", "run", "--path", folder]


def langchain(notes):
    from langchain_core.runnables import RunnableLambda

    return RunnableLambda(lambda query: notes.query(query_embeddings=embed([query]), n_results=3)).invoke("budget")


def delete(notes):
    notes.delete(["print"])


def update(notes):
    notes.upsert([NEW["id"]], embed([NEW["text"]]), [{"year": NEW["year"]}], [NEW["text"]])


def export(notes, path):
    rows = notes.get(include=["embeddings", "metadatas", "documents"])
    rows["embeddings"] = rows["embeddings"].tolist()
    pandas.DataFrame({name: rows[name] for name in ("ids", "documents", "embeddings")}).to_parquet(path)
