"""The ten tasks here. `notes` is an open retriever."""

from retriever import AsyncRetriever, Retriever
from ten_tasks import DOCUMENTS, FRAME, NEW, embed


def own_vectors(folder):
    notes = Retriever.build(DOCUMENTS, folder, encoder=embed)
    return notes.search("budget", 3)


def frame_in(folder):
    notes = Retriever.build(FRAME, folder, encoder=embed)
    return notes.search("budget", 3)


def filter(notes):
    return notes.search("budget", 3, where=["year >= 2020"])


def hybrid(notes):
    return notes.search("budget", 3, mode="hybrid")


async def asynchronous(notes):
    return await AsyncRetriever(notes).search("budget", 3)


def serve(folder):
    return ["retriever", "serve", folder]


def langchain(notes):
    from retriever.integrations.langchain import CollectionRetriever

    return CollectionRetriever(retriever=notes, k=3).invoke("budget")


def delete(notes):
    notes.delete(["print"])


def update(notes):
    notes.add([NEW])


def export(notes, path):
    notes.export(path)
