"""Odd documents and generated corpora, in a folder and in Milvus beside each other: the same hits."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from milvus_places import shown
from numpy.typing import NDArray

from indexes.checksums import content_hash, metadata_text
from indexes.faiss.types import IndexRequest
from indexes.folder.collection import Collection
from indexes.generation import Publication
from indexes.milvus.collection import MilvusCollection
from indexes.protocol import AnyCollection
from indexes.rows import DocumentRow
from indexes.sqlite.conditions import Condition
from retriever import Document, Retriever

DIMENSION = 8
ENCODER = {"name": "made-up", "dimension": DIMENSION, "pooling": "mean", "max_length": 128, "fingerprint": "0" * 64}
Metadata = dict[str, Any]
Texts = dict[str, tuple[Metadata, list[str]]]
Found = list[list[tuple[str, float, int, int, Metadata, str]]]


def vector_of(text: str) -> NDArray[np.float32]:
    """A few directions for many texts, so that there are ties, and others that differ in the last bits."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
    rng = np.random.default_rng(seed % 7)
    vector = rng.standard_normal(DIMENSION)
    if seed % 3:
        vector += np.random.default_rng(seed).standard_normal(DIMENSION) * 10.0 ** -(seed % 5)
    return vector.astype(np.float16).astype(np.float32)


def unchanged(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    return vectors


class Shelf:
    """A collection without an encoder, wherever it lies."""

    def __init__(self, collection: AnyCollection) -> None:
        self.collection = collection
        collection.apply_of = lambda generation: unchanged

    def put(self, documents: Texts) -> None:
        rows = []
        for id_, (metadata, texts) in documents.items():
            whole = "".join(texts)
            ends = np.cumsum([len(text) for text in texts]).tolist()
            passages = [
                (end - len(text), end, hashlib.sha256(text.encode()).digest())
                for text, end in zip(texts, ends, strict=True)
            ]
            expected = content_hash(id_[:9], whole, metadata_text(metadata))
            rows.append(DocumentRow(id_, id_[:9], whole, metadata, expected, "here", passages))
        different = list({text: None for _, texts in documents.values() for text in texts})
        hashes = [hashlib.sha256(text.encode()).digest() for text in different]
        with self.collection.writing():
            if different:
                self.collection.store.add_vectors(hashes, np.stack([vector_of(text) for text in different]))
            self.collection.store.put_documents(rows)

    def publish(self, kind: str = "flat") -> None:
        facts = {"encoder": ENCODER, "transform": {"fingerprint": "none"}, "made_by": "a test", "asked": "none"}
        with self.collection.writing():
            self.collection.publish(Publication(unchanged, DIMENSION, IndexRequest(kind), lambda folder: [], facts, {}))

    def search(self, queries: NDArray[np.float32], k: int, where: list[Condition], *, raw: bool = False) -> Found:
        def look(space: Any) -> Found:
            allowed = space.store.matching(where) if where else None
            return [
                [
                    (
                        m.document["id"],
                        m.score,
                        m.passage.start,
                        m.passage.end,
                        m.document["metadata"],
                        m.document["text"],
                    )
                    for m in own
                ]
                for own in space.nearest_documents(queries, k, documents=allowed)
            ]

        if raw:
            return self.collection.in_raw_space(look)
        return self.collection.in_space(lambda generation: unchanged, look)

    def similar(self, id_: str, k: int) -> list[tuple[str, float]]:
        def look(space: Any) -> list[tuple[str, float]]:
            number = space.store.document_number(id_)
            return [(match.document["id"], match.score) for match in space.similar_documents(number, k)]

        return self.collection.in_space(lambda generation: unchanged, look)


Pair = tuple[Shelf, Shelf]


def pair_in(folder: Path) -> Pair:
    created = {"encoder": ENCODER, "transform": "none", "index_type": "flat"}
    shelves = (
        Shelf(Collection.create(folder / "c", created)),
        Shelf(MilvusCollection.create(f"milvus:{folder / 'm.db'}", created)),
    )
    for shelf in shelves:
        shelf.put({"first": ({"a": 1}, ["first"])})
        shelf.publish()
    return shelves


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two collections with an exact index, emptied and filled again for each example."""
    shelves = pair_in(tmp_path_factory.mktemp("pair"))
    yield shelves
    for shelf in shelves:
        shelf.collection.close()


def assert_same(one: Found, other: Found) -> None:
    for own, their in zip(one, other, strict=True):
        assert [(hit[0], *hit[2:]) for hit in own] == [(hit[0], *hit[2:]) for hit in their]
        np.testing.assert_allclose([hit[1] for hit in own], [hit[1] for hit in their], atol=1e-6)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([2**53 + 1, 10**30, 1e300, 0.5])
    | st.sampled_from(["", "x", "é", "2", "true", '" or 1 == 1', "a\0b", "\\", "x" * 70_000])
    | st.text(max_size=4)
)
VALUES = SCALARS | st.lists(SCALARS | st.just({"b": 2}), max_size=3) | st.dictionaries(st.sampled_from("ab"), SCALARS)
METADATA = st.dictionaries(st.sampled_from(["a", "b", "a.b", "a b", '"]']), VALUES, max_size=3)
ALPHABET = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
IDS = st.sampled_from(["a", "b", "é", "x" * 70_000, " ", "a b", "'; --", "\n", "🦉", "9" * 600]) | st.text(
    ALPHABET, min_size=1, max_size=3
)
PASSAGES = st.sampled_from(["one", "two", "the same", "é𝒳", "\0nul", "x" * 40_000, "𝒳" * 17_000]) | st.text(
    min_size=1, max_size=5
)
TEXTS = st.dictionaries(IDS, st.tuples(METADATA, st.lists(PASSAGES, min_size=1, max_size=4)), min_size=1, max_size=8)


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    field = draw(st.sampled_from(["a", "b", "a.b", "a b", '"]']))
    symbol = draw(st.sampled_from(["=", "!=", "in", "<", "<=", ">", ">="]))
    literals = SCALARS.filter(lambda v: not isinstance(v, str) or ("\0" not in v and len(v) < 99))
    if symbol == "in":
        return Condition(field, symbol, tuple(draw(st.lists(literals, min_size=1, max_size=3))))
    if symbol not in ("=", "!="):
        literals = literals.filter(lambda v: v is not None and not isinstance(v, bool))
    return Condition(field, symbol, (draw(literals),))


def compare(pair: Pair, before: Texts, after: Texts, asked: list[Condition], k: int) -> None:
    for shelf in pair:
        store = shelf.collection.store
        with shelf.collection.writing():
            store.start_run()
            store.delete_documents([id_ for id_, _ in store.not_met()])
        shelf.put(before)
        shelf.put(after)
        with shelf.collection.writing():
            store.delete_documents([*before][::3])
    queries = np.stack([vector_of(text) for text in ("one", "the same", "another")])
    for where in ([], *([condition] for condition in asked), asked):
        for raw in (False, True):
            assert_same(*(shelf.search(queries, k, where, raw=raw) for shelf in pair))
    there = [id_ for id_ in {**before, **after} if pair[0].collection.store.document_number(id_) is not None]
    for id_ in there[:3]:
        folder, milvus = (shelf.similar(id_, k) for shelf in pair)
        assert [own for own, _ in folder] == [own for own, _ in milvus]
    counts = [[shelf.collection.store.count(table) for table in ("documents", "passages")] for shelf in pair]
    assert counts[0] == counts[1]


@given(TEXTS, TEXTS, st.lists(conditions(), min_size=1, max_size=4), st.integers(1, 9))
@settings(max_examples=10, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None)
def test_generated_corpora_and_filters(pair: Pair, before: Texts, after: Texts, asked: list[Condition], k: int) -> None:
    compare(pair, before, after, asked, k)


@pytest.mark.torture
@pytest.mark.timeout(1800)
@given(TEXTS, TEXTS, st.lists(conditions(), min_size=1, max_size=4), st.integers(1, 9))
@settings(max_examples=150, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None)
def test_generated_corpora_and_filters_at_length(
    pair: Pair, before: Texts, after: Texts, asked: list[Condition], k: int
) -> None:
    compare(pair, before, after, asked, k)


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_more_than_milvus_gives_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """With its limits made small: many passages of one document, many documents of one text, more hits than rows."""
    for module in ("client", "space"):
        monkeypatch.setattr(f"indexes.milvus.{module}.MAX_ROWS", 40)
    folder, milvus = pair = pair_in(tmp_path)
    documents: Texts = {
        "many": ({"n": 0}, [f"passage {number}" for number in range(100)]),
        **{f"same{number}": ({"n": number}, ["the same"]) for number in range(1, 70)},
        **{f"other{number}": ({"n": number}, [f"other {number}"]) for number in range(1, 70)},
    }
    for shelf in pair:
        shelf.put(documents)
    if kind != "flat":
        milvus.publish(kind)
    queries = np.stack([vector_of(text) for text in ("passage 7", "the same", "other 3")])
    for k in (1, 10, 50, 200):
        for where in ([], [Condition("n", "<", (5,))], [Condition("n", ">=", (60,))]):
            for raw in (False, True):
                expected, found = (shelf.search(queries, k, where, raw=raw) for shelf in pair)
                if kind == "flat" or raw:
                    assert_same(expected, found)
                assert [len(own) for own in found] == [len(own) for own in expected]
    assert folder.similar("many", 20) and len(milvus.similar("many", 20)) == 20
    stands_for = [shelf.collection.store.passages_of_vectors([*range(1, 200)]) for shelf in pair]
    assert stands_for[0] == stands_for[1]
    for shelf in pair:
        shelf.collection.close()


ODD: list[Document] = [
    Document("a b\tc", "An id with spaces."),
    Document("x" * 100_000, "An id of a hundred kilobytes.", metadata={"kind": "id"}),
    Document("big", "Word after word. " * 5000, "A title " * 9000, {"kind": "big", "list": ["y" * 50_000] * 3}),
    Document("nul", "A NUL in its metadata.", "Title", {"ki\0nd": "n\0ul", "kind": "nul"}),
    Document("lines", "\n\n\tText\r\nwith lines\u2028and more\n", "\n", {}),
    Document("emoji", "🦉🦉🦉 " * 6000, "🦉", {"🦉": "🦉", "kind": "🦉"}),
    Document('"] or 1 == 1', "' or 1 == 1; drop", '"""', {"a.b": 1, "a": {"b": [1, [2], {"c": None}]}, "kind": "\\"}),
    Document("numbers", "Numbers.", metadata={"huge": 10**300, "small": 5e-324, "int": -(2**63), "kind": 1.0}),
    Document("deep", "Deep.", metadata={"a": {"b": {"c": {"d": [{"e": "f"}] * 50}}}, "kind": ["x", None, True]}),
    Document("empty", "No metadata at all."),
]


def odd_jobs(place: str, encoder: str) -> list[Any]:
    told: list[Any] = []
    with Retriever.build(ODD, place, encoder=encoder, transform="none", precision="fp32") as retriever:
        told.append(retriever.verify().problems)
    with Retriever.open(place) as retriever:
        for document in ODD:
            found = retriever.document(document.id)
            assert (found.text, found.title, found.metadata) == (document.text, document.title, document.metadata)
        where = ["kind = big", "kind = '🦉'", "kind = nul", r"kind = '\\'", "kind = 1", "a.b.c.d.e = f", "huge > 1e200"]
        ask: list[Callable[[], Any]] = [
            lambda: retriever.search("owl", 20, mode="dense"),
            *((lambda w=w: retriever.search("owl", 20, where=[w], mode="dense")) for w in where),
            *((lambda d=d: retriever.similar(d.id, 5)) for d in ODD),
        ]
        told += [[(hit.id, round(hit.score, 5), hit.start, hit.end) for hit in one()] for one in ask]
        assert retriever.delete([document.id for document in ODD[::2]]) == [document.id for document in ODD[::2]]
        told += [len(retriever), retriever.verify().problems, shown(retriever.search("owl", 20, mode="dense"))]
    return told


def test_odd_documents_come_back_as_they_were(tmp_path: Path, tiny_bert: str, lite: str) -> None:
    assert odd_jobs(lite, tiny_bert) == odd_jobs(str(tmp_path / "c"), tiny_bert)


def test_what_milvus_cannot_hold_is_skipped_and_told(tmp_path: Path, tiny_bert: str, lite: str) -> None:
    from retriever.errors import Misuse
    from retriever.transfer.copy import copy

    documents = [Document("good", "Good."), Document("bad", "Bad.", metadata={"all": [*range(9000)]})]
    with Retriever.build(documents, lite, encoder=tiny_bert, transform="none", precision="fp32") as retriever:
        assert (retriever.report.skipped, len(retriever)) == (1, 1)
        assert "Milvus can store only 4,096" in retriever.report.skipped_list[0].reason
    Retriever.build(documents, tmp_path / "c", encoder=tiny_bert, transform="none", precision="fp32").close()
    with pytest.raises(Misuse, match="document 'bad' .* cannot be stored in"):
        copy(tmp_path / "c", f"{lite}#copy")
