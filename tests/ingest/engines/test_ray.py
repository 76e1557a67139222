"""A run by the workers of a Ray cluster beside one by threads: the same collection, the same words when it fails."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from same import differing
from samples import Run, make_bert, write_jsonl
from workers import begun, begun_again, noting_worker

from retriever import Corpus, Document, Retriever
from retriever.corpus import source
from retriever.encoder.encoder import Encoder
from retriever.errors import BadSource, Mismatch, Misuse, RetrieverError
from retriever.ingest.engines.ray import pool as ray_pool
from retriever.ingest.engines.ray import reader as ray_reader
from retriever.ingest.engines.ray.worker import EncoderSpec

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'flow-retriever[ray]'")

OPTIONS: dict[str, Any] = {"transform": "whiten", "precision": "fp32", "batch_tokens": 64}


@pytest.fixture(scope="module", autouse=True)
def cluster(own_cache: Path, tiny_bert: str) -> Iterator[None]:
    """Two workers that the tests of this file share."""
    Encoder(tiny_bert).encode(["exported once"])
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    """Files of several kinds with long and equal texts, ids met twice and lines that cannot be read."""
    facts = [{"id": str(i), "text": f"Fact {i % 900} about {'x' * (i % 40)}.", "n": i} for i in range(1200)]
    facts += [{"id": f"long{i}", "title": f"Part {i}", "text": f"Sentence {i} of a long text. " * 90} for i in range(9)]
    facts += [{"id": "7", "text": "The seventh again, and otherwise."}, {"id": "no text"}]
    first = write_jsonl(tmp_path / "facts.jsonl", facts)
    with first.open("a") as file:
        file.write('{"id": "broken", "text":\n')
    (tmp_path / "table.csv").write_text("id,text,year\na,One row.,1984\nb,,1985\nc,Another row.,1986\n")
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "cats.md").write_text("# Cats\n\nThey purr.\n")
    return [first, tmp_path / "table.csv", notes]


def built_twice(documents: Callable[[], Any], folder: Path, encoder: str, **options: Any) -> tuple[Any, Any]:
    """The reports of the same build without and with Ray, and what both find."""
    reports = []
    for engine in ("local", "ray"):
        with Retriever.build(documents(), folder / engine, encoder=encoder, engine=engine, **options) as built:
            found = [(hit.id, hit.score) for hit in built.search("a fact about something", 20)]
            reports.append((asdict(built.report), found, built.notes()))
    return reports[0], reports[1]


def test_the_same_collection(sources: list[Path], tmp_path: Path, tiny_bert: str) -> None:
    local, by_ray = built_twice(lambda: Corpus(sources), tmp_path, tiny_bert, **OPTIONS)
    assert local == by_ray
    assert local[0]["skipped"] == 3 and local[0]["duplicate_ids"] == 1 and local[0]["texts_embedded"] > 900
    assert differing(tmp_path / "local", tmp_path / "ray") == []


@pytest.mark.slow
def test_chunks_of_a_few_documents_are_the_same(
    sources: list[Path], tmp_path: Path, tiny_bert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_reader, "CHUNKS_WITHOUT_NEW", 0)  # so that they come unsplit
    local, by_ray = built_twice(lambda: Corpus(sources), tmp_path, tiny_bert, **OPTIONS | {"transform": "none"})
    assert local == by_ray
    assert differing(tmp_path / "local", tmp_path / "ray") == []


@pytest.mark.slow
def test_what_only_this_process_has(tmp_path: Path, tiny_bert: str) -> None:
    def documents() -> Iterator[Any]:
        yield from (Document(str(i), f"text {i}") for i in range(300))
        yield {"id": "empty", "text": ""}
        yield "A lone text."

    local, by_ray = built_twice(documents, tmp_path, tiny_bert, **OPTIONS)
    assert local == by_ray
    assert differing(tmp_path / "local", tmp_path / "ray") == []


@pytest.mark.slow
def test_everything_chosen_by_the_text(tmp_path: Path, tiny_bert: str) -> None:
    """With nothing fixed: precision, transform and its strength come out the same."""
    texts = [f"{i % 50} cats sat on {i % 7} mats in the {i % 11}. house of {i % 13}." for i in range(1500)]
    local, by_ray = built_twice(lambda: texts, tmp_path, tiny_bert)
    assert local == by_ray
    assert differing(tmp_path / "local", tmp_path / "ray") == []


@pytest.mark.slow
def test_a_second_run_embeds_what_is_new(sources: list[Path], tmp_path: Path, tiny_bert: str) -> None:
    options: dict[str, Any] = {"encoder": tiny_bert, "engine": "ray", **OPTIONS}
    Retriever.build(Corpus(sources), tmp_path / "c", **options).close()
    (tmp_path / "notes" / "dogs.md").write_text("# Dogs\n\nThey bark.\n")
    with Retriever.build(Corpus(sources), tmp_path / "c", **options) as again:
        assert (again.report.new, again.report.texts_embedded) == (1, 1)
        assert again.verify().clean


def test_a_bad_line_stops_it(sources: list[Path], tmp_path: Path, tiny_bert: str) -> None:
    said = []
    for engine in ("local", "ray"):
        with pytest.raises(BadSource) as raised:
            Retriever.build(
                Corpus(sources), tmp_path / engine, encoder=tiny_bert, engine=engine, on_error="stop", **OPTIONS
            )
        said.append(str(raised.value))
        with Retriever.open(tmp_path / engine) as opened:
            assert opened.info()["documents"] == 1209
    assert said[0] == said[1]


def test_a_file_that_is_no_table_of_texts(tmp_path: Path, tiny_bert: str) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,One.\n2,Two.\n")
    (tmp_path / "b.csv").write_text("id,body\n3,Three.\n")
    with pytest.raises(Misuse, match="no column 'text'"):
        Retriever.build(
            Corpus([tmp_path / "a.csv", tmp_path / "b.csv"]), tmp_path / "c", encoder=tiny_bert, engine="ray"
        )
    with Retriever.open(tmp_path / "c") as retriever:
        assert len(retriever) == 2


def test_an_encoder_that_gives_nan(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    bert = make_bert(tmp_path / "bert")
    weights = load_file(bert / "model.safetensors")
    weights["embeddings.word_embeddings.weight"][5000:5400] = float("nan")
    save_file(weights, bert / "model.safetensors", {"format": "pt"})
    texts = [f"number {i} of the words that there are, beginning wonderful" for i in range(100)]
    texts += ["".join(map(chr, range(97, 123))), "university construction championship government"]
    said = []
    for engine in ("local", "ray"):
        with pytest.raises(RetrieverError, match="returned NaN") as raised:
            Retriever.build(texts, tmp_path / engine, encoder=str(bert), engine=engine, **OPTIONS)
        assert type(raised.value) is RetrieverError
        said.append(str(raised.value).partition("for the text")[0])
    assert said[0] == said[1]


def test_another_encoder_on_a_node(tiny_bert: str, other_bert: str) -> None:
    spec = EncoderSpec.of(Encoder(tiny_bert), "cpu")
    other = replace(spec, identity=replace(spec.identity, name=other_bert))
    with pytest.raises(Mismatch, match=r"the Ray node .* has a different encoder .* \(weights .* instead of"):
        other.load()
    missing = replace(spec, identity=replace(spec.identity, name="/nowhere/bert"))
    with pytest.raises(RetrieverError, match=r"on the Ray node .*no model folder '/nowhere/bert'.*share its folder"):
        missing.load()
    old = replace(spec, versions={**spec.versions, "onnxruntime": "1.0"})
    with pytest.raises(Mismatch, match=r"differ from those on this machine: onnxruntime .* instead of 1\.0"):
        old.load()


def test_a_node_without_the_encoder(tmp_path: Path, tiny_bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = EncoderSpec.of
    elsewhere = staticmethod(
        lambda encoder, device: replace(real(encoder, device), identity=replace(encoder.identity, name="/nowhere/bert"))
    )
    monkeypatch.setattr(EncoderSpec, "of", elsewhere)
    with pytest.raises(RetrieverError, match="no model folder '/nowhere/bert'"):
        Retriever.build(["a text"] * 3, tmp_path / "c", encoder=tiny_bert, engine="ray", **OPTIONS)


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_its_batch(
    sources: list[Path], tmp_path: Path, tiny_bert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Retriever.build(Corpus(sources), tmp_path / "local", encoder=tiny_bert, **OPTIONS).close()
    (tmp_path / "begun").mkdir()
    monkeypatch.setattr(ray_pool, "Worker", noting_worker(tmp_path / "begun", 0.005))
    killed: list[int] = []

    def kill(stage: str, done: int, total: int | None, detail: str = "") -> None:
        pids = [pid for pid, batches in begun(tmp_path / "begun").items() if len(batches) > 10]
        if pids and not killed:
            killed.append(pids[0])
            os.kill(pids[0], signal.SIGKILL)

    with Retriever.build(
        Corpus(sources), tmp_path / "ray", encoder=tiny_bert, engine="ray", progress=kill, **OPTIONS
    ) as built:
        (note,) = built.notes()
        assert note.startswith("1 worker of the Ray cluster died")
    assert killed
    assert begun_again(tmp_path / "begun") <= 1
    assert differing(tmp_path / "local", tmp_path / "ray") == []


@pytest.mark.slow
def test_a_batch_that_kills_every_worker(tmp_path: Path, tiny_bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Deadly(ray_pool.Worker):
        def encode(self, tokens: list[list[int]], half: bool) -> Any:
            if len(tokens[0]) > 20:
                os._exit(1)
            return super().encode(tokens, half)

    monkeypatch.setattr(ray_pool, "Worker", Deadly)
    texts = ["short"] * 20 + ["a text of very many words " * 10]
    with pytest.raises(
        RetrieverError,
        match="3 workers of the Ray cluster died while .* the same batch.*What was stored is kept",
    ):
        Retriever.build(texts, tmp_path / "c", encoder=tiny_bert, engine="ray", **OPTIONS)
    monkeypatch.undo()
    with Retriever.build(texts, tmp_path / "c", encoder=tiny_bert, engine="ray", **OPTIONS) as built:
        assert len(built) == 2 and built.verify().clean


def test_no_worker_comes(tmp_path: Path, tiny_bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Never(ray_pool.Worker):
        def prepare(self, spec: EncoderSpec | None) -> Any:
            time.sleep(60)

    monkeypatch.setattr(ray_pool, "Worker", Never)
    monkeypatch.setattr(ray_pool, "NO_WORKER_SECONDS", 1)
    with pytest.raises(RetrieverError, match=r"no worker .* was ready within 1 s. 2 were requested .*'CPU': 2"):
        Retriever.build(["a text"], tmp_path / "c", encoder=tiny_bert, engine="ray", **OPTIONS)


@pytest.mark.slow
def test_a_reader_that_dies_is_followed_by_another(
    sources: list[Path], tmp_path: Path, tiny_bert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = tmp_path / "died"

    class Mortal(ray_reader.Reader):
        def next(self, split: bool) -> Any:
            chunk = super().next(split)
            if not once.exists() and chunk.items and chunk.items[-1].id >= "5":
                once.touch()
                os._exit(1)
            return chunk

    monkeypatch.setattr(ray_reader, "Reader", Mortal)
    # What is read ahead to detect the language is read in this process, and here that would be all.
    monkeypatch.setattr(source, "DOCUMENTS_AHEAD", 100)
    local, by_ray = built_twice(lambda: Corpus(sources), tmp_path, tiny_bert, **OPTIONS | {"transform": "none"})
    assert once.exists() and local == by_ray
    assert differing(tmp_path / "local", tmp_path / "ray") == []


# ---- at the command line -------------------------------------------------------------------------------------


def test_misuse(run: Run, pets: Path, tmp_path: Path) -> None:
    index = ["index", pets, "--index", tmp_path / "c"]
    assert "it needs --engine ray" in run(*index, "--address", "auto", code=2).output
    for address in ("nonsense", "host:port", "ray://host", "host:70000"):
        assert "must be auto, HOST:PORT or ray://HOST:PORT" in run(
            *index, "--engine", "ray", "--address", address, code=2
        ).output.replace("\n", " ")
    assert not (tmp_path / "c").exists()


def test_without_ray(pets: Path, tmp_path: Path) -> None:
    code = "import sys; sys.modules['ray'] = None; from retriever.cli.main import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "index", str(pets), "--index", str(tmp_path / "c"), "--engine", "ray"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (
        done.returncode == 1 and "pip install 'flow-retriever[ray]'" in done.stderr and "Traceback" not in done.stderr
    )
    assert not (tmp_path / "c").exists()


def test_ray_is_imported_by_who_asks_for_it(pets: Path, tmp_path: Path, tiny_bert: str) -> None:
    code = (
        "import sys; from retriever.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert 'ray' not in sys.modules"
    )
    command = [sys.executable, "-c", code, "index", str(pets), "--index", str(tmp_path / "c"), "--encoder", tiny_bert]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.slow
def test_the_caller_keeps_its_own_print() -> None:
    """Ray would put another one in its place."""
    script = (
        "import builtins, sys; from retriever.ingest.engines import opened; before = builtins.print\n"
        "with opened('ray') as engine: pass\n"
        "sys.exit(builtins.print is not before)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "RAY_TQDM_PATCH_PRINT"}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)
