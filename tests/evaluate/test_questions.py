"""`retriever evaluate`: own questions, against ranks and measures computed in another way."""

import csv
import json
from pathlib import Path

import ir_measures
import pytest
from samples import Run
from similarity import sentences

from retriever import Corpus, Retriever
from retriever.errors import Misuse
from retriever.evaluate.questions import evaluate, read_questions, suggest

TEXTS = sentences(40, seed=3)
MODES = {"both": "hybrid", "meaning": "dense", "words": "lexical"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Path:
    place = tmp_path_factory.mktemp("collection") / "stories"
    records = [{"id": f"d{n}", "text": text, "file": f"f{n // 2}.md"} for n, text in enumerate(TEXTS)]
    Retriever.build(records, place, encoder=tiny_bert, transform="center").close()
    return place


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["question", "expected"])
        rows.writerows((" ".join(TEXTS[n].split()[1:4]), f"d{n} | d{n + 20}") for n in range(12))
        rows.writerow((" ".join(TEXTS[15].split()[:5]), "f7.md"))
        rows.writerow(("zzz qqq", "d39"))
    return path


def test_figures_are_those_of_ir_measures(folder: Path, questions: Path) -> None:
    with Retriever.open(folder) as retriever:
        found = evaluate(retriever, questions)
        asked = read_questions(retriever, questions)
        assert asked[12].ids == {"d14", "d15"}, "both documents of the file"
        assert [way.name for way in found.ways] == ["both", "meaning", "words", "meaning, raw vectors"]
        qrels = {one.text: dict.fromkeys(one.ids, 1) for one in asked}
        for way in found.ways:
            space = "raw" if "raw" in way.name else "index"
            mode = MODES[way.name.partition(",")[0]]
            hits = {q: retriever.search(q, 10, mode=mode, space=space) for q in qrels}  # type: ignore[arg-type]
            run = {query: {hit.id: -float(hit.rank) for hit in own} for query, own in hits.items()}
            names = ("RR@10", "nDCG@10", "Success@1", "Success@3", "Success@10")
            measures = [ir_measures.parse_measure(name) for name in names]
            expected = ir_measures.calc_aggregate(measures, qrels, run)
            own = (way.mrr, way.ndcg, way.first, way.in_three, way.in_ten)
            assert own == pytest.approx([expected[measure] for measure in measures], abs=1e-9), way.name
            assert way.low <= way.in_three <= way.high


def test_the_command(run: Run, folder: Path, questions: Path, tmp_path: Path) -> None:
    with Retriever.open(folder) as retriever:
        last = retriever.search("a dog", 40)[-1].id
    with questions.open("a") as file:
        file.write(f"a dog,{last}\n")
    result = run("evaluate", questions, "-i", folder, "--html", tmp_path / "report.html")
    assert "A search finds the expected document of " in " ".join(result.stdout.split())
    found = json.loads(run("evaluate", questions, "-i", folder, "--json").stdout)
    failed = [one for one in found["ways"][0]["found"] if one["rank"] is None]
    assert failed and all(f"not found: {one['question']} (expected" in result.stdout for one in failed)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert found["verdict"] in page and "<script" not in page


def test_suggested_questions_can_be_evaluated(run: Run, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    assert "10 questions written to" in run("evaluate", path, "--suggest", 10, "-i", folder).output
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len({row["expected"] for row in rows}) == 10
    for row in rows:
        assert row["question"] in TEXTS[int(row["expected"][1:])]
    words = json.loads(run("evaluate", path, "-i", folder, "--json").stdout)["ways"][2]
    assert words["name"] == "words" and words["in_ten"] > 0.8
    assert "exists already" in run("evaluate", path, "--suggest", 10, "-i", folder, code=2).output


def test_suggestions_are_whole_sentences_of_prose(tmp_path: Path, tiny_bert: str) -> None:
    (tmp_path / "guide.md").write_text(
        "---\nauthor: Ada\n---\n# A long heading of many words\n\n- Every new user signs in to the portal with a key.\n"
        "\n| a table | of words | and more words |\n|---|---|---|\n\n```\nx = 1 # code of many words here\n```\n"
    )
    with Retriever.build(Corpus([tmp_path / "guide.md"]), tmp_path / "c", encoder=tiny_bert) as made:
        assert suggest(made, tmp_path / "q.jsonl", 5) == 1
        assert json.loads((tmp_path / "q.jsonl").read_text()) == {
            "question": "Every new user signs in to the portal with a key.",
            "expected": "guide.md",
        }
        assert read_questions(made, tmp_path / "q.jsonl")[0].ids == {"guide.md"}
        with pytest.raises(Misuse, match=r"q: a file of questions is a \.csv, \.tsv or \.jsonl file"):
            suggest(made, tmp_path / "q", 5)


def test_expected_rows_are_named_by_their_file(tmp_path: Path, tiny_bert: str) -> None:
    (tmp_path / "faq.csv").write_text("id,text\nq1,One.\nq2,Two.\n")
    with Retriever.build(Corpus([tmp_path / "faq.csv"]), tmp_path / "c", encoder=tiny_bert) as made:
        for header, named, ids in (
            ("expected", "faq.csv", {"q1", "q2"}),
            ("file", "faq.csv", {"q1", "q2"}),
            ("id", "q2", {"q2"}),
        ):
            (tmp_path / "q.csv").write_text(f"question,{header}\nwho,{named}\n")
            assert read_questions(made, tmp_path / "q.csv")[0].ids == ids


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        ("question,expected\nwho,d99\n", 2, "no document has the id or the file 'd99'"),
        ("question,expected\nwho,f77.md\n", 2, "Did you mean 'f7.md'?"),
        ("question,expected\nwho,\n", 1, "has no document in the column `expected`"),
        ("question,answer\nwho,d1\n", 1, "has no document in the column `expected`"),
        ("question,expected\n", 2, "has no questions"),
    ],
)
def test_bad_files(run: Run, folder: Path, tmp_path: Path, content: str, code: int, said: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(content)
    assert said in " ".join(run("evaluate", path, "-i", folder, code=code).output.split())


def test_a_file_that_is_not_there(run: Run, folder: Path) -> None:
    assert "retriever evaluate --suggest 20 none.csv" in run("evaluate", "none.csv", "-i", folder, code=2).output
