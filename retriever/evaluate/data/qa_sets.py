"""Read the question answering sets: QNLI's dev pairs and the candidate sentences of WikiQA's test questions.

QNLI (Wang et al., GLUE, 2019) pairs a question with one sentence, which may or may not answer it. WikiQA (Yang et al.,
EMNLP 2015) has the sentences of a Wikipedia summary for every question. Its filtered file has only questions with an
answer, 243 in the test split. We count the 237 of them that also have a wrong candidate, because for the other six
every order is perfect. The filtered judgements of github castorini/data do the same. Others count all 243.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from retriever.errors import Misuse
from retriever.evaluate.data.tsv import Reading, read_records

LABELS = {"entailment": True, "not_entailment": False, "1": True, "0": False}


@dataclass(frozen=True)
class QaDataset:
    title: str
    split: str
    file: str
    columns: tuple[str, ...]


DATASETS = {
    "qnli": QaDataset("QNLI", "dev", "qnli/dev.tsv", ("index", "question", "sentence", "label")),
    "wikiqa": QaDataset(
        "WikiQA",
        "test",
        "wikiqa/test-filtered.tsv",
        ("QuestionID", "Question", "DocumentID", "DocumentTitle", "SentenceID", "Sentence", "Label"),
    ),
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
        """Return the pairs that are scored.

        For QNLI these are all pairs. For WikiQA they are the pairs of questions with both a right and a wrong
        candidate.
        """
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
    wanted = {name: DATASETS[name] for name in names}
    if not any((data / known.file).is_file() for known in wanted.values()):
        raise Misuse(how_to_get(data))
    sets, problems = [], []
    for name, known in wanted.items():
        path = data / known.file
        if not path.is_file():
            problems.append(f"{path} does not exist: {known.title} is left out")
            continue
        records = read_records(path, known.columns, _qnli_pair if name == "qnli" else _wikiqa_parser())
        problems += records.problems
        if records.found is None:
            continue
        found = QaSet(name, records.found, records.sha256)
        if len({pair.answers for pair in found.evaluated}) < 2:
            problems.append(f"{path} needs both right and wrong answers: {known.title} is left out")
            continue
        sets.append(found)
    if not sets:
        raise Misuse("\n".join([f"no set in {data} can be read.", *problems]))
    return Reading(tuple(sets), tuple(problems))


def _qnli_pair(cells: list[str]) -> QaPair:
    index, question, sentence, label = cells
    return _pair(index, question, sentence, label, ("entailment", "not_entailment"))


def _wikiqa_parser() -> Callable[[list[str]], QaPair]:
    """Return a parser that checks each row against the rows before it.

    A question must always have the same text, and a candidate may appear only once.
    """
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
