"""Read test collections in BEIR's layout: corpus.jsonl, queries.jsonl (both also .gz) and qrels/SPLIT.tsv.

Documents are read as by `retriever index`. A judgement that cannot be read is an error, because it would change every
figure. All else that is left out is named in a note, e.g. queries without a text or without judgements. A judged
document that is not in the corpus keeps its judgement, as in trec_eval: if it is relevant, it counts as not found.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from indexes.checksums import file_sha256
from retriever.corpus import Corpus, Document, Keys, Skipped
from retriever.corpus.listing import BEIR_CORPUS
from retriever.corpus.readers.lines import numbered_lines
from retriever.errors import BadSource, Misuse, RetrieverError
from retriever.evaluate.data.tsv import Reading
from retriever.evaluate.rankings import Topics
from retriever.terminal import plural

QUERIES = ("queries.jsonl", "queries.jsonl.gz")
QRELS = "qrels"
HIGHEST_GRADE = 1000
HEADER = ("query-id", "corpus-id", "score")
DEFAULT_SPLIT = "test"
NAMED = 5
LAYOUT = "a BEIR folder holds corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv"

Judgements = dict[str, dict[str, int]]


@dataclass(frozen=True)
class BeirSet:
    """One split of a BEIR folder."""

    folder: Path
    topics: Topics
    repeated: frozenset[str]
    """Ids of the queries that are also documents with the same id and text. They are removed from their own hits."""
    files: Mapping[str, str]
    """SHA-256 of the corpus, the queries and the judgements."""


def read_sets(data: Sequence[Path], split: str | None = None) -> Reading[BeirSet]:
    """Read every given BEIR folder, or the BEIR folders directly inside it. The default split is test, or the only one.

    A given folder that cannot be read is an error. An inner folder that cannot be read is left out with a note.
    """
    sets: dict[Path, BeirSet] = {}
    problems = []
    for folder, named in _folders(data):
        if folder in sets:
            continue
        try:
            sets[folder] = read_set(folder, split)
        except RetrieverError as error:
            if named:
                raise
            problems.append(f"{folder.name} is left out: {error}")
    if not sets:
        raise Misuse("\n".join(["no BEIR folder can be read.", *problems]))
    names = [folder.name for folder in sets]
    if twice := next((name for name in names if names.count(name) > 1), None):
        why = "Results are stored under this name, so rename one of them."
        raise Misuse(f"two folders of --data are called {twice!r}. {why}")
    return Reading(tuple(sets.values()), tuple(problems))


def _folders(data: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    """Yield each BEIR folder, with True if the user gave it and False if it is inside a given folder."""
    for given in data:
        folder = given.expanduser().resolve()
        if not folder.is_dir():
            raise Misuse(f"there is no folder {given}; --data takes {LAYOUT.replace('holds', 'with')}.")
        if _existing(folder, BEIR_CORPUS) or _existing(folder, QUERIES) or (folder / QRELS).is_dir():
            yield folder, True
            continue
        inside = [path for path in sorted(folder.iterdir()) if path.is_dir() and _existing(path, BEIR_CORPUS)]
        if not inside:
            raise Misuse(f"{given} is not a BEIR folder and does not contain one: {LAYOUT}.")
        yield from ((path, False) for path in inside)


def _existing(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def read_set(folder: Path, split: str | None = None) -> BeirSet:
    """Read one BEIR folder. Raise an error if no figure can be computed from it."""
    corpus, queries_file = _existing(folder, BEIR_CORPUS), _existing(folder, QUERIES)
    if corpus is None:
        raise Misuse(f"{folder} has no corpus.jsonl: {LAYOUT}.")
    if queries_file is None:
        raise Misuse(f"{folder} has a corpus but no queries.jsonl, so there is nothing to measure: {LAYOUT}.")
    qrels = _qrels_file(folder, split)
    judgements, doubled = read_judgements(qrels)
    queries, notes = read_queries(queries_file)
    documents, repeated, found = _scan(folder, corpus, queries)
    judged = {query: judgements[query] for query in queries if query in judgements}
    notes += [*found, *_left_out(qrels, judgements, judged, queries, documents)]
    if doubled:
        notes.append(f"duplicate judgements in {qrels.name}: {_some(doubled)}; the last of each counts")
    topics = Topics(
        dataset=folder.name,
        split=qrels.stem,
        queries={query: queries[query] for query in judged},
        judgements=judged,
        documents=len(documents),
        text_of=partial(_text_of, folder),
        notes=tuple(f"{folder.name}: {note}" for note in notes),
    )
    files = {"corpus": corpus, "queries": queries_file, "judgements": qrels}
    return BeirSet(folder, topics, repeated, {name: file_sha256(path) for name, path in files.items()})


def _qrels_file(folder: Path, split: str | None) -> Path:
    found = {path.stem: path for path in sorted((folder / QRELS).glob("*.tsv"))}
    if not found:
        raise Misuse(f"{folder} has no judgements: {folder / QRELS} should hold one file SPLIT.tsv per split.")
    if split is None:
        split = DEFAULT_SPLIT if DEFAULT_SPLIT in found or len(found) > 1 else next(iter(found))
    if split not in found:
        raise Misuse(f"{folder / QRELS} has no {split}.tsv; set --split to one of: {', '.join(found)}.")
    return found[split]


def read_judgements(path: Path) -> tuple[Judgements, list[str]]:
    """Return the grades by query and document id, and a list of duplicate judgements. A grade below 0 counts as 0."""
    judgements: Judgements = {}
    doubled = []
    with path.open("rb") as file:
        for where, line in numbered_lines(file, str(path)):
            try:
                if isinstance(line, Skipped):
                    raise ValueError(line.reason)
                if where == f"{path}:1" and line == "\t".join(HEADER).encode():
                    continue
                query, document, grade = _judgement(line)
            except ValueError as error:
                raise BadSource(f"{where}: {error}; correct the line.") from None
            own = judgements.setdefault(query, {})
            if document in own:
                doubled.append(f"{query} {document}")
            own[document] = max(grade, 0)
    if not judgements:
        raise Misuse(f"{path} has no judgement; a line is {' '.join(HEADER)!r} separated by tabs.")
    return judgements, doubled


def _judgement(line: bytes) -> tuple[str, str, int]:
    """Parse one line into query, document and grade. Raise ValueError if that is not possible."""
    cells = line.decode("utf-8").split("\t")
    if len(cells) != len(HEADER):
        had = plural(len(cells), "column")
        raise ValueError(f"the line has {had}, but it must be {' '.join(HEADER)!r} separated by tabs")
    query, document, given = cells
    try:
        grade = int(given)
    except ValueError:
        raise ValueError(f"the score {given[:40]!r} is not a whole number") from None
    if grade > HIGHEST_GRADE:  # trec_eval allocates an array as long as the grade
        raise ValueError(f"the grade {given[:40]} is above {HIGHEST_GRADE:,}")
    return query, document, grade


def read_queries(path: Path) -> tuple[dict[str, str], list[str]]:
    """Return the queries by id, in the order of the file, and notes. An id with two different texts is an error."""
    queries: dict[str, Document] = {}
    skipped: list[Skipped] = []
    doubled = []
    for item in _documents(Corpus([path], keys=Keys(fixed=True)), str(path), skipped):
        known = queries.setdefault(item.id, item)
        if known.text != item.text:
            another = f"the query {item.id!r} has another text at {known.source}; give one of the two another id."
            raise BadSource(f"{item.source}: {another}")
        doubled += [item.id] if known is not item else []
    notes = _unread("queries", path, skipped)
    if not queries:
        raise Misuse("\n".join([f"{path} has no query.", *notes]))
    if doubled:
        notes.append(f"duplicate queries in {path.name}: {_some(doubled)}; each is searched once")
    return {id_: query.text for id_, query in queries.items()}, notes


def _scan(folder: Path, path: Path, queries: Mapping[str, str]) -> tuple[set[str], frozenset[str], list[str]]:
    """Return the ids of all documents, the ids of the queries that are also documents, and notes."""
    documents: set[str] = set()
    skipped: list[Skipped] = []
    doubled = []
    same: dict[str, bool] = {}
    for item in _documents(Corpus([folder]), path.name, skipped):
        doubled += [item.id] if item.id in documents else []
        documents.add(item.id)
        if item.id in queries:
            same[item.id] = _same(item, queries[item.id])
    repeated = frozenset(id_ for id_ in same if same[id_])
    notes = _unread("documents", path, skipped)
    if not documents:
        raise Misuse("\n".join([f"{path} has no document.", *notes]))
    if doubled:
        notes.append(f"duplicate document ids in {path.name}: {_some(doubled)}; the last document of each is searched")
    if repeated:
        named = _some(sorted(repeated))
        notes.append(f"queries that are also documents: {named}; as in BEIR, a query does not find itself")
    if other := [id_ for id_ in same if not same[id_]]:
        unlike = "they are ranked like others, although BEIR's own evaluation, which compares only ids, removes them"
        notes.append(f"documents that have a query's id but another text: {_some(other)}; {unlike}")
    return documents, repeated, notes


def _documents(corpus: Corpus, whole: str, skipped: list[Skipped]) -> Iterator[Document]:
    """Yield the documents, and collect unreadable records in `skipped`. A truncated file is an error."""
    for item in corpus:
        if isinstance(item, Document):
            yield item
        elif item.where == whole:
            raise BadSource(f"{item.where} {item.reason}; download it again.")
        else:
            skipped.append(item)


def _same(document: Document, query: str) -> bool:
    """Return whether the query is the text of the document, with or without its title. White space is ignored."""
    texts = (document.text, f"{document.title} {document.text}")
    return " ".join(query.split()) in [" ".join(text.split()) for text in texts]


def _left_out(
    qrels: Path, judgements: Judgements, judged: Judgements, queries: Mapping[str, str], documents: set[str]
) -> Iterator[str]:
    """Yield a note about each kind of query and document left out. Raise Misuse if no judgement fits."""
    if not judged:
        both = f"it names {_some(judgements)}, but the queries are {_some(queries)}"
        raise Misuse(f"{qrels} judges none of the queries in queries.jsonl: {both}.")
    named = dict.fromkeys(document for own in judged.values() for document in own)
    missing = [document for document in named if document not in documents]
    if len(missing) == len(named):
        both = f"it names {_some(named)}, but the documents are {_some(sorted(documents))}"
        raise Misuse(f"{qrels} judges none of the documents in the corpus: {both}.")
    if unknown := [query for query in judgements if query not in judged]:
        lacking = f"queries of {qrels.name} that queries.jsonl does not have, or has without text"
        yield f"{lacking}: {_some(unknown)}; they are left out of every mean"
    if unjudged := len(queries) - len(judged):
        yield f"queries without judgements in {qrels.name}: {unjudged:,} of {len(queries):,}, left out"
    if missing:
        kept = "they stay judged, as in trec_eval, so a relevant document among them counts as not found"
        yield f"judged documents that are not in the corpus, or could not be read from it: {_some(missing)}; {kept}"
    if hopeless := [query for query, own in judged.items() if not any(own.values())]:
        yield f"queries without a relevant document: {_some(hopeless)}; they count as 0 in every mean, as in trec_eval"


def _some(ids: Collection[str]) -> str:
    """Return the number of ids and the first few of them as text."""
    shown = ", ".join(repr(id_) for id_ in islice(ids, NAMED))
    return f"{len(ids):,} ({shown}{', …' if len(ids) > NAMED else ''})"


def _unread(what: str, path: Path, skipped: Sequence[Skipped]) -> list[str]:
    read = f"{what} that could not be read from {path.name}: {len(skipped):,}"
    return [f"{read}, first {one.where}: {one.reason}" for one in skipped[:1]]


def _text_of(folder: Path, ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    wanted = set(ids)
    found = (item for item in Corpus([folder]) if isinstance(item, Document))
    return {item.id: (item.title, item.text) for item in found if item.id in wanted}
