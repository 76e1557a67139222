"""The precision of a collection: chosen by its text, kept, refused when it is another."""

from pathlib import Path

import numpy as np
import pytest
from samples import Run, write_jsonl
from scipy.stats import spearmanr

from retriever import Retriever
from retriever.encoder.encoder import Encoder
from retriever.errors import Mismatch

SUBJECTS = "cats dogs owls trains rivers laws cells stars songs ships bridges wars farms games".split()


def documents(count: int) -> list[dict[str, str]]:
    rng = np.random.default_rng(0)
    words = "old new red small famous public first last northern royal open great".split()
    return [
        {
            "id": str(n),
            "text": f"The {rng.choice(words)} {rng.choice(SUBJECTS)} of {rng.choice(words)} number {n} were seen near "
            f"the {rng.choice(SUBJECTS)}. Nobody knows why the {rng.choice(SUBJECTS)} came.",
        }
        for n in range(count)
    ]


def test_few_documents_keep_single_precision(tmp_path: Path, tiny_bert: str) -> None:
    with Retriever.build(documents(50), tmp_path / "c", encoder=tiny_bert) as made:
        info = made.info()
    assert info["encoder"]["precision"] == "fp32"
    assert "fewer than 1,000" in info["precision_choice"]["reason"]


def test_the_text_decides_and_the_choice_is_kept(tmp_path: Path, tiny_bert: str, run: Run) -> None:
    source = write_jsonl(tmp_path / "s.jsonl", documents(1200))
    told = run("index", source, "--index", tmp_path / "c", "--encoder", tiny_bert, "--transform", "none", "-v").output
    with Retriever.open(tmp_path / "c") as made:
        choice = made.info()["precision_choice"]
        chosen = made.info()["encoder"]["precision"]
        single, integers = (Encoder(tiny_bert, precision=p, device="cpu") for p in ("fp32", "int8"))
        stored = made.collection.store.vectors([1], made.collection.dimension)[0]
        text = made.document("0").text
    assert f"precision  {chosen}: " in told
    assert choice["chosen"] == chosen and choice["queries"] >= 50
    kept = choice["overlap"] >= 0.9 and choice["overlap_transformed"] >= 0.9 and choice["correlation"] >= 0.99
    assert (chosen == "int8") == kept
    assert not np.allclose(single.encode([text]), integers.encode([text]), atol=1e-5)
    assert np.isfinite(stored).all()
    with Retriever.build(documents(1210), tmp_path / "c") as again:
        assert again.info()["encoder"]["precision"] == chosen and again.report.texts_embedded == 10


def test_asked_for_it_is_taken_and_another_is_refused(tmp_path: Path, tiny_bert: str) -> None:
    few = documents(30)
    with Retriever.build(few, tmp_path / "c", encoder=tiny_bert, precision="int8", transform="none") as made:
        assert made.info()["encoder"]["precision"] == "int8" and made.info()["precision_choice"] is None
        expected = Encoder(tiny_bert, precision="int8", device="cpu").encode([one["text"] for one in few])
        stored = made.collection.store.vectors(list(range(1, 31)), made.collection.dimension)
        distances = np.abs(expected[:, None] - stored[None]).max(axis=2).min(axis=1)
        assert distances.max() < 2e-3 * np.abs(expected).max(), "what is stored is what integers gave"
        (hit,) = made.search(few[7]["text"], 1, mode="dense")
        assert hit.id == "7" and hit.score > 0.999
    with pytest.raises(Mismatch, match="precision fp32 instead of int8"):
        Retriever.build(few, tmp_path / "c", precision="fp32")


@pytest.mark.slow
@pytest.mark.shared
def test_integers_cost_less_than_half_a_point_of_similarity(shared_data: Path) -> None:
    lines = (shared_data / "sts" / "stsb.tsv").read_text(encoding="utf-8").split("\n")
    rows = [line.split("\t") for line in lines if line.startswith("test\t")]
    gold = [float(row[2]) for row in rows]
    texts = [row[3] for row in rows] + [row[4] for row in rows]
    figures = {}
    for precision in ("fp32", "int8"):
        vectors = Encoder(precision=precision, device="cpu").encode(texts)
        cosines = (vectors[: len(rows)] * vectors[len(rows) :]).sum(axis=1)
        figures[precision] = 100 * spearmanr(gold, cosines).statistic
    assert abs(figures["fp32"] - 82.0) < 0.1
    assert figures["int8"] > figures["fp32"] - 0.5, figures
