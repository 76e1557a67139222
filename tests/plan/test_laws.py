"""The laws against real files and collections; no test asserts a time."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rates_made_up import RATES

from indexes.faiss.building import Vectors, build
from indexes.faiss.vectors import unit_rows
from indexes.folder.collection import Collection
from indexes.sqlite.documents import DocumentRow
from retriever.plan.index_trials import TYPES, lists_of
from retriever.plan.laws import Law
from retriever.plan.pages import PAGE, row_bytes, varint, vector_table_bytes
from retriever.plan.rates import Rates

LAW = Law(RATES)
COUNTS = st.integers(1, 10**12)


@pytest.mark.parametrize("index_type", TYPES)
@pytest.mark.parametrize("count", [2000, 50_000])
def test_bytes_of_an_index_are_those_of_its_file(
    index_type: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if index_type == "hnsw" and count > 2000:
        pytest.skip("takes long to build, and is the same at any size")
    law = Law(replace(RATES, fitted=replace(RATES.fitted, dimension=16)))
    rows = unit_rows(np.random.default_rng(0).standard_normal((count, 16), np.float32))
    monkeypatch.setattr("indexes.faiss.building.KMEANS_ROUNDS", 1)
    index, note = build(law.factory(index_type, count), Vectors.of(np.arange(count), rows))
    assert not note
    index.save(tmp_path / "index", tmp_path / "numbers")
    assert law.index_bytes(count, index_type) == pytest.approx((tmp_path / "index").stat().st_size, rel=0.2)


@pytest.mark.parametrize(("dimension", "count"), [(32, 3000), (384, 900), (768, 600), (1024, 300), (2100, 200)])
def test_bytes_of_the_table_of_vectors_are_sqlites(dimension: int, count: int, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((count, dimension), np.float32)
    with Collection.create(tmp_path / "c", {"encoder": {"dimension": dimension}}) as collection, collection.writing():
        collection.store.add_vectors([number.to_bytes(32, "big") for number in range(count)], rows)
        (pages,) = collection.store.db.conn.execute("SELECT sum(pgsize) FROM dbstat WHERE name = 'vectors'").fetchone()
    assert vector_table_bytes(count, dimension) == pytest.approx(pages, rel=0.05, abs=3 * PAGE)


def test_a_vector_more_a_page_where_numbers_are_short() -> None:
    """With 384 dimensions five rows fill a page to the last byte, and a longer number leaves room for four."""
    short, long = vector_table_bytes(16_383, 384) / 16_383, vector_table_bytes(10**6, 384) / 10**6
    assert short == pytest.approx(PAGE / 5, rel=0.02)
    assert 0.9 * PAGE / 4 < long < PAGE / 4


@settings(deadline=None)
@given(st.integers(0, 2**62))
def test_varints(value: int) -> None:
    assert varint(value) == max(1, -(-len(f"{value:b}") // 7)) or value == 0


@settings(deadline=None)
@given(st.integers(1, 100_000), st.integers(1, 9))
def test_no_row_is_larger_than_its_page_or_smaller_than_itself(record: int, number_bytes: int) -> None:
    local, beyond = row_bytes(record, number_bytes)
    assert local <= PAGE - 8
    assert local + beyond >= record


@settings(deadline=None)
@given(COUNTS, st.floats(1, 1000), st.sampled_from(TYPES))
def test_more_documents_never_need_less(documents: int, factor: float, index_type: str) -> None:
    more = documents * factor
    for law in (LAW.build_memory, LAW.search_memory, LAW.disk):
        assert law(more, index_type) >= law(documents, index_type) * (1 - 1e-9)
    few, many = LAW.cpu(documents, index_type), LAW.cpu(more, index_type)
    assert sum(many.values()) >= sum(few.values()) * (1 - 1e-9)
    assert all(many[part] >= value * (1 - 1e-9) for part, value in few.items() if part != "building the index")


@settings(deadline=None)
@given(COUNTS, st.floats(1, 1000))
def test_an_exact_scan_never_gets_quicker(vectors: int, factor: float) -> None:
    assert LAW.exact_ms(vectors * factor) >= LAW.exact_ms(vectors) * (1 - 1e-9)


def test_the_exact_scan_goes_through_what_was_measured() -> None:
    for count, ms in RATES.scans:
        assert LAW.exact_ms(count) == pytest.approx(ms)
    count, ms = RATES.scans[-1]
    assert LAW.exact_ms(10 * count) == pytest.approx(10 * ms)


def test_at_the_size_of_the_rehearsal_the_laws_give_what_was_measured() -> None:
    documents = RATES.stored.documents
    assert LAW.build_cpu(RATES.published.vectors, "flat") == pytest.approx(RATES.published.cpu_seconds)
    assert LAW.build_memory(documents) == max(RATES.published.peak_bytes, RATES.fitted.peak_bytes)
    assert LAW.search_memory(documents) == pytest.approx(RATES.searched.peak_bytes)
    assert LAW.query_ms(RATES.searched.vectors) == pytest.approx(RATES.searched.cpu_ms)


def test_int8_and_fp32_differ_in_encoding_alone() -> None:
    one, other = LAW.cpu(10**6, precision="int8"), LAW.cpu(10**6, precision="fp32")
    assert [part for part in one if one[part] != other[part]] == ["encoding"]


def test_rates_survive_json() -> None:
    assert Rates.from_json(json.loads(json.dumps(RATES.to_json()))) == RATES


def test_lists_of() -> None:
    assert [lists_of(name) for name in ("IVF256,SQ8", "Flat", "HNSW32")] == [256, 0, 0]


def test_bytes_in_sqlite_grow_as_the_second_half_did(tmp_path: Path) -> None:
    """A collection stored for real, planned from its first third."""
    texts = [f"{number} " + "some words of a text " * (1 + number % 5) for number in range(3000)]

    def stored(count: int) -> tuple[dict[str, float], int]:
        folder = tmp_path / str(count)
        with Collection.create(folder, {"encoder": {"dimension": 32}}) as collection, collection.writing():
            hashes = [number.to_bytes(32, "big") for number in range(count)]
            collection.store.add_vectors(hashes, np.ones((count, 32), np.float32))
            collection.store.put_documents(
                DocumentRow(f"d{n:05d}", "", texts[n], {}, bytes(32), f"file:{n:05d}", [(0, len(texts[n]), hashes[n])])
                for n in range(count)
            )
            tables = collection.store.db.conn.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name").fetchall()
        return dict(tables), (folder / "documents.sqlite").stat().st_size

    (half, _), (whole, _), (_, real) = stored(500), stored(1000), stored(3000)
    slopes = {name: (size - half[name]) / 500 for name, size in whole.items() if name != "vectors"}
    fixed = sum(size for name, size in whole.items() if name != "vectors") - 1000 * sum(slopes.values())
    rates = replace(
        RATES,
        encoder={"dimension": 32},
        sample=replace(RATES.sample, documents=1, passages=1, texts=1),
        stored=replace(RATES.stored, bytes=slopes, fixed_bytes=fixed),
        published=replace(RATES.published, fixed_bytes=0),
    )
    assert sum(Law(rates).sqlite(3000).values()) == pytest.approx(real, rel=0.2)
