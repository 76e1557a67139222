"""A user's script that uses every public name. mypy checks it strictly, and allows no Any in any expression."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas
import polars
from numpy.typing import ArrayLike

from retriever import Answer, AsyncRetriever, Corpus, Document, Hit, Hits, Keys, Retriever, Skipped


def embed(texts: list[str]) -> list[list[float]]:
    return [[float(text.count(letter)) for letter in "abcdefgh"] for text in texts]


class Letters:
    """An encoder of one's own."""

    def encode(self, texts: list[str]) -> ArrayLike:
        return embed(texts)


class Longest:
    """A reranker of one's own."""

    def scores(self, query: str, texts: Sequence[str]) -> ArrayLike:
        return [float(len(text)) for text in texts]


def told(stage: str, done: int, total: int | None, detail: str = "") -> None:
    print(stage, done, total, detail)


def add_frames(notes: Retriever, frame: pandas.DataFrame, other: polars.DataFrame) -> int:
    return notes.add(frame).new + notes.add(other, on_error="stop").new


def use(folder: Path) -> None:
    skipped: list[Skipped] = []
    corpus = Corpus([folder], keys=Keys(text="body", id="name"), include=["*.csv"])
    documents: list[Document] = [one for one in corpus if isinstance(one, Document)]
    documents.append(Document("own", "A text", "A title", {"year": 2020, "tags": ["a", "b"]}, vector=[1.0] * 8))
    with Retriever.build(documents, folder / "c", encoder=embed, transform="none", progress=told) as notes:
        hits: Hits = notes.search("a query", k=3, mode="hybrid", where={"year": 2020}, rerank=Longest(), highlight=True)
        best: Hit | None = hits[0] if hits else None
        if best is not None:
            print(best.rank, best.score, best.relevance, best.id, best.title, best.passage[best.start : best.end])
            print(best.place.file, best.highlight, best.explanation and best.explanation.meaning)
            year = best.metadata["year"]
            print(year + 1 if isinstance(year, int) else 0, best.to_json()["id"])
        frame: pandas.DataFrame = hits.to_pandas()
        other: polars.DataFrame = hits.to_polars()
        print(frame.empty, other.is_empty())
        notes.add([{"id": "1", "text": "a text", "vector": [1.0] * 8}, "another text"])
        answers: list[Answer] = notes.answer_many(["one", "two"], where=["year >= 2020"], explain=True)
        print(answers[0].strange, answers[0].novelty, answers[0].limit, answers[0].note, answers[0].suggestion)
        vectors = notes.query_vectors(["one", "two"])
        print(notes.embed(["one"]).fingerprint)
        print(vectors.shape[0], notes.search_many(vectors=vectors)[0][0].id, notes.search(vector=[1.0] * 8)[0].id)
        print(len(notes), "own" in notes, list(notes), notes.get("own"), notes.document("own").metadata)
        notes.check_filters(["year > 1"])
        print(notes.similar("own", 2, where={"year": 2020})[:1], notes.delete(["own"]), notes.notes(), repr(notes))
        notes.rebuild(transform="whiten", index_type="flat")
        notes.describe(title="Notes", description="What was decided.")
        info = notes.info()
        print(info["documents"], notes.card().name, len(notes.map()), notes.verify(repair=True).problems)
        skipped += notes.report.skipped_list
        print(notes.report.new, [(one.where, one.reason) for one in skipped], notes.encoder().identity.dimension)
        print(notes.export(folder / "notes.parquet", "parquet"), notes.local.name)


async def use_async(folder: Path) -> None:
    async with AsyncRetriever.open(folder / "c", encoder=embed, device="cpu") as notes:
        hits = await notes.search("a query", 5, mode="dense", vector=np.ones(8))
        many = await asyncio.gather(notes.search_many(["a", "b"]), notes.answer_many(["a"]))
        report = await notes.add(["a text"])
        print(
            hits[0].id, many[0][0][0].id, many[1][0].strange, report.new, await notes.count(), await notes.contains("a")
        )
        print([id_ async for id_ in notes], await notes.delete(["a"]), (await notes.similar("own")).to_pandas().empty)
    built = await AsyncRetriever.build(["a", "b"], folder / "d", encoder=Letters())
    await built.close()


if __name__ == "__main__":
    use(Path("collections"))
    asyncio.run(use_async(Path("collections")))
