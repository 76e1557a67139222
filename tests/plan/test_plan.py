"""`retriever plan` as a user meets it: a real rehearsal with a tiny BERT, its JSON, shards, and what bad input gets."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rates_made_up import RATES
from rich.console import Console
from samples import PETS, Run, write_jsonl
from similarity import sentences

from indexes.folder.collection import Collection
from retriever.cli.plan import parse_documents
from retriever.corpus import Document
from retriever.errors import Misuse, RetrieverError
from retriever.plan.laws import Law, Rates
from retriever.plan.rehearsal import OTHER_TYPES, run_child
from retriever.plan.report import figure, plan, show
from retriever.plan.sample import Sample, made_up
from retriever.retriever import Retriever

GB = 10**9
COUNT = 400


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = list(dict.fromkeys(sentences(2 * COUNT, 5)))[:COUNT]
    records = [{"id": f"{n:04d}", "text": line, "lang": "en"} for n, line in enumerate(lines)]
    return write_jsonl(tmp_path_factory.mktemp("source") / "lines.jsonl", records)


@pytest.fixture(scope="module")
def options(tiny_bert: str) -> list[str]:
    """Of the quick kind: nothing is chosen."""
    return ["--encoder", tiny_bert, "--transform", "center", "--precision", "fp32"]


@pytest.fixture(scope="module")
def planned(source: Path, options: list[str]) -> Iterator[dict[str, Any]]:
    """A rehearsal of the whole source, planned for 1,000 documents."""
    from click.testing import CliRunner

    from retriever.cli.main import main

    result = CliRunner().invoke(main, ["plan", "--documents", "1000", str(source), *options, "--json"])
    assert result.exit_code == 0, result.output
    yield json.loads(result.stdout)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1e9", 10**9),
        ("1_000_000", 10**6),
        ("1,000", 1000),
        ("10k", 10_000),
        ("2.5M", 2_500_000),
        ("7", 7),
        ("1B", 10**9),
    ],
)
def test_numbers_of_documents(text: str, count: int) -> None:
    assert parse_documents(text) == count


@pytest.mark.parametrize("text", ["0", "-5", "abc", "1e30", "nan", "inf", "", "1.5", "1e", "5x", "1e999"])
def test_what_is_no_number_of_documents(run: Run, text: str) -> None:
    output = " ".join(run("plan", f"--documents={text}", code=2).output.split())
    assert "--documents" in output
    assert "1e9" in output or "from 1 to 1e+15" in output


@settings(deadline=None)
@given(st.text(max_size=12))
def test_any_text_is_a_number_or_refused(text: str) -> None:
    try:
        assert parse_documents(text) >= 1
    except Misuse as error:
        assert "--documents" in str(error)


def test_json(planned: dict[str, Any]) -> None:
    assert planned["documents"] == 1000
    assert planned["passages"] >= planned["vectors"] == 1000
    assert planned["core_hours"] == pytest.approx(sum(planned["core_hours_by_part"].values()))
    assert planned["hours"] == pytest.approx(planned["core_hours"] / planned["cores"])
    assert planned["documents_per_core_hour"] > 0 and planned["sqlite_bytes"] > 0
    types = {one["type"]: one for one in planned["types"]}
    assert set(types) == {"flat", *OTHER_TYPES}
    assert types["flat"]["recall"] == 1.0 and types["flat"]["shards"]["count"] == 1
    assert types["flat"]["index_bytes"] == pytest.approx(1000 * 32 * 4, rel=0.01)
    assert all(0 < one["recall"] <= 1 for one in types.values())
    assert set(planned["core_hours_by_part"]) == {"start", "embedding and storing", "fitting", "building the index"}
    assert any("Recall was measured on 400 vectors" in note for note in planned["notes"])
    assert any("GPUs were not measured" in note for note in planned["notes"])
    assert Rates.from_json(planned["rates"]).sample_documents == COUNT


def test_bytes_are_those_of_the_real_collection(planned: dict[str, Any], source: Path, tiny_bert: str) -> None:
    """The documents that were rehearsed and as many made up again, indexed for real."""
    records = [json.loads(line) for line in source.read_text().splitlines()]
    documents = [Document(r["id"], r["text"], "", {"lang": "en"}, f"{source}:{n}") for n, r in enumerate(records, 1)]
    more = [*documents, *made_up(documents, 1000 - COUNT)]
    folder = source.parent / "collection"
    Retriever.build(more, folder, encoder=tiny_bert, transform="center", precision="fp32").close()
    with Collection.open(folder) as collection:
        assert collection.store.count("vectors") == 1000
    real = (folder / "documents.sqlite").stat().st_size
    assert planned["sqlite_bytes"] == pytest.approx(real, rel=0.2)
    whole = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    flat = next(one for one in planned["types"] if one["type"] == "flat")
    assert flat["disk_bytes"] == pytest.approx(whole, rel=0.2)


@pytest.mark.slow
def test_a_single_document_is_a_poor_sample(run: Run, tmp_path: Path, options: list[str]) -> None:
    """It is in a script without spaces. Every figure is a number all the same."""
    source = write_jsonl(tmp_path / "one.jsonl", [{"text": "猫は満足するとゴロゴロと喉を鳴らす。"}])
    output = run("plan", "--documents", 3, source, *options, "--json").stdout
    assert "NaN" not in output and "Infinity" not in output
    notes = json.loads(output)["notes"]
    assert "fewer than 100 documents" in notes[0] and "Recall was not measured" in notes[-1]


def test_table(planned: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    rates = Rates.from_json(planned["rates"])
    show(plan(rates, 10**9, memory=8 * GB), Console())
    shown = " ".join(capsys.readouterr().out.split())
    for word in ("1,000,000,000", "core-hours", "rabitq", "shards", "embedding and storing", "Recall was measured"):
        assert word in shown


@pytest.fixture
def rehearsed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Sample, dict[str, Any], int]]:
    """What was to be rehearsed; a rehearsal takes seconds and is not what these tests are about."""
    calls: list[tuple[Sample, dict[str, Any], int]] = []

    def rehearse(sample: Sample, options: dict[str, Any], documents: int, progress: Any) -> Rates:
        calls.append((sample, options, documents))
        return RATES

    monkeypatch.setattr("retriever.plan.rehearsal.rehearse", rehearse)
    return calls


def test_a_plan_by_a_collection(
    run: Run, source: Path, tmp_path: Path, options: list[str], rehearsed: list[tuple[Sample, dict[str, Any], int]]
) -> None:
    folder = tmp_path / "c"
    run("index", source, "--index", folder, *options)
    assert json.loads(run("plan", "--documents", "2k", "--index", folder, "--json").stdout)["documents"] == 2000
    ((sample, used, documents),) = rehearsed
    assert used == {
        "encoder": options[1], "pooling": "mean", "max_length": used["max_length"], "precision": "fp32",
        "query_prompt": "", "document_prompt": "", "transform": "center",
    }  # fmt: skip
    assert documents == 2000 and len(sample.documents) == COUNT and str(folder) in sample.description
    assert sample.documents[0].metadata == {"lang": "en"}
    output = run("plan", "--documents", 5, "--index", folder, "--precision", "int8", code=2).output
    assert "--precision cannot be used with --index" in output
    assert "not both" in run("plan", "--documents", 5, source, "--index", folder, code=2).output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--encoder", "no/such-model-anywhere"], "no/such-model-anywhere"),
        (["--memory", "lots"], "500MB"),
        (["--cores", "0"], "at least 1"),
        (["--transform", "whiten:dimension=9999"], "only 384 dimensions"),
        (["--index", "nowhere/at/all"], "does not exist"),
    ],
)
def test_misuse(run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("retriever.corpus.python_docs.stdlib_documents", _pets)
    code = 1 if "--encoder" in words else 2
    assert message in " ".join(run("plan", "--documents", "1e6", *words, code=code).output.split())


def test_a_source_without_documents(run: Run, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert "there is no document in the source" in run("plan", "--documents", 10, empty, code=2).output


def test_too_little_memory_for_one_vector() -> None:
    with pytest.raises(Misuse, match=r"too little for a single vector.*Give at least that"):
        plan(RATES, 10**6, memory=1000)


@settings(deadline=None)
@given(st.integers(1, 10**10), st.integers(1, 512))
def test_shards_hold_all_and_fit(documents: int, gigabytes: int) -> None:
    law = Law(RATES)
    for one in plan(RATES, documents, memory=gigabytes * GB)["types"]:
        name, shards = one["type"], one["shards"]
        assert shards["count"] * shards["documents_each"] >= documents
        assert max(shards["build_memory_each"], shards["search_memory_each"]) <= gigabytes * GB
        if shards["count"] > 1:  # one fewer would not fit
            more = -(-documents // (shards["count"] - 1))
            assert max(law.build_memory(more, name), law.search_memory(more, name)) > gigabytes * GB


def _pets() -> Iterator[Document]:
    return (Document(str(pet["id"]), str(pet["text"])) for pet in PETS)


def test_python_documentation_is_the_sample_where_none_is_given(
    run: Run, monkeypatch: pytest.MonkeyPatch, rehearsed: list[tuple[Sample, dict[str, Any], int]]
) -> None:
    monkeypatch.setattr("retriever.corpus.python_docs.stdlib_documents", _pets)
    run("plan", "--documents", 5)
    ((sample, used, _),) = rehearsed
    assert "built in" in sample.description and list(sample.documents) == list(_pets())
    assert (used["encoder"], used["transform"], used["precision"]) == ("all-MiniLM-L6-v2", "auto", None)


def test_a_rehearsal_that_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(RetrieverError, match="the rehearsal failed: its process ended with exit code 1"):
        run_child("build", {})


def test_interrupted(
    run: Run, source: Path, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C leaves neither a process nor a folder behind."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("subprocess.Popen.communicate", interrupt)
    run("plan", "--documents", 5, source, *options, code=130)
    assert not list(tmp_path.iterdir())


@settings(deadline=None)
@given(st.integers(1, 50))
def test_made_up_documents(count: int) -> None:
    pets = list(_pets())
    found = list(made_up(pets, count))
    assert len({one.id for one in found} | {pet.id for pet in pets}) == count + len(pets)
    assert len({one.text for one in found}) == count
    lengths = {len(pet.text.split()) for pet in pets}
    assert {len(one.text.split()) for one in found} <= lengths


def test_figures_for_people() -> None:
    assert [figure(value) for value in (0.012345, 12.34, 640.4, 1234567)] == ["0.0123", "12.3", "640", "1,230,000"]
