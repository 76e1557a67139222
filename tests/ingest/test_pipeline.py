"""Ingestion that is killed, run again, and fed changes; always reopened from disk."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from limited import limited
from samples import write_jsonl

from indexes.folder.collection import Collection
from retriever import Corpus, Document, Retriever, Skipped
from retriever.errors import BadSource, Misuse

RUN = (
    "import sys\n"
    "from retriever import Corpus, Retriever\n"
    "Retriever.build(Corpus([sys.argv[1]]), sys.argv[2], encoder=sys.argv[3], transform='center', batch_tokens=64)"
)


@pytest.mark.heavy
def test_killed_again_and_again_it_goes_on(tmp_path: Path, tiny_bert: str) -> None:
    records = [{"id": str(i), "text": f"Fact number {i} about {'x' * (i % 40)}. " * (1 + i % 3)} for i in range(6000)]
    source = write_jsonl(tmp_path / "facts.jsonl", records)
    command = [sys.executable, "-c", RUN, str(source), str(tmp_path / "c"), tiny_bert]
    rng, stored = random.Random(0), 0
    for _ in range(4):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while _vectors(tmp_path / "c") < stored + 100 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(rng.random() * 0.3)
        process.kill()
        process.wait()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL
        now = _vectors(tmp_path / "c")
        assert now >= stored + 100, "what was embedded before is still there"
        stored = now
        with Collection.open(tmp_path / "c") as collection:
            assert collection.store.db.conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with Retriever.build(Corpus([source]), tmp_path / "c", encoder=tiny_bert) as retriever:
        texts = {record["text"].strip() for record in records}
        assert retriever.report.texts_embedded + stored >= len(texts)
        assert retriever.report.texts_embedded <= len(texts) - stored
        assert len(retriever) == 6000
        assert retriever.info()["vectors"] == len(texts)
        assert retriever.verify().clean
        (hit,) = retriever.search(records[4321]["text"].strip(), 1)
        assert retriever.document(hit.id).text.strip() == records[4321]["text"].strip()


def _vectors(folder: Path) -> int:
    try:
        with Collection.open(folder) as collection:
            return collection.store.count("vectors")
    except Exception:
        return 0


def test_an_unchanged_source_embeds_nothing(tmp_path: Path, tiny_bert: str) -> None:
    documents = [Document(str(i), f"text {i}", metadata={"n": i}) for i in range(700)]
    documents.append(Document("0", "another text for the first id"))
    with Retriever.build(documents, tmp_path / "c", encoder=tiny_bert) as first:
        generation = first.info()["index"]["generation"]
        assert first.report.duplicate_ids == 1
    with Retriever.build(documents, tmp_path / "c") as again:
        assert again.report.texts_embedded == 0
        assert again.info()["index"]["generation"] == generation
        assert again.document("0").text == "another text for the first id"
        assert len(again) == 700


def test_metadata_alone_changes_without_embedding(tmp_path: Path, tiny_bert: str) -> None:
    with Retriever.build([Document("a", "text", metadata={"n": 1})], tmp_path / "c", encoder=tiny_bert) as retriever:
        report = retriever.add([Document("a", "text", metadata={"n": 2})])
        assert (report.changed, report.texts_embedded) == (1, 0)
        assert retriever.search("text", 1)[0].metadata == {"n": 2}


def test_one_changed_passage_embeds_one(tmp_path: Path, tiny_bert: str) -> None:
    parts = [f"Paragraph {i} " + "speaks of many things and people. " * 15 for i in range(8)]
    with Retriever.build([Document("a", "\n\n".join(parts))], tmp_path / "c", encoder=tiny_bert) as retriever:
        passages = retriever.info()["passages"]
        report = retriever.add([Document("a", "\n\n".join([*parts[:-1], "The end was rewritten."]))])
        assert passages > 6 and 1 <= report.texts_embedded <= 3


def test_prune(tmp_path: Path, tiny_bert: str) -> None:
    documents = [Document(str(i), f"text {i}") for i in range(20)]
    Retriever.build(documents, tmp_path / "c", encoder=tiny_bert).close()
    with Retriever.build(documents[5:], tmp_path / "c", prune=True) as retriever:
        assert retriever.report.pruned == 5
        assert len(retriever) == 15
        assert {hit.id for hit in retriever.search("text", 20)} == {str(i) for i in range(5, 20)}
    with Retriever.build([*documents[10:], Skipped("f:3", "bad")], tmp_path / "c", prune=True) as retriever:
        assert retriever.report.pruned == 0 and "nothing was pruned" in retriever.report.prune_refused
        assert len(retriever) == 15
    with pytest.raises(Misuse, match="no document in the source"):
        Retriever.build([], tmp_path / "c", prune=True)


def test_stop_stores_what_came_before(tmp_path: Path, tiny_bert: str) -> None:
    items = [Document("a", "one"), Document("b", "two"), Skipped("f:3", "is bad"), Document("c", "three")]
    with pytest.raises(BadSource, match="f:3: is bad"):
        Retriever.build(items, tmp_path / "c", encoder=tiny_bert, on_error="stop")
    with Retriever.open(tmp_path / "c") as retriever:
        assert len(retriever) == 2


def test_what_was_read_before_a_failure_is_kept(tmp_path: Path, tiny_bert: str) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,One.\n2,Two.\n")
    (tmp_path / "b.csv").write_text("id,body\n3,Three.\n")
    with pytest.raises(Misuse, match="no column 'text'"):
        Retriever.build(Corpus([tmp_path / "a.csv", tmp_path / "b.csv"]), tmp_path / "c", encoder=tiny_bert)
    with Retriever.open(tmp_path / "c") as retriever:
        assert len(retriever) == 2


def test_the_transform_is_fitted_again_when_the_collection_has_doubled(tmp_path: Path, tiny_bert: str) -> None:
    documents = [Document(str(i), f"text number {i}") for i in range(100)]
    with Retriever.build(documents[:40], tmp_path / "c", encoder=tiny_bert, transform="whiten") as retriever:
        assert retriever.info()["fitted_on"]["passages"] == 40
    with Retriever.build(documents[:60], tmp_path / "c") as retriever:
        assert retriever.info()["fitted_on"]["passages"] == 40
        retriever.add(documents[60:75])
        assert retriever.info()["fitted_on"]["passages"] == 40
    with Retriever.build(documents, tmp_path / "c") as retriever:
        assert retriever.info()["fitted_on"]["passages"] == 100


def test_plain_texts_and_dicts(tmp_path: Path, tiny_bert: str) -> None:
    texts = ["A lone text.", {"text": "With an id.", "id": 7, "title": "T"}, {"id": "empty", "text": ""}]
    with Retriever.build(texts, tmp_path / "c", encoder=tiny_bert) as retriever:
        assert (retriever.report.new, retriever.report.skipped) == (2, 1)
        assert retriever.document("7").title == "T"


def test_export_gives_everything_back(tmp_path: Path, tiny_bert: str) -> None:
    import numpy as np
    import pyarrow.parquet as pq

    documents = [Document(str(i), f"text {i % 5}", "Title", {"n": i}) for i in range(12)]
    with Retriever.build(documents, tmp_path / "c", encoder=tiny_bert, transform="whiten:dimension=4") as retriever:
        retriever.export(tmp_path / "out.parquet")
        retriever.export(tmp_path / "out", "npy")
        raw = retriever.encoder().encode([f"Title\ntext {i % 5}" for i in range(12)])
        mapped = retriever._searcher.transform().apply(raw)
    table = pq.read_table(tmp_path / "out.parquet").to_pylist()
    lines = [json.loads(line) for line in (tmp_path / "out" / "passages.jsonl").read_text().splitlines()]
    assert [row["id"] for row in table] == [row["id"] for row in lines] == [str(i) for i in range(12)]
    assert json.loads(table[3]["metadata"]) == lines[3]["metadata"] == {"n": 3}
    np.testing.assert_allclose([row["raw"] for row in table], raw, atol=2e-2)
    np.testing.assert_allclose(np.load(tmp_path / "out" / "raw.npy"), raw, atol=2e-2)
    stored = np.load(tmp_path / "out" / "vectors.npy")
    np.testing.assert_array_equal([row["vector"] for row in table], stored)
    cosine = (stored * mapped).sum(1) / np.linalg.norm(stored, axis=1) / np.linalg.norm(mapped, axis=1)
    assert cosine.min() > 0.98


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("many", "megabytes"), [(40_000, 100), pytest.param(100_000, 300, marks=pytest.mark.torture)])
def test_memory_stays_flat(tmp_path: Path, many: int, megabytes: int) -> None:
    """Peak memory grows by some kilobytes a sentence at most (384 dimensions, flow): that of 100,000 sentences is
    within 300 MB of that of 10,000."""
    from samples import make_bert

    bert = make_bert(tmp_path / "bert", width=384, layers=1)
    peaks = []
    for count in (10_000, many):
        records = [{"id": str(i), "text": f"{i} things, {i * 7919 % 100_003} of them."} for i in range(count)]
        source = write_jsonl(tmp_path / f"{count}.jsonl", records)
        code = RUN.replace("'center', batch_tokens=64", "'bert-flow'") + (
            "\nimport resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(source), str(tmp_path / str(count)), str(bert)],
            check=True,
            capture_output=True,
            text=True,
        )
        peaks.append(int(done.stdout))
    assert peaks[1] - peaks[0] < megabytes, peaks


def test_everything_deleted_and_filled_again(tmp_path: Path, tiny_bert: str) -> None:
    documents = [Document(str(i), f"text number {i}") for i in range(30)]
    with Retriever.build(documents, tmp_path / "c", encoder=tiny_bert, transform="center") as retriever:
        assert len(retriever.delete([document.id for document in documents])) == 30
        assert retriever.search("text") == []
        assert retriever.verify().clean
        report = retriever.add(documents[:3])
        assert (report.new, report.texts_embedded, report.texts_reused) == (3, 0, 3)
        assert len(retriever.search("text")) == 3


@pytest.mark.heavy
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
@pytest.mark.parametrize("large", ["title", pytest.param("metadata", marks=pytest.mark.slow)])
def test_memory_is_bounded_by_all_that_a_document_holds(tmp_path: Path, tiny_bert: str, large: str) -> None:
    code = """
from retriever import Document, Retriever
def documents():
    for number in range(40):
        large = f"{number} " * 5_000_000
        title, metadata = ("", {"large": large}) if sys.argv[3] == "metadata" else (large, {})
        yield Document(str(number), f"text {number}", title, metadata)
retriever = Retriever.build(documents(), sys.argv[1], encoder=sys.argv[2], precision="fp32", transform="none")
tell(count=len(retriever))
"""
    told = limited(code, tmp_path / "c", tiny_bert, large, mib=8192)
    assert told["count"] == 40
    assert told["peak"] < 450
