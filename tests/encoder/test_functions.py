"""Encoders of the caller: functions, objects and vectors that documents bring. Collections are reopened from disk."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from endpoint_served import anagrams, letters
from samples import PETS, Run

from retriever import Corpus, Document, Retriever
from retriever.cli.prompt import Prompt
from retriever.corpus.document import Skipped
from retriever.errors import EncoderUnavailable, Mismatch, Misuse, NoDocuments, RetrieverError, TextTooLong
from retriever.hits import Options

QUERY = "goldfish swim in a bowl"


def nearest(query: str, texts: dict[str, str]) -> list[str]:
    """The ids by cosine of the letters' counts: an independent dense search."""
    rows = np.array(letters(list(texts.values())))
    vector = np.array(letters([query])[0])
    cosines = rows @ vector / np.linalg.norm(rows, axis=1) / np.linalg.norm(vector)
    return [list(texts)[place] for place in np.argsort(-cosines)]


def test_a_function_is_an_encoder(tmp_path: Path) -> None:
    Retriever.build(PETS, tmp_path / "pets", encoder=letters, transform="none").close()
    with Retriever.open(tmp_path / "pets", encoder=letters) as pets:
        texts = {pet["id"]: f"{pet['title']}\n{pet['text']}" if "title" in pet else pet["text"] for pet in PETS}
        assert [hit.id for hit in pets.search(QUERY, mode="dense")] == nearest(QUERY, texts)
        assert pets.search(QUERY, highlight=True)[0].id == "fish"
        assert pets.add([{"id": "new", "text": "bowl bowl bowl"}]).new == 1
        assert pets.search("bowl", mode="dense")[0].id == "new"
        pets.rebuild(transform="auto")
        assert pets.verify(repair=True).problems == []


@pytest.mark.parametrize("returned", [np.asarray, tuple, lambda rows: np.asarray(rows, np.float64)])
def test_whatever_is_a_matrix_of_numbers_is_taken(tmp_path: Path, returned: Callable[[Any], Any]) -> None:
    with Retriever.build(PETS, tmp_path / "pets", encoder=lambda texts: returned(letters(texts))) as pets:
        assert pets.search(QUERY)[0].id == "fish"


def test_a_tensor_with_gradients_is_taken(tmp_path: Path) -> None:
    import torch

    def embed(texts: list[str]) -> Any:
        return torch.tensor(letters(texts), requires_grad=True)

    with Retriever.build(PETS, tmp_path / "pets", encoder=embed) as pets:
        assert pets.search(QUERY)[0].id == "fish"


def test_tensors_of_any_kind_are_vectors(tmp_path: Path) -> None:
    import torch

    kinds: list[Any] = [{"requires_grad": True}, {"dtype": torch.bfloat16}, {"dtype": torch.int64}]
    tensors = [torch.tensor([1.0 + number, 1.0], **kind) for number, kind in enumerate(kinds)]
    documents = [{"id": str(number), "text": "x", "vector": tensor} for number, tensor in enumerate(tensors)]
    with Retriever.build(documents, tmp_path / "tensors") as built:
        assert not built.report.skipped and len(built) == 3
        assert built.search(vector=torch.tensor([1.0, 1.0], requires_grad=True))[0].id == "0"
    with Retriever.build(["a"], tmp_path / "half", encoder=lambda texts: torch.ones(len(texts), 2).bfloat16()) as half:
        assert half.encoder().identity.dimension == 2
    with pytest.raises(EncoderUnavailable, match="a list of 3 values that are not rows of equal"):
        Retriever.build(
            ["a"], tmp_path / "list", encoder=lambda texts: [torch.ones(2, requires_grad=True)] * len(texts)
        )


def test_embed_gives_the_vectors_of_the_function(tmp_path: Path) -> None:
    with Retriever.build(PETS, tmp_path / "pets", encoder=letters, transform="none", query_prompt="bbb ") as pets:
        found = pets.embed(["a cab", "dad"])
        rows = np.array(letters(["a cab", "dad"]))
        np.testing.assert_allclose(found.vectors, rows / np.linalg.norm(rows, axis=1, keepdims=True), atol=1e-6)
        assert found.tokens.tolist() == [2, 1]
        query = np.array(letters(["bbb a cab"])[0])
        np.testing.assert_allclose(
            pets.embed(["a cab"], queries=True).vectors[0], query / np.linalg.norm(query), atol=1e-6
        )
        with pytest.raises(TextTooLong, match="it has 1,667 tokens, but the encoder accepts at most 256"):
            pets.embed(["a" * 5000])
        for wrong, why in [
            ("a cab", r"for one text, use embed\(\['a cab'\]\)"),
            (3, "`texts` must be a list of texts, not 3"),
            (["a", 3], "text 2 is 3, not a text"),
        ]:
            with pytest.raises(Misuse, match=why):
                pets.embed(wrong)  # type: ignore[arg-type]
    with Retriever.build(points(), tmp_path / "points") as built, pytest.raises(EncoderUnavailable, match="no encoder"):
        built.embed(["a cab"])


def test_a_class_is_no_encoder(tmp_path: Path) -> None:
    class Model:
        def encode(self, texts: list[str]) -> Any:
            return letters(texts)

    with pytest.raises(Misuse, match="`encoder` is the class Model; give an instance of it"):
        Retriever.build(PETS, tmp_path / "pets", encoder=Model)
    Retriever.build(PETS, tmp_path / "pets", encoder=Model()).close()
    with pytest.raises(Misuse, match="`encoder` is an int"):
        Retriever.open(tmp_path / "pets", encoder=3)  # type: ignore[arg-type]


def test_vectors_in_files_are_told_to_be_metadata(tmp_path: Path) -> None:
    (tmp_path / "more.jsonl").write_text('{"id": "new", "text": "new", "vector": [1, 2, 3, 4, 5, 6, 7, 8]}\n')
    with Retriever.build(points(), tmp_path / "points") as built:
        with pytest.raises(NoDocuments, match="those in files are metadata; add it from Python"):
            built.add(Corpus([tmp_path / "more.jsonl"]))
        with pytest.raises(NoDocuments, match="its vector has the length 2, and those of the collection have 8"):
            built.add([{"id": "new", "text": "new", "vector": [1, 2]}])
        assert "new" not in built


def test_reopening_without_the_function_says_what_to_pass(tmp_path: Path, run: Run, pets: Path) -> None:
    Retriever.build(PETS, tmp_path / "pets", encoder=letters).close()
    with Retriever.open(tmp_path / "pets") as opened:
        with pytest.raises(EncoderUnavailable, match=r"made with .*: endpoint_served\.letters\..*encoder=letters\)"):
            opened.search(QUERY)
        assert opened.search("goldfish", mode="lexical")[0].id == "fish"
    assert "fish" in run("search", "goldfish", "--index", tmp_path / "pets", "--mode", "lexical").output
    told = run("search", "goldfish", "--index", tmp_path / "pets", code=1).output
    assert "encoder=letters" in told and "--mode lexical" in told
    assert "endpoint_served.letters" in run("info", "--index", tmp_path / "pets").output
    assert "encoder=letters" in run("add", pets, "--index", tmp_path / "pets", code=1).output
    run("verify", "--index", tmp_path / "pets")


def test_another_encoder_is_refused(tmp_path: Path, tiny_bert: str) -> None:
    Retriever.build(PETS, tmp_path / "pets", encoder=letters).close()
    Retriever.build(PETS, tmp_path / "bert", encoder=tiny_bert).close()
    wider = lambda texts: [[*row, 1.0] for row in letters(texts)]  # noqa: E731
    for folder, other, why in [
        ("pets", anagrams, "its vectors of the same texts differ by"),
        ("pets", wider, "dimension 22 instead of 21"),
        ("pets", tiny_bert, "one is a model, the other is not"),
        ("bert", letters, "one is a model, the other is not"),
    ]:
        with Retriever.open(tmp_path / folder, encoder=other) as opened, pytest.raises(Mismatch, match=why):
            opened.search(QUERY)
        with pytest.raises(Mismatch, match=why):
            Retriever.build([*PETS, "a new text"], tmp_path / folder, encoder=other)
    with Retriever.open(tmp_path / "pets", encoder=lambda texts: letters(texts)) as opened:
        assert len(opened) == len(PETS) and opened.search(QUERY)[0].id == "fish"  # another name, the same vectors


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda texts: [1.0] * len(texts), r"an array of the shape \(3,\) for 3 texts"),
        (lambda texts: np.ones((len(texts) + 1, 4)), r"an array of the shape \(4, 4\) for 3 texts"),
        (lambda texts: np.ones((len(texts), 0)), r"the shape \(3, 0\)"),
        (lambda texts: np.full((len(texts), 4), np.nan), "returned NaN or infinity for the text 'What is"),
        (lambda texts: None, "returned None for 3 texts. It must return an array of numbers"),
        (lambda texts: [[1.0], [1.0, 2.0], []], "a list of 3 values that are not rows of equal length"),
        (lambda texts: [["a"]] * len(texts), "It must return an array of numbers"),
        (lambda texts: 1 / 0, "failed for 3 texts: ZeroDivisionError: division by zero"),
        (
            lambda texts: np.random.default_rng().random((len(texts), 8)),
            "different vectors for the same text in two calls",
        ),
        (lambda texts: np.array(letters(texts)) - np.mean(letters(texts), 0), "must not depend on chance or on the"),
    ],
)
def test_a_function_that_is_no_encoder_is_named_and_nothing_is_stored(
    tmp_path: Path, wrong: Callable[[list[str]], Any], why: str
) -> None:
    with pytest.raises(EncoderUnavailable, match=f"the function .*<lambda>.*{why}"):
        Retriever.build(PETS, tmp_path / "pets", encoder=wrong)
    assert not (tmp_path / "pets").exists()


@pytest.mark.parametrize(
    ("later", "why"),
    [
        (lambda rows: [[*row, 0.0] for row in rows], "returned vectors of 22 dimensions, but 21 before"),
        (lambda rows: np.full(np.shape(rows), np.inf), "returned NaN or infinity for the text"),
        (lambda rows: rows[1:], "an array of the shape"),
    ],
)
def test_a_function_that_fails_later_leaves_whole_documents(
    tmp_path: Path, later: Callable[[Any], Any], why: str
) -> None:
    breaks = [False]

    def embed(texts: list[str]) -> Any:
        return later(letters(texts)) if breaks[0] else letters(texts)

    with Retriever.build(PETS, tmp_path / "pets", encoder=embed) as pets:
        breaks[0] = True
        with pytest.raises(RetrieverError, match=why):
            pets.add([f"text number {number}" for number in range(100)])
        breaks[0] = False
        assert pets.verify().problems == []
        assert pets.add([f"text number {number}" for number in range(100)]).new + len(PETS) <= len(pets)
        assert len(pets) == len(PETS) + 100


def test_long_documents_become_passages_that_the_function_can_read(tmp_path: Path) -> None:
    longest = 0

    def embed(texts: list[str]) -> Any:
        nonlocal longest
        longest = max(longest, *(len(text.encode()) for text in texts))
        return letters(texts)

    text = " ".join(f"Sentence number {number} is about goldfish." for number in range(500))
    with Retriever.build([{"id": "long", "text": text}], tmp_path / "long", encoder=embed, max_length=64) as built:
        assert built.report.passages > 50
    assert longest <= 3 * 64


def test_settings_of_a_model_are_refused(tmp_path: Path) -> None:
    for wrong in ({"pooling": "mean"}, {"precision": "int8"}, {"engine": "ray"}, {"batch_tokens": 9}):
        with pytest.raises(Misuse, match=next(iter(wrong))):
            Retriever.build(PETS, tmp_path / "pets", encoder=letters, **wrong)  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="`encoder` is an int; give a name, a folder, openai:URL#MODEL, a function"):
        Retriever.build(PETS, tmp_path / "pets", encoder=3)  # type: ignore[arg-type]
    assert not (tmp_path / "pets").exists()


@pytest.mark.heavy
def test_a_sentence_transformer_is_an_encoder(tmp_path: Path, tiny_bert: str) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(tiny_bert, device="cpu", prompts={"query": "find: ", "document": "text: "})
    with Retriever.build(PETS, tmp_path / "pets", encoder=model, transform="none") as pets:
        made = pets.query_vectors([QUERY])
        np.testing.assert_allclose(made, model.encode_query([QUERY]), atol=1e-5)
        assert pets.encoder().identity.max_length == model.max_seq_length
        one = {"id": "one", "text": "word " * 300}
        pets.add([one])
        assert len([hit for hit in pets.search("word") if hit.id == "one"]) == 1 and pets.report.passages > 2
    with Retriever.open(tmp_path / "pets", encoder=model) as pets:
        stored = pets.collection.store.vectors([1], 32)[0]
        first = f"{PETS[0]['title']}\n{PETS[0]['text']}"
        np.testing.assert_allclose(stored, model.encode_document([first])[0], atol=2e-3)
    plain = SentenceTransformer(tiny_bert, device="cpu")
    with Retriever.open(tmp_path / "pets", encoder=plain) as pets, pytest.raises(Mismatch):
        pets.search(QUERY)


# ---- vectors that documents bring ---------------------------------------------------------------------------


def points(count: int = 60) -> list[dict[str, Any]]:
    rows = np.random.default_rng(0).standard_normal((count, 8)).astype(np.float16)
    return [
        {"id": f"p{number}", "text": f"point number {number}", "vector": row, "even": number % 2 == 0}
        for number, row in enumerate(rows)
    ]


def test_documents_bring_their_vectors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = points()
    Retriever.build(given, tmp_path / "points").close()
    with Retriever.open(tmp_path / "points") as opened:
        rows = np.array([point["vector"] for point in given], np.float64)
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        for number in (0, 7, 31):
            expected = [f"p{place}" for place in np.argsort(-(unit @ unit[number]))[:10]]
            assert [hit.id for hit in opened.search(vector=given[number]["vector"])] == expected
        assert "vector" not in opened.document("p0").metadata
        assert opened.search(vector=rows[3], where={"even": True})[0].id != "p3"
        assert opened.search("point number 7", mode="lexical", highlight=True)[0].id == "p7"
        both = opened.search("number 7", vector=rows[3], highlight=True, explain=True)
        assert {both[0].id, both[1].id} == {"p3", "p7"}
        assert [hits[0].id for hits in opened.search_many(vectors=rows[:3])] == ["p0", "p1", "p2"]
        assert opened.similar("p0")[0].id == expected_neighbour(unit)
        (answer,) = opened.answer_many(["point number 7"], 3)
        assert answer.hits[0].id == "p7" and "this is a search by words" in answer.note
        (answer,) = opened.answer_many(["zebra"], 3)
        assert not answer.hits and answer.note.endswith("by words. No document has a word of the query.")
        Prompt(opened, options=Options(mode="dense")).answer("point")
        assert ":mode lexical" in capsys.readouterr().err
        with pytest.raises(EncoderUnavailable, match=r"brought their own vectors.*vector=.*lexical"):
            opened.search("point", mode="dense")
        opened.rebuild(transform="whiten")
        opened.rebuild(transform="auto")
        info: Any = opened.info()
        assert info["transform"]["family"] == "none" and "no transform can be compared" in info["choice"]["reason"]
        assert opened.verify(repair=True).problems == []


def expected_neighbour(unit: Any) -> str:
    return f"p{np.argsort(-(unit @ unit[0]))[1]}"


def test_a_changed_vector_is_a_change(tmp_path: Path) -> None:
    given = points()
    with Retriever.build(given, tmp_path / "points") as built:
        assert built.add(given).unchanged == len(given)
        given[4]["vector"] = -given[4]["vector"]
        report = built.add(given)
        assert (report.changed, report.unchanged) == (1, len(given) - 1)
        assert built.search(vector=given[4]["vector"])[0].id == "p4"
        twice = [{"id": "t", "text": "t", "vector": [1.0] * 8}, {"id": "t", "text": "t", "vector": [-1.0] * 8}]
        assert built.add(twice).duplicate_ids == 1
        assert built.search(vector=[-1.0] * 8)[0].score == pytest.approx(1.0)


def test_one_text_may_have_two_vectors(tmp_path: Path) -> None:
    given = [{"id": "a", "text": "same", "vector": [1, 0]}, {"id": "b", "text": "same", "vector": [0, 1]}]
    with Retriever.build(given, tmp_path / "points") as built:
        assert built.search(vector=[0, 1])[0].id == "b" and built.search(vector=[1, 0])[0].id == "a"


def test_vectors_may_be_brought_to_an_encoder(tmp_path: Path) -> None:
    vector = letters(["goldfish"])[0]
    with Retriever.build(PETS, tmp_path / "pets", encoder=letters, transform="none") as pets:
        pets.add([{"id": "mine", "text": "zzz", "vector": vector}, Document("two", "zzz", vector=vector)])
        assert {hit.id for hit in pets.search("goldfish", 2, mode="dense")} == {"mine", "two"}
        assert pets.add([{"id": "own", "text": "zzz"}]).texts_embedded == 1


@pytest.mark.parametrize(
    ("vector", "why"),
    [
        ([1.0] * 7, "its vector has the length 7, and those of the collection have 8"),
        (None, "has no vector of the length 8, and the collection has no encoder"),
        ("abc", "its vector is a string that is not a list of numbers"),
        ([[1.0] * 8], "its vector is a list, not a list of numbers"),
        ([], "its vector is a list, not a list of numbers"),
        (3.0, "its vector is a number, not a list of numbers"),
        ([float("nan")] * 8, "its vector holds NaN"),
        ([1e9] * 8, "or a number beyond half precision"),
    ],
)
def test_a_wrong_vector_is_named(tmp_path: Path, vector: Any, why: str) -> None:
    with Retriever.build(points(), tmp_path / "points") as built:
        report = built.add([{"id": "fine", "text": "fine", "vector": [1.0] * 8}, {"text": "wrong", "vector": vector}])
        assert [isinstance(one, Skipped) and why in one.reason for one in report.skipped_list] == [True]
        assert report.new == 1 and len(built) == 61


def test_a_wrong_vector_of_a_query_is_named(tmp_path: Path) -> None:
    with Retriever.build(points(), tmp_path / "points") as built:
        for vector, why in [
            ([1.0], "has 1 numbers, but the vectors of this collection have 8"),
            ([[1.0] * 8], r"one list of numbers; it has the shape \(1, 8\)"),
            ("abc", "`vector` must be a list of numbers, not 'abc'"),
            ([float("nan")] * 8, "holds NaN"),
        ]:
            with pytest.raises(Misuse, match=why):
                built.search(vector=vector)  # type: ignore[arg-type]
        with pytest.raises(Misuse, match="needs a query; a vector has no words"):
            built.search(vector=[1.0] * 8, mode="lexical")
        with pytest.raises(Misuse, match="2 vectors for 1 queries"):
            built.search_many(["a"], vectors=np.ones((2, 8)))
        with pytest.raises(Misuse, match="give a `query`"):
            built.search()
