"""The ten tasks in LanceDB 0.40. `notes` is a table of it."""

import lancedb

from ten_tasks import DOCUMENTS, FRAME, NEW, TEXTS, embed


def own_vectors(folder):
    rows = [{**one, "vector": row} for one, row in zip(DOCUMENTS, embed(TEXTS), strict=True)]
    notes = lancedb.connect(folder).create_table("notes", rows)
    return notes.search(embed(["budget"])[0]).limit(3).to_list()


def frame_in(folder):
    notes = lancedb.connect(folder).create_table("notes", FRAME.assign(vector=embed(FRAME["text"].tolist())))
    return notes.search(embed(["budget"])[0]).limit(3).to_list()


def filter(notes):
    return notes.search(embed(["budget"])[0]).where("year >= 2020").limit(3).to_list()


def hybrid(notes):
    notes.create_fts_index("text")
    return notes.search(query_type="hybrid").vector(embed(["budget"])[0]).text("budget").limit(3).to_list()


async def asynchronous(folder):
    notes = await (await lancedb.connect_async(folder)).open_table("notes")
    return await (await notes.search(embed(["budget"])[0])).limit(3).to_list()


serve = None
"""LanceDB is served only in its cloud."""


def langchain(notes):
    from langchain_core.runnables import RunnableLambda

    return RunnableLambda(lambda query: notes.search(embed([query])[0]).limit(3).to_list()).invoke("budget")


def delete(notes):
    notes.delete("id = 'print'")


def update(notes):
    row = {**NEW, "vector": embed([NEW["text"]])[0]}
    notes.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute([row])


def export(notes, path):
    notes.to_pandas().to_parquet(path)
