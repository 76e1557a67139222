"""`retriever bench isotropy`: measures before and after, and word embeddings by frequency."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import Run
from similarity import sentences, write_set

from retriever.encoder.encoder import Encoder
from retriever.evaluate.isotropy import SpaceMeasurer, bin_figures, ranked_embeddings, read_ranks
from retriever.evaluate.models.encoders import open_encoders
from retriever.transforms import fit


@pytest.fixture
def data(tmp_path: Path, tiny_bert: str) -> Path:
    """STS-B and a table of ranks: the whole words of the vocabulary in their order."""
    write_set(tmp_path / "data" / "sts", "stsb", pairs=90)
    folder = tmp_path / "data" / "bert_vocab"
    folder.mkdir()
    tokens = (Path(tiny_bert) / "vocab.txt").read_text(encoding="utf-8").split("\n")
    words = [(n, token) for n, token in enumerate(tokens) if token.isascii() and token.isalpha()][:300]
    rows = "".join(f"{n}\t{token}\t1\t{rank}\t5.0\n" for rank, (n, token) in enumerate(words, start=1))
    (folder / "vocab_wordfreq.tsv").write_text("id\ttoken\tis_word\twordfreq_rank\tzipf\n0\t[PAD]\t0\t\t0\n" + rows)
    return tmp_path / "data"


def command(data: Path, tmp_path: Path, encoder: str) -> list[Any]:
    out = ["--out", tmp_path / "out", "--cache", tmp_path / "cache"]
    return [
        "bench",
        "isotropy",
        "--data",
        data,
        "--encoder",
        encoder,
        "--pooling",
        "first-last",
        *out,
        "--transform",
        "none",
    ]


@pytest.mark.heavy
def test_before_and_after(run: Run, data: Path, tmp_path: Path, tiny_bert: str) -> None:
    specs = ("--transform", "whiten", "--transform", "whiten:dimension=8")
    output = run(*command(data, tmp_path, tiny_bert), *specs).output
    rows = json.loads((tmp_path / "out" / "results.json").read_text())
    found = {(row["transform"], row["metric"]): row["value"] for row in rows if row["dataset"] == "stsb"}
    assert found["none", "mean_cosine"] > found["whiten", "mean_cosine"]
    assert found["whiten", "isoscore"] > 0.8 > found["none", "isoscore"]
    assert found["whiten", "partition_isotropy"] > found["none", "partition_isotropy"]
    assert ("whiten:dimension=8", "held_out_bits_per_dimension") not in found
    assert {"uniformity", "alignment", "mean_abs_skewness", "share_of_dimensions_not_gaussian"} <= {m for _, m in found}
    for shown in ("mean cos", "uniformity", "bits/dim", "Word embeddings by frequency rank"):
        assert shown in output
    for name in (f"isotropy-{Path(tiny_bert).name}-first-last.png", "words.png"):
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")
    assert "0 runs measured, 3 taken" in run(*command(data, tmp_path, tiny_bert), *specs).output


def test_bits_are_of_sentences_that_the_fit_did_not_see(tiny_bert: str) -> None:
    texts = sentences(300, 0)
    measurer = SpaceMeasurer(texts, [])
    assert len(measurer.fit_texts) == 270 and not set(measurer.held_out) & set(measurer.fitted)
    vectors = Encoder(tiny_bert, device="cpu").encode(texts)
    transform = fit("whiten", vectors[measurer.fitted])
    found = measurer(transform, vectors).values
    nats = transform.log_likelihood(vectors[measurer.held_out]).mean()
    assert found["held_out_bits_per_dimension"] == pytest.approx(-nats / 32 / math.log(2))
    assert "alignment" not in found


def test_any_text_file(run: Run, tmp_path: Path, tiny_bert: str) -> None:
    (tmp_path / "notes.txt").write_text("".join(f"{line}\n\n" for line in sentences(60, 1)))
    command = ["bench", "isotropy", "--encoder", tiny_bert, "--cache", tmp_path / "cache", "--transform", "none"]
    rows = json.loads(run(*command, "--texts", tmp_path / "notes.txt", "--json").stdout)
    assert {row["dataset"] for row in rows} == {"notes"}
    (tmp_path / "few.txt").write_text("one\ntwo\n")
    assert "at least 20 are needed" in run(*command, "--texts", tmp_path / "few.txt", code=2).output
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n" * 30)
    assert "is not UTF-8" in run(*command, "--texts", tmp_path / "latin.txt", code=2).output
    assert "--data DIR" in run(*command, code=2).output


def test_words_by_frequency_word_by_word(data: Path, tiny_bert: str) -> None:
    from safetensors.numpy import load_file

    (encoder,) = open_encoders([tiny_bert])
    ranks, problems = read_ranks(data / "bert_vocab" / "vocab_wordfreq.tsv")
    found = ranked_embeddings(encoder, ranks)
    assert not problems and not isinstance(found, str)
    table = load_file(Path(tiny_bert) / "model.safetensors")["embeddings.word_embeddings.weight"]
    tokens = (Path(tiny_bert) / "vocab.txt").read_text(encoding="utf-8").split("\n")
    everyone = np.stack([table[tokens.index(word)] for word in ranks])
    inside = [n for n, rank in enumerate(ranks.values()) if 100 < rank <= 500]
    distances = []
    for n in inside:
        others = sorted(float(np.linalg.norm(everyone[n] - other)) for m, other in enumerate(everyone) if m != n)
        distances.append(np.mean(others[:3]))
    figures = bin_figures(*found, (100, 500))
    assert figures["mean_norm"] == pytest.approx(np.mean([np.linalg.norm(everyone[n]) for n in inside]), rel=1e-5)
    assert figures["mean_3nn_distance"] == pytest.approx(np.mean(distances), rel=1e-4)


@pytest.mark.heavy
def test_words_of_another_vocabulary_are_left_out(run: Run, data: Path, tmp_path: Path, tiny_bert: str) -> None:
    from tokenizers import Tokenizer, models

    other = shutil.copytree(tiny_bert, tmp_path / "foreign")
    (other / "vocab.txt").unlink()
    tokenizer = Tokenizer.from_file(str(other / "tokenizer.json"))
    kept = {token: n for token, n in tokenizer.get_vocab().items() if n < 110 or token.startswith("##")}
    tokenizer.model = models.WordPiece(kept, unk_token="[UNK]")
    tokenizer.save(str(other / "tokenizer.json"))
    output = run(*command(data, tmp_path, str(other))).output
    assert "its vocabulary is not BERT's" in output and "Word embeddings by frequency" not in output

    shutil.rmtree(data / "bert_vocab")
    assert "vocab_wordfreq.tsv does not exist" in run(*command(data, tmp_path, tiny_bert)).output
