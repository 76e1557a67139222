"""Read the question answering sets: QNLI's dev pairs and the candidate sentences of WikiQA's test questions.

QNLI (Wang et al., GLUE, 2019) pairs a question with one sentence, which may or may not answer it. WikiQA (Yang et al.,
EMNLP 2015) has the sentences of a Wikipedia summary for every question. Its filtered file has the 243 test questions
with an answer. We count the 237 that also have a wrong candidate, as castorini/data does. Others count all 243.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from retriever.evaluate.data.tsv import Reading, read_files, read_records

LABELS = {"entailment": True, "not_entailment": False, "1": True, "0": False}


@dataclass(frozen=True)
class QaDataset:
    title: str
    split: str
    file: str
    columns: tuple[str, ...]


WIKIQA_COLUMNS = ("QuestionID", "Question", "DocumentID", "DocumentTitle", "SentenceID", "Sentence", "Label")
DATASETS = {
    "qnli": QaDataset("QNLI", "dev", "qnli/dev.tsv", ("index", "question", "sentence", "label")),
    "wikiqa": QaDataset("WikiQA", "test", "wikiqa/test-filtered.tsv", WIKIQA_COLUMNS),
}


@dataclass(frozen=True)
class QaPair:
    question_id: str
    question: str
    sentence: str
    answers: bool


@dataclass(frozen=True)
class QaSet:
    name: str
    pairs: tuple[QaPair, ...]
    sha256: str

    @cached_property
    def evaluated(self) -> tuple[QaPair, ...]:
        """Return the pairs that are scored. WikiQA's questions need both a right and a wrong candidate."""
        if self.name == "qnli":
            return self.pairs
        labels: dict[str, set[bool]] = {}
        for pair in self.pairs:
            labels.setdefault(pair.question_id, set()).add(pair.answers)
        return tuple(pair for pair in self.pairs if len(labels[pair.question_id]) == 2)

    @cached_property
    def texts(self) -> list[str]:
        """Return every different question and sentence, in the order of the file."""
        return list(dict.fromkeys(text for pair in self.pairs for text in (pair.question, pair.sentence)))


def read_qa(data: Path, names: Sequence[str] = tuple(DATASETS)) -> Reading[QaSet]:
    """Read the named sets. A missing set is left out with a note."""
    files = {name: (DATASETS[name].title, data / DATASETS[name].file) for name in names}
    return read_files(files, _read, how_to_get(data))


def _read(name: str, path: Path) -> tuple[QaSet | None, Sequence[str]]:
    parse = _qnli_pair if name == "qnli" else _wikiqa_parser()
    pairs, problems, sha256 = read_records(path, DATASETS[name].columns, parse)
    found = None if pairs is None else QaSet(name, pairs, sha256)
    if found is None or len({pair.answers for pair in found.evaluated}) == 2:
        return found, problems
    return None, [*problems, f"{path} needs both right and wrong answers: {DATASETS[name].title} is left out"]


def _qnli_pair(cells: list[str]) -> QaPair:
    index, question, sentence, label = cells
    return _pair(index, question, sentence, label, ("entailment", "not_entailment"))


def _wikiqa_parser() -> Callable[[list[str]], QaPair]:
    """Return a parser that refuses a question whose text differs from an earlier row, and a repeated candidate."""
    questions: dict[str, str] = {}
    candidates: set[tuple[str, str]] = set()

    def parse(cells: list[str]) -> QaPair:
        question_id, question, _, _, sentence_id, sentence, label = cells
        pair = _pair(question_id, question, sentence, label, ("1", "0"))
        if questions.setdefault(question_id, question) != question:
            raise ValueError(f"the question {question_id[:40]!r} has another text in an earlier row")
        if (question_id, sentence_id) in candidates:
            raise ValueError(f"the sentence {sentence_id[:40]!r} of {question_id[:40]!r} appears in an earlier row")
        candidates.add((question_id, sentence_id))
        return pair

    return parse


def _pair(question_id: str, question: str, sentence: str, label: str, known: Sequence[str]) -> QaPair:
    if label not in known:
        raise ValueError(f"the label {label[:40]!r} is neither {' nor '.join(map(repr, known))}")
    if not question.strip() or not sentence.strip():
        raise ValueError("the question or the sentence is empty")
    return QaPair(question_id, question, sentence, LABELS[label])


def how_to_get(data: Path) -> str:
    """Return the message for a folder without any set."""
    where = f"{data} holds none of" if data.is_dir() else f"there is no folder {data}; it should hold"
    layouts = "; ".join(f"{known.file} with the header {' '.join(known.columns)!r}" for known in DATASETS.values())
    return (
        f"{where} the sets: {layouts} (UTF-8 TSV without quoting). `retriever bench download {data}` downloads "
        "both from Hugging Face. The originals are GLUE's QNLI (nyu-mll/glue) and WikiQA's filtered test split "
        "(microsoft/wiki_qa, questions with at least one answer)."
    )
