"""Ingestion that is killed, run again, and fed changes; always reopened from disk."""

import json
import os
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
from retriever.corpus import files
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


def test_prune_keeps_what_has_an_unreadable_new_version(tmp_path: Path, tiny_bert: str) -> None:
    pets = [{"id": name, "text": f"The {name} sleeps."} for name in ("ant", "bee", "cow")]
    Retriever.build(pets, tmp_path / "c", encoder=tiny_bert).close()
    broken = {**pets[0], "when": object()}
    with Retriever.build([pets[2], pets[1], broken], tmp_path / "c", prune=True) as retriever:
        assert "nothing was pruned" in retriever.report.prune_refused and "ant" in retriever


def test_a_source_with_the_same_id_twice_is_unchanged_the_next_time(tmp_path: Path, tiny_bert: str) -> None:
    source = write_jsonl(tmp_path / "d.jsonl", [{"id": "a", "text": "one"}, {"id": "a", "text": "two"}])
    for run in range(2):
        with Retriever.build(Corpus([source]), tmp_path / "c", encoder=tiny_bert, transform="none") as built:
            report = built.report
            assert (report.new, report.changed, report.unchanged) == ((1, 0, 0) if run == 0 else (0, 0, 1))
            assert report.duplicates == [("a", "d.jsonl:2", "d.jsonl:1")]
            assert built.get("a").text == "two" and built.info()["index"]["no_longer_used"] == 0


def test_documents_that_what_was_skipped_may_hold_are_named(tmp_path: Path, tiny_bert: str) -> None:
    source = write_jsonl(tmp_path / "d.jsonl", [{"id": name, "text": f"text of {name}"} for name in ("a", "b", "c")])
    options = {"encoder": tiny_bert, "transform": "none"}
    Retriever.build(Corpus([source]), tmp_path / "c", **options).close()
    source.write_text('{"id": "a", "text": "text of a"}\n{"id": "b", "text":\n')
    with Retriever.build(Corpus([source]), tmp_path / "c", prune=True, **options) as built:
        assert built.report.kept == 2 and built.report.kept_ids == ["b", "c"] and len(built) == 3
    source.write_text('{"id": "a", "text": "text of a"}\n')
    with Retriever.build(Corpus([source]), tmp_path / "c", prune=True, **options) as built:
        assert built.report.kept == 0 and sorted(built) == ["a"]


def test_duplicate_ids_are_named(tmp_path: Path, tiny_bert: str) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("id,text\n" + "".join(f"{n},{name} {n}\n" for n in range(9)))
    with Retriever.build(Corpus([tmp_path / "a.csv", tmp_path / "b.csv"]), tmp_path / "c", encoder=tiny_bert) as made:
        assert made.report.duplicate_ids == 9
        assert made.report.duplicates == [(str(n), f"b.csv:{n + 2}", f"a.csv:{n + 2}") for n in range(5)]


def test_a_source_that_is_only_added_makes_nothing_gone(tmp_path: Path, tiny_bert: str) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "old.txt").write_text("An old note.")
    (tmp_path / "new.txt").write_text("A new note.")
    Retriever.build(Corpus([tmp_path / "notes"]), tmp_path / "c", encoder=tiny_bert).close()
    with Retriever.build(Corpus([tmp_path / "new.txt"]), tmp_path / "c") as added:
        assert (added.report.new, added.report.gone, len(added)) == (1, 0, 2)
    with Retriever.build(Corpus([tmp_path / "notes"]), tmp_path / "c") as again:
        assert (again.report.unchanged, again.report.gone_ids) == (1, ["new.txt"])


def test_files_and_rows_that_moved_are_recognised(tmp_path: Path, tiny_bert: str) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "h.md").write_text("# Budget\n\nThe budget was approved in March.\n")
    (notes / "f.md").write_text("---\nauthor: Ada\n---\nThe roof was mended in June.\n")
    (notes / "rows.csv").write_text('text,year\nOwls hunt at night.,1999\n"Cats purr\nand sleep.",2001\n')
    Retriever.build(Corpus([notes]), tmp_path / "c", encoder=tiny_bert).close()
    for old, new in (("h.md", "heading.md"), ("f.md", "front.md"), ("rows.csv", "animals.csv")):
        (notes / old).rename(notes / new)
    with Retriever.build(Corpus([notes]), tmp_path / "c") as again:
        report = again.report
        moved = {(old.partition("#")[0], new.partition("#")[0]) for old, new in report.renamed}
        assert moved == {("h.md", "heading.md"), ("f.md", "front.md"), ("rows.csv", "animals.csv")}
        assert (len(report.renamed), report.gone, report.texts_embedded, len(again)) == (4, 0, 0, 4)


def test_a_second_run_compares_the_folder_with_the_collection(tmp_path: Path, tiny_bert: str) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    for name in ("same", "changes", "moves", "goes", "breaks", "empties"):
        (notes / f"{name}.txt").write_text(f"A text on what {name}.")
    first = Retriever.build(Corpus([notes]), tmp_path / "c", encoder=tiny_bert)
    assert first.report.new == 6 and first.report.files and first.report.files.read == {"txt": 6}
    first.close()

    (notes / "changes.txt").write_text("Another text.")
    (notes / "moves.txt").rename(notes / "moved.txt")
    (notes / "goes.txt").unlink()
    (notes / "breaks.txt").write_bytes(b"\x7fELF" + bytes(range(256)) * 9)
    (notes / "empties.txt").write_text("")
    (notes / "comes.txt").write_text("A new text.")
    with Retriever.build(Corpus([notes]), tmp_path / "c") as again:
        report = again.report
        assert (report.new, report.changed, report.unchanged, report.pruned) == (2, 1, 1, 0)
        assert report.renamed == [("moves.txt", "moved.txt")] and report.texts_embedded == 2
        assert (report.gone, sorted(report.gone_ids)) == (2, ["empties.txt", "goes.txt"])
        assert len(again) == 7, "nothing but the old name of the renamed file was removed"
    with Retriever.build(Corpus([notes]), tmp_path / "c", prune=True) as pruned:
        assert (pruned.report.pruned, pruned.report.gone, pruned.report.prune_refused) == (2, 0, "")
        assert pruned.document("breaks.txt").text == "A text on what breaks.", "it could not be read"
        assert len(pruned) == 5
    with Retriever.open(tmp_path / "c") as added:
        assert added.add([{"id": "alone", "text": "One more."}]).gone == 0


def test_files_that_did_not_change_are_not_read(
    tmp_path: Path, tiny_bert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retriever.corpus.files.SETTLED", 0.0)
    notes = tmp_path / "notes"
    notes.mkdir()
    for name in ("a", "b", "c"):
        (notes / f"{name}.md").write_text(f"# {name}\n\nThe text of {name}.")
    Retriever.build(Corpus([notes]), tmp_path / "c", encoder=tiny_bert).close()
    opened: list[str] = []
    regular = files.regular_file
    monkeypatch.setattr(files, "regular_file", lambda path: opened.append(path.name) or regular(path))

    def again() -> tuple[list[str], int, int, int]:
        opened.clear()
        with Retriever.build(Corpus([notes]), tmp_path / "c") as retriever:
            report = retriever.report
            assert report.files and report.files.read == {"md": 3} and len(retriever) == 3
            return list(opened), report.unchanged, report.changed, report.new

    assert again() == (["a.md"], 3, 0, 0), "only the first is read, before the collection is opened"
    (notes / "b.md").write_text("# b\n\nAnother text.")
    assert again() == (["a.md", "b.md"], 2, 1, 0)
    assert again() == (["a.md"], 3, 0, 0)
    os.utime(notes / "c.md", ns=(1, 1))
    assert again() == (["a.md", "c.md"], 2, 1, 0), "its date changed"
    with Retriever.open(tmp_path / "c") as retriever:
        retriever.delete(["c.md"])
    assert again() == (["a.md", "c.md"], 2, 0, 1)


def test_rows_of_a_file_that_could_not_be_read_whole_are_not_pruned(tmp_path: Path, tiny_bert: str) -> None:
    table, text = tmp_path / "t.jsonl", tmp_path / "z.txt"
    table.write_text('{"id": 1, "text": "one"}\n{"id": 2, "text": "two"}\n')
    text.write_text("A text.")
    Retriever.build(Corpus([table, text]), tmp_path / "c", encoder=tiny_bert).close()
    table.write_text('{"id": 1, "text": "one"}\n{"id": 2, "text": \n')
    with Retriever.build(Corpus([table]), tmp_path / "c", prune=True) as retriever:
        assert retriever.report.pruned == 1 and len(retriever) == 2, "the text is gone, the row may be the broken line"
    table.write_text('{"id": 1, "text": "one"}\n{"id": 3, "text": " "}\n')
    with Retriever.build(Corpus([table]), tmp_path / "c", prune=True) as retriever:
        assert retriever.report.pruned == 1 and len(retriever) == 1, "a row without text was read"


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


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
@pytest.mark.parametrize("large", ["title", "metadata"])
def test_memory_is_bounded_by_all_that_a_document_holds(tmp_path: Path, tiny_bert: str, large: str) -> None:
    code = """
from retriever import Document, Retriever
def documents():
    for number in range(40):
        # Long words, because the index of words would take half a minute of CPU for many short ones.
        large = f"{number:0>40} " * 375_000
        title, metadata = ("", {"large": large}) if sys.argv[3] == "metadata" else (large, {})
        yield Document(str(number), f"text {number}", title, metadata)
retriever = Retriever.build(documents(), sys.argv[1], encoder=sys.argv[2], precision="fp32", transform="none")
tell(count=len(retriever))
"""
    told = limited(code, tmp_path / "c", tiny_bert, large, mib=8192)
    assert told["count"] == 40
    assert told["peak"] < 450
