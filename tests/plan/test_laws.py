"""The laws against real files and made-up rates; no test asserts a time."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rates_made_up import RATES

from indexes.faiss.building import Vectors, build
from indexes.faiss.vectors import unit_rows
from indexes.folder.collection import Collection
from indexes.rows import DocumentRow
from retriever.plan.laws import BUILDING, EMBEDDING, FITTING, START, Law, Measured, Rates, lists_of

LAW = Law(RATES)
TYPES = ("flat", *RATES.trials)
COUNTS = st.integers(1, 10**12)


@pytest.mark.parametrize("index_type", TYPES)
@pytest.mark.parametrize("count", [2000, 50_000])
def test_bytes_of_an_index_are_those_of_its_file(
    index_type: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if index_type == "hnsw" and count > 2000:
        pytest.skip("takes long to build, and is the same at any size")
    law = Law(replace(RATES, dimension=16))
    rows = unit_rows(np.random.default_rng(0).standard_normal((count, 16), np.float32))
    monkeypatch.setattr("indexes.faiss.building.KMEANS_ROUNDS", 1)
    index, note = build(law.factory(index_type, count), Vectors.of(np.arange(count), rows))
    assert not note
    index.save(tmp_path / "index", tmp_path / "numbers")
    assert law.index_bytes(count, index_type) == pytest.approx((tmp_path / "index").stat().st_size, rel=0.2)


@settings(deadline=None)
@given(COUNTS, st.floats(1, 1000), st.sampled_from(TYPES))
def test_more_documents_never_need_less(documents: int, factor: float, index_type: str) -> None:
    more = documents * factor
    for law in (LAW.build_memory, LAW.search_memory, LAW.disk):
        assert law(more, index_type) >= law(documents, index_type) * (1 - 1e-9)
    few, many = LAW.cpu(documents, index_type), LAW.cpu(more, index_type)
    assert sum(many.values()) >= sum(few.values()) * (1 - 1e-9)
    assert all(many[part] >= value * (1 - 1e-9) for part, value in few.items() if part != BUILDING)


@settings(deadline=None)
@given(COUNTS, st.floats(1, 1000))
def test_a_flat_scan_never_gets_quicker(vectors: int, factor: float) -> None:
    assert LAW.query_ms(vectors * factor) >= LAW.query_ms(vectors) * (1 - 1e-9)


def test_the_flat_scan_goes_through_the_measurements() -> None:
    constant = LAW.query_ms(0)
    for count, ms in RATES.scans:
        assert LAW.query_ms(count) == pytest.approx(constant + ms)
    count, ms = RATES.scans[-1]
    assert LAW.query_ms(10 * count) == pytest.approx(constant + 10 * ms)


def test_at_the_size_of_the_rehearsal_the_laws_give_what_was_measured() -> None:
    small, large = RATES.small, RATES.large
    assert LAW.cpu(large.documents) == pytest.approx(
        {START: 3.5, EMBEDDING: 8.1 + 4000 * RATES.read_cpu, FITTING: 5.8, BUILDING: 0.04}
    )
    assert LAW.cpu(small.documents)[EMBEDDING] == pytest.approx(2.1 + 1000 * RATES.read_cpu)
    assert LAW.sqlite_bytes(small.documents) == pytest.approx(small.sqlite_bytes)
    assert LAW.sqlite_bytes(large.documents) == pytest.approx(large.sqlite_bytes)
    assert LAW.build_memory(small.documents) == pytest.approx(RATES.build_peak_bytes)
    assert LAW.search_memory(large.documents) == pytest.approx(RATES.search_peak_bytes)
    assert LAW.query_ms(large.vectors) == pytest.approx(RATES.query_ms)


@pytest.mark.parametrize("index_type", list(RATES.trials))
def test_a_type_costs_at_the_size_of_the_rehearsal_what_was_measured(index_type: str) -> None:
    trial = RATES.trials[index_type]
    rates = replace(RATES, trials={index_type: replace(trial, factory=LAW.factory(index_type, RATES.large.vectors))})
    law, vectors = Law(rates), RATES.large.vectors
    assert law.build_cpu(vectors, index_type) == pytest.approx(
        max(trial.build_cpu, law.build_cpu(0, index_type)), rel=1
    )
    assert law.query_ms(vectors, index_type) - law.query_ms(0) == pytest.approx(trial.query_ms)


def test_a_line_through_two_sizes() -> None:
    """Ten documents more cost ten times what one of the 3,000 between the two collections cost."""
    each = (RATES.large.cpu[EMBEDDING] - RATES.small.cpu[EMBEDDING]) / 3000 + RATES.read_cpu
    more = LAW.cpu(1_000_010)[EMBEDDING] - LAW.cpu(1_000_000)[EMBEDDING]
    assert more == pytest.approx(10 * each, rel=1e-3)


def test_a_line_never_falls() -> None:
    """Measurements of a busy machine may say that more documents cost less."""
    noisy = replace(RATES, small=replace(RATES.small, cpu={**RATES.small.cpu, EMBEDDING: 9.0}))
    assert Law(noisy).cpu(10**6)[EMBEDDING] == pytest.approx(8.1 + 10**6 * RATES.read_cpu)


def test_hnsw_grows_with_the_logarithm() -> None:
    vectors, constant = RATES.large.vectors, LAW.query_ms(0)
    assert LAW.query_ms(vectors**2, "hnsw") - constant == pytest.approx(2 * RATES.trials["hnsw"].query_ms)


def test_a_scan_of_codes_costs_as_much_as_a_flat_scan_of_as_many_bytes() -> None:
    more, constant = 4 * 10**6, LAW.query_ms(0)
    flat = LAW.query_ms(10**6) - constant  # sq8 has a quarter of the bytes
    before = LAW.query_ms(RATES.large.vectors / 4) - constant
    assert LAW.query_ms(more, "sq8") - constant == pytest.approx(RATES.trials["sq8"].query_ms + flat - before)


def test_rates_survive_json() -> None:
    assert Rates.from_json(json.loads(json.dumps(asdict(RATES)))) == RATES


def test_lists_of() -> None:
    assert [lists_of(name) for name in ("IVF256,SQ8", "Flat", "HNSW32")] == [256, 0, 0]


def test_bytes_in_sqlite_follow_the_line(tmp_path: Path) -> None:
    """A real database of 3,000 documents, predicted from those of 500 and 1,000."""
    texts = [f"{number} " + "some words of a text " * (1 + number % 5) for number in range(3000)]

    def stored(count: int) -> int:
        folder = tmp_path / str(count)
        with Collection.create(folder, {"encoder": {"dimension": 32}}) as collection, collection.writing():
            hashes = [number.to_bytes(32, "big") for number in range(count)]
            collection.store.add_vectors(hashes, np.ones((count, 32), np.float32))
            collection.store.put_documents(
                DocumentRow(f"d{n:05d}", "", texts[n], {}, bytes(32), f"file:{n:05d}", [(0, len(texts[n]), hashes[n])])
                for n in range(count)
            )
        return (folder / "documents.sqlite").stat().st_size

    small, large = (Measured(count, count, count, stored(count), {}) for count in (500, 1000))
    law = Law(replace(RATES, small=small, large=large))
    assert law.sqlite_bytes(3000) == pytest.approx(stored(3000), rel=0.2)


def test_a_source_whose_ids_repeat() -> None:
    """Both collections of the rehearsal may then have the same documents."""
    law = Law(replace(RATES, small=RATES.large))
    assert law.sqlite_bytes(10**6) == RATES.large.sqlite_bytes
