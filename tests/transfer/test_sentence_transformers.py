"""The exported model as sentence-transformers loads it, against the vectors and scores of the collection."""

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from samples import Run, make_bert, write_jsonl

from indexes.faiss.vectors import unit_rows
from retriever import Retriever
from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import POOLINGS, ModelFiles
from retriever.errors import EncoderUnavailable, Misuse
from retriever.transfer.sentence_transformers import write_sentence_folder
from retriever.transforms import FAMILIES, Transform, fit

WORDS = "ant bee cat dog elk fox gnu hen owl pig rat yak sea sky sun ice fog oak elm ash run fly dig eat".split()
TEXTS = [
    "A cat.",
    "The quick brown fox jumps over the lazy dog, again and again, until the sun goes down behind the hills.",
    "Naïve CAFÉ, 東京, emoji 🦊 and a very-long-hyphenated-compound.",
    "word " * 300,
    "?",
]
# Few steps are enough for couplings that move something.
SPECS = [
    *("none", "center", "standardize", "whiten", "whiten:dimension=7", "whiten:gamma=0.5,method=zca"),
    *("flow:steps=100", "flow:steps=100,strength=1", "flow:steps=0", "bert-flow:steps=30"),
]
FAST = {(pooling, "whiten") for pooling in POOLINGS} | {("mean", spec) for spec in SPECS}
CASES = [
    pytest.param(*case, marks=() if case in FAST else pytest.mark.slow) for case in itertools.product(POOLINGS, SPECS)
]

Fitted = Callable[[str], tuple[Encoder, NDArray[np.float32]]]


def some_texts(count: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(2, 20))) for _ in range(count)]


@pytest.fixture(scope="module")
def encoded(tiny_bert: str) -> Fitted:
    """The tiny encoder with a pooling, and vectors to fit on."""
    known: dict[str, tuple[Encoder, NDArray[np.float32]]] = {}

    def get(pooling: str) -> tuple[Encoder, NDArray[np.float32]]:
        if pooling not in known:
            encoder = Encoder(tiny_bert, pooling=pooling, device="cpu")
            known[pooling] = encoder, encoder.encode(some_texts(400))
        return known[pooling]

    return get


def sentence_vectors(folder: Path, texts: list[str]) -> NDArray[np.float32]:
    """What sentence-transformers makes of a folder, without a flag."""
    from sentence_transformers import SentenceTransformer

    return np.asarray(SentenceTransformer(str(folder), device="cpu").encode(texts, batch_size=3))


def our_vectors(encoder: Encoder, transform: Transform, texts: list[str]) -> NDArray[np.float32]:
    return unit_rows(transform.apply(encoder.encode(texts)))


def written(folder: Path, encoder: Encoder, transform: Transform) -> Path:
    folder.mkdir()
    write_sentence_folder(folder, encoder, transform)
    return folder


@pytest.mark.heavy
@pytest.mark.parametrize(("pooling", "spec"), CASES)
def test_equals_our_vectors(tmp_path: Path, encoded: Fitted, pooling: str, spec: str) -> None:
    encoder, vectors = encoded(pooling)
    transform = fit(spec, vectors, seed=0)
    assert transform.family == spec.partition(":")[0]
    folder = written(tmp_path / "model", encoder, transform)
    texts = TEXTS + some_texts(20, seed=1)
    np.testing.assert_allclose(
        sentence_vectors(folder, texts), our_vectors(encoder, transform, texts), rtol=0, atol=1e-5
    )


def test_every_family_is_tried() -> None:
    assert {spec.partition(":")[0] for spec in SPECS} == set(FAMILIES)


def test_couplings_are_in_it(tmp_path: Path, encoded: Fitted) -> None:
    """The comparison above means something for flows only if they do more than whiten."""
    encoder, vectors = encoded("mean")
    flow, white = (fit(spec, vectors, seed=0) for spec in ("flow:steps=100,strength=1", "flow:steps=0,strength=1"))
    moved = np.abs(our_vectors(encoder, flow, TEXTS) - our_vectors(encoder, white, TEXTS)).max()
    assert moved > 1e-3


@pytest.mark.parametrize(("pooling", "spec"), [("first-last", "flow:steps=100"), ("word", "whiten")])
def test_saved_again_it_is_the_same(tmp_path: Path, encoded: Fitted, pooling: str, spec: str) -> None:
    from sentence_transformers import SentenceTransformer

    encoder, vectors = encoded(pooling)
    folder = written(tmp_path / "model", encoder, fit(spec, vectors, seed=0))
    SentenceTransformer(str(folder), device="cpu").save(str(tmp_path / "again"))
    np.testing.assert_allclose(
        sentence_vectors(tmp_path / "again", TEXTS), sentence_vectors(folder, TEXTS), rtol=0, atol=1e-6
    )


@pytest.mark.slow
def test_minilm_without_a_transform_is_minilm(tmp_path: Path) -> None:
    encoder = Encoder(device="cpu")
    folder = written(tmp_path / "model", encoder, fit("none", encoder.encode(TEXTS), seed=0))
    np.testing.assert_allclose(
        sentence_vectors(folder, TEXTS), sentence_vectors(encoder.files.folder, TEXTS), rtol=0, atol=1e-6
    )
    again = Encoder(str(folder), device="cpu")
    assert again.identity.normalize and again.identity.weights == encoder.identity.weights
    np.testing.assert_allclose(again.encode(TEXTS), encoder.encode(TEXTS), rtol=0, atol=1e-6)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["distilbert", "roberta"])
def test_other_models(tmp_path: Path, kind: str) -> None:
    """Other names for the sizes, no token types, another padding token, positions that count from it."""
    import torch
    from transformers import DistilBertConfig, DistilBertModel, RobertaConfig, RobertaModel

    torch.manual_seed(0)
    if kind == "distilbert":
        small = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "max_position_embeddings": 64}
        model = DistilBertModel(DistilBertConfig(vocab_size=30522, **small))
    else:
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        model = RobertaModel(RobertaConfig(vocab_size=30522, max_position_embeddings=66, pad_token_id=1, **sizes))
    model.save_pretrained(tmp_path / kind)
    shutil.copy(ModelFiles("all-MiniLM-L6-v2").folder / "tokenizer.json", tmp_path / kind)
    for pooling in ("mean", "last2"):
        encoder = Encoder(str(tmp_path / kind), pooling=pooling, max_length=40, device="cpu")
        transform = fit("whiten", encoder.encode(some_texts(100)), seed=0)
        folder = written(tmp_path / pooling, encoder, transform)
        np.testing.assert_allclose(
            sentence_vectors(folder, TEXTS), our_vectors(encoder, transform, TEXTS), rtol=0, atol=1e-5
        )


def test_half_precision_weights_are_computed_with_as_we_do(tmp_path: Path, tiny_bert: str) -> None:
    import torch
    from transformers import AutoModel

    shutil.copytree(tiny_bert, tmp_path / "half")
    AutoModel.from_pretrained(tiny_bert, dtype=torch.float16).save_pretrained(tmp_path / "half")
    encoder = Encoder(str(tmp_path / "half"), pooling="mean", device="cpu")
    transform = fit("none", encoder.encode(TEXTS), seed=0)
    folder = written(tmp_path / "model", encoder, transform)
    np.testing.assert_allclose(
        sentence_vectors(folder, TEXTS), our_vectors(encoder, transform, TEXTS), rtol=0, atol=1e-5
    )


def test_the_tokenizer_is_the_encoders_whatever_its_config_says(tmp_path: Path) -> None:
    bert = make_bert(tmp_path / "bert")
    path = bert / "tokenizer_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"do_lower_case": False, "tokenizer_class": "BertTokenizer"}))
    encoder = Encoder(str(bert), pooling="mean", max_length=16, device="cpu")
    transform = fit("none", encoder.encode(TEXTS), seed=0)
    folder = written(tmp_path / "model", encoder, transform)
    np.testing.assert_allclose(
        sentence_vectors(folder, TEXTS), our_vectors(encoder, transform, TEXTS), rtol=0, atol=1e-5
    )


@pytest.mark.heavy
def test_scores_are_those_of_a_search(tmp_path: Path, tiny_bert: str, run: Run) -> None:
    texts = list(dict.fromkeys(some_texts(250)))
    source = write_jsonl(tmp_path / "texts.jsonl", [{"id": str(i), "text": text} for i, text in enumerate(texts)])
    where = ("--index", tmp_path / "c")
    run("index", source, *where, "--encoder", tiny_bert, "--transform", "flow:steps=50")
    result = run("export", tmp_path / "model", *where, "--format", "sentence-transformers")
    assert f"SentenceTransformer({str(tmp_path / 'model')!r})" in result.output.replace("\n", "")
    cosines = sentence_vectors(tmp_path / "model", ["dog fox sea"]) @ sentence_vectors(tmp_path / "model", texts).T
    with Retriever.open(tmp_path / "c", device="cpu") as retriever:
        hits = retriever.search("dog fox sea", k=len(texts), mode="dense")
    found = {int(hit.id): hit.score for hit in hits}
    # The collection keeps raw vectors in half precision.
    np.testing.assert_allclose([found[i] for i in range(len(texts))], cosines[0], atol=3e-3)
    assert int(hits[0].id) == int(cosines.argmax())


def test_files(tmp_path: Path, encoded: Fitted) -> None:
    """Nothing but text, JSON and safetensors; the same bytes each time; a card that says what it is."""
    encoder, vectors = encoded("first-last")
    transform = fit("whiten", vectors, seed=0)
    one, two = (written(tmp_path / name, encoder, transform) for name in ("one", "two"))
    files = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert {path.suffix for path in files} == {".json", ".safetensors", ".md"}
    assert files == sorted(path.relative_to(two) for path in two.rglob("*") if path.is_file())
    assert all((one / path).read_bytes() == (two / path).read_bytes() for path in files)
    modules = json.loads((one / "modules.json").read_text())
    assert all(module["type"].startswith("sentence_transformers.models.") for module in modules)
    card = (one / "README.md").read_text()
    assert all(
        said in card
        for said in (transform.fingerprint, encoder.identity.weights, "first-last", "| made by | flow-retriever ")
    )


def test_a_target_that_is_taken_is_left_alone(tmp_path: Path, tiny_bert: str, run: Run, pets: Path) -> None:
    run("index", pets, "--index", tmp_path / "c", "--encoder", tiny_bert)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    with Retriever.open(tmp_path / "c") as retriever:
        with pytest.raises(Misuse, match="taken already exists; name a new folder"):
            retriever.export(tmp_path / "taken", "sentence-transformers")
        files = retriever.export(tmp_path / "new", "sentence-transformers")
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["mine.txt"]
    assert all(path.is_file() for path in files)
    assert not list(tmp_path.glob("*.writing"))


def test_as_an_encoder_of_ours_it_is_refused(tmp_path: Path, encoded: Fitted) -> None:
    encoder, vectors = encoded("first-last")
    folder = written(tmp_path / "model", encoder, fit("whiten", vectors, seed=0))
    with pytest.raises(EncoderUnavailable, match="module 'WeightedLayerPooling', 'Dense', which is not implemented"):
        Encoder(str(folder))


@pytest.mark.heavy
def test_mteb_evaluates_it(tmp_path: Path, encoded: Fitted) -> None:
    import mteb
    from datasets import Dataset, DatasetDict
    from mteb.abstasks import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata
    from scipy.stats import spearmanr
    from sentence_transformers import SentenceTransformer

    rng = np.random.default_rng(0)
    first, second, gold = some_texts(60), some_texts(60, seed=1), rng.uniform(0, 5, 60).tolist()

    class Pairs(AbsTaskSTS):
        metadata = TaskMetadata(
            name="Pairs",
            description="Pairs made up for a test.",
            dataset={"path": "made/up", "revision": "1"},
            type="STS",
            category="t2t",
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="cosine_spearman",
        )

        def load_data(self, **_: object) -> None:
            columns = {"sentence1": first, "sentence2": second, "score": gold}
            self.dataset = DatasetDict({"test": Dataset.from_dict(columns)})
            self.data_loaded = True

    encoder, vectors = encoded("first-last")
    transform = fit("flow:steps=100", vectors, seed=0)
    folder = written(tmp_path / "model", encoder, transform)

    model = SentenceTransformer(str(folder), device="cpu")
    result = mteb.evaluate(model, Pairs(), cache=None, co2_tracker=False, show_progress_bar=False)

    a, b = (our_vectors(encoder, transform, texts) for texts in (first, second))
    expected = spearmanr((a * b).sum(axis=1), gold).statistic
    assert result[0].get_score() == pytest.approx(expected, abs=1e-4)
