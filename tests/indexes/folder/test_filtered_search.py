"""Search restricted to some documents: as exact as brute force over them, never too short."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from indexes.checksums import content_hash, metadata_text
from indexes.errors import BadFilter
from indexes.faiss import vectors as vector_indexes
from indexes.faiss.building import Vectors, build
from indexes.faiss.types import IndexRequest
from indexes.faiss.vectors import SCANNED, VectorIndex, unit_rows
from indexes.folder.collection import Collection
from indexes.folder.space import Space
from indexes.generation import Publication
from indexes.rows import Apply, DocumentRow, Match
from indexes.sqlite.conditions import Condition
from indexes.sqlite.filters import parse

COUNT, DIMENSION, K = 20_000, 32, 10
SHARES = [0.001, 0.01, 0.1, 0.5]
EXACT = ["Flat"]
APPROXIMATE = [
    *("SQ8", "HNSW32", "IVF64,Flat", "PCA16,Flat", "PQ8x4", "HNSW32_SQ8", "PCA16,HNSW32", "SQ8,RFlat"),
    pytest.param("PQ8", marks=pytest.mark.slow),
]
NOTHING = np.zeros(0, np.int64)
Rows = NDArray[np.float32]


def random_vectors() -> Rows:
    return unit_rows(np.random.default_rng(0).standard_normal((COUNT, DIMENSION)))


def clustered_vectors() -> Rows:
    rng = np.random.default_rng(1)
    centers = rng.standard_normal((50, DIMENSION))
    return unit_rows(centers[np.arange(COUNT) * 50 // COUNT] + 0.2 * rng.standard_normal((COUNT, DIMENSION)))


DATA = {"random": random_vectors(), "clustered": clustered_vectors()}
QUERIES = {name: unit_rows(v[::250] + 0.1 * v[7::250]) for name, v in DATA.items()}
FEW_QUERIES = QUERIES["clustered"][::10]


@pytest.fixture(scope="module", params=EXACT + APPROXIMATE)
def factory(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=list(DATA))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def index(factory: str, name: str) -> VectorIndex:
    # Numbers with gaps, as after deletions and a compaction.
    numbers = 3 * np.arange(COUNT, dtype=np.int64) + 5
    return build(factory, Vectors.of(numbers, DATA[name]))[0]


def nearest(vectors: Rows, rows: NDArray[np.int64], query: Rows, k: int = K) -> list[int]:
    """Brute force over some rows, in float64."""
    scores = vectors[rows].astype(np.float64) @ query.astype(np.float64)
    return [int(row) for row in rows[np.lexsort((rows, -scores))[:k]]]


def subsets(share: float) -> Iterator[tuple[bool, NDArray[np.int64]]]:
    """Rows spread over all (True), and rows that stand together, in clustered data far from most queries."""
    count = round(share * COUNT)
    yield True, np.sort(np.random.default_rng(2).choice(COUNT, count, replace=False))
    yield False, np.arange(COUNT - count, COUNT)


def recall(index: VectorIndex, name: str, rows: NDArray[np.int64], found: list[NDArray[np.int64]]) -> float:
    """How many of the k nearest among these rows were found, on average."""
    shares = []
    for query, numbers in zip(QUERIES[name], found, strict=True):
        best = index.numbers[nearest(DATA[name], rows, query)]
        shares.append(np.isin(best, numbers).mean())
    return float(np.mean(shares))


@pytest.mark.heavy
@pytest.mark.parametrize("share", SHARES)
def test_recall_against_brute_force(index: VectorIndex, factory: str, name: str, share: float) -> None:
    """1.0 of an exact index, and of any where the allowed are few; else what it is without a filter.

    An approximate index may fall behind that where a filter leaves out all that is near a query.
    """
    everything = np.arange(COUNT)
    unfiltered = recall(index, name, everything, index.search(QUERIES[name], K, NOTHING))
    for spread, rows in subsets(share):
        allowed = index.numbers[rows]
        found = index.search(QUERIES[name], K, NOTHING, allowed)
        for numbers in found:
            assert len(numbers) >= K and np.isin(numbers, allowed).all() and len(np.unique(numbers)) == len(numbers)
        if factory in EXACT or len(rows) <= SCANNED:
            assert recall(index, name, rows, found) == 1.0
        elif spread:
            assert recall(index, name, rows, found) >= unfiltered - 0.08


@pytest.mark.heavy
def test_a_selector_finds_what_the_scan_finds(
    index: VectorIndex, factory: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the scan out of the way, so that FAISS itself must pass over what is not allowed."""
    monkeypatch.setattr(vector_indexes, "SCANNED", 0)
    for share in (0.01, 0.1, 0.5):
        for _, rows in subsets(share):
            allowed = index.numbers[rows]
            excluded = allowed[::5]
            left = np.setdiff1d(allowed, excluded)
            found = index.search(QUERIES[name], K, excluded, allowed)
            for query, numbers in zip(QUERIES[name], found, strict=True):
                assert len(numbers) >= K and np.isin(numbers, left).all()
                if factory in EXACT:
                    best = nearest(DATA[name], np.searchsorted(index.numbers, left), query)
                    assert set(index.numbers[best].tolist()) <= set(numbers.tolist())


@pytest.mark.heavy
def test_many_or_few_left_out_is_the_same(index: VectorIndex, factory: str, name: str) -> None:
    for count in (1, 300, 5000):
        excluded = np.sort(np.random.default_rng(3).choice(index.numbers, count, replace=False))
        rows = np.flatnonzero(~np.isin(index.numbers, excluded))
        for query, numbers in zip(QUERIES[name], index.search(QUERIES[name], K, excluded), strict=True):
            assert len(numbers) >= K and not np.isin(numbers, excluded).any()
            if factory in EXACT:
                assert set(index.numbers[nearest(DATA[name], rows, query)].tolist()) <= set(numbers.tolist())


def test_ties_are_found_to_the_last() -> None:
    """Far more equal vectors than are wanted, half of them allowed, beyond what is scanned."""
    vectors = np.repeat(np.eye(2, DIMENSION, dtype=np.float32), 3 * SCANNED, axis=0)
    numbers = np.arange(len(vectors), dtype=np.int64)
    index, _ = build("Flat", Vectors.of(numbers, vectors))
    (found,) = index.search(vectors[:1], K, NOTHING, numbers[::2])
    assert set(numbers[: 3 * SCANNED : 2].tolist()) <= set(found.tolist())


# ---- a collection --------------------------------------------------------------------------------------------


def identity(vectors: Rows) -> Rows:
    return vectors


def text_hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def find(
    collection: Collection, queries: Rows, k: int, where: list[Condition], *, raw: bool = False
) -> list[list[Match]]:
    """As `retriever.search.searcher` does it: the filter is evaluated in the snapshot of the search."""
    apply: Apply = identity

    def look(space: Space) -> list[list[Match]]:
        space.store.check_fields(where)
        return space.nearest_documents(queries, k, documents=space.store.matching(where) if where else None)

    return collection.in_raw_space(look) if raw else collection.in_space(lambda _: apply, look)


class Library:
    """A collection of documents whose vectors are given, and what brute force finds in it."""

    def __init__(self, folder: Path, factory: str, dimension: int = DIMENSION) -> None:
        self.dimension = dimension
        self.collection = Collection.create(folder, {"encoder": {"dimension": dimension}})
        self.factory = factory
        self.vectors: dict[str, Rows] = {}
        self.documents: dict[str, tuple[dict[str, Any], list[str]]] = {}

    def embed(self, texts: Sequence[str], vectors: Rows) -> None:
        vectors = vectors.astype(np.float16).astype(np.float32)
        self.vectors.update(zip(texts, vectors, strict=True))
        self.collection.store.add_vectors([text_hash(text) for text in texts], vectors)

    def put(self, documents: dict[str, tuple[dict[str, Any], list[str]]]) -> None:
        self.documents.update(documents)
        self.collection.store.put_documents(
            DocumentRow(
                id_,
                "",
                id_,
                metadata,
                content_hash("", id_, metadata_text(metadata)),
                "here",
                [(0, 1, text_hash(text)) for text in texts],
            )
            for id_, (metadata, texts) in documents.items()
        )

    def delete(self, ids: Sequence[str]) -> None:
        self.collection.store.delete_documents(ids)
        for id_ in ids:
            del self.documents[id_]

    def publish(self) -> None:
        encoder = {"encoder": {"dimension": self.dimension}}
        self.collection.publish(
            Publication(identity, self.dimension, IndexRequest(self.factory), lambda _: [], encoder, {})
        )

    def search(self, queries: Rows, k: int, *filters: str, raw: bool = False) -> list[list[tuple[str, float]]]:
        where = [parse(text) for text in filters]
        matches = find(self.collection, queries, k, where, raw=raw)
        return [[(match.document["id"], match.score) for match in own] for own in matches]

    def expected(self, queries: Rows, k: int, passes: Any) -> list[list[tuple[str, float]]]:
        """By comparing each query with each passage of each document that passes; ties by arrival."""
        ids = [id_ for id_, (metadata, texts) in self.documents.items() if texts and passes(metadata)]
        owner = np.array([place for place, id_ in enumerate(ids) for _ in self.documents[id_][1]], np.int64)
        texts = [text for id_ in ids for text in self.documents[id_][1]]
        units = unit_rows(np.stack([self.vectors[text] for text in texts])).astype(np.float64) if ids else None
        results = []
        for query in queries:
            best = np.full(len(ids), -np.inf)
            if units is not None:
                np.maximum.at(best, owner, units @ unit_rows(query[None])[0].astype(np.float64))
            order = sorted(range(len(ids)), key=lambda place: (-best[place], place))[:k]
            results.append([(ids[place], float(best[place])) for place in order])
        return results


def assert_same(found: list[list[tuple[str, float]]], expected: list[list[tuple[str, float]]]) -> None:
    for own, other in zip(found, expected, strict=True):
        assert [id_ for id_, _ in own] == [id_ for id_, _ in other]
        assert np.allclose([score for _, score in own], [score for _, score in other], atol=1e-6)


@pytest.fixture(scope="module", params=["Flat", "SQ8", "HNSW32", "PQ8x4"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """20,000 vectors: published, changed and added to since; some texts stand in two documents."""
    library = Library(tmp_path_factory.mktemp("library") / "c", request.param)
    rng = np.random.default_rng(4)
    texts = [f"text {number}" for number in range(COUNT)]
    published = COUNT - 2000
    chance = rng.random(COUNT)

    def document(number: int) -> tuple[dict[str, Any], list[str]]:
        # Every third document has the text of the one before it as a second passage.
        own = [texts[number], texts[number - 1]] if number % 3 == 2 else [texts[number]]
        return {"chance": float(chance[number]), "parity": "odd" if number % 2 else "even"}, own

    with library.collection.writing():
        library.embed(texts[:published], DATA["clustered"][:published])
        library.put({f"d{number}": document(number) for number in range(published)})
        library.publish()
        library.embed(texts[published:], DATA["clustered"][published:])
        library.put({f"d{number}": document(number) for number in range(published, COUNT)})
        library.delete([f"d{number}" for number in range(0, COUNT, 11)])
    yield library
    library.collection.close()


@pytest.mark.heavy
@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("share", SHARES)
def test_a_collection_against_brute_force(library: Library, share: float, raw: bool) -> None:
    queries = FEW_QUERIES
    found = library.search(queries, K, f"chance < {share}", raw=raw)
    expected = library.expected(queries, K, lambda metadata: metadata["chance"] < share)
    if raw or library.factory == "Flat" or share < 0.5:
        assert_same(found, expected)
    assert [len(own) for own in found] == [K] * len(queries)


@pytest.mark.heavy
@pytest.mark.parametrize("raw", [False, True])
def test_only_one_of_two_documents_that_share_a_text_passes(library: Library, raw: bool) -> None:
    queries = np.stack([library.vectors[f"text {number}"] for number in (13, 14, 19_999, 19_996)])
    for parity in ("odd", "even"):
        found = library.search(queries, 3, f"parity = {parity}", "chance < 0.4", raw=raw)
        passes = lambda m, parity=parity: m["parity"] == parity and m["chance"] < 0.4  # noqa: E731
        assert_same(found, library.expected(queries, 3, passes))


@pytest.mark.heavy
def test_fewer_than_asked_and_none_at_all(library: Library) -> None:
    queries = FEW_QUERIES
    few = sorted(metadata["chance"] for metadata, _ in library.documents.values())[3]
    for raw in (False, True):
        found = library.search(queries, K, f"chance <= {few!r}", raw=raw)
        assert [len(own) for own in found] == [4] * len(queries)
        assert_same(found, library.expected(queries, K, lambda metadata: metadata["chance"] <= few))
        assert library.search(queries, K, "chance > 2", raw=raw) == [[]] * len(queries)
        assert library.search(queries, K, "parity = odd", "parity = even", raw=raw) == [[]] * len(queries)
        with pytest.raises(BadFilter, match="did you mean 'parity'"):
            library.search(queries, K, "party = odd", raw=raw)


@pytest.mark.heavy
def test_all_that_pass_come_in_the_order_of_the_whole(library: Library) -> None:
    """A filter that everything passes changes nothing, and one on top of a full ranking only leaves out."""
    queries = FEW_QUERIES[:2]
    assert library.search(queries, 50, "chance >= 0") == library.search(queries, 50)
    everything = library.search(queries, COUNT)
    some = library.search(queries, COUNT, "chance < 0.02")
    passing = {id_ for id_, (metadata, _) in library.documents.items() if metadata["chance"] < 0.02}
    assert [[id_ for id_, _ in own] for own in some] == [
        [id_ for id_, _ in own if id_ in passing] for own in everything
    ]


def test_a_filter_sees_what_was_written_last(tmp_path: Path) -> None:
    library = Library(tmp_path / "c", "Flat")
    with library.collection.writing():
        library.embed(["a", "b"], DATA["random"][:2])
        library.put({"one": ({"lang": "en"}, ["a"]), "two": ({"lang": "de"}, ["b"])})
        library.publish()
    query = DATA["random"][:1]
    with Collection.open(tmp_path / "c") as reader:

        def found() -> list[str]:
            return [match.document["id"] for match in find(reader, query, 5, [parse("lang = en")])[0]]

        assert found() == ["one"]
        with library.collection.writing():
            library.put({"two": ({"lang": "en"}, ["b"]), "one": ({"lang": "fr"}, ["a"])})
        assert found() == ["two"]
        with library.collection.writing():
            library.delete(["two"])
        with pytest.raises(BadFilter, match="'language'"):
            find(reader, query, 5, [parse("language = en")])
        assert found() == []
    library.collection.close()


def test_equal_vectors_score_equal_wherever_they_stand(tmp_path: Path) -> None:
    library = Library(tmp_path / "c", "Flat", 384)
    one, other = np.random.default_rng(5).standard_normal((2, 1, 384)).astype(np.float32)
    texts = [str(number) for number in range(39)]
    with library.collection.writing():
        library.embed(texts, np.repeat(one, len(texts), axis=0))
        library.put({text: ({"n": int(text)}, [text]) for text in texts})
        library.publish()
    scores = set()
    for filters in ([], ["n > 5"], ["n > 5", "n < 9"], ["n = 30"]):
        (found,) = library.search(other, len(texts), *filters)
        scores |= {score for _, score in found}
        assert [int(id_) for id_, _ in found] == sorted(int(id_) for id_, _ in found)
    assert len(scores) == 1
    library.collection.close()
