"""Convert sets of the Hugging Face hub to the layout of our benchmarks.

Each function takes `fetch`, which returns the rows of a source, and a folder for its files. It returns the number of
rows of each kind. sets.json has the files of each set, the known numbers of rows, the revision on the hub, and what the
hub's copy lacks. The revisions are mteb's, except for SICK-R, whose first revision has its three splits.
"""

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from retriever.evaluate.data.beir import HEADER
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
Judged = Mapping[str, Sequence[tuple[str, str, int]]]

KNOWN: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "sets.json").read_bytes())
SPLITS = {"train": "train", "dev": "validation", "test": "test"}
GLUE_LABELS = ("entailment", "not_entailment")
SNLI, MNLI = "stanfordnlp/snli", "nyu-mll/multi_nli"
NLI_SOURCES = (Source(SNLI, "validation"), Source(SNLI, "test"), Source(MNLI, "validation_matched"))


def columns(fetch: Fetch, source: Source, keys: Sequence[str], optional: Sequence[str] = ()) -> Iterator[list[Any]]:
    """Yield the values of these columns, row by row. Raise ValueError if the hub's copy lacks one of them."""
    for record in fetch(source):
        if missing := next((key for key in keys if key not in record), None):
            raise ValueError(f"{source.hub} has no column {missing!r}; its columns are: {', '.join(record)}")
        yield [*(record[key] for key in keys), *(record.get(key) for key in optional)]


def one_cell(value: object) -> str:
    """Return a text as one cell of a TSV file. Tabs and line ends become spaces."""
    return str(value).replace("\t", " ").replace("\r", " ").replace("\n", " ").strip(" ")


def write_sts(name: str, fetch: Fetch, folder: Path) -> Counts:
    """Write the pairs of a set: all three splits of STS-B and SICK-R, only the test split of the other sets."""
    rows: list[tuple[str, ...]] = []
    for split, theirs in (SPLITS if DATASETS[name].split else {"test": "test"}).items():
        source = Source(DATASETS[name].hub, theirs, revision=KNOWN[name]["revision"])
        found = columns(fetch, source, ("sentence1", "sentence2", "score"), ("genre", "dataset", "year"))
        for first, second, score, *parts in found:
            subset = "/".join(str(part) for part in parts if part) or name
            rows.append((split, subset, str(float(score)), one_cell(first), one_cell(second)))
    write_tsv(folder / "sts" / f"{name}.tsv", COLUMNS, rows)
    return dict(Counter(row[0] for row in rows))


def write_nli(fetch: Fetch, folder: Path) -> Counts:
    """Write all different premises and hypotheses of NLI_SOURCES."""
    records = (both for source in NLI_SOURCES for both in columns(fetch, source, ("premise", "hypothesis")))
    sentences = list(dict.fromkeys(filter(None, (one_cell(text) for both in records for text in both))))
    path = folder / NLI_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{sentence}\n" for sentence in sentences)
    return {"sentences": len(sentences)}


def write_qnli(fetch: Fetch, folder: Path) -> Counts:
    source, rows = Source("nyu-mll/glue", "validation", "qnli"), []
    found = columns(fetch, source, ("question", "sentence", "label"), ("idx",))
    for number, (question, sentence, label, given) in enumerate(found):
        if label not in (0, 1):
            raise ValueError(f"a row of QNLI in {source.hub} has the label {label!r}; it must be 0 or 1")
        id_ = str(number if given is None else given)
        rows.append((id_, one_cell(question), one_cell(sentence), GLUE_LABELS[label]))
    write_tsv(folder / QA["qnli"].file, QA["qnli"].columns, rows)
    return {"pairs": len(rows)}


class Candidate(NamedTuple):
    """A row of WikiQA, with the columns of WikiQA's own files."""

    question_id: str
    question: str
    document_id: str
    title: str
    sentence_id: str
    sentence: str
    label: str


def read_wikiqa(fetch: Fetch) -> dict[str, list[Candidate]]:
    """Return the rows of each split. Documents (identified by their titles) and sentences are numbered, because the hub
    has no ids.

    A sentence is identified by its title and text. If it appears twice under one question, it counts as two.
    """
    documents: dict[str, str] = {}
    sentences: dict[tuple[str, str, int], str] = {}
    sizes: Counter[str] = Counter()
    found: dict[str, list[Candidate]] = {split: [] for split in SPLITS}
    for split, theirs in SPLITS.items():
        seen: Counter[tuple[str, str, str]] = Counter()
        keys = ("question_id", "question", "document_title", "answer", "label")
        for *texts, label in columns(fetch, Source("microsoft/wiki_qa", theirs), keys):
            question_id, question, title, sentence = map(one_cell, texts)
            document = documents.setdefault(title, f"D{len(documents)}")
            seen[question_id, title, sentence] += 1
            which = title, sentence, seen[question_id, title, sentence]
            if which not in sentences:
                sentences[which] = f"{document}-{sizes[title]}"
                sizes[title] += 1
            row = Candidate(question_id, question, document, title, sentences[which], sentence, str(int(label)))
            found[split].append(row)
    return found


def answered(rows: Sequence[Candidate]) -> list[Candidate]:
    """Return the rows of the questions that have an answer. WikiQA's filtered splits consist of these rows."""
    kept = {row.question_id for row in rows if row.label == "1"}
    return [row for row in rows if row.question_id in kept]


def write_wikiqa(fetch: Fetch, folder: Path) -> Counts:
    found, counts = read_wikiqa(fetch), {}
    for split in ("dev", "test"):
        rows = answered(found[split])
        write_tsv(folder / "wikiqa" / f"{split}-filtered.tsv", QA["wikiqa"].columns, rows)
        counts[f"{split} pairs"] = len(rows)
        counts[f"{split} questions"] = len({row.question_id for row in rows})
    return counts


def write_open_wikiqa(fetch: Fetch, folder: Path) -> Counts:
    """Write WikiQA as a BEIR folder. Documents are all sentences, queries are the questions with an answer."""
    found = read_wikiqa(fetch)
    documents = {row.sentence_id: (row.title, row.sentence) for rows in found.values() for row in rows}
    queries = {row.question_id: row.question for rows in found.values() for row in answered(rows)}
    right = {split: [row for row in rows if row.label == "1"] for split, rows in found.items()}
    judged = {split: [(row.question_id, row.sentence_id, 1) for row in rows] for split, rows in right.items()}
    return write_beir(folder / "wikiqa_beir", documents, queries, judged)


def write_scifact(fetch: Fetch, folder: Path) -> Counts:
    def rows(config: str, split: str, *keys: str) -> Iterator[list[Any]]:
        return columns(fetch, Source("mteb/scifact", split, config, KNOWN["scifact"]["revision"]), keys)

    corpus = rows("corpus", "corpus", "_id", "title", "text")
    documents = {str(id_): (str(title or ""), str(text)) for id_, title, text in corpus}
    queries = {str(id_): str(text) for id_, text in rows("queries", "queries", "_id", "text")}
    judged = {}
    for split in ("train", "test"):
        found = rows("default", split, "query-id", "corpus-id", "score")
        judged[split] = [(str(query), str(document), int(score)) for query, document, score in found]
    return write_beir(folder / "scifact", documents, queries, judged)


def write_beir(
    folder: Path, documents: Mapping[str, tuple[str, str]], queries: Mapping[str, str], judged: Judged
) -> Counts:
    corpus = [{"_id": name, "title": title, "text": text} for name, (title, text) in documents.items()]
    folder.mkdir(parents=True, exist_ok=True)
    for file, records in (("corpus", corpus), ("queries", [{"_id": n, "text": text} for n, text in queries.items()])):
        lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        (folder / f"{file}.jsonl").write_text(lines, encoding="utf-8", newline="\n")
    for split, rows in judged.items():
        write_tsv(folder / "qrels" / f"{split}.tsv", HEADER, rows)
    counts = {f"{split} judgements": len(rows) for split, rows in judged.items()}
    return {"documents": len(documents), "queries": len(queries), **counts}


def write_tsv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines("\t".join(map(str, row)) + "\n" for row in (columns, *rows))


WRITERS: dict[str, Callable[[Fetch, Path], Counts]] = {
    **{name: partial(write_sts, name) for name in DATASETS},
    "nli": write_nli,
    "qnli": write_qnli,
    "wikiqa": write_wikiqa,
    "wikiqa_beir": write_open_wikiqa,
    "scifact": write_scifact,
}
