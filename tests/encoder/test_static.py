"""Word tables: learned from a corpus without labels, stored in the collection, and read by sentence-transformers."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retriever import Retriever
from retriever.encoder.encoder import Encoder
from retriever.encoder.static import learning
from retriever.encoder.static.folder import learn_folder
from retriever.encoder.static.words import SHRINKAGE, word_table
from retriever.errors import EncoderUnavailable, Mismatch, Misuse
from tests.support.samples import Run, make_bert, write_jsonl

TOPICS = {
    "sea": "harbour ship sail anchor captain storm wave tide crew island lighthouse net",
    "kitchen": "bread oven flour butter recipe salt pepper soup kettle knife plate spoon",
    "garden": "rose soil spade seed tulip hedge lawn beetle compost shade pruning greenhouse",
    "music": "violin chord melody drum concert rhythm orchestra tempo flute singer choir note",
}


def topical(count: int, words: int = 30, seed: int = 0) -> list[dict[str, str]]:
    """Return documents that each use the words of one topic, with words between that every document uses."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        topic = list(TOPICS)[number % len(TOPICS)]
        own, common = TOPICS[topic].split(), "the of and a to in is was".split()
        text = " ".join(rng.choice(own) if rng.random() < 0.5 else rng.choice(common) for _ in range(words))
        found.append({"id": f"{topic}-{number}", "text": text.capitalize() + "."})
    return found


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Path:
    folder = tmp_path_factory.mktemp("learned") / "collection"
    Retriever.build(topical(160), folder, encoder=tiny_bert, pooling="learned").close()
    return folder


def test_the_collection_needs_nothing_but_its_own_folder(tmp_path: Path) -> None:
    bert = make_bert(tmp_path / "bert")
    Retriever.build(topical(120), tmp_path / "made", encoder=str(bert), pooling="learned").close()
    shutil.rmtree(bert)
    (tmp_path / "made").rename(tmp_path / "moved")
    with Retriever.open(tmp_path / "moved") as reopened:
        assert all(hit.id.startswith("music") for hit in reopened.search("orchestra and choir", 5))
        reopened.add([{"id": "new", "text": "The violin and the flute of an orchestra."}])
        assert "new" in [hit.id for hit in reopened.search("violin flute", 5)]


def test_case_does_not_matter(collection: Path) -> None:
    with Retriever.open(collection) as opened:
        lower, upper = (opened.search(query, 10) for query in ("storm at the lighthouse", "STORM AT THE LIGHTHOUSE"))
    assert [(hit.id, hit.score) for hit in lower] == [(hit.id, hit.score) for hit in upper]


def test_what_was_learned_is_told(collection: Path) -> None:
    with Retriever.open(collection) as opened:
        info = opened.info()
    assert info["encoder"]["pooling"] == "learned" and info["transform"]["family"] == "none"
    found = info["learning"]
    assert found["steps"] > 0 and found["loss_after"] < found["loss_before"] and found["seconds"] < 90
    assert found["budget"] == learning.MOST_SECONDS and "limit" not in found["reason"]


def test_rows_are_whitened_as_often_as_words_occur(tiny_bert: str) -> None:
    """The mean of all words of the corpus is zero, and no direction has a variance above one."""
    texts = [document["text"] for document in topical(50)]
    table = word_table(texts, Encoder(tiny_bert))
    every = np.concatenate(table.tokens(texts))
    rows = table.rows[every].astype(np.float64)
    assert np.abs(rows.mean(axis=0)).max() < 1e-4
    values = np.linalg.eigvalsh(np.cov(rows.T, bias=True))
    assert values.max() <= 1 + 1e-3
    raw = Encoder(tiny_bert).torch_model.input_embeddings()
    tokenizer = Encoder(tiny_bert).tokenizer
    whole = [tokenizer.encode(f" {word}", add_special_tokens=False).ids for t in texts for word in t[:-1].split()]
    summed = np.stack([raw[ids].sum(axis=0) / np.sqrt(len(ids)) for ids in whole]).astype(np.float64)
    variance = np.linalg.eigvalsh(np.cov(summed.T, bias=True))
    expected = variance / (variance + SHRINKAGE * variance.mean())
    assert np.allclose(np.sort(values), np.sort(expected), atol=0.02)


def test_sentence_transformers_gives_the_same_vectors(collection: Path) -> None:
    from sentence_transformers import SentenceTransformer

    texts = ["The ship and the storm.", "the the the oven", "Zwölf unknownwords", "?!", "ORCHESTRA"]
    folder = collection / "encoder"
    theirs = SentenceTransformer(str(folder), device="cpu").encode(texts)
    assert np.abs(theirs - Encoder(str(folder)).encode(texts)).max() < 1e-5


def test_a_table_is_an_ordinary_encoder(collection: Path, tmp_path: Path) -> None:
    folder = str(collection / "encoder")
    with Retriever.build(topical(20), tmp_path / "other", encoder=folder) as made:
        assert made.info()["encoder"]["pooling"] == "static"
        assert made.search("flour and butter", 1)[0].id.startswith("kitchen")
    with pytest.raises(Misuse, match="word table"):
        Retriever.build(topical(20), tmp_path / "third", encoder=folder, pooling="mean")


def test_learning_is_the_same_for_the_same_seed(tmp_path: Path, tiny_bert: str) -> None:
    texts = [document["text"] for document in topical(120)]
    for name in ("one", "two"):
        learn_folder(texts, Encoder(tiny_bert), tmp_path / name)
    one, two = (Encoder(str(tmp_path / name)).identity for name in ("one", "two"))
    assert one.weights == two.weights


@pytest.mark.slow
def test_learning_is_the_same_to_the_bit_with_several_threads(tiny_bert: str) -> None:
    import torch

    texts = [document["text"] for document in topical(600, words=150)]
    table, threads = word_table(texts, Encoder(tiny_bert)), torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        found = {learning.learn(table, texts)[0].rows.tobytes() for _ in range(3)}
    finally:
        torch.set_num_threads(threads)
    assert len(found) == 1


def test_a_few_long_documents_are_enough_to_learn_from(tiny_bert: str) -> None:
    texts = [" ".join(document["text"] for document in topical(80, words=150, seed=seed)) for seed in range(4)]
    _, found = learning.learn(word_table(texts, Encoder(tiny_bert)), texts)
    assert found.read == 4 and found.documents >= 120 and "learned from 12" in found.reason


def test_learning_keeps_to_its_time(monkeypatch: pytest.MonkeyPatch, tiny_bert: str) -> None:
    monkeypatch.setattr(learning, "MOST_SECONDS", 0.0)
    texts = [document["text"] for document in topical(120)]
    _, found = learning.learn(word_table(texts, Encoder(tiny_bert)), texts)
    assert found.steps <= 1 and found.budget == 0.0
    assert found.reason.endswith("the limit of 0 s of CPU ended it")


@pytest.mark.parametrize(
    "texts",
    [
        ["A single document of a few words."],
        [f"Document number {number} about ships." for number in range(20)],
        [f"three words {number}" for number in range(150)],
        ["word " * 1000] * 3,
        ["猫は夜にねずみを捕る。", "บ้านหลังใหญ่", "犬は見知らぬ人に吠える。"],
        ["…", "?!", "a"],
    ],
    ids=["one", "twenty", "three words", "one word", "other scripts", "no words"],
)
def test_too_little_to_learn_from_is_told_and_search_works(tmp_path: Path, tiny_bert: str, texts: list[str]) -> None:
    documents = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
    with Retriever.build(documents, tmp_path / "made", encoder=tiny_bert, pooling="learned") as made:
        found = made.info()["learning"]
        assert found["steps"] == 0 and "documents have at least" in found["reason"]
        hits = made.search(texts[-1], 3)
        assert all(np.isfinite(hit.score) for hit in hits)


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(st.lists(st.text(max_size=60), min_size=1, max_size=6))
def test_any_text_has_a_finite_vector(texts: list[str]) -> None:
    from retriever.encoder.model_files import DEFAULT_ENCODER

    table = word_table(texts, Encoder(DEFAULT_ENCODER))
    vectors = table.encode([*texts, "", "something else"])
    assert np.isfinite(vectors).all()
    assert all(np.isclose(length, 1, atol=1e-5) or length == 0 for length in np.linalg.norm(vectors, axis=1))


def test_emoji_are_words(tiny_bert: str) -> None:
    texts = ["😀🚀", "🍕 🐍", "the 🚀"]
    table = word_table(texts, Encoder(tiny_bert))
    *vectors, query, marks = table.encode([*texts, "🚀!", "?!"])
    with_rocket, without, with_word = (float(vector @ query) for vector in vectors)
    assert min(with_rocket, with_word) > max(without, 0.4) and not marks.any()


def test_another_encoder_is_refused(collection: Path, tiny_bert: str, other_bert: str) -> None:
    Retriever.build(topical(160), collection, encoder=tiny_bert, pooling="learned").close()  # the same command again
    with pytest.raises(Mismatch, match="word table"):
        Retriever.build(topical(160), collection, encoder=other_bert)


def test_a_collection_with_another_pooling_is_refused(tmp_path: Path, tiny_bert: str) -> None:
    Retriever.build(topical(8), tmp_path / "made", encoder=tiny_bert, pooling="mean").close()
    with pytest.raises(Mismatch, match="another folder"):
        Retriever.build(topical(8), tmp_path / "made", encoder=tiny_bert, pooling="learned")


def test_a_missing_or_changed_table_is_refused(collection: Path, tmp_path: Path) -> None:
    shutil.copytree(collection, tmp_path / "copy")
    table = tmp_path / "copy" / "encoder" / "model.safetensors"
    data = bytearray(table.read_bytes())
    data[-1] ^= 1
    table.write_bytes(data)
    with Retriever.open(tmp_path / "copy") as opened, pytest.raises(Mismatch, match="weights"):
        opened.search("ship")
    shutil.rmtree(table.parent)
    with Retriever.open(tmp_path / "copy") as opened, pytest.raises(EncoderUnavailable, match="is missing"):
        opened.search("ship")


def test_a_copy_and_a_salvaged_collection_have_the_table(collection: Path, tmp_path: Path, run: Run) -> None:
    run("copy", collection, tmp_path / "copy")
    run("salvage", tmp_path / "salvaged", "--index", collection)
    found = [Retriever.open(place) for place in (collection, tmp_path / "copy", tmp_path / "salvaged")]
    hits = [[(hit.id, round(hit.score, 5)) for hit in each.search("hedge and lawn", 5)] for each in found]
    for each in found:
        each.close()
    assert hits[0] == hits[1] == hits[2]


def test_command(tmp_path: Path, tiny_bert: str, run: Run) -> None:
    source = write_jsonl(tmp_path / "topics.jsonl", topical(110))
    run("index", source, "--index", tmp_path / "made", "--encoder", tiny_bert, "--pooling", "learned")
    told = " ".join(run("info", "--index", tmp_path / "made").output.split())
    assert "learned from 110 documents" in told and "lowered the loss on other documents" in told
    assert "The table has the words" not in told
    assert "music-" in run("search", "--index", tmp_path / "made", "the melody of a violin").output
    run("index", write_jsonl(tmp_path / "more.jsonl", topical(120)), "--index", tmp_path / "made")
    told = run("info", "--index", tmp_path / "made").output
    assert "The table has the words of the first 110 of 120 documents" in " ".join(told.split())


def test_a_folder_of_the_user_is_not_replaced(tmp_path: Path) -> None:
    bert = make_bert(tmp_path / "project" / "encoder")
    with pytest.raises(Misuse, match="holds other files"):
        Retriever.build(topical(8), tmp_path / "project", encoder=str(bert), pooling="learned")
    assert Encoder(str(bert)).identity.dimension


def test_the_next_run_replaces_what_a_killed_run_left(tmp_path: Path, tiny_bert: str) -> None:
    place = tmp_path / "made"
    (place / "encoder.part" / "1_Normalize").mkdir(parents=True)
    learn_folder(["another corpus"], Encoder(tiny_bert), place / "encoder")
    (place / "encoder.part").mkdir()
    with Retriever.build(topical(8), place, encoder=tiny_bert, pooling="learned") as made:
        assert made.search("orchestra", 1)[0].id.startswith("music")
    assert not (place / "encoder.part").exists()


def test_equal_tables_have_equal_identities(tmp_path: Path, tiny_bert: str) -> None:
    texts = [document["text"] for document in topical(120)]
    one, two = ({**learn_folder(texts, Encoder(tiny_bert), tmp_path / name)} for name in ("one", "two"))
    assert {**one, "seconds": 0} == {**two, "seconds": 0}
    identities = [Encoder(str(tmp_path / name)).identity for name in ("one", "two")]
    assert identities[0].config == identities[1].config and identities[0].tokenizer == identities[1].tokenizer


def test_copies_of_a_document_are_no_negatives(tiny_bert: str) -> None:
    texts = ["The same ten words are in each of these documents."] * 200
    _, found = learning.learn(word_table(texts, Encoder(tiny_bert)), texts)
    assert found.steps == 0 and "(1 of the 100" in found.reason


def test_words_are_lowered_as_the_tokenizer_does(tiny_bert: str) -> None:
    table = word_table(["ΟΔΟΣ", "İstanbul"], Encoder(tiny_bert))
    assert all(table.counts[own].all() for own in table.tokens(["ΟΔΟΣ", "İstanbul"]))


def test_a_tokenizer_of_another_model_is_refused(tiny_bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder(tiny_bert)
    monkeypatch.setattr(encoder.torch_model, "input_embeddings", lambda: np.ones((2, 8), np.float32))
    with pytest.raises(EncoderUnavailable, match="do not belong together"):
        word_table(["The ship and the storm."], encoder)


def test_a_table_has_one_pooling_and_one_precision(collection: Path, tmp_path: Path, tiny_bert: str) -> None:
    folder = str(collection / "encoder")
    with Retriever.build(topical(60), tmp_path / "other", encoder=folder, pooling="auto") as made:
        assert made.info()["encoder"]["pooling"] == "static"
    for encoder, pooling in ((folder, None), (tiny_bert, "learned")):
        with pytest.raises(Misuse, match="8-bit"):
            Retriever.build(topical(8), tmp_path / "third", encoder=encoder, pooling=pooling, precision="int8")


@pytest.mark.parametrize("transform", ["none", "whiten:soft=1.0"])
def test_export_is_a_static_embedding(tmp_path: Path, tiny_bert: str, transform: str) -> None:
    from sentence_transformers import SentenceTransformer

    place, texts = tmp_path / "made", ["The ship and the storm.", "the the oven", "Zwölf unknownwords", "?!"]
    with Retriever.build(topical(120), place, encoder=tiny_bert, pooling="learned", transform=transform) as made:
        made.export(tmp_path / "model", "sentence-transformers")
        vectors = made._searcher.transform().apply(made.encoder().encode(texts))
    ours = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert type(theirs[0]).__name__ == "StaticEmbedding"
    assert np.abs(theirs.encode(texts) - ours).max() < 1e-5


def test_verify_and_salvage_without_the_table(collection: Path, tmp_path: Path, run: Run) -> None:
    shutil.copytree(collection, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "encoder")
    with Retriever.open(tmp_path / "copy") as opened:
        assert "word table is damaged or missing" in opened.verify().problems[0]
    told = run("salvage", tmp_path / "saved", "--index", tmp_path / "copy").output
    assert "160 documents saved" in told and "the word table is lost" in told
    run("salvage", tmp_path / "whole", "--index", tmp_path / "copy", "--encoder", collection / "encoder")
    with Retriever.open(tmp_path / "saved") as saved, Retriever.open(tmp_path / "whole") as whole:
        assert saved.search("violin", 1, mode="lexical")[0].id.startswith("music")
        assert whole.search("violin", 1)[0].id.startswith("music")


def test_a_worker_loads_the_table(collection: Path) -> None:
    from retriever.ingest.engines.ray.worker import EncoderSpec

    with Retriever.open(collection) as opened:
        encoder = opened.encoder()
    assert EncoderSpec.of(encoder, "cpu").load().identity == encoder.identity


def test_input_embeddings_of_another_size(tmp_path: Path, tiny_bert: str) -> None:
    import torch
    from transformers import ElectraConfig, ElectraModel

    sizes = {"embedding_size": 8, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    known = Encoder(tiny_bert).files.config["vocab_size"]
    with torch.random.fork_rng():
        torch.manual_seed(0)  # some random weights would pass for a tuned encoder, for which nothing is compared
        model = ElectraModel(ElectraConfig(vocab_size=known, num_hidden_layers=2, **sizes))
    model.save_pretrained(tmp_path / "electra")
    shutil.copy(Path(tiny_bert) / "tokenizer.json", tmp_path / "electra")
    electra = str(tmp_path / "electra")
    with Retriever.build(topical(60), tmp_path / "made", encoder=electra) as made:
        tried = [candidate["pooling"] for candidate in made.info()["pooling_choice"]["candidates"]]
    assert "learned" in tried and "word" not in tried
    with pytest.raises(Misuse, match="fewer dimensions"):
        Encoder(electra, pooling="word")


def test_a_table_cannot_be_tuned(collection: Path, tmp_path: Path, run: Run) -> None:
    source = write_jsonl(tmp_path / "topics.jsonl", topical(110))
    told = run("tune", collection / "encoder", "--corpus", source, "--out", tmp_path / "tuned", code=2)
    assert "is a word table, which cannot be tuned" in told.output
