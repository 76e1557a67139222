"""Compare the encoder, the flow and FAISS on a GPU with the same work on the CPU: hits, speed and memory.

Each device has its own process. The CPU is measured first and writes its vectors. The GPU fits the flow to the same
vectors and searches the same FAISS indexes, so that each part is compared alone:

    encoder  vectors of the sentences in single precision; the share of the ten nearest that is the same, and cosines
    flow     fitting a flow and applying it to all vectors; the share of the ten nearest in its space that is the same
    FAISS    searching each index type that FAISS has for GPUs; the share of the ten best hits that is the same

If there is no GPU, the CPU is measured and the report says why the GPU was not.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from benchmarks.options import Figures
from benchmarks.speed.process import MeasuredProcess, measured
from indexes.faiss.building import Vectors, build
from indexes.faiss.gpu import search_on_gpu
from indexes.faiss.types import factory_string
from indexes.faiss.vectors import VectorIndex, exact_index, gpu_count, unit_rows
from retriever.encoder.encoder import Encoder, resolve_device
from retriever.errors import RetrieverError
from retriever.evaluate.report.tables import text_table
from retriever.memory import peak_bytes
from retriever.progress import Progress
from retriever.terminal import size
from retriever.transforms import fit

DEVICES = ("cpu", "cuda")
INDEX_TYPES = ("flat", "ivf", "IVF64,SQfp16", "IVF64,SQ8")
"""Types that FAISS has for GPUs. `flat` must return the same hits, the others nearly the same."""
SETTINGS = {"nprobe": 8}
NEAREST = 10
REPEATS = 3
WARM_UP = 64
PACKAGES = ("torch", "onnxruntime", "faiss-gpu", "faiss-cpu")
ENCODER, FLOW = "encoder", "flow"
REPORT = "report.md"

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class Part:
    """One part of the work on one device. The least seconds of several repetitions count."""

    part: str
    device: str
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    """Peak memory of the process so far."""
    gpu_bytes: int
    """Peak memory that torch or FAISS holds on the GPU; 0 on the CPU."""
    same_nearest: float
    """Share of the ten nearest that the CPU finds too."""
    least_cosine: float | None = None
    """The smallest cosine to the vectors of the CPU, for the encoder."""


@dataclass
class GpuFigures(Figures):
    encoder: str
    sentences: int
    queries: int
    machine: dict[str, str]
    parts: list[Part] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Why a part was not measured on the GPU."""

    def table(self) -> Table:
        heads = ["part", "device", "seconds", "CPU", "times as fast", "same ten", "cosine", "memory", "GPU memory"]
        table = text_table(f"GPU beside CPU, {self.encoder}, {self.sentences:,} sentences", heads, 2)
        for row in self.rows():
            table.add_row(*row)
        return table

    def rows(self) -> Iterator[list[str]]:
        on_cpu = {one.part: one.seconds for one in self.parts if one.device == "cpu"}
        for one in sorted(self.parts, key=lambda one: (list(on_cpu).index(one.part), one.device)):
            faster = "" if one.device == "cpu" else f"{on_cpu[one.part] / one.seconds:.2f}"
            cosine = "" if one.least_cosine is None else f"{one.least_cosine:.5f}"
            memory = size(one.peak_bytes), size(one.gpu_bytes) if one.gpu_bytes else ""
            took = f"{one.seconds:,.3f}", f"{one.cpu_seconds:,.3f}"
            yield [one.part, one.device, *took, faster, f"{one.same_nearest:.3f}", cosine, *memory]

    def show(self, out: Path | None, as_json: bool) -> None:
        from retriever.cli.display import console

        super().show(out, as_json)
        if out:
            (out / REPORT).write_text(self.report(), encoding="utf-8")
            console.say(f"Written to {out}: results.json, {REPORT}", to=console.err)
        for problem in self.problems:
            console.say(problem, to=console.err)

    def report(self) -> str:
        heads = [str(column.header) for column in self.table().columns]
        lines = [f"# GPU beside CPU: {self.encoder}", ""]
        lines += [f"- {name}: {value}" for name, value in self.machine.items()]
        lines += [f"- sentences: {self.sentences:,}; queries: {self.queries:,}", ""]
        lines += [f"**{problem}**\n" for problem in self.problems]
        lines += [_line(heads), _line(["---"] * len(heads)), *map(_line, self.rows()), "", __doc__ or ""]
        return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def measure(texts: Sequence[str], encoder: str, queries: int, progress: Progress) -> GpuFigures:
    """Measure all parts on the CPU, then on the GPU. A part that fails on the GPU is noted in `problems`."""
    figures = GpuFigures(encoder, len(texts), min(queries, len(texts)), _machine())
    names = [ENCODER, FLOW, *(f"FAISS {kind}" for kind in INDEX_TYPES)]
    devices: Sequence[str] = DEVICES
    if not (_torch_has_gpu() or gpu_count()):
        figures.problems.append(
            "Only the CPU was measured: neither torch nor FAISS finds a GPU. Check with nvidia-smi."
        )
        devices = DEVICES[:1]
    with TemporaryDirectory() as folder:
        for number, device in enumerate(devices):
            with MeasuredProcess(f"the device {device}") as worker:
                for done, name in enumerate(names):
                    progress(f"{name} on {device}", number * len(names) + done, len(devices) * len(names))
                    given = {"device": device, "encoder": encoder, "texts": list(texts), "queries": figures.queries}
                    try:
                        found = worker.request("on_device", part=name, folder=folder, **given)
                    except RetrieverError as error:
                        if device == "cpu":
                            raise
                        figures.problems.append(f"{name}: not measured on the GPU. {error}")
                        continue
                    figures.parts.append(Part(**found))
    return figures


def on_device(part: str, device: str, encoder: str, texts: list[str], queries: int, folder: str) -> dict[str, Any]:
    """Measure one part on one device. `folder` holds the vectors and mapped vectors that the CPU made."""
    place = Path(folder)
    if part == ENCODER:
        figures = _encode(device, encoder, texts, place)
    elif part == FLOW:
        figures = _flow(device, place)
    else:
        figures = _search(part.removeprefix("FAISS "), device, queries, place)
    return {"part": part, "device": device, "peak_bytes": peak_bytes(), **figures}


def _encode(device: str, name: str, texts: list[str], folder: Path) -> dict[str, Any]:
    encoder = Encoder(name, device=device, precision="fp32")
    encoder.encode(texts[:WARM_UP])
    _forget_gpu_peak(device)
    vectors, cost = _least(lambda: encoder.encode(texts))
    path = folder / "vectors.npy"
    if device == "cpu":
        np.save(path, vectors)
    reference: Matrix = np.load(path, allow_pickle=False)
    cosines = (unit_rows(vectors) * unit_rows(reference)).sum(axis=1)
    found = {"same_nearest": _same_nearest(vectors, reference), "least_cosine": float(cosines.min())}
    return {**cost, **found, "gpu_bytes": _gpu_peak(device)}


def _flow(device: str, folder: Path) -> dict[str, Any]:
    vectors: Matrix = np.load(folder / "vectors.npy", allow_pickle=False)
    resolve_device(device)  # raises an error without a GPU
    _forget_gpu_peak(device)
    with measured() as cost:
        mapped = fit("flow", vectors, device=device).apply(vectors)
    path = folder / "mapped.npy"
    if device == "cpu":
        np.save(path, mapped)
    reference: Matrix = np.load(path, allow_pickle=False)
    seconds = {"seconds": cost["wall_seconds"], "cpu_seconds": cost["cpu_seconds"]}
    return {**seconds, "same_nearest": _same_nearest(mapped, reference), "gpu_bytes": _gpu_peak(device)}


def _search(kind: str, device: str, count: int, folder: Path) -> dict[str, Any]:
    """Search the same index on a device. It is built on the CPU, as it always is, with a fixed seed."""
    rows = unit_rows(np.load(folder / "vectors.npy", allow_pickle=False))
    numbers = np.arange(len(rows), dtype=np.int64)
    asked = rows[:: max(len(rows) // count, 1)][:count]
    factory = factory_string(kind, len(rows), rows.shape[1])
    index, note = build(factory, Vectors.of(numbers, rows))
    if not note and not index.exact:
        index.settings = SETTINGS
    before = _gpu_used(device)
    search_on_gpu(device, index, "Flat" if note else factory)
    found, cost = _least(lambda: _hits(index, asked, rows))
    path = folder / f"{kind}.npy"
    if device == "cpu":
        np.save(path, found)
    reference = np.load(path, allow_pickle=False)
    return {**cost, "same_nearest": _shares(found, reference), "gpu_bytes": max(_gpu_used(device) - before, 0)}


def _hits(index: VectorIndex, queries: Matrix, rows: Matrix) -> NDArray[np.int64]:
    """Return the ten best of the candidates of each query, scored exactly, as a search does."""
    best = np.full((len(queries), NEAREST), -1, np.int64)
    for place, candidates in enumerate(index.search(queries, NEAREST, np.zeros(0, np.int64))):
        scores = rows[candidates].astype(np.float64) @ queries[place].astype(np.float64)
        own = candidates[np.argsort(-scores, kind="stable")[:NEAREST]]
        best[place, : len(own)] = own
    return best


def _same_nearest(vectors: Matrix, reference: Matrix, most: int = 500) -> float:
    """For some rows, return the share of the ten nearest rows that is the same in both matrices."""

    def nearest(rows: Matrix) -> NDArray[np.int64]:
        directions = unit_rows(rows)
        index = exact_index(directions.shape[1], [(np.arange(len(rows), dtype=np.int64), directions)])
        return _hits(index, directions[:most], directions)

    return _shares(nearest(vectors), nearest(reference))


def _shares(found: NDArray[np.int64], reference: NDArray[np.int64]) -> float:
    pairs = ((set(a[a >= 0].tolist()), set(b[b >= 0].tolist())) for a, b in zip(found, reference, strict=True))
    return float(np.mean([len(a & b) / max(len(b), 1) for a, b in pairs]))


def _least(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Repeat the work. Return its result, and the least wall seconds and CPU seconds."""
    walls, cpus, result = [], [], None
    for _ in range(REPEATS):
        with measured() as cost:
            result = work()
        walls.append(cost["wall_seconds"])
        cpus.append(cost["cpu_seconds"])
    return result, {"seconds": min(walls), "cpu_seconds": min(cpus)}


def _torch_has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _forget_gpu_peak(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats()


def _gpu_peak(device: str) -> int:
    if device != "cuda":
        return 0
    import torch

    return int(torch.cuda.max_memory_allocated())


def _gpu_used(device: str) -> int:
    """Return the bytes that all processes use on the first GPU, because FAISS does not report its own memory.

    Return 0 for the CPU, and if torch cannot use the GPU.
    """
    import torch

    if device == "cpu" or not _torch_has_gpu():
        return 0
    free, total = torch.cuda.mem_get_info()
    return int(total - free)


def _machine() -> dict[str, str]:
    found = {"measured": time.strftime("%Y-%m-%d")}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    import torch

    found["GPU"] = torch.cuda.get_device_name() if _torch_has_gpu() else "none that torch can use"
    found["GPUs that FAISS can use"] = str(gpu_count())
    return found
