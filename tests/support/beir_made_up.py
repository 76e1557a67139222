"""A small hand-made BEIR folder, whose judgements are graded and have two splits."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from similarity import sentences

HEADER = "query-id\tcorpus-id\tscore\n"


def write_beir(
    folder: Path,
    *,
    corpus: Sequence[Mapping[str, object]] | None = None,
    queries: Sequence[Mapping[str, object]] | None = None,
    qrels: Mapping[str, str] | None = None,
) -> Path:
    """A BEIR folder; by default of 60 documents, and 12 queries that repeat some words of two documents each."""
    texts = sentences(60, seed=7)
    if corpus is None:
        corpus = [{"_id": f"d{n}", "title": f"Story {n}", "text": text} for n, text in enumerate(texts)]
    if queries is None:
        queries = [{"_id": f"q{n}", "text": " ".join(texts[n].split()[:4])} for n in range(12)]
    if qrels is None:
        lines = [f"q{n}\td{n}\t2\nq{n}\td{n + 20}\t1\nq{n}\td{n + 40}\t0\n" for n in range(8)]
        qrels = {"test": HEADER + "".join(lines), "train": f"{HEADER}q9\td9\t1\n"}
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, records in (("corpus", corpus), ("queries", queries)):
        lines_ = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
        (folder / f"{name}.jsonl").write_text("".join(lines_), encoding="utf-8")
    for split, content in qrels.items():
        (folder / "qrels" / f"{split}.tsv").write_text(content, encoding="utf-8")
    return folder
