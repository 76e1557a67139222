"""Prompts: read from the model's folder or given, put before queries and passages, and refused if they differ."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from retriever import Document, Retriever
from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import ModelFiles
from retriever.encoder.prompts import CONFIG, Prompts, missing_prompts
from retriever.errors import EncoderUnavailable, Mismatch, Misuse

DOCUMENTS = [Document(f"d{i}", f"Number {i} is {'even' if i % 2 == 0 else 'odd'}.") for i in range(8)]
GIVEN = {"query_prompt": "query: ", "document_prompt": "passage: "}


@pytest.fixture
def model(tiny_bert: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bert, tmp_path / "model"))


def write(model: Path, **config: object) -> None:
    (model / CONFIG).write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, ("", "")),
        ({"prompts": {"query": "q: ", "document": "d: "}}, ("q: ", "d: ")),
        ({"prompts": {"query": "q: ", "passage": "p: "}, "default_prompt_name": None}, ("q: ", "p: ")),
        ({"prompts": {"query": "q: ", "other": "o: "}, "default_prompt_name": "other"}, ("q: ", "o: ")),
        ({"prompts": {"query": "q: "}}, ("q: ", "")),
    ],
)
def test_a_folder_brings_its_prompts(model: Path, config: dict[str, object], expected: tuple[str, str]) -> None:
    write(model, **config)
    identity = ModelFiles(str(model)).identity()
    assert (identity.query_prompt, identity.document_prompt) == expected
    none = ModelFiles(str(model)).identity(query_prompt="", document_prompt="")
    assert (none.query_prompt, none.document_prompt) == ("", "")


@pytest.mark.parametrize("config", [{"prompts": [1]}, {"prompts": {"query": 1}}, {"default_prompt_name": "lost"}])
def test_damaged_prompts_are_refused(model: Path, config: dict[str, object]) -> None:
    write(model, **config)
    with pytest.raises(EncoderUnavailable, match=CONFIG):
        ModelFiles(str(model)).identity()


def test_prompts_are_put_before_texts(tiny_bert: str) -> None:
    bare, prompted = Encoder(tiny_bert, device="cpu"), Encoder(tiny_bert, device="cpu", **GIVEN)
    texts = ["the dog", "a cat sleeps", "one", "two", "three"]
    queries, passages = ([f"{prompt}{text}" for text in texts] for prompt in GIVEN.values())
    np.testing.assert_allclose(prompted.encode(texts), bare.encode(passages), atol=1e-6)
    np.testing.assert_allclose(prompted.encode_queries(texts), bare.encode(queries), atol=1e-6)
    np.testing.assert_allclose(prompted.encode_queries(texts, here=True), bare.encode(queries), atol=1e-6)
    assert prompted.token_budget == bare.token_budget - bare.count_tokens(["passage: "])[0]
    with pytest.raises(Misuse, match="leave no room"):
        _ = Encoder(tiny_bert, document_prompt="word " * 600).token_budget


def test_other_prompts_are_refused_by_name(tiny_bert: str, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    Retriever.build(DOCUMENTS, folder, encoder=tiny_bert, pooling="mean", **GIVEN).close()
    with Retriever.build(DOCUMENTS, folder) as again:  # the stored prompts are kept
        assert again.report.texts_embedded == 0
        assert {name: again.info()["encoder"][name] for name in GIVEN} == GIVEN
        bare = Encoder(tiny_bert, pooling="mean", device="cpu").encode(["query: Number 3"])
        np.testing.assert_allclose(again.query_vectors(["Number 3"]), bare, atol=1e-6)
    with pytest.raises(Mismatch, match="query_prompt 'q: ' instead of 'query: '"):
        Retriever.build(DOCUMENTS, folder, query_prompt="q: ")


def test_an_exported_folder_has_the_prompts(tiny_bert: str, tmp_path: Path) -> None:
    with Retriever.build(
        DOCUMENTS, tmp_path / "c", encoder=tiny_bert, pooling="mean", transform="none", **GIVEN
    ) as made:
        made.export(tmp_path / "out", "sentence-transformers")
    config = json.loads((tmp_path / "out" / CONFIG).read_text())
    assert config["prompts"] == {"query": "query: ", "document": "passage: "}


def test_a_learned_table_has_no_prompts(tiny_bert: str, tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="no prompts"):
        Retriever.build(DOCUMENTS, tmp_path / "c", encoder=tiny_bert, pooling="learned", **GIVEN)


def test_a_hint_for_models_that_need_prompts() -> None:
    assert "query: " in missing_prompts("intfloat/e5-small-v2", Prompts())
    assert not missing_prompts("intfloat/e5-small-v2", Prompts("query: ", "passage: "))
    assert not missing_prompts("/models/made5", Prompts())
