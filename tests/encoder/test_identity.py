"""Whatever decides a vector, swapped for another of the same dimension: refused, naming both."""

import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from samples import make_bert

from retriever import Document, Retriever
from retriever.encoder.model_files import EncoderIdentity, ModelFiles
from retriever.encoder.runtimes.onnx_runtime import export_folder
from retriever.errors import Damaged, Mismatch
from retriever.transforms import load_transform

TEXTS = [f"Number {i} is {'even' if i % 2 == 0 else 'odd'}." for i in range(60)]


@pytest.fixture
def model(tiny_bert: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bert, tmp_path / "model"))


@pytest.fixture
def folder(model: Path, tmp_path: Path) -> Path:
    Retriever.build(
        [Document(f"d{i}", text) for i, text in enumerate(TEXTS)],
        tmp_path / "c",
        encoder=str(model),
        transform="whiten",
        precision="fp32",
    ).close()
    return tmp_path / "c"


def weights(model: Path) -> None:
    other = make_bert(model.parent / "other", seed=5)
    shutil.copy(other / "model.safetensors", model / "model.safetensors")


def one_weight(model: Path) -> None:
    path = model / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def config(model: Path) -> None:
    path = model / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"hidden_act": "relu"}))


def tokenizer(model: Path) -> None:
    path = model / "tokenizer.json"
    path.write_text(path.read_text().replace('"lowercase": true', '"lowercase": false').replace('"lowercase":true', ""))


def vocabulary(model: Path) -> None:
    path = model / "vocab.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[2000], lines[2001] = lines[2001], lines[2000]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize("swap", [weights, one_weight, config, tokenizer, vocabulary])
def test_an_encoder_changed_where_it_lies(folder: Path, model: Path, swap: Callable[[Path], None]) -> None:
    with Retriever.open(folder) as retriever:
        stored = EncoderIdentity.from_json(retriever.collection.encoder)
    swap(model)
    with Retriever.open(folder) as retriever:
        actions: list[Callable[[], object]] = [
            lambda: retriever.search("Number 7"),
            lambda: retriever.add([Document("new", "Something else.")]),
            lambda: retriever.search("Number 7", mode="hybrid"),
        ]
        for action in actions:
            with pytest.raises(Mismatch, match=re.escape(stored.name)) as refused:
                action()
            assert re.search(r"(weights|tokenizer|config) \w{12} instead of \w{12}", str(refused.value))
    with pytest.raises(Mismatch):
        Retriever.build(["More."], folder, encoder=str(model))


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [
        ("pooling", "cls", "pooling cls instead of mean"),
        ("max_length", 64, "max_length 64 instead of 128"),
        ("precision", "int8", "precision int8 instead of fp32"),
    ],
)
def test_settings_that_decide_vectors(folder: Path, option: str, value: object, named: str) -> None:
    with pytest.raises(Mismatch, match=named):
        Retriever.build(["More."], folder, **{option: value})


def record(folder: Path, checksummed: bool, **changed: object) -> None:
    """Have the collection record another encoder, with a checksum that fits or with the one it had."""
    with Retriever.open(folder) as retriever:
        store = retriever.collection.store
        other = store.setting("encoder", checked=False) | changed
        if checksummed:
            store.set_settings({"encoder": other})
        else:
            with store.changing() as database:
                value = json.dumps(other, sort_keys=True)
                database.conn.execute("UPDATE settings SET value = ? WHERE key = 'encoder'", [value])


@pytest.mark.parametrize("checksummed", [False, True])
@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("pooling", "cls", "pooling mean against cls"),
        ("max_length", 64, "max_length 128 against 64"),
        ("max_length", 928, "max_length 128 against 928"),
        ("precision", "int8", "precision fp32 against int8"),
        ("weights", "0" * 64, rf"weights \w{{64}} against {'0' * 64}"),
    ],
)
def test_another_encoder_in_what_the_collection_records(
    folder: Path, model: Path, key: str, value: object, named: str, checksummed: bool
) -> None:
    with Retriever.open(folder) as retriever:
        before = [(hit.id, hit.score) for hit in retriever.search("Number 7", 60)]
    record(folder, checksummed, **{key: value})
    new = Document("new", "Something else, said at some length. " * 40)
    with Retriever.open(folder) as retriever:
        actions: list[Callable[[], object]] = [
            lambda: retriever.search("Number 7"),
            lambda: retriever.search("Number 7", mode="hybrid"),
            lambda: retriever.search("Number 7", space="raw"),
            lambda: retriever.similar("d7"),
            lambda: retriever.add([new]),
            lambda: retriever.delete(["d7"]),
            lambda: retriever.rebuild(),
            lambda: Retriever.build([new], folder, encoder=str(model)),
        ]
        for action in actions:
            with pytest.raises(Damaged, match=f"{named}.*; run: retriever verify --repair"):
                action()
        assert len(retriever) == 60 and retriever.collection.store.count("vectors") == 60, "nothing was written"
        assert retriever.verify(repair=True).left == []
        assert [(hit.id, hit.score) for hit in retriever.search("Number 7", 60)] == before
        retriever.add([new])
        assert retriever.search(new.text[:300], 1)[0].id == "new"


def test_another_encoder_recorded_before_there_is_an_index(folder: Path) -> None:
    with Retriever.open(folder) as retriever:
        retriever.collection.forget_generation()
    record(folder, False, pooling="cls")
    with Retriever.open(folder) as retriever:
        with pytest.raises(Damaged, match="'encoder' is damaged"):
            retriever.add([Document("new", "Something else.")])
        with pytest.raises(Damaged, match="retriever salvage NEW"):
            retriever.verify(repair=True)
    record(folder, True, pooling="first-last", max_length=928)
    with Retriever.open(folder) as retriever, pytest.raises(Mismatch, match="up to 928 tokens, .* accepts at most 128"):
        retriever.add([Document("new", "Something else.")])


@pytest.mark.parametrize("key", ["transform", "index_type", "recall", "choice", "checksums"])
def test_a_changed_setting_is_neither_taken_nor_hidden(folder: Path, key: str) -> None:
    with sqlite3.connect(folder / "documents.sqlite") as connection:
        value = "[]" if key == "checksums" else "0.5" if key == "recall" else '"center"'
        connection.execute("UPDATE settings SET value = ? WHERE key = ?", [value, key])
    connection.close()
    with Retriever.open(folder) as retriever:
        with pytest.raises(Damaged, match=f"the setting '{key}'"):
            retriever.add([Document("new", "Something else.")])
            retriever.info()
        assert any(key in problem for problem in retriever.verify().problems)
        assert retriever.verify(repair=True).left == []
        retriever.add([Document("new", "Something else.")])
        assert retriever.verify().clean


def other_collection(model: Path, place: Path) -> Path:
    """One with the same encoder and dimension, of other text."""
    documents = [Document(f"d{i}", f"Some other thing, the {i}th.") for i in range(60)]
    Retriever.build(documents, place, encoder=str(model), transform="whiten", precision="fp32").close()
    return place


@pytest.mark.heavy
@pytest.mark.parametrize(
    "names",
    [
        ["transform.safetensors"],
        ["transform.safetensors", "transform.json"],
        ["vectors.faiss"],
        ["numbers.npy", "vectors.faiss"],
        ["manifest.json", "transform.safetensors", "transform.json", "vectors.faiss", "numbers.npy"],
    ],
)
def test_files_of_another_collections_generation(folder: Path, model: Path, tmp_path: Path, names: list[str]) -> None:
    with Retriever.open(folder) as retriever:
        before = [(hit.id, hit.score) for hit in retriever.search("Number 7", 60)]
    other = other_collection(model, tmp_path / "other") / "generations" / "000001"
    for name in names:
        shutil.copy(other / name, folder / "generations" / "000001" / name)
    with Retriever.open(folder) as retriever:
        assert not retriever.verify().clean
        named = (
            r"its SHA-256 is \w{12}, (its manifest|the database) says \w{12}|has [\d,]+ bytes, its manifest says [\d,]+"
        )
        with pytest.raises(Damaged, match=f"({named}).*verify --repair"):
            retriever.search("Number 7")
        assert retriever.verify(repair=True).left == []
        assert [(hit.id, hit.score) for hit in retriever.search("Number 7", 60)] == before


def test_a_transform_that_is_not_the_indexs(folder: Path, model: Path, tmp_path: Path) -> None:
    """Its files agree with the manifest, and the transform is still another than the index was built with."""
    other = other_collection(model, tmp_path / "other") / "generations" / "000001"
    with Retriever.open(folder) as retriever:
        generation = retriever.collection.generation()
        assert generation
        for name in ("transform.safetensors", "transform.json"):
            shutil.copy(other / name, generation.folder / name)
        with pytest.raises(Mismatch, match=r"with the transform \w{12}, but the transform stored beside it is \w{12}"):
            load_transform(generation)


def test_a_database_of_another_collection(folder: Path, model: Path, tmp_path: Path) -> None:
    other = other_collection(model, tmp_path / "other")
    shutil.copy(other / "documents.sqlite", folder / "documents.sqlite")
    with Retriever.open(folder) as retriever, pytest.raises(Damaged, match="manifest.json was changed"):
        retriever.search("Number 7")


@pytest.mark.heavy
def test_an_exported_encoder_swapped_for_another_is_made_again(folder: Path, model: Path, other_bert: str) -> None:
    with Retriever.open(folder) as retriever:
        before = [(hit.id, hit.score) for hit in retriever.search("Number 7", 60)]
    own = export_folder(ModelFiles(str(model)).identity(precision="fp32"))
    with Retriever.build(["Some text."], folder.parent / "of-other", encoder=other_bert, precision="fp32"):
        pass
    foreign = export_folder(ModelFiles(other_bert).identity(precision="fp32"))
    assert own != foreign and own.is_dir() and foreign.is_dir()
    shutil.rmtree(own)
    shutil.copytree(foreign, own)
    with Retriever.open(folder) as retriever:
        assert [(hit.id, hit.score) for hit in retriever.search("Number 7", 60)] == before


def test_a_collection_carried_elsewhere(folder: Path, model: Path, tmp_path: Path) -> None:
    with Retriever.open(folder) as retriever:
        before = [(hit.id, hit.score) for hit in retriever.search("Number 7", 60)]
    there = tmp_path / "elsewhere"
    shutil.copytree(folder, there / "c")
    shutil.move(model, there / "model")
    with Retriever.open(there / "c", encoder=str(there / "model")) as retriever:
        assert [(hit.id, hit.score) for hit in retriever.search("Number 7", 60)] == before
        assert retriever.verify().clean
