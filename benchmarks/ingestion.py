"""How fast is ingestion, and how much memory does it take?

    python -m benchmarks.ingestion speed SENTENCES.txt[.gz]... --count 20000
    python -m benchmarks.ingestion memory SENTENCES.txt[.gz]... --count 10000 --count 100000

speed: the same sentences through sentence-transformers' `encode` alone and through the whole of `index` (reading,
embedding, storing, flow, FAISS), taking turns in one process on one machine, then `index` again over the unchanged
source. memory: the peak of a fresh process for each count.
"""

import gzip
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

PEAK = (
    "import resource, sys\n"
    "from retriever import Corpus, Retriever\n"
    "Retriever.build(Corpus([sys.argv[1]]), sys.argv[2], device='cpu')\n"
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
)


def read_sentences(paths: Sequence[Path], count: int) -> list[str]:
    """The first `count` lines of the files, one after another."""
    found: list[str] = []
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            found += [line.rstrip("\n") for _, line in zip(range(count - len(found)), file, strict=False)]
    if len(found) < count:
        raise click.UsageError(f"the files have only {len(found):,} lines, not {count:,}.")
    return found


def write_source(folder: Path, sentences: list[str]) -> Path:
    path = folder / "sentences.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number, sentence in enumerate(sentences):
            file.write(json.dumps({"id": str(number), "text": sentence}, ensure_ascii=False) + "\n")
    return path


def timed(job: Callable[[], Any]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    job()
    return time.perf_counter() - wall, time.process_time() - cpu


@click.group()
def main() -> None:
    """How fast is ingestion, and how much memory does it take?"""


@main.command()
@click.argument("sentences", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--count", default=20_000, show_default=True)
@click.option("--parts", default=4, show_default=True, help="The two take turns over this many equal parts.")
def speed(sentences: tuple[Path, ...], count: int, parts: int) -> None:
    """Ingestion, storing and indexing included, against sentence-transformers' `encode`."""
    from sentence_transformers import SentenceTransformer

    from retriever import Corpus, Retriever
    from retriever.encoder import Encoder

    texts = read_sentences(sentences, count)
    ours = Encoder(device="cpu")
    theirs = SentenceTransformer(str(ours.files.folder), device="cpu")
    ours.encode(texts[:64])
    theirs.encode(texts[:64])
    step = -(-count // parts)
    their_seconds = [0.0, 0.0]
    with TemporaryDirectory() as name:
        folder = Path(name)
        source = write_source(folder, texts)

        encoded = [0]

        def encode_between(stage: str, done: int, total: int | None, detail: str = "") -> None:
            """Let sentence-transformers encode its next part whenever ours has embedded as much."""
            while stage == "embedding" and encoded[0] < count and done >= encoded[0]:
                part = texts[encoded[0] : encoded[0] + step]
                encoded[0] += len(part)
                for i, seconds in enumerate(timed(partial(theirs.encode, part))):
                    their_seconds[i] += seconds

        both = timed(
            lambda: Retriever.build(Corpus([source]), folder / "c", device="cpu", progress=encode_between).close()
        )
        our_seconds = [both[i] - their_seconds[i] for i in range(2)]
        again = timed(lambda: Retriever.build(Corpus([source]), folder / "c", device="cpu").close())
    click.echo(f"{count:,} sentences, each side {parts} parts in turn, wall s / CPU s")
    click.echo(f"sentence-transformers encode   {their_seconds[0]:8.1f} / {their_seconds[1]:8.1f}")
    click.echo(f"retriever index, everything    {our_seconds[0]:8.1f} / {our_seconds[1]:8.1f}")
    faster = [their_seconds[i] / our_seconds[i] for i in range(2)]
    click.echo(f"speed of index against encode  {faster[0]:8.2f} / {faster[1]:8.2f}")
    click.echo(f"index again, nothing changed   {again[0] / our_seconds[0]:8.1%} / {again[1] / our_seconds[1]:8.1%}")


@main.command()
@click.argument("sentences", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--count", "counts", default=(10_000, 100_000), show_default=True, multiple=True)
def memory(sentences: tuple[Path, ...], counts: tuple[int, ...]) -> None:
    """Peak memory of indexing, one fresh process a count."""
    first = None
    for count in counts:
        with TemporaryDirectory() as name:
            source = write_source(Path(name), read_sentences(sentences, count))
            command = [sys.executable, "-c", PEAK, str(source), str(Path(name) / "c")]
            peak = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        first = peak if first is None else first
        click.echo(f"{count:>9,} sentences  peak {peak:7,.0f} MB  {peak - first:+7,.0f} MB")


if __name__ == "__main__":
    main()
