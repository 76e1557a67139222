"""`retriever plan` as a user meets it: a real rehearsal with a tiny BERT, its JSON, shards, and what bad input gets."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rates_made_up import RATES
from samples import PETS, Run, write_jsonl
from similarity import sentences

from indexes.folder.collection import Collection
from retriever.corpus import Document
from retriever.errors import Misuse
from retriever.plan.index_trials import TYPES
from retriever.plan.laws import Law
from retriever.plan.planning import parse_documents, plan
from retriever.plan.rates import Rates
from retriever.plan.report import bytes_of, hours_of, show
from retriever.plan.sample import built_in, made_up
from retriever.retriever import Retriever

GB = 10**9
COUNT = 300


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
    """A rehearsal for a thousand documents, of which the source has the first few hundred."""
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


@pytest.mark.heavy
def test_json(planned: dict[str, Any]) -> None:
    assert planned["documents"] == 1000
    assert planned["passages"] >= planned["vectors"] == 1000
    assert planned["core_hours"] == pytest.approx(sum(planned["core_hours_by_part"].values()))
    assert planned["hours"] == pytest.approx(planned["core_hours"] / planned["cores"])
    assert set(planned["documents_a_core_hour"]) == {"fp32"}
    assert "not measured here" in planned["gpu"]
    assert set(planned["sqlite_bytes"]) == {"documents", "vectors", "index of words"}
    types = {one["type"]: one for one in planned["types"]}
    assert set(types) == set(TYPES)
    assert types["flat"]["recall"] == 1.0 and types["flat"]["shards"]["count"] == 1
    assert types["flat"]["index_bytes"] == pytest.approx(1000 * 32 * 4, rel=0.01)
    for cost in ("hours", "disk", "memory"):
        assert 0.9 < sum(one["share"] for one in planned["drivers"] if one["cost"] == cost) < 1.01
    assert any("recall at 1,000 vectors is not measured" in note for note in planned["notes"])
    assert Rates.from_json(planned["rates"]).sample.documents == COUNT


@pytest.mark.heavy
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
    assert sum(planned["sqlite_bytes"].values()) == pytest.approx(real, rel=0.2)
    whole = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    flat = next(one for one in planned["types"] if one["type"] == "flat")
    assert flat["disk_bytes"] == pytest.approx(whole, rel=0.2)


@pytest.mark.heavy
def test_a_single_document_is_a_poor_sample(run: Run, tmp_path: Path, options: list[str]) -> None:
    """Of a script without spaces; every figure is one all the same."""
    source = write_jsonl(tmp_path / "one.jsonl", [{"text": "猫は満足するとゴロゴロと喉を鳴らす。"}])
    output = run("plan", "--documents", 3, source, *options, "--json").stdout
    assert "NaN" not in output and "Infinity" not in output
    notes = json.loads(output)["notes"]
    assert "fewer than 100 documents" in notes[0] and "recall was not measured" in notes[-1]


@pytest.mark.heavy
def test_tables(planned: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    rates = Rates.from_json(planned["rates"])
    show(plan(rates, 10**9, recall=0.95, memory=8 * GB))
    shown = " ".join(capsys.readouterr().out.split())
    for word in ("1,000,000,000", "core-hours", "rabitq", "shards", "What drives the cost", "is not measured"):
        assert word in shown


@pytest.mark.heavy
def test_a_plan_by_a_collection(run: Run, source: Path, tmp_path: Path, options: list[str]) -> None:
    folder = tmp_path / "c"
    run("index", source, "--index", folder, *options)
    found = json.loads(run("plan", "--documents", "2k", "--index", folder, "--json").stdout)
    assert found["rates"]["fitted"]["transform"] == "center"
    assert found["rates"]["sample"]["documents"] == COUNT
    assert str(folder) in found["rates"]["sample"]["what"]
    assert Collection.exists(folder)
    output = run("plan", "--documents", 5, "--index", folder, "--precision", "int8", code=2).output
    assert "--precision goes with a SOURCE" in output
    assert "not both" in run("plan", "--documents", 5, source, "--index", folder, code=2).output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--encoder", "no/such-model-anywhere"], "no/such-model-anywhere"),
        (["--recall", "7"], "--recall must be above 0 and at most 1"),
        (["--memory", "lots"], "500MB"),
        (["--cores", "0"], "at least 1"),
        (["--transform", "whiten:dimension=9999"], "only 384 dimensions"),
        (["--index", "nowhere/at/all"], "does not exist"),
    ],
)
def test_misuse(run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code = 1 if "--encoder" in words else 2
    assert message in " ".join(run("plan", "--documents", "1e6", *words, code=code).output.split())


def test_a_source_without_documents(run: Run, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert "there is no document in the source" in run("plan", "--documents", 10, empty, code=2).output


def test_too_little_memory_for_one_vector() -> None:
    with pytest.raises(Misuse, match=r"too little for a single vector.*Give at least that"):
        plan(RATES, 10**6, recall=0.95, memory=1000)


@settings(deadline=None)
@given(st.integers(1, 10**10), st.integers(1, 512))
def test_shards_hold_all_and_fit(documents: int, gigabytes: int) -> None:
    law = Law(RATES)
    for one in plan(RATES, documents, recall=0.95, memory=gigabytes * GB).types:
        shards = one.shards
        assert shards.count * shards.documents_each >= documents
        assert max(shards.build_memory_each, shards.search_memory_each) <= gigabytes * GB
        if shards.count > 1:  # one fewer would not fit
            more = -(-documents // (shards.count - 1))
            assert max(law.build_memory(more, one.type), law.search_memory(more, one.type)) > gigabytes * GB


def test_what_is_built_in_stands_for_a_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    pets = [Document(str(pet["id"]), str(pet["text"])) for pet in PETS]
    monkeypatch.setattr("retriever.plan.sample.stdlib_documents", lambda: iter(pets))
    sample = built_in()
    assert "built in" in sample.what
    assert sorted(one.id for one in sample.documents) == sorted(pet.id for pet in pets)


@settings(deadline=None)
@given(st.integers(1, 50))
def test_made_up_documents(count: int) -> None:
    pets = [Document(str(pet["id"]), str(pet["text"])) for pet in PETS]
    found = list(made_up(pets, count))
    assert len({one.id for one in found} | {pet.id for pet in pets}) == count + len(pets)
    assert len({one.text for one in found}) == count
    lengths = {len(pet.text.split()) for pet in pets}
    assert {len(one.text.split()) for one in found} <= lengths


def test_figures_for_people() -> None:
    assert [bytes_of(n) for n in (12, 1536, 999.9e6, 1.54e12)] == ["12 bytes", "1.54 KB", "1,000 MB", "1.54 TB"]
    assert [hours_of(h) for h in (0.001, 0.5, 12.34, 640)] == ["3.6 s", "30 min", "12.3 hours", "640 hours (26.7 days)"]
