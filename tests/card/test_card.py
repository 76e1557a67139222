"""The card of a collection: its figures against independent ones, and its pages against hostile data."""

import itertools
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from markdown_it import MarkdownIt
from markup import Parsed
from samples import Run

from indexes.folder.collection import Collection
from retriever import Retriever
from retriever.card.charts import steps
from retriever.card.rendering import article, markdown, page
from retriever.card.sections import sections
from retriever.corpus.python_docs import stdlib_documents

HOSTILE = "<script>alert(1)</script> | [x](javascript:alert(1)) ![i](http://evil.example/i.png)\n# owned\n<b onclick=x>"
TURNED = "\u202egnp.exe\u202c שלום"

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def documents() -> list[dict[str, object]]:
    some = list(itertools.islice(stdlib_documents(), 0, 600, 4))
    return [
        {"id": str(n), "title": one.title, "text": one.text[:300], "kind": ["module", "class"][n % 2], "length": n}
        for n, one in enumerate(some)
    ]


@pytest.fixture(scope="module")
def folder(documents: list[dict[str, object]], tiny_bert: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("cards") / "docs"
    Retriever.build(documents, place, encoder=tiny_bert, transform="whiten", index_type="sq8").close()
    return place


def test_figures_are_those_of_the_vectors(folder: Path, tmp_path: Path) -> None:
    with Retriever.open(folder) as retriever:
        card = retriever.card()
        retriever.export(tmp_path / "out", "npy")
        info = retriever.info()
    vectors = {name: np.load(tmp_path / "out" / f"{name}.npy").astype(np.float64) for name in ("raw", "vectors")}
    assert card.info["documents"] == info["documents"] and card.info["passages"] == len(vectors["raw"])
    assert card.space is not None
    for shape, rows in ((card.space.before, vectors["raw"]), (card.space.after, vectors["vectors"])):
        rows = np.unique(rows, axis=0)
        assert card.space.sample == len(rows)
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        cosines = np.array([a @ b for a, b in itertools.combinations(unit, 2)])
        assert shape.mean_cosine == pytest.approx(cosines.mean(), abs=1e-4)
        assert shape.uniformity == pytest.approx(math.log(np.exp(-2 * (2 - 2 * cosines)).mean()), abs=1e-3)
        assert sum(shape.cosines) == pytest.approx(1, abs=1e-4)
        centres = np.linspace(-0.995, 0.995, 200)
        assert np.dot(shape.cosines, centres) == pytest.approx(cosines.mean(), abs=0.006)
        if shape is card.space.before:  # the export writes what is searched, at length one
            values = np.linalg.svd(rows, compute_uv=False)
            np.testing.assert_allclose(shape.spectrum, values / values[0], rtol=1e-3, atol=1e-5)
            spread = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False) ** 2
            ratio = spread.sum() ** 2 / (spread**2).sum()
            assert shape.participation_ratio == pytest.approx(ratio, rel=1e-3)
            assert shape.isoscore == pytest.approx((ratio - 1) / (rows.shape[1] - 1), rel=1e-3)
    assert card.space.after.isoscore > card.space.before.isoscore  # type: ignore[operator]


def test_it_says_what_info_says(folder: Path) -> None:
    with Retriever.open(folder) as retriever:
        card, info = retriever.card(), retriever.info()
    found = card.to_json()
    assert json.loads(json.dumps(found, allow_nan=False)) == json.loads(json.dumps(found))
    encoder = Path(info["encoder"]["name"])
    assert encoder.is_absolute() and found["info"]["encoder"]["name"] == encoder.name
    assert found["info"] == {
        **{key: value for key, value in info.items() if key != "folder"},
        "encoder": {**info["encoder"], "name": encoder.name},
    }
    assert str(encoder.parent) not in json.dumps(found) and str(folder.parent) not in json.dumps(found)
    assert {field["name"]: field["documents"] for field in found["fields"]} == {"kind": 150, "length": 150}
    assert found["fields"][0]["values"] == [{"value": "class", "count": 75}, {"value": "module", "count": 75}]
    text = Parsed(page(card)).text
    measured = info["index"]["measured"]
    assert measured["low"] <= measured["recall"] <= measured["high"]
    assert "recall@10 {recall:.3f} [{low:.3f}, {high:.3f}]".format(**measured) in text
    weights = info["encoder"]["weights"]
    assert weights[:12] in text and weights[:13] not in text
    assert str(encoder.parent) not in page(card)


def test_what_the_choice_saw(documents: list[dict[str, object]], tiny_bert: str, tmp_path: Path) -> None:
    with Retriever.build(documents, tmp_path / "pooling", encoder=tiny_bert, pooling="auto") as retriever:
        chosen, plots = retriever.info()["pooling_choice"], Parsed(page(retriever.card()))
    assert chosen["candidates"] and chosen["reason"] in plots.text
    assert sum(one.get("class") == "card-plot card-dots" for one in plots.named("svg")) == 1
    with Retriever.build(documents, tmp_path / "auto", encoder=tiny_bert, pooling="first-last") as retriever:
        card, info = retriever.card(), retriever.info()
    choice = info["choice"]
    assert choice["candidates"] and card.info["choice"] == choice
    (table,) = next(section.tables for section in sections(card) if section.name == "choice")
    assert [row[0] for row in table.rows] == [
        one["spec"] for one in sorted(choice["candidates"], key=lambda one: -one["agreement"])
    ]
    parsed = Parsed(page(card))
    for one in choice["candidates"]:
        assert f"{one['agreement']:.3f}" in parsed.text
        assert one["spec"] == "none" or "{gain:+.3f} [{low:+.3f}, {high:+.3f}]".format(**one) in parsed.text
    assert choice["reason"] in parsed.text and choice["reason"] in markdown(card).replace("\\", "")
    assert sum(one.get("class") == "card-plot card-dots" for one in parsed.named("svg")) == 1


def test_the_page_is_well_formed_and_told_to_those_who_do_not_see_it(folder: Path) -> None:
    with Retriever.open(folder) as retriever:
        card = retriever.card()
    for text in (page(card), article(card)):
        parsed = Parsed(text)
        parsed.refuse_what_acts()
        assert len(parsed.named("svg")) == 2
        assert all(svg["role"] == "img" for svg in parsed.named("svg"))
        assert len(parsed.named("table")) == len(parsed.named("caption")) == 2
        assert all(cell["scope"] in ("row", "col") for cell in parsed.named("th"))
        assert "Histogram of the cosines of pairs" in parsed.text
    assert Parsed(article(card)).elements[0] == ("article", {"class": "card", "aria-labelledby": "card-name"})
    css = (Path(__file__).parents[2] / "retriever" / "serve" / "page" / "card.css").read_text(encoding="utf-8")
    assert css.strip() in page(card) and "<style" not in article(card)


def test_hostile_names_and_values_stay_text(tiny_bert: str, tmp_path: Path) -> None:
    documents = [
        {"id": str(n), "title": HOSTILE, "text": f"{HOSTILE} {n}", "metadata": {HOSTILE: HOSTILE, "x": TURNED}}
        for n in range(12)
    ]
    folder = tmp_path / "<img src=x onerror=alert(1)>"
    with Retriever.build(documents, folder, encoder=tiny_bert) as retriever:
        card = retriever.card()
    parsed = Parsed(page(card))
    parsed.refuse_what_acts()
    assert folder.name in parsed.text and "<script>alert(1)</script>" in parsed.text
    assert "\u202e" not in page(card) and "שלום" in page(card)
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(markdown(card))
    flat = [one for token in tokens for one in (token, *(token.children or ()))]
    kinds = {token.type for token in flat}
    assert not kinds & {"html_inline", "html_block", "link_open", "image", "code_inline", "fence", "em_open"}
    assert sum(token.type == "heading_open" for token in flat) == 1 + sum(
        token.type == "heading_open" for token in flat if token.tag == "h2"
    )
    widths: list[int] = []
    for token in flat:
        if token.type == "tr_open":
            widths.append(0)
        elif token.type in ("td_open", "th_open"):
            widths[-1] += 1
    assert set(widths) == {2, 3}
    told = "".join(token.content for token in flat if token.type in ("text", "text_special"))
    assert "<script>alert(1)</script>" in told and "[x](javascript:alert(1))" in told


@pytest.mark.parametrize("count", [1, 2, 12])
def test_few_documents(count: int, tiny_bert: str, tmp_path: Path) -> None:
    documents = [{"id": str(n), "text": f"number {n} of {count}"} for n in range(count)]
    with Retriever.build(documents, tmp_path / "few", encoder=tiny_bert, transform="whiten:dimension=1") as retriever:
        card = retriever.card()
    assert (card.space is None) == (count < 10)
    assert ("fewer than 10 vectors" in Parsed(page(card)).text) == (count < 10)
    json.dumps(card.to_json(), allow_nan=False)
    assert markdown(card).startswith("# few\n")


def test_no_transform_has_no_before_and_after(tiny_bert: str, tmp_path: Path) -> None:
    documents = [{"id": str(n), "text": f"number {n}"} for n in range(20)]
    with Retriever.build(documents, tmp_path / "none", encoder=tiny_bert, transform="none") as retriever:
        card = retriever.card()
        parsed = Parsed(page(card))
        assert card.space and card.space.before is card.space.after
        assert "There is no transform" in parsed.text and "before, mean" not in parsed.text
        retriever.delete([str(n) for n in range(20)])
        assert retriever.card().info["documents"] == 0


def test_a_collection_without_an_index(folder: Path, tmp_path: Path) -> None:
    with Collection.open(folder) as made:
        settings = {
            key: made.store.setting(key) for key in ("encoder", "transform", "index_type", "created", "made_by")
        }
    Collection.create(tmp_path / "begun", settings).close()
    with Retriever.open(tmp_path / "begun") as retriever:
        card = retriever.card()
    assert "no index yet" in Parsed(page(card)).text and "no index yet" in markdown(card)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs a folder that not even root can write to")
def test_a_file_that_cannot_be_written_is_named_as_it_was_asked_for(folder: Path, run: Run) -> None:
    output = run("card", "-i", folder, "--out", "/proc/x.html", code=1).output
    assert "/proc/x.html: " in output and ".part" not in output


def test_the_command(folder: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("card", "-i", folder).output.startswith("docs-card.html  ")
    Parsed((tmp_path / "docs-card.html").read_text(encoding="utf-8"))
    run("card", "-i", folder, "--out", tmp_path / "sub" / "card.md")
    assert (tmp_path / "sub" / "card.md").read_text(encoding="utf-8").startswith("# docs\n")
    assert "a card is written as .html or .md" in run("card", "-i", folder, "--out", "card.pdf", code=2).output
    assert "does not exist" in run("card", "-i", tmp_path / "nowhere", code=2).output
    damaged = shutil.copytree(folder, tmp_path / "damaged")
    manifest = next((damaged / "generations").glob("*/manifest.json"))
    manifest.write_text("{}", encoding="utf-8")
    assert "verify --repair" in run("card", "-i", damaged, code=1).output


def test_steps_are_round_and_inside() -> None:
    assert steps(0, 100) == [0, 20, 40, 60, 80, 100]
    assert steps(-0.03, 0.02) == [-0.03, -0.02, -0.01, 0, 0.01, 0.02]
    assert steps(0.5, 0.92) == [0.5, 0.6, 0.7, 0.8, 0.9]


def test_it_opens_with_a_verdict_and_one_picture(folder: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(folder, tmp_path / "docs"))
    with Retriever.open(place) as retriever:
        retriever.describe(title=HOSTILE, description="What <i>modules</i> say.")
        card = retriever.card()
    text = article(card)
    parsed = Parsed(text)
    assert "What <i>modules</i> say." in parsed.text and "<i>" not in text
    header, details = text.split("</header>")
    assert "Search compares vectors transformed by whiten, as requested; no alternative was measured." in header
    assert "of the ten nearest passages" in header  # the index is inexact
    assert header.count("<svg") == 1 and details.count("<svg") == 1  # no plot is shown twice
    assert markdown(card).count("Search compares vectors transformed by whiten") == 1
