"""The alarm: what is called strange, what is not, and what is said where nothing is known."""

import json
import math
import random
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from samples import Run, write_jsonl

from indexes.folder import generation as generations
from retriever import Document, Retriever
from retriever.corpus.passages import words
from retriever.corpus.python_docs import stdlib_documents
from retriever.errors import Damaged
from retriever.transforms import fit
from retriever.transforms.novelty import JSON_FILE, Drift, Novelty, Reference, ShortTexts, measure

OWN = [
    "how do I parse command line arguments",
    "read a csv file row by row",
    "open a socket and listen for connections",
    "run a subprocess and capture its output",
    "regular expression that matches a whole word",
    "copy a directory tree",
    "write a unit test that expects an exception",
    "parse XML documents",
    "base64 encode bytes",
    "threads",
]
FOREIGN = [
    "symptoms of iron deficiency in pregnant women",
    "who won the football world cup in 1998",
    "The cathedral was built in the twelfth century by French monks.",
    "how are glacier caves formed",
    "Shakespeare wrote sonnets about love and time",
    "Der Hund liegt auf dem Teppich und schläft.",
    "量子力学的基本原理是什么",
    "treatment of high blood pressure in the elderly",
]


@cache
def shuffled_documents() -> list[Document]:
    """Read once, because what is documented changes a little with the modules that were imported."""
    found = [document for document in stdlib_documents() if len(document.text) > 300]
    random.Random(0).shuffle(found)
    return found


def python_documents(first: int, last: int) -> list[Document]:
    """Some of the beginning of Python's documentation of many things, without what is a line or two."""
    found = shuffled_documents()[first:last]
    return [Document(document.id, document.text[:400], document.title) for document in found]


def statutes(count: int) -> list[dict[str, str]]:
    rng = random.Random(1)
    return [
        {
            "id": f"law{i}",
            "text": f"Pursuant to section {rng.randint(1, 900)} of the tax code, deductions for depreciation of leased "
            f"equipment shall not exceed {rng.randint(2, 90)} percent of adjusted gross income in fiscal year {i}.",
        }
        for i in range(count)
    ]


def pets(count: int) -> list[Document]:
    return [Document(f"pet{i}", f"The {i}th animal is a {'cat' if i % 2 else 'dog'} and sleeps.") for i in range(count)]


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real text through the real encoder: passages of several sentences, much longer than a query."""
    folder = tmp_path_factory.mktemp("novelty") / "c"
    Retriever.build(python_documents(0, 200), folder, transform="none").close()
    return folder


@pytest.fixture
def copy(collection: Path, tmp_path: Path) -> Path:
    import shutil

    return Path(shutil.copytree(collection, tmp_path / "copy"))


def test_the_score_is_the_negative_log_likelihood_in_bits_per_dimension() -> None:
    from scipy.stats import multivariate_normal

    rng = np.random.default_rng(0)
    vectors = (rng.normal(size=(5000, 6)) @ rng.normal(size=(6, 6)) + 3).astype(np.float32)
    density = fit("whiten", vectors)
    matrix = density.state.tensors["matrix"].astype(np.float64)
    covariance = np.linalg.inv(matrix @ matrix.T)
    expected = -multivariate_normal(density.state.tensors["mean"], covariance).logpdf(vectors) / (6 * math.log(2))
    novelty = Novelty(density, Reference.of(expected), (), 0)
    np.testing.assert_allclose(novelty.scores(vectors), expected, atol=1e-4)


def test_new_text_of_the_same_kind_scores_like_the_reference_even_from_few_vectors() -> None:
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(40, 40)) * np.linspace(2, 0.1, 40)
    vectors = (rng.normal(size=(2060, 40)) @ mixing).astype(np.float32)
    fitted, new = vectors[:60], vectors[60:]
    novelty = measure(fitted, np.arange(60), lambda rows: ["A text."] * len(rows), None, last_vector=9)
    assert novelty is not None and novelty.bands == () and novelty.query_limit("a query of words") is None
    scores = novelty.scores(new)
    assert novelty.passages.n == 60
    assert abs(scores.mean() - novelty.passages.mean) < 0.1
    assert (scores > novelty.passage_limit).mean() < 0.06
    in_sample = novelty.scores(fitted).mean()
    assert novelty.passages.mean - in_sample > 0.1, "scored by a density that had not seen them"


def test_too_few_vectors_or_equal_ones_have_no_reference() -> None:
    rng = np.random.default_rng(0)
    few = rng.normal(size=(49, 8)).astype(np.float32)
    for vectors in (few, np.ones((100, 8), np.float32)):
        nothing = measure(vectors, np.arange(len(vectors)), lambda rows: [], None, last_vector=0)
        assert nothing is None


def test_a_passage_is_not_judged_by_a_density_that_knows_the_rest_of_its_document() -> None:
    rng = np.random.default_rng(0)
    documents = np.repeat(np.arange(60), 5)
    vectors = (rng.normal(size=(60, 32))[documents] + 0.1 * rng.normal(size=(300, 32))).astype(np.float32)
    new = (rng.normal(size=(200, 32)) + 0.1 * rng.normal(size=(200, 32))).astype(np.float32)
    found = [
        measure(vectors, owners, lambda rows: ["A text."] * len(rows), None, last_vector=0)
        for owners in (documents, np.arange(300), np.zeros(300, np.int64))
    ]
    by_document, by_passage, one_document = (novelty.passages.mean for novelty in found if novelty)
    assert by_passage == one_document < by_document
    assert found[0] is not None and found[0].scores(new).mean() == pytest.approx(by_document, abs=0.15)


def test_a_query_is_judged_by_texts_of_as_many_words() -> None:
    """As an untuned BERT has it: the fewer words, the further out; none of them is any stranger for it."""
    rng = np.random.default_rng(0)

    def texts_and_vectors(lengths: np.ndarray) -> tuple[list[str], np.ndarray]:
        rows = rng.normal(size=(len(lengths), 16)) / np.sqrt(lengths)[:, None]
        return ["word " * n for n in lengths], rows.astype(np.float32)

    long_texts, long_vectors = texts_and_vectors(rng.integers(60, 79, 500))
    short = ShortTexts(*texts_and_vectors(np.concatenate([rng.integers(3, 13, 500), rng.integers(13, 40, 400)])))
    novelty = measure(long_vectors, np.arange(500), lambda rows: [long_texts[r] for r in rows], short, last_vector=0)
    assert novelty is not None and len(novelty.bands) >= 5
    limits = [band.limit for band in novelty.bands]
    assert limits == sorted(limits, reverse=True) and sum(band.n for band in novelty.bands) > 700
    for few in (5, 10, 30):
        texts, vectors = texts_and_vectors(np.full(400, few))
        limit = novelty.query_limit(texts[0])
        assert limit is not None and (novelty.scores(vectors) > limit).mean() < 0.08
        assert (novelty.scores(3 * vectors) > limit).mean() > 0.6, "what is strange for its length is still caught"
    assert novelty.query_limit("two words") is None
    assert novelty.query_limit("word " * 500) == limits[-1]


def test_words_are_counted_in_scripts_without_spaces_too() -> None:
    assert tuple(len(words(t)) for t in ("heat transfer", "it's 3 o'clock", "机翼周围的气流")) == (2, 5, 7)


def test_saved_and_loaded_and_refused_when_damaged(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(80, 8)).astype(np.float32)
    short = ShortTexts(["A few words"] * 60, vectors[:60])
    novelty = measure(vectors, np.arange(80), lambda rows: ["A text."] * len(rows), short, last_vector=7)
    assert novelty is not None and len(novelty.bands) == 1
    assert novelty.save(tmp_path) == [JSON_FILE, "novelty.safetensors"]
    again = Novelty.load(tmp_path)
    assert (again.passages, again.bands, again.last_vector) == (novelty.passages, novelty.bands, 7)
    np.testing.assert_array_equal(again.scores(vectors), novelty.scores(vectors))
    for name in (JSON_FILE, "novelty.safetensors"):
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole.replace(b"7", b"8", 1) if name == JSON_FILE else whole[:-1] + b"\xff")
        with pytest.raises(Damaged, match="verify --repair"):
            Novelty.load(tmp_path)
        (tmp_path / name).write_bytes(whole)


@pytest.mark.heavy
def test_ordinary_short_queries_are_not_strange_and_foreign_ones_are(collection: Path) -> None:
    with Retriever.open(collection) as retriever:
        calm, alarmed = retriever.answer_many(OWN, 3), retriever.answer_many(FOREIGN, 3)
        assert [a.hits for a in calm] == retriever.search_many(OWN, 3), "the hits are the same with the alarm"
        novelty = retriever._searcher.novelty()
    assert novelty is not None and len(novelty.bands) > 2
    assert not [query for query, answer in zip(OWN, calm, strict=True) if answer.strange]
    assert sum(answer.strange for answer in alarmed) >= len(FOREIGN) - 2
    assert calm[-1].novelty is not None and calm[-1].limit is None, "a single word is not judged"


@pytest.mark.heavy
def test_the_command_line_notes_a_strange_query(run: Run, collection: Path, tmp_path: Path) -> None:
    ordinary = run("search", OWN[0], "--index", collection, "--json", "-k", 1)
    assert "unlike" not in ordinary.stderr
    strange = run("search", FOREIGN[0], "--index", collection, "--json", "-k", 1)
    assert "Note: this query is unlike anything in the collection" in strange.stderr
    assert json.loads(strange.stdout).keys() == json.loads(ordinary.stdout).keys()
    asked = [{"_id": "q1", "text": OWN[1]}, {"_id": "q2", "text": FOREIGN[1]}]
    queries = write_jsonl(tmp_path / "q.jsonl", asked)
    many = run("search", "--queries", queries, "--trec", tmp_path / "run.txt", "--index", collection)
    assert (
        "1 of 2 queries are unlike anything in the collection, so their hits may be irrelevant. The first: q2"
        in many.stderr
    )
    prompt = run("search", "--index", collection, input=f"{OWN[1]}\n{FOREIGN[1]}\n")
    assert prompt.stderr.count("Note: this query is unlike") == 1


@pytest.mark.heavy
def test_documents_that_drift_are_said_and_a_rebuild_ends_it(run: Run, copy: Path, tmp_path: Path) -> None:
    def drift() -> dict[str, object]:
        found = json.loads(run("info", "--index", copy, "--json").stdout)["drift"]
        assert isinstance(found, dict)
        return found

    assert drift()["verdict"] == "none: nothing was added since the fit"
    alike = write_jsonl(
        tmp_path / "alike.jsonl", [{"id": d.id, "title": d.title, "text": d.text} for d in python_documents(200, 240)]
    )
    assert "unlike" not in run("add", alike, "--index", copy).stderr
    assert drift()["added"] == 40 and str(drift()["verdict"]).startswith("none: the added text is like")

    foreign = write_jsonl(tmp_path / "foreign.jsonl", statutes(30))
    warned = run("add", foreign, "--index", copy).stderr
    assert "30 of 30 passages added are unlike" in warned and "e.g. law0, law1" in warned
    assert f"retriever rebuild -i {copy}" in warned
    found = drift()
    strange = int(str(found["strange"]))
    assert found["added"] == 70 and 30 <= strange <= 32 and str(found["verdict"]).startswith("strong")
    assert "strong: `retriever rebuild` fits" in " ".join(run("info", "--index", copy).stdout.split())

    run("delete", "law0", "--index", copy)
    assert drift()["strange"] == strange - 1
    assert "unlike" not in run("index", alike, "--index", copy).stderr, "nothing was added"
    assert drift()["strange"] == strange - 1, "kept with the transform by a publication that keeps it"

    assert "nothing was added since the fit" in run("rebuild", "--index", copy, "-v").stdout
    assert drift()["added"] == 0
    assert "unlike" not in run("search", statutes(31)[30]["text"], "--index", copy).stderr


def test_a_transform_that_is_fitted_again_knows_what_was_added(tmp_path: Path, tiny_bert: str) -> None:
    Retriever.build(pets(60), tmp_path / "c", encoder=tiny_bert, transform="center").close()
    with Retriever.open(tmp_path / "c") as retriever:
        report = retriever.add([Document(r["id"], r["text"]) for r in statutes(80)])
        assert retriever.info()["fitted_on"]["passages"] == 140
        assert report.drift is not None and report.drift.added == 0


def test_fewer_than_fifty_vectors_and_collections_without_it(
    run: Run, tmp_path: Path, tiny_bert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Retriever.build(pets(49), tmp_path / "few", encoder=tiny_bert, transform="none") as few:
        assert few.report.drift is None
        assert few.info()["drift"] == {"verdict": "unknown: the transform was fitted on fewer than 50 vectors"}
        assert few.answer_many(["anything at all here"])[0].novelty is None

    with monkeypatch.context() as patched:  # as a version without the alarm made it
        patched.setattr(Novelty, "save", lambda self, folder: [])
        Retriever.build(pets(80), tmp_path / "old", encoder=tiny_bert, transform="none").close()
    with Retriever.open(tmp_path / "old") as old:
        assert not old.answer_many(["of the and in by"], 1)[0].strange
        assert old.add([Document(r["id"], r["text"]) for r in statutes(10)]).drift is None
        assert "`retriever rebuild` measures it" in old.info()["drift"]["verdict"]
    assert "unknown" in run("info", "--index", tmp_path / "old").stdout
    run("rebuild", "--index", tmp_path / "old")
    assert "nothing was added since the fit" in run("info", "--index", tmp_path / "old").stdout


@pytest.mark.heavy
def test_verify_covers_it_and_a_repair_brings_it_back(run: Run, copy: Path) -> None:
    with Retriever.open(copy) as retriever:
        generation = retriever.collection.generation()
        assert generation is not None
        before = Novelty.of(generation)
    (generation.folder / "novelty.safetensors").write_bytes(b"damaged")
    assert "novelty.safetensors" in run("verify", "--index", copy, code=1).output
    assert "verify --repair" in run("search", OWN[0], "--index", copy, code=1).output
    run("verify", "--repair", "--index", copy)
    with Retriever.open(copy) as retriever:
        generation = retriever.collection.generation()
        assert generation is not None and not generations.problems(generation)
        after = Novelty.of(generation)
    assert before is not None and after is not None
    assert (after.passages, after.bands, after.last_vector) == (before.passages, before.bands, before.last_vector)


def test_without_the_encoder_a_rebuild_knows_passages_only(tmp_path: Path, tiny_bert: str) -> None:
    import shutil

    model = Path(shutil.copytree(tiny_bert, tmp_path / "model"))
    Retriever.build(pets(80), tmp_path / "c", encoder=str(model), transform="none").close()
    model.rename(tmp_path / "gone")
    with Retriever.open(tmp_path / "c") as retriever:
        retriever.rebuild(transform="center")
        assert retriever.info()["drift"]["verdict"] == "none: nothing was added since the fit"
    with Retriever.open(tmp_path / "c", encoder=str(tmp_path / "gone")) as retriever:
        (answer,) = retriever.answer_many(["the old duck drinks near the river"], 1)
        assert answer.novelty is not None and answer.limit is None and not answer.strange


def test_the_verdict_needs_more_than_chance() -> None:
    assert Drift(100, 100, 4, 0.0, ()).verdict.startswith("none")
    assert Drift(1000, 1000, 20, 0.0, ()).verdict.startswith("none")
    assert Drift(100, 100, 5, 0.0, ()).verdict.startswith("some")
    assert Drift(50, 50, 5, 0.1, ()).strong


@pytest.mark.slow
@pytest.mark.shared
def test_cranfields_own_queries_are_not_strange(shared_data: Path, tmp_path: Path) -> None:
    def queries(name: str) -> list[str]:
        lines = (shared_data / name / "queries.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["text"] for line in lines][:225]

    lines = (shared_data / "cranfield" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    documents = [json.loads(line) for line in lines[:500]]
    abstracts = [Document(d["_id"], d["text"], d["title"]) for d in documents if d["text"]]
    with Retriever.build(abstracts, tmp_path / "c", transform="none", max_length=128) as retriever:
        own, other = (retriever.answer_many(queries(name), 1) for name in ("cranfield", "scifact"))
    assert sum(answer.strange for answer in own) <= 4
    assert sum(answer.strange for answer in other) >= 150
