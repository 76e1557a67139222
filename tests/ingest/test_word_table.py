"""A rebuild learns the word table of a collection again, from its documents and without the BERT."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from retriever import Retriever
from retriever.encoder.encoder import Encoder
from tests.encoder.test_static import topical
from tests.support.samples import make_bert

TOPIC = "planet orbit comet galaxy telescope asteroid eclipse nebula meteor".split()


def new_documents(count: int = 60) -> list[dict[str, str]]:
    """Return documents about a topic that the others do not have, with words that the BERT does not have either."""
    rng = np.random.default_rng(1)
    own = [*TOPIC, *(f"zq{number}x" for number in range(9))]
    return [{"id": f"sky-{n}", "text": " ".join(rng.choice(own, 30))} for n in range(count)]


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    bert = make_bert(tmp_path / "bert")
    Retriever.build(topical(120), tmp_path / "made", encoder=str(bert), pooling="learned").close()
    shutil.rmtree(bert)
    with Retriever.open(tmp_path / "made") as opened:
        opened.add(new_documents())
        opened.delete(["sea-0"])
    return tmp_path / "made"


def vectors_of(folder: Path) -> tuple[np.ndarray, list[str]]:
    with Retriever.open(folder) as opened:
        store = opened.local.store
        numbers = store.used_vectors().tolist()
        passages = store.passages_of_vectors(numbers)
        texts = [
            opened.document(store.documents([passages[n][0].document])[passages[n][0].document]["id"]).text
            for n in numbers
        ]
        return store.vectors(numbers, opened.local.dimension, checked=True), texts


@pytest.mark.heavy
def test_a_rebuild_learns_from_what_is_in_the_collection_now(collection: Path) -> None:
    with Retriever.open(collection) as opened:
        before = opened.info()
        opened.rebuild()
        after = opened.info()
        assert all(hit.id.startswith("sky") for hit in opened.search("comet zq3x", 5, mode="dense"))
        assert all(hit.id.startswith("sky") for hit in opened.search("COMET ZQ3X", 5, mode="dense"))
        assert opened.add([{"id": "sky more", "text": "A comet is seen again."}]).new == 1
    assert before["learning"]["read"] == 120 and after["learning"]["read"] == 179
    assert after["encoder"]["weights"] != before["encoder"]["weights"]
    assert after["encoder"]["name"] == before["encoder"]["name"]
    stored, texts = vectors_of(collection)
    assert np.allclose(stored, Encoder(str(collection / "encoder")).encode(texts), atol=1e-3)
    assert {path.name for path in collection.iterdir()} >= {"encoder"} and not (collection / "encoder.next").exists()
    assert len(list((collection / "generations").iterdir())) == 1
    with Retriever.open(collection) as opened:
        assert opened.verify().clean
        assert all(hit.id.startswith("music") for hit in opened.search("orchestra and choir", 5))
        opened.add([{"id": "late", "text": "A comet and its orbit."}])
        assert "late" in [hit.id for hit in opened.search("comet orbit", 60)]


@pytest.mark.heavy
def test_nothing_is_learned_again_from_the_same_documents(collection: Path) -> None:
    with Retriever.open(collection) as opened:
        opened.rebuild()
        table = (collection / "encoder" / "model.safetensors").read_bytes()
        opened.rebuild(index_type="hnsw")
        assert opened.info()["index"]["type"] == "hnsw"
    assert (collection / "encoder" / "model.safetensors").read_bytes() == table


@pytest.mark.heavy
def test_a_reader_that_is_open_searches_with_the_new_table(collection: Path) -> None:
    with Retriever.open(collection) as reader, Retriever.open(collection) as writer:
        old = reader.search("comet orbit", 5, mode="dense")
        writer.rebuild()
        found = reader.search("comet orbit", 5, mode="dense")
        assert [(hit.id, hit.score) for hit in found] == [
            (hit.id, hit.score) for hit in writer.search("comet orbit", 5, mode="dense")
        ]
        assert [hit.score for hit in found] != [hit.score for hit in old]


@pytest.mark.heavy
@pytest.mark.parametrize("place", ["embedding", "publishing", "moving"])
def test_a_rebuild_that_fails_leaves_the_old_or_the_new_state(
    collection: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends while vectors are replaced, before the index is switched, or before the table is moved."""
    from indexes.folder import publishing
    from retriever.encoder.static import folder as tables
    from retriever.ingest import word_table, writer

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with Retriever.open(collection) as opened, monkeypatch.context() as patch:
        if place == "embedding":
            patch.setattr(word_table, "encoded_text", _after(3, word_table.encoded_text))
        if place == "publishing":
            patch.setattr(publishing.IndexPublisher, "keep_transform", fail)
        if place == "moving":
            patch.setattr(writer, "replace_table", fail)
        with pytest.raises(KeyboardInterrupt):
            opened.rebuild()
    with Retriever.open(collection) as opened:
        assert opened.verify().clean
        assert opened.info()["learning"]["read"] == (179 if place == "moving" else 120)
        assert all(hit.id.startswith("music") for hit in opened.search("orchestra choir violin flute", 5, mode="dense"))
        opened.rebuild()
        assert opened.info()["learning"]["read"] == 179
    assert not (collection / tables.next_folder(collection / "encoder").name).exists()
    stored, texts = vectors_of(collection)
    assert np.allclose(stored, Encoder(str(collection / "encoder")).encode(texts), atol=1e-3)


def _after(count: int, function):  # type: ignore[no-untyped-def]
    """Return the function, which is interrupted at a later call. The texts are read once before to learn from them."""
    calls = 0

    def called(*given: str) -> str:
        nonlocal calls
        calls += 1
        if calls > 179 + count:
            raise KeyboardInterrupt
        return str(function(*given))

    return called
