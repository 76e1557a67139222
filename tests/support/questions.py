"""Small hand-made question answering sets, in the layout that the benchmarks read."""

from pathlib import Path

import numpy as np
from similarity import sentences

QNLI_HEADER = "index\tquestion\tsentence\tlabel\n"
WIKIQA_HEADER = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel\n"


def write_qnli(data: Path, pairs: int = 60) -> Path:
    """Pairs of random sentences; those that are labelled as answers share words with their question."""
    rng, lines = np.random.default_rng(3), sentences(2 * pairs, 30)
    rows = []
    for number in range(pairs):
        question, sentence = lines[2 * number].replace(".", "?"), lines[2 * number + 1]
        answers = bool(rng.integers(2))
        if answers:
            sentence = f"{' '.join(question.split()[:3])} {sentence}"
        rows.append(f"{number}\t{question}\t{sentence}\t{'entailment' if answers else 'not_entailment'}\n")
    path = data / "qnli" / "dev.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(QNLI_HEADER + "".join(rows), encoding="utf-8")
    return path


def write_wikiqa(data: Path, questions: int = 20) -> Path:
    """Questions with 3 to 7 candidates, of which one or two are answers; the last one has nothing but answers."""
    rng, lines = np.random.default_rng(4), iter(sentences(10 * questions, 40))
    rows = []
    for number in range(questions):
        question, count = next(lines).replace(".", "?"), int(rng.integers(3, 8))
        answers = rng.choice(count, int(rng.integers(1, 3)), replace=False)
        for place in range(count):
            label = int(place in answers or number == questions - 1)
            cells = (f"Q{number}", question, f"D{number}", "A title", f"D{number}-{place}", next(lines), str(label))
            rows.append("\t".join(cells) + "\n")
    path = data / "wikiqa" / "test-filtered.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(WIKIQA_HEADER + "".join(rows), encoding="utf-8")
    return path


def cells_of(path: Path) -> list[list[str]]:
    """The rows of a file without its header."""
    return [line.split("\t") for line in path.read_text(encoding="utf-8").removesuffix("\n").split("\n")[1:]]
