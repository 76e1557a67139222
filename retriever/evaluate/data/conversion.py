"""Converts sets of the Hugging Face hub to the layout of our benchmarks.

Each function takes `fetch`, which returns the rows of a source, and a folder; it writes its files there and returns the
number of rows of each kind.
"""

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from retriever.evaluate.data.qa_sets import DATASETS as QA
from retriever.evaluate.data.sts_sets import COLUMNS, DATASETS, NLI_FILE


class Source(NamedTuple):
    """One split of a data set on the hub."""

    hub: str
    split: str
    config: str | None = None
    revision: str | None = None


Record = Mapping[str, Any]
Fetch = Callable[[Source], Iterable[Record]]
Counts = dict[str, int]

# The revisions of mteb. Its current SICK-R has all 9,927 pairs as test, so the first revision, which has three splits,
# is used; the numbers of rows are checked after the download.
REVISIONS = {
    "mteb/stsbenchmark-sts": "b0fddb56ed78048fa8b90373c8a3cfc37b684831",
    "mteb/sickr-sts": "b589c9fc99a24743f4f6cc6c7c9633cd0fe40b9d",
    "mteb/sts12-sts": "a0d554a64d88156834ff5ae9920b964011b16384",
    "mteb/sts13-sts": "7e90230a92c190f1bf69ae9002b8cea547a64cca",
    "mteb/sts14-sts": "6031580fec1f6af667f0bd2da0a551cf4f0b2375",
    "mteb/sts15-sts": "ae752c7c21bf194d8b67fd573edf7ae58183cbe3",
    "mteb/sts16-sts": "4d8694f8f0e0100860b497b999b3dbed754a0513",
    "mteb/scifact": "d56462d0e63a25450459c4f213e49ffdb866f7f9",
}
SPLITS = {"train": "train", "dev": "validation", "test": "test"}
GLUE, WIKIQA, SNLI, MNLI, SCIFACT = (
    "nyu-mll/glue",
    "microsoft/wiki_qa",
    "stanfordnlp/snli",
    "nyu-mll/multi_nli",
    "mteb/scifact",
)
GLUE_LABELS = ("entailment", "not_entailment")
NLI_SOURCES = (Source(SNLI, "validation"), Source(SNLI, "test"), Source(MNLI, "validation_matched"))


def cell(record: Record, key: str, source: Source) -> Any:
    """The value of a column; raises ValueError if the hub's copy has other columns."""
    if key not in record:
        raise ValueError(f"{source.hub} has the columns {', '.join(record)}, and no {key!r}")
    return record[key]


def text_of(record: Record, key: str, source: Source) -> str:
    """A text as one cell of a TSV: tabs and line ends become spaces."""
    return str(cell(record, key, source)).replace("\t", " ").replace("\r", " ").replace("\n", " ").strip(" ")


def write_sts(name: str, fetch: Fetch, folder: Path) -> Counts:
    """STS-B and SICK-R with their three splits, the others with the scored pairs."""
    hub = DATASETS[name].hub
    splits = SPLITS if DATASETS[name].split else {"test": "test"}
    counts: Counts = {}
    rows: list[tuple[str, ...]] = []
    for split, theirs in splits.items():
        source, before = Source(hub, theirs, revision=REVISIONS[hub]), len(rows)
        for record in fetch(source):
            subset = "/".join(str(record[key]) for key in ("genre", "dataset", "year") if record.get(key)) or name
            texts = [text_of(record, key, source) for key in ("sentence1", "sentence2")]
            rows.append((split, subset, str(float(cell(record, "score", source))), *texts))
        counts[split] = len(rows) - before
    write_tsv(folder / "sts" / f"{name}.tsv", COLUMNS, rows)
    return counts


def write_nli(fetch: Fetch, folder: Path) -> Counts:
    """Every different premise and hypothesis of SNLI's validation and test and MultiNLI's matched validation."""
    sentences = dict.fromkeys(
        text_of(record, key, source)
        for source in NLI_SOURCES
        for record in fetch(source)
        for key in ("premise", "hypothesis")
    )
    path = folder / NLI_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{sentence}\n" for sentence in sentences if sentence)
    return {"sentences": len([sentence for sentence in sentences if sentence])}


def write_qnli(fetch: Fetch, folder: Path) -> Counts:
    source, rows = Source(GLUE, "validation", "qnli"), []
    for number, record in enumerate(fetch(source)):
        label = cell(record, "label", source)
        if label not in (0, 1):
            raise ValueError(f"{source.hub} has the label {label!r} in its qnli, which is neither 0 nor 1")
        texts = [text_of(record, key, source) for key in ("question", "sentence")]
        rows.append((str(record.get("idx", number)), *texts, GLUE_LABELS[label]))
    write_tsv(folder / QA["qnli"].file, QA["qnli"].columns, rows)
    return {"pairs": len(rows)}


class Candidate(NamedTuple):
    """A row of WikiQA, in the columns of its own files."""

    question_id: str
    question: str
    document_id: str
    title: str
    sentence_id: str
    sentence: str
    label: str


def read_wikiqa(fetch: Fetch) -> dict[str, list[Candidate]]:
    """The rows by split, with ids of documents and sentences, which the hub's copy lacks, in the order they appear.

    A document is its title, a sentence its text in it; one that appears twice under a question counts as two.
    """
    documents: dict[str, str] = {}
    sentences: dict[tuple[str, str, int], str] = {}
    sizes: dict[str, int] = {}
    found: dict[str, list[Candidate]] = {split: [] for split in SPLITS}
    for split, theirs in SPLITS.items():
        source, seen = Source(WIKIQA, theirs), dict[tuple[str, str, str], int]()
        for record in fetch(source):
            given = [text_of(record, key, source) for key in ("question_id", "question", "document_title", "answer")]
            question_id, question, title, sentence = given
            document = documents.setdefault(title, f"D{len(documents)}")
            times = seen[question_id, title, sentence] = seen.get((question_id, title, sentence), 0) + 1
            if (title, sentence, times) not in sentences:
                sentences[title, sentence, times] = f"{document}-{sizes.get(title, 0)}"
                sizes[title] = sizes.get(title, 0) + 1
            label = str(int(cell(record, "label", source)))
            row = Candidate(question_id, question, document, title, sentences[title, sentence, times], sentence, label)
            found[split].append(row)
    return found


def answered(rows: Sequence[Candidate]) -> Iterator[Candidate]:
    """The rows of questions that have an answer: the filtered splits."""
    kept = {row.question_id for row in rows if row.label == "1"}
    return (row for row in rows if row.question_id in kept)


def write_wikiqa(fetch: Fetch, folder: Path) -> Counts:
    found, counts = read_wikiqa(fetch), {}
    for split in ("dev", "test"):
        rows = list(answered(found[split]))
        write_tsv(folder / "wikiqa" / f"{split}-filtered.tsv", QA["wikiqa"].columns, rows)
        counts[f"{split} pairs"] = len(rows)
        counts[f"{split} questions"] = len({row.question_id for row in rows})
    return counts


def write_open_wikiqa(fetch: Fetch, folder: Path) -> Counts:
    """WikiQA for search: every sentence of every question is a document, every answered question a query."""
    found = read_wikiqa(fetch)
    documents = {row.sentence_id: (row.title, row.sentence) for rows in found.values() for row in rows}
    kept = {split: list(answered(rows)) for split, rows in found.items()}
    queries = {row.question_id: row.question for rows in kept.values() for row in rows}
    judged = {
        split: [(row.question_id, row.sentence_id, 1) for row in rows if row.label == "1"]
        for split, rows in kept.items()
    }
    return write_beir(folder / "wikiqa_beir", documents, queries, judged)


def write_scifact(fetch: Fetch, folder: Path) -> Counts:
    def records(config: str, split: str) -> Iterator[tuple[Record, Source]]:
        source = Source(SCIFACT, split, config, REVISIONS[SCIFACT])
        return ((record, source) for record in fetch(source))

    documents = {
        str(cell(one, "_id", source)): (str(cell(one, "title", source) or ""), str(cell(one, "text", source)))
        for one, source in records("corpus", "corpus")
    }
    queries = {
        str(cell(one, "_id", source)): str(cell(one, "text", source)) for one, source in records("queries", "queries")
    }
    judged = {
        split: [
            (str(cell(one, "query-id", source)), str(cell(one, "corpus-id", source)), int(cell(one, "score", source)))
            for one, source in records("default", split)
        ]
        for split in ("train", "test")
    }
    return write_beir(folder / "scifact", documents, queries, judged)


def write_beir(
    folder: Path,
    documents: Mapping[str, tuple[str, str]],
    queries: Mapping[str, str],
    judged: Mapping[str, Sequence[tuple[str, str, int]]],
) -> Counts:
    corpus = ({"_id": name, "title": title, "text": text} for name, (title, text) in documents.items())
    write_jsonl(folder / "corpus.jsonl", corpus)
    write_jsonl(folder / "queries.jsonl", ({"_id": name, "text": text} for name, text in queries.items()))
    for split, rows in judged.items():
        lines = [(query, document, str(score)) for query, document, score in rows]
        write_tsv(folder / "qrels" / f"{split}.tsv", ("query-id", "corpus-id", "score"), lines)
    counts = {f"{split} judgements": len(rows) for split, rows in judged.items()}
    return {"documents": len(documents), "queries": len(queries), **counts}


def write_jsonl(path: Path, records: Iterable[Record]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def write_tsv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines("\t".join(row) + "\n" for row in (columns, *rows))
