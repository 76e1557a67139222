"""An endpoint as the encoder, served on loopback: indexed and searched, from Python and the command line; failures."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from endpoint_served import Served, anagrams, endpoint, letters
from samples import PETS, Run

from retriever import Retriever
from retriever.encoder import endpoint as module
from retriever.errors import EncoderUnavailable, Mismatch, Misuse, RetrieverError

pytestmark = pytest.mark.heavy


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "PAUSES", (0.01, 0.01, 0.01))


@pytest.fixture
def served() -> Iterator[Served]:
    with endpoint() as running:
        yield running


def test_it_is_indexed_and_searched_from_the_command_line(served: Served, tmp_path: Path, pets: Path, run: Run) -> None:
    folder = tmp_path / "collection"
    run("index", pets, "--index", folder, "--encoder", served.encoder)
    assert "fish" in run("search", "goldfish in a bowl", "--index", folder, "-k", "1").output
    assert served.encoder in run("info", "--index", folder).output
    with Retriever.open(folder) as opened, Retriever.build(PETS, tmp_path / "same", encoder=letters) as same:
        queries = ["goldfish", "purr", "morning"]
        theirs = [[hit.id for hit in hits] for hits in same.search_many(queries)]
        assert [[hit.id for hit in hits] for hits in opened.search_many(queries)] == theirs
    assert served.requests[0]["model"] == "letters" and served.keys[0] is None
    told = run("export", tmp_path / "model", "--index", folder, "--format", "sentence-transformers", code=2).output
    assert "has no files" in told


def test_the_key_comes_from_the_environment(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    Retriever.build(PETS, tmp_path / "pets", encoder=served.encoder).close()
    assert set(served.keys) == {"Bearer secret"}
    for path in (tmp_path / "pets").rglob("*"):
        assert not path.is_file() or b"secret" not in path.read_bytes()


def test_the_key_goes_to_no_address_that_only_the_collection_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    foreign = "openai:https://foreign.example/v1#m"
    assert "Authorization" not in module.Endpoint(foreign, named=False)._headers()
    assert "Authorization" in module.Endpoint(foreign, named=True)._headers()
    monkeypatch.setenv("OPENAI_BASE_URL", "https://foreign.example/v1")
    assert "Authorization" in module.Endpoint(foreign, named=False)._headers()
    with pytest.raises(Misuse, match="not encrypted"):
        module.Endpoint("openai:http://foreign.example/v1#m", named=True)._headers()


@pytest.mark.parametrize(
    "wrong",
    ["openai:", "openai:m", "openai:localhost#m", "openai:ftp://h#m", "openai:http://h/v1#", "openai:http://#m"],
)
def test_a_wrong_address_is_named(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(Misuse, match="write openai:URL#MODEL"):
        Retriever.build(PETS, tmp_path / "pets", encoder=wrong)
    with pytest.raises(Misuse, match="must not hold a password"):
        Retriever.build(PETS, tmp_path / "pets", encoder="openai:http://me:secret@h/v1#m")


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"<html>hello", "something that is not JSON: b'<html>hello'"),
        (b'{"data": [{"index": Infinity}, {"index": 1}, {"index": 2}]}', "something that is not 3 vectors"),
        (b"[]", "something that is not 3 vectors"),
        (b'{"data": []}', "something that is not 3 vectors"),
        (b'{"data": [{"index": 0, "embedding": "AAAA"}]}', "something that is not 3 vectors"),
        (b'{"data": [{"index": 0}, {"index": 0}, {"index": 0}]}', "something that is not 3 vectors"),
    ],
)
def test_nonsense_is_named_and_nothing_is_stored(served: Served, tmp_path: Path, raw: bytes, why: str) -> None:
    served.raw = raw
    with pytest.raises(EncoderUnavailable, match=f"the endpoint {served.url} .*{why}"):
        Retriever.build(PETS, tmp_path / "pets", encoder=served.encoder)
    assert not (tmp_path / "pets").exists()


@pytest.mark.parametrize("row", [[float("nan"), 1.0], [], ["a"], [1e39, 1.0]])
def test_rows_that_are_no_vectors_are_named(served: Served, tmp_path: Path, row: list[float]) -> None:
    served.embed = lambda texts: [row] * len(texts)
    with pytest.raises(RetrieverError, match=f"the endpoint {served.url} (returned|answered)"):
        Retriever.build(PETS, tmp_path / "pets", encoder=served.encoder)
    assert not (tmp_path / "pets").exists()


def test_an_endpoint_that_is_down_is_named(served: Served, tmp_path: Path, run: Run) -> None:
    Retriever.build(PETS, tmp_path / "pets", encoder="openai:" + served.url + "#m").close()
    gone = "openai:http://127.0.0.1:9/v1#m"
    with pytest.raises(EncoderUnavailable, match="127.0.0.1:9/v1 cannot be reached: .*refused"):
        Retriever.build(PETS, tmp_path / "other", encoder=gone)
    assert not (tmp_path / "other").exists()
    told = run("search", "goldfish", "--index", tmp_path / "pets", "--encoder", gone, code=1).output
    assert "cannot be reached" in told and "--mode lexical" in told
    assert "fish" in run("search", "goldfish", "--index", tmp_path / "pets", "--mode", "lexical").output


def test_a_slow_endpoint_is_named(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.2)
    served.seconds = 1.0
    with pytest.raises(EncoderUnavailable, match=r"did not answer within 0\.2 seconds"):
        Retriever.build(PETS, tmp_path / "pets", encoder=served.encoder)


def test_an_answer_that_never_ends_is_named(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.5)
    served.raw, served.drip = b" " * 50, 0.1
    with pytest.raises(EncoderUnavailable, match=r"did not answer within 0\.5 seconds"):
        Retriever.build(PETS, tmp_path / "pets", encoder=served.encoder)


def test_embed_asks_the_endpoint(served: Served, tmp_path: Path) -> None:
    texts = [f"text {number} of many" for number in range(100)]
    with Retriever.build(PETS, tmp_path / "pets", encoder=served.encoder, transform="none") as pets:
        found = pets.embed(texts)
        rows = np.array(letters(texts))
        np.testing.assert_allclose(found.vectors, rows / np.linalg.norm(rows, axis=1, keepdims=True), atol=1e-6)
        assert len(found.tokens) == 100
        served.embed = lambda texts: [[float("nan")] * len(row) for row in letters(texts)]
        with pytest.raises(EncoderUnavailable, match="returned NaN or infinity for the text 'text "):
            pets.embed(texts)


def test_transient_failures_are_tried_again(served: Served, tmp_path: Path) -> None:
    served.status = [503, 429, 500]
    with Retriever.build(PETS, tmp_path / "pets", encoder=served.encoder) as pets:
        assert len(pets) == len(PETS)
    served.status = [503] * 10
    with pytest.raises(EncoderUnavailable, match="refused the request .*503.*not now"):
        Retriever.build(PETS, tmp_path / "other", encoder=served.encoder)


def test_a_refused_key_says_which_variable_to_set(served: Served, tmp_path: Path) -> None:
    served.status = [401]
    with pytest.raises(EncoderUnavailable, match="401 .*Set OPENAI_API_KEY"):
        Retriever.build(PETS, tmp_path / "pets", encoder=served.encoder)


def test_a_redirect_is_not_followed(served: Served, tmp_path: Path) -> None:
    served.status, served.headers = [307], {"Location": "http://127.0.0.1:9/v1"}
    with pytest.raises(EncoderUnavailable, match="It redirects to http://127.0.0.1:9/v1"):
        Retriever.build(PETS, tmp_path / "pets", encoder=served.encoder)


def test_another_model_at_the_address_is_refused(served: Served, tmp_path: Path) -> None:
    Retriever.build(PETS, tmp_path / "pets", encoder=served.encoder).close()
    served.embed = anagrams
    with Retriever.open(tmp_path / "pets") as opened, pytest.raises(Mismatch, match="of the same texts differ"):
        opened.search("goldfish")
    served.embed = lambda texts: [row[:9] for row in letters(texts)]
    with Retriever.open(tmp_path / "pets") as opened, pytest.raises(Mismatch, match="dimension 9 instead of 21"):
        opened.search("goldfish")


def test_another_dimension_during_an_ingestion_leaves_whole_documents(served: Served, tmp_path: Path) -> None:
    with Retriever.build(PETS, tmp_path / "pets", encoder=served.encoder) as pets:
        served.embed = lambda texts: [row[:9] for row in letters(texts)]
        with pytest.raises(Mismatch, match="returned vectors of 9 dimensions, but 21 before"):
            pets.add([f"text {number}" for number in range(100)])
        served.embed = letters
        assert pets.verify().problems == []
        pets.add([f"text {number}" for number in range(100)])
        assert len(pets) == len(PETS) + 100
