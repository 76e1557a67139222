"""The map of a collection: neighbours stay neighbours, groups have names, and a damaged cache is made again."""

import io
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from retriever import Retriever
from retriever.corpus.python_docs import stdlib_documents
from retriever.maps import layout, mapping
from retriever.maps.map import Map
from retriever.maps.topics import groups, labels

Build = Callable[..., Retriever]


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> Path:
    """No map is known when a test begins; exported encoders are."""
    folder = tmp_path / "cache" / "flow-retriever"
    folder.mkdir(parents=True)
    for known in own_cache.iterdir() if own_cache.is_dir() else ():
        if known.name != "maps":
            (folder / known.name).symlink_to(known)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder / "maps"


def texts(count: int) -> list[dict[str, Any]]:
    topics = ("cats purr and hunt mice", "engines burn fuel and turn wheels", "stars shine in distant galaxies")
    return [
        {"id": f"d{n}", "title": f"Title {n}", "text": f"{topics[n % 3]}, as number {n} says"} for n in range(count)
    ]


@pytest.fixture
def build(tiny_bert: str, tmp_path: Path) -> Build:
    def made(documents: list[dict[str, Any]], **options: Any) -> Retriever:
        options = {"encoder": tiny_bert, "transform": "whiten", "precision": "fp32"} | options
        return Retriever.build(documents, tmp_path / "collection", **options)

    return made


def check_whole(found: Map, retriever: Retriever) -> None:
    count = len(retriever)
    assert len(found) == count == sum(one.documents for one in found.clusters)
    assert found.x.shape == found.y.shape == found.cluster.shape == (count,)
    assert found.x.dtype == found.y.dtype == np.uint16 and found.cluster.dtype == np.uint8
    stored = retriever.collection.store.documents(found.numbers.tolist())
    assert len(stored) == count
    for place, number in enumerate(found.numbers.tolist()):
        assert found.point_of(number) == place
    assert found.point_of(10**9) is None


@pytest.mark.parametrize("count", [1, 2, 5, 11, 40])
def test_collections_of_every_size(count: int, build: Build) -> None:
    with build(texts(count)) as retriever:
        found = retriever.map()
        check_whole(found, retriever)
        assert len(set(zip(found.x.tolist(), found.y.tolist(), strict=True))) == count
        assert all(one.label for one in found.clusters)
        assert (found.kept.measured_on == 0) == (count == 1)


def test_nothing_left(build: Build) -> None:
    with build(texts(3)) as retriever:
        retriever.delete(["d0", "d1", "d2"])
        found = retriever.map()
        check_whole(found, retriever)
        assert found.clusters == () and found.kept.within_10 is None


@pytest.mark.parametrize("count", [4, 60])
def test_documents_that_are_all_the_same(count: int, build: Build) -> None:
    same = [{"id": str(n), "text": "the very same words"} for n in range(count)]
    with build(same, transform="none") as retriever:
        found = retriever.map()
        check_whole(found, retriever)
        assert [one.label for one in found.clusters] == ["same, the, very"]


def test_the_same_again_and_from_the_cache(build: Build, empty_cache: Path) -> None:
    stages: list[str] = []
    with build(texts(60)) as retriever:
        first = retriever.map(lambda stage, done, total, detail="": stages.append(stage))
        assert list(dict.fromkeys(stages)) == ["reading", "laying out", "naming"]
        stages.clear()
        assert retriever.map(lambda stage, done, total, detail="": stages.append(stage)).key == first.key
        assert not stages
        (file,) = empty_cache.iterdir()
        file.unlink()
        again = retriever.map()
    assert again.key == first.key and again.clusters == first.clusters and again.kept == first.kept


def _facts(file: Path, **changed: Any) -> bytes:
    with np.load(file) as found:
        arrays = dict(found)
    facts = json.loads(arrays.pop("facts").tobytes()) | {k: v for k, v in changed.items() if k not in arrays}
    arrays |= {key: value for key, value in changed.items() if key in arrays}
    data = io.BytesIO()
    np.savez(data, facts=np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays)
    return data.getvalue()


DAMAGES: dict[str, Callable[[Path], bytes]] = {
    "empty": lambda file: b"",
    "no archive": lambda file: b"nonsense",
    "cut off": lambda file: file.read_bytes()[:-300],
    "bytes changed": lambda file: file.read_bytes()[:200] + b"\0" * 40 + file.read_bytes()[240:],
    "another version": lambda file: _facts(file, format=99),
    "of another generation": lambda file: _facts(file, generation="0" * 64),
    "points of another number": lambda file: _facts(file, x=np.zeros(3, np.uint16)),
    "pickled": lambda file: _facts(file, x=np.array([{}] * 60, object)),
    "a cluster that is not there": lambda file: _facts(file, clusters=[]),
    "clusters that are none": lambda file: _facts(file, clusters=[1, 2]),
    "no quality": lambda file: _facts(file, kept=None),
}


def test_a_damaged_file_is_made_again(build: Build, empty_cache: Path) -> None:
    with build(texts(60)) as retriever:
        first = retriever.map()
        (file,) = empty_cache.iterdir()
        whole = file.read_bytes()
        for name, damage in DAMAGES.items():
            file.write_bytes(whole)
            file.write_bytes(damage(file))
            assert retriever.map().key == first.key, name
            assert np.load(file)["x"].tolist() == first.x.tolist(), name


def test_a_cache_that_cannot_be_written(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with build(texts(12)) as retriever:
        (tmp_path / "file").write_text("in the way")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        check_whole(retriever.map(), retriever)


def test_changed_documents_are_placed_and_the_others_stay(build: Build) -> None:
    with build(texts(60)) as retriever:
        before = retriever.map()
        generation = retriever.info()["index"]["generation"]
        retriever.add([texts(4)[3] | {"id": "new"}, texts(6)[5] | {"id": "d1"}])
        retriever.delete(["d59"])
        assert retriever.info()["index"]["generation"] == generation
        after = retriever.map()
        check_whole(after, retriever)
        assert after.key != before.key and after.placed == 2 and after.generation == before.generation
        store = retriever.collection.store
        unchanged = [store.document_number(f"d{n}") for n in range(59) if n != 1]
        for number in unchanged:
            old, new = before.point_of(number or 0), after.point_of(number or 0)
            assert old is not None and new is not None
            assert (before.x[old], before.y[old]) == (after.x[new], after.y[new])
        for changed, like in (("new", "d3"), ("d1", "d5")):  # the same words, so nearly the same place
            one, other = (after.point_of(store.document_number(id_) or 0) for id_ in (changed, like))
            assert one is not None and other is not None
            assert np.hypot(*(float(p[one]) - float(p[other]) for p in (after.x, after.y))) < 0.1 * mapping.SIDE
        retriever.rebuild(transform="none")
        assert retriever.map().placed == 0 and retriever.map().generation != before.generation


def test_when_most_has_changed_it_is_laid_out_again(build: Build) -> None:
    with build(texts(20)) as retriever:
        retriever.map()
        retriever.add([{"id": f"e{n}", "text": f"something new, {n}"} for n in range(30)])
        found = retriever.map()
        check_whole(found, retriever)
        assert found.placed == 0


def test_of_many_a_choice_is_laid_out_and_the_rest_placed(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping, "LAID_OUT", 150)
    monkeypatch.setattr(mapping, "READ_TOGETHER", 64)
    with build(texts(400)) as retriever:
        found = retriever.map()
        check_whole(found, retriever)
        assert found.placed == 250 and found.kept.measured_on == 400
        assert found.kept.within_50 is not None and found.kept.within_50 > 0.3


def independent_share(vectors: NDArray[np.float64], places: NDArray[np.float64], within: int) -> float:
    """How many of the ten nearest by cosine are among so many nearest on the plane, by sorting everything."""
    cosines = vectors @ vectors.T
    far = ((places[:, None, :] - places[None, :, :]) ** 2).sum(axis=2)
    np.fill_diagonal(cosines, -np.inf)
    np.fill_diagonal(far, np.inf)
    true, near = np.argsort(-cosines, axis=1)[:, :10], np.argsort(far, axis=1)[:, :within]
    return float(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(true.tolist(), near.tolist(), strict=True)]))


@pytest.mark.slow
def test_neighbours_stay_neighbours_far_better_than_by_principal_components(build: Build, tmp_path: Path) -> None:
    some = itertools.islice(stdlib_documents(), 0, 2400, 4)
    documents = [{"id": str(n), "title": one.title, "text": one.text[:200]} for n, one in enumerate(some)]
    with build(documents, encoder=None, transform="none", max_length=32) as retriever:
        found = retriever.map()
        retriever.export(tmp_path / "out", "npy")
    passages = [json.loads(line) for line in (tmp_path / "out" / "passages.jsonl").read_text().splitlines()]
    vectors = np.load(tmp_path / "out" / "vectors.npy").astype(np.float64)
    own = [[n for n, passage in enumerate(passages) if passage["id"] == one["id"]] for one in documents]
    means = np.stack([vectors[rows].mean(axis=0) for rows in own])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    _, _, axes = np.linalg.svd(means - means.mean(axis=0), full_matrices=False)
    places = np.stack([found.x, found.y], axis=1).astype(np.float64)
    for within, kept, better in ((10, found.kept.within_10, 2), (50, found.kept.within_50, 1.5)):
        share = independent_share(means, places, within)
        assert kept == pytest.approx(share, abs=0.02)
        assert share > better * independent_share(means, means @ axes[:2].T, within), within


def test_too_many_equals_do_not_hide_a_row_from_itself() -> None:
    same = np.tile(np.array([[1.0, 0.0]], np.float32), (30, 1))
    rows, _ = layout.nearest(same, same, 5, own=np.arange(30))
    assert rows.shape == (30, 5) and not (rows == np.arange(30)[:, None]).any()


def test_groups_are_those_that_are_there() -> None:
    rng = np.random.default_rng(0)
    centres = np.eye(8, dtype=np.float32)[:3]
    truth = np.repeat([0, 1, 2], [30, 20, 10])
    rows = centres[truth] + rng.normal(scale=0.01, size=(60, 8)).astype(np.float32)
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    found = groups(rows)
    assert all(len(set(truth[found == group])) == 1 for group in set(found.tolist()))
    sizes = np.bincount(found)
    assert (np.diff(sizes) <= 0).all() and len(sizes) <= 20


def test_labels_are_the_words_that_are_the_groups_own() -> None:
    cats = ["The cat purrs at the mouse", "A cat and the mouse", "Cats purr; the cat sleeps"]
    cars = ["The engine of the car", "A car has the engine", "An engine and a motor, the car"]
    first, second = labels([cats, cars])
    assert set(first.split(", ")) >= {"cat"} and set(second.split(", ")) >= {"car", "engine"}
    assert "the" not in f"{first}, {second}".lower().split(", ")


def test_labels_in_any_script() -> None:
    russian = ["Кошка спит на диване", "Кошка ловит мышь", "Большая кошка"]
    chinese = ["猫在睡觉", "猫在吃鱼", "一只猫在这里"]
    arabic = ["القطة نائمة", "القطة تأكل", "هذه القطة"]
    hindi = ["बिल्ली सो रही है", "बिल्ली खाती है", "यह बिल्ली है"]
    found = labels([russian, chinese, arabic, hindi])
    assert "Кошка" in found[0] and "猫" in found[1] and "القطة" in found[2] and "बिल्ली" in found[3]


def test_labels_of_nothing_to_read() -> None:
    assert labels([]) == [] and labels([["12 34", "…"], ["<script>alert(1)</script>"]])[0] == ""
    (turned,) = labels([["\u202eevil\u202c"] * 3])
    assert turned == "evil"
