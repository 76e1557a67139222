"""`/v1/embeddings`, asked by the real `openai` package."""

import base64
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from numpy.typing import NDArray
from serving import DOCUMENTS, Running, running

from retriever.encoder.encoder import Encoder
from retriever.retriever import Retriever
from retriever.serve import settings as limits
from retriever.transforms.base import load

TEXTS = [document["text"] for document in DOCUMENTS] * 12
PROMPTS = {"query_prompt": "query: ", "document_prompt": "passage: "}


@pytest.fixture(scope="module")
def prompted(tiny_bert: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection whose encoder has prompts, and whose transform shortens the vectors."""
    folder = tmp_path_factory.mktemp("prompted") / "prompted"
    options: dict[str, Any] = {**PROMPTS, "encoder": tiny_bert, "precision": "fp32"}
    Retriever.build(DOCUMENTS, folder, transform="whiten:dimension=3", **options).close()
    return folder


@pytest.fixture(scope="module")
def asked(made_collection: Path, prompted: Path) -> Iterator[Running]:
    with running([made_collection, prompted], token="secret") as server:
        yield server


@pytest.fixture(scope="module")
def client(asked: Running) -> Iterator[openai.OpenAI]:
    with client_of(asked) as found:
        yield found


def client_of(server: Running, key: str = "secret") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}v1", api_key=key, max_retries=0)


def vectors(client: openai.OpenAI, model: str, **options: Any) -> NDArray[np.float64]:
    found = client.embeddings.create(model=model, **options)
    assert [one.index for one in found.data] == list(range(len(found.data)))
    return np.array([one.embedding for one in found.data])


def expected(folder: Path, bert: str, texts: list[str], prompt: str = "") -> NDArray[np.float64]:
    """The vectors that the stored transform gives for the encoder's vectors, each text encoded alone."""
    raw = np.vstack([Encoder(bert, precision="fp32").encode([prompt + text]) for text in texts])
    (file,) = (folder / "generations").glob("*/transform.json")
    found = load(file.parent).apply(raw).astype(np.float64)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def refusal(client: openai.OpenAI, kind: type[openai.APIStatusError], **options: Any) -> str:
    with pytest.raises(kind) as raised:
        client.embeddings.create(**{"model": "pets", "input": "a cat", **options})
    return str(raised.value)


def test_vectors_are_those_of_the_encoder_and_the_transform(
    client: openai.OpenAI, made_collection: Path, tiny_bert: str
) -> None:
    own = expected(made_collection, tiny_bert, TEXTS)
    np.testing.assert_allclose(vectors(client, "pets", input=TEXTS), own, atol=2e-5)  # the client asks for base64
    np.testing.assert_allclose(vectors(client, "pets", input=TEXTS, encoding_format="float"), own, atol=2e-5)
    np.testing.assert_allclose(vectors(client, "pets", input=TEXTS[0]), own[:1], atol=2e-5)
    coded = client.embeddings.create(model="pets", input=TEXTS[:2], encoding_format="base64").data[1].embedding
    decoded = np.frombuffer(base64.b64decode(str(coded)), "<f4")
    np.testing.assert_allclose(decoded, own[1], atol=2e-5)


def test_queries_and_documents_have_their_own_prompt(client: openai.OpenAI, prompted: Path, tiny_bert: str) -> None:
    for kind, prompt in {"document": "passage: ", "query": "query: "}.items():
        found = vectors(client, "prompted", input=TEXTS[:3], extra_body={"input_type": kind})
        np.testing.assert_allclose(found, expected(prompted, tiny_bert, TEXTS[:3], prompt), atol=1e-4)
    without = vectors(client, "prompted", input=TEXTS[:3])
    np.testing.assert_allclose(without, expected(prompted, tiny_bert, TEXTS[:3], "passage: "), atol=1e-4)


def test_the_cosine_is_the_score_of_a_search(server: Running) -> None:
    query = "What hunts at night?"
    hits = server.search(query, mode="dense", k=3)["hits"]
    with client_of(server) as client:
        own = vectors(client, "pets", input=[query], extra_body={"input_type": "query"})[0]
        texts = [f"{hit['title']}\n{hit['passage']}" if hit["title"] else hit["passage"] for hit in hits]
        cosines = vectors(client, "pets", input=texts) @ own
    np.testing.assert_allclose(cosines, [hit["score"] for hit in hits], atol=1e-3)


def test_usage_counts_the_tokens_of_the_encoder(client: openai.OpenAI, tiny_bert: str) -> None:
    tokenizer = Encoder(tiny_bert).tokenizer
    found = client.embeddings.create(model="pets", input=TEXTS)
    count = sum(len(tokenizer.encode(text).ids) for text in TEXTS)
    assert (found.usage.prompt_tokens, found.usage.total_tokens) == (count, count)
    assert found.model == "pets"


def test_dimensions_are_those_after_the_transform_or_refused(client: openai.OpenAI) -> None:
    assert vectors(client, "prompted", input="a cat", dimensions=3).shape == (1, 3)
    message = refusal(client, openai.UnprocessableEntityError, model="prompted", dimensions=2)
    assert "dimensions" in message and "have 3 dimensions and cannot be shortened" in message


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"input": [1, 2, 3]}, "has tokens"),
        ({"input": [[1, 2], [3]]}, "send texts"),
        ({"input": ["good", ""]}, "input.1"),
        ({"input": " \n"}, "input.0: is empty"),
        ({"input": []}, "at least 1 item"),
        ({"input": ["x"] * (limits.MOST_INPUTS + 1)}, "2048"),
        ({"input": ["x" * 3, "a " * 5000, "y"]}, "input.1: it has 5,002 tokens"),
        ({"encoding_format": "int8"}, "encoding_format"),
        ({"extra_body": {"what": 1}}, "what"),
    ],
)
def test_what_it_refuses_is_named(client: openai.OpenAI, options: dict[str, Any], said: str) -> None:
    assert said in refusal(client, openai.UnprocessableEntityError, **options)


def test_other_refusals_reach_the_client_too(asked: Running, client: openai.OpenAI) -> None:
    assert "pets, prompted" in refusal(client, openai.NotFoundError, model="text-embedding-3-small")
    with client_of(asked, "wrong") as stranger:
        assert "token is wrong" in refusal(stranger, openai.AuthenticationError)
    assert "larger than" in refusal(client, openai.APIStatusError, input=["x" * 90_000] * 50)
    headers = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
    half = httpx.post(f"{asked.url}v1/embeddings", content=r'{"model":"pets","input":"\ud800"}', headers=headers)
    assert half.status_code in (200, 422), half.text


def test_a_text_that_is_too_long_fails_only_its_own_request(client: openai.OpenAI) -> None:
    """Requests that arrive together share a batch."""
    own = vectors(client, "pets", input="a cat")
    outcomes: list[object] = []

    def ask(text: str) -> None:
        try:
            outcomes.append(np.allclose(vectors(client, "pets", input=text), own, atol=1e-5))
        except openai.UnprocessableEntityError:
            outcomes.append("refused")

    threads = [threading.Thread(target=ask, args=["a cat" if n % 4 else "a " * 5000]) for n in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("refused") == 6 and outcomes.count(True) == 18


def test_vectors_of_one_reply_come_from_one_transform(fresh: Callable[..., Path]) -> None:
    """The index is published again and again, with another transform, while texts are embedded."""
    folder = fresh()
    with running([folder]) as server, client_of(server) as client, Retriever.open(folder) as retriever:
        stop = threading.Event()

        def publish() -> None:
            number = 0
            while not stop.is_set():
                retriever.rebuild(transform=("none", "whiten:dimension=5", "center")[number % 3])
                number += 1

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            seen = set()
            for _ in range(30):
                try:
                    found = client.embeddings.create(model="pets", input=TEXTS)
                except openai.InternalServerError as error:  # published in each of three attempts
                    assert "published again" in str(error)
                    continue
                seen.add(found.to_dict()["fingerprint"])
                assert len({len(one.embedding) for one in found.data}) == 1
                same = np.array([one.embedding for one in found.data]).reshape(12, len(DOCUMENTS), -1)
                assert np.allclose(same, same[0], atol=1e-4)  # the texts are twelve times the same
        finally:
            stop.set()
            thread.join()
        assert len(seen) > 1
