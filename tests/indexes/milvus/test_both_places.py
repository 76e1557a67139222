"""The same jobs in a folder and in Milvus: the same hits, reports, refusals and words, reopened each time."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from milvus_places import shown, told
from samples import PETS, Run, write_jsonl

from retriever import Document, Retriever, Skipped
from retriever.errors import BadFilter, BadSource, Mismatch, Misuse, NoSuchDocument, NotACollection, RetrieverError

Place = Callable[[str], str]
WORDS = "ant bee cat dog elk fox gnu hen owl pig rat yak sea sky sun ice fog oak elm ash".split()
QUERIES = ["cat dog", "sea ice", "owl 7"]
# The embedded encoder's own choices take longer than the job; they are the same code in both places.
PLAIN: dict[str, Any] = {"transform": "whiten", "precision": "fp32"}


def documents(count: int = 40) -> list[Document]:
    made = []
    for number in range(count):
        text = " ".join(WORDS[(number * step + number // 7) % len(WORDS)] for step in (1, 3, 7, 11))
        title = f"Title {number}" if number % 3 == 0 else ""
        made.append(Document(f"d{number}", f"{text}. {number % 30}", title, {"n": number, "even": number % 2 == 0}))
    made.append(Document("long", " ".join(f"Sentence {n} speaks of {WORDS[n % 20]}." for n in range(120)), "Minutes"))
    return made


# ---- side by side ------------------------------------------------------------------------------------------------


def both_ways(tmp_path: Path, job: Callable[[str], Any]) -> None:
    """Have a job done in a folder and in Milvus, and compare what it tells."""
    folder, milvus = str(tmp_path / "c"), f"milvus:{tmp_path / 'm.db'}"
    in_folder, in_milvus = job(folder), job(milvus)
    assert json.dumps(in_milvus, default=str, indent=1).replace(milvus, "PLACE") == (
        json.dumps(in_folder, default=str, indent=1).replace(folder, "PLACE")
    )


def facts(retriever: Retriever) -> dict[str, Any]:
    """What `info` tells, without what a place or a moment decides."""
    info = retriever.info()
    index = {key: info["index"][key] for key in ("type", "recall", "memory", "note")}
    kept = ("documents", "passages", "dimension", "encoder", "transform", "fitted_on", "weight_of_meaning", "drift")
    return {"index": index, **{key: info[key] for key in kept}}


def found(place: str) -> list[Any]:
    """What searches of all dense kinds find, in a collection opened anew."""
    with Retriever.open(place) as retriever:
        where = [["n < 12"], ["even = true", "n >= 5"], ["n in (1, 2, 3)"], ["even != null"], ["n = null"]]
        return [
            facts(retriever),
            *(shown(hits) for hits in retriever.search_many(QUERIES, 12, mode="dense")),
            *(shown(hits) for hits in retriever.search_many(QUERIES, 12, space="raw", mode="dense")),
            *(shown(retriever.search(QUERIES[0], 9, where=own, mode="dense")) for own in where),
            *(shown(retriever.search(QUERIES[0], 9, where=own, space="raw", mode="dense")) for own in where),
            shown(retriever.search(QUERIES[0], 500, mode="dense")),
            shown(retriever.search(QUERIES[1], 50, min_score=20, highlight=True, mode="dense")),
            *(shown(retriever.similar(hit.id, 7)) for hit in retriever.search(QUERIES[2], 4, mode="dense")),
            shown(retriever.similar("long", 7, where=["even = false"])) if len(retriever) > 30 else [],
            len(retriever),
        ]


def test_a_life_of_a_collection(tmp_path: Path, tiny_bert: str) -> None:
    """Built, added to, changed, deleted from, rebuilt, pruned: after each step the same is found."""

    def job(place: str) -> list[Any]:
        steps: list[Any] = []
        with Retriever.build(documents(), place, encoder=tiny_bert, max_length=24, **PLAIN) as retriever:
            steps += [vars(retriever.report), retriever.verify().problems]
        steps.append(found(place))
        with Retriever.open(place) as retriever:
            new = [Document("new", "An owl over the sea ice.", metadata={"n": -1, "even": False})]
            steps.append(vars(retriever.add([*new, Document("d3", "fox fog"), Document("d4", documents()[4].text)])))
            steps.append([retriever.document(id_).metadata for id_ in ("new", "d3", "d4", "d5")])
        steps.append(found(place))
        with Retriever.open(place) as retriever:
            steps += [retriever.delete(["d7", "nope", "d1", "d7", "\udcff"]), retriever.delete(["d7"]), len(retriever)]
        steps.append(found(place))
        with Retriever.open(place) as retriever:
            retriever.rebuild(transform="center")
            steps.append(vars(retriever.verify()) | {"files": 0})
        steps.append(found(place))
        with Retriever.build(documents(30), place, prune=True) as retriever:
            steps.append(vars(retriever.report))
        steps.append(found(place))
        with Retriever.build([*documents(9), Skipped("f:3", "bad")], place, prune=True) as retriever:
            steps.append([retriever.report.prune_refused, retriever.report.pruned, len(retriever)])
        with Retriever.open(place) as retriever:
            retriever.delete([document.id for document in documents(30)])
            steps += [len(retriever), retriever.search("cat"), retriever.verify().problems]
            retriever.add(documents(3))
            steps.append(shown(retriever.search("cat", mode="dense")))
        return steps

    both_ways(tmp_path, job)


def test_duplicate_texts_and_ties(tmp_path: Path, tiny_bert: str) -> None:
    """Texts that many share are embedded once, tie by arrival, and are no growth that a fit would be due for."""

    def job(place: str) -> list[Any]:
        same = [Document(f"s{number:02}", "the same words", metadata={"n": number}) for number in range(60)]
        same += [Document(f"t{number}", f"{WORDS[number]} twice. {WORDS[number]} twice.") for number in range(4)]
        with Retriever.build(same, place, encoder=tiny_bert, **PLAIN) as retriever:
            steps: list[Any] = [vars(retriever.report)]
        for k in (1, 7, 64):
            with Retriever.build(same, place) as retriever:
                steps.append([facts(retriever), retriever.info()["index"]["generation"]])
                steps.append([shown(retriever.search("the same words", k, mode="dense"))])
                steps.append(shown(retriever.search("the same words", k, where=["n >= 30"], mode="dense")))
                steps.append(shown(retriever.similar("s05", k)))
        return steps

    both_ways(tmp_path, job)


def refused(job: Callable[[], Any], place: str) -> tuple[str, str]:
    with pytest.raises(RetrieverError) as raised:
        job()
    return told(raised.value, place)


def test_what_is_refused_is_refused_in_the_same_words(tmp_path: Path, tiny_bert: str, other_bert: str) -> None:
    def job(place: str) -> list[Any]:
        def stopped() -> None:
            items = [Document("a", "one"), Skipped("f:3", "is bad"), Document("c", "three")]
            Retriever.build(items, place, encoder=tiny_bert, on_error="stop", **PLAIN)

        steps: list[Any] = [
            refused(lambda: Retriever.build([], place, encoder=tiny_bert), place),
            refused(lambda: Retriever.build(["x"], place, encoder=tiny_bert, transform="mangle"), place),
            refused(lambda: Retriever.build(["x"], place, encoder=tiny_bert, transform="whiten:dimension=99"), place),
            refused(stopped, place),
        ]
        with Retriever.open(place) as retriever:
            steps += [len(retriever), refused(lambda: retriever.search("one"), place), retriever.verify().problems]
        Retriever.build(documents(5), place, encoder=tiny_bert, **PLAIN).close()
        steps.append(refused(lambda: Retriever.build(["y"], place, encoder=other_bert), place))
        steps.append(refused(lambda: Retriever.build(["y"], place, max_length=9), place))
        with Retriever.open(place, encoder=other_bert) as retriever:
            steps += [refused(lambda: retriever.search("one"), place), refused(lambda: retriever.add(["one"]), place)]
        with Retriever.open(place) as retriever:
            asked: list[Callable[[], Any]] = [
                lambda: retriever.search(""),
                lambda: retriever.search("\udcff"),
                lambda: retriever.search("x", 0),
                lambda: retriever.search("x", mode="fuzzy"),  # type: ignore[arg-type]
                lambda: retriever.search("x", space="other"),  # type: ignore[arg-type]
                lambda: retriever.search("x", where="n = 1"),
                lambda: retriever.search("x", where=["n = 1", "m = 1"]),
                lambda: retriever.search("x", where=["n ~ 1"]),
                lambda: retriever.search("x", where=["title = 1"]),
                lambda: retriever.search("x", mode="lexical", where=["N = 1"]),
                lambda: retriever.similar("nope"),
                lambda: retriever.similar("\udcff"),
                lambda: retriever.document("nope"),
                lambda: retriever.document("\udcff"),
                lambda: retriever.delete("d1"),
                lambda: retriever.add([]),
                lambda: retriever.rebuild(transform="mangle"),
                lambda: retriever.rebuild(transform="whiten:dimension=99"),
            ]
            steps += [refused(one, place) for one in asked]
            retriever.delete([document.id for document in documents(5)])
            retriever.delete(["a", "c"])
            steps += [len(retriever), refused(retriever.rebuild, place)]
        return steps

    both_ways(tmp_path, job)


def test_an_interrupted_first_run_is_gone_on_with(
    tmp_path: Path, tiny_bert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retriever.ingest.pipeline.WINDOW_TEXTS", 20)
    monkeypatch.setattr("retriever.ingest.pipeline.READ_TOGETHER", 10)
    monkeypatch.setattr("retriever.corpus.source.DOCUMENTS_AHEAD", 5)

    def job(place: str) -> list[Any]:
        def source() -> Any:
            yield from documents(60)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            Retriever.build(source(), place, encoder=tiny_bert, **PLAIN)
        with Retriever.open(place) as retriever:
            stored = len(retriever)
            assert stored >= 20
            steps: list[Any] = [stored, refused(lambda: retriever.search("cat"), place), retriever.verify().problems]
            assert "no index yet" in str(steps[1])
        with Retriever.build(documents(60), place) as retriever:
            steps += [retriever.report.unchanged, retriever.report.new]
        return [*steps, found(place)]

    both_ways(tmp_path, job)


def test_the_embedded_encoder_and_all_that_it_chooses(tmp_path: Path) -> None:
    def job(place: str) -> list[Any]:
        with Retriever.build(PETS, place) as retriever:
            report = vars(retriever.report)
        with Retriever.open(place) as retriever:
            return [report, facts(retriever), shown(retriever.search("feline noises", highlight=True, mode="dense"))]

    both_ways(tmp_path, job)


# ---- what is expected of each ------------------------------------------------------------------------------------


def test_a_reader_follows_a_writer(place: Place, tiny_bert: str) -> None:
    own = place("c")
    Retriever.build(documents(), own, encoder=tiny_bert, **PLAIN).close()
    with Retriever.open(own) as reader, Retriever.open(own) as writer:
        assert reader.search("penguin", 1)[0].id != "p"
        writer.add([Document("p", "penguin")])
        assert reader.search("penguin", 1)[0].id == "p"
        before = reader.search("cat", 5)
        writer.rebuild(transform="none")
        assert reader.search("penguin", 1)[0].id == "p"
        assert reader.search("cat", 5) != before
        writer.delete(["p"])
        assert "p" not in {hit.id for hit in reader.search("penguin", 100)}


@pytest.mark.parametrize("transform", ["standardize", "whiten:dimension=8"])
def test_raw_space_is_the_same_whatever_the_transform(place: Place, tiny_bert: str, transform: str) -> None:
    with Retriever.build(documents(), place("a"), encoder=tiny_bert, transform="none", precision="fp32") as plain:
        expected = shown(plain.search("cat owl", 10, mode="dense"))
    with Retriever.build(documents(), place("b"), encoder=tiny_bert, transform=transform, precision="fp32") as other:
        assert shown(other.search("cat owl", 10, space="raw", mode="dense")) == expected


def test_two_collections_beside_each_other(place: Place, tiny_bert: str) -> None:
    Retriever.build(documents(5), place("one"), encoder=tiny_bert, **PLAIN).close()
    Retriever.build(documents(9), place("two"), encoder=tiny_bert, **PLAIN).close()
    with Retriever.open(place("one")) as one, Retriever.open(place("two")) as two:
        assert (len(one), len(two)) == (6, 10)
        one.delete(["d0"])
        assert (len(one), len(two)) == (5, 10)
    with pytest.raises(NotACollection, match="retriever index SOURCE"):
        Retriever.open(place("three"))


def test_an_index_by_approximation_gives_all_that_is_asked_for(place: Place, tiny_bert: str) -> None:
    for kind in ("hnsw", "auto") if place("x").startswith("milvus") else ("hnsw",):
        own = place(f"c_{kind}")
        with Retriever.build(documents(120), own, encoder=tiny_bert, index_type=kind, **PLAIN) as retriever:
            everything = retriever.search("cat dog owl", 400)
            assert len(everything) == 121, "all of them, whatever the index finds by itself"
            assert [hit.score for hit in everything] == sorted((hit.score for hit in everything), reverse=True)
            assert len(retriever.search("cat", 100, where=["n < 10"])) == 10
            assert retriever.info()["index"]["measured"]["recall"] > 0.5
            retriever.delete([f"d{number}" for number in range(110)])
            assert len(retriever.search("cat dog owl", 400)) == 11


def test_another_encoder_of_another_width_may_fill_what_nothing_was_stored_in(
    place: Place, tiny_bert: str, tmp_path: Path
) -> None:
    from samples import make_bert

    wide = str(make_bert(tmp_path / "wide", width=64))
    own = place("c")

    def failing() -> Any:
        raise BadSource("nothing to be read")
        yield ""

    for encoder in (tiny_bert, wide):
        with pytest.raises(BadSource):
            Retriever.build(failing(), own, encoder=encoder, **PLAIN)
    with Retriever.build(documents(3), own, encoder=wide, **PLAIN) as retriever:
        assert retriever.info()["dimension"] == 64
        assert len(retriever.search("cat")) == 4


def test_every_error_has_its_type(place: Place, tiny_bert: str, other_bert: str) -> None:
    with Retriever.build(documents(3), place("c"), encoder=tiny_bert, **PLAIN) as retriever:
        with pytest.raises(NoSuchDocument):
            retriever.similar("x")
        with pytest.raises(BadFilter, match="did you mean 'even'") as raised:
            retriever.search("x", where=["n = 1", "evn = true"])
        assert raised.value.place == 1
        with pytest.raises(Misuse, match="only 32 dimensions"):
            retriever.rebuild(transform="whiten:dimension=99")
    with pytest.raises(Mismatch):
        Retriever.build(documents(3), place("c"), encoder=other_bert)


# ---- the command line --------------------------------------------------------------------------------------------


def test_the_command_line(tmp_path: Path, tiny_bert: str, run: Run) -> None:
    pets = write_jsonl(tmp_path / "pets.jsonl", PETS)
    more = write_jsonl(tmp_path / "more.jsonl", [{"id": "cow", "text": "Cows give milk.", "legs": 4}])

    def job(place: str) -> list[Any]:
        told_: list[str] = []

        def said(*args: object, code: int = 0) -> None:
            result = run(*args, "--index", place, code=code)
            told_.append(result.output if "--json" in args or code else "")

        said("index", pets, "--encoder", tiny_bert, "--transform", "none")
        said("search", "purring", "--json", "-k", 3, "--mode", "dense")
        said("add", more)
        said("search", "milk", "--json", "--where", "legs = 4", "--mode", "dense")
        said("search", "milk", "--json", "--where", "leg = 4", code=2)
        said("similar", "cow", "--json")
        said("similar", "sheep", code=2)
        said("delete", "cow", "dog")
        said("search", "milk", "--json", "--mode", "dense")
        said("rebuild", "--transform", "center")
        said("search", "milk", "--json", "--mode", "dense")
        said("verify")
        said("info")
        return told_

    both_ways(tmp_path, job)


def test_info_and_verify_name_the_place(tmp_path: Path, tiny_bert: str, run: Run, lite: str) -> None:
    pets = write_jsonl(tmp_path / "pets.jsonl", PETS)
    first = run("index", pets, "--index", lite, "--encoder", tiny_bert, "--transform", "none").output
    assert f"retriever search --index {lite}" in first.replace("\n", "") or lite in first
    assert json.loads(run("info", "--index", lite, "--json").output)["folder"] == lite
    assert json.loads(run("info", "--index", lite, "--json").output)["documents"] == len(PETS)
    run("verify", "--index", lite)
    result = run("search", "cats", "--index", f"{lite}#other", code=2)
    assert f"{lite}#other" in result.output.replace("\n", "")


def test_what_needs_a_folder_says_so(
    tmp_path: Path, tiny_bert: str, run: Run, lite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Retriever.build(PETS, lite, encoder=tiny_bert, **PLAIN) as retriever:
        for ask in (retriever.card, retriever.map, lambda: retriever.export(tmp_path / "out")):
            with pytest.raises(Misuse, match="retriever copy"):
                ask()
    for command in ("export", "salvage"):
        assert "Milvus" in run(command, "out", "--index", lite, code=2).output


def test_title_and_description(place: Place, run: Run) -> None:
    where = place("pets")
    Retriever.build(documents(3), where, **PLAIN).close()
    with Retriever.open(where) as retriever:
        retriever.describe(description="What animals do.")
    told = json.loads(run("info", "-i", where, "--title", "Animals", "--json").output)
    assert (told["title"], told["description"]) == ("Animals", "What animals do.")
    run("info", "-i", where, "--title", "", "--json")
    with Retriever.open(where) as retriever:
        assert (retriever.info()["title"], retriever.info()["description"]) == (None, "What animals do.")
        assert retriever.search(documents(3)[0].text, 1)[0].id == "d0"
