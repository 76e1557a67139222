"""A copy of a FAISS index on the GPU that answers queries, if there is a GPU and the index type allows it.

Indexes are built and saved on the CPU. Each of several GPUs holds a whole copy, or a share of the vectors if a copy
does not fit its memory. FAISS's CPU wheel has no GPU functions, so they are looked up when needed.
"""

from typing import Any

from indexes.errors import Misuse, RetrieverError, first_line
from indexes.faiss.vectors import VectorIndex, import_faiss

DEVICES = ("auto", "cpu", "cuda")
# FAISS's working memory on each GPU; its default is a sixth of the memory, which the encoder needs, too.
WORKING_BYTES = 256 * 1024 * 1024


def has_gpu_part() -> bool:
    """True if the installed FAISS can use GPUs at all."""
    return hasattr(import_faiss(), "StandardGpuResources")


def gpu_count() -> int:
    """Count the GPUs that FAISS can use here."""
    faiss = import_faiss()
    return int(faiss.get_num_gpus()) if has_gpu_part() and hasattr(faiss, "get_num_gpus") else 0


def refusal(index: Any) -> str:
    """Name the index type if FAISS lacks it on GPUs; it has Flat, and IVF with Flat, SQ8, SQfp16 or PQ codes."""
    faiss = import_faiss()
    kind = faiss.downcast_index(index)  # a view: `index` itself must live on
    if isinstance(kind, faiss.IndexPreTransform):
        return refusal(kind.index)
    name = type(kind).__name__
    if type(kind) in (faiss.IndexFlat, faiss.IndexFlatIP, faiss.IndexFlatL2, faiss.IndexIVFFlat, faiss.IndexIVFPQ):
        return ""
    if type(kind) is faiss.IndexIVFScalarQuantizer:
        quantizer = faiss.ScalarQuantizer
        on_gpu = (quantizer.QT_8bit, quantizer.QT_fp16)
        return "" if kind.sq.qtype in on_gpu else f"{name} with codes other than SQ8 and SQfp16"
    return name


def search_on_gpu(device: str, index: VectorIndex, factory: str) -> str:
    """Copy the index to the GPU and search it there; return a line that says so, or why an existing GPU is not used.

    `auto` uses a GPU if there is one and the index type allows it; `cuda` insists on it.
    """
    if device not in DEVICES:
        raise Misuse(f"unknown device {device!r}; known: {', '.join(DEVICES)}.")
    if reason := obstacle(device, index.index, factory):
        return reason if gpu_count() else ""
    try:
        index.gpu_copy = _copied(index)
    except RuntimeError as error:
        message = f"FAISS could not copy the index to the GPU: {first_line(error)}"
        if device == "cuda":
            raise RetrieverError(f'{message}. Take `device="cpu"`.') from error
        return f"{message}; it is searched on the CPU."
    return f"{factory} is searched on {'the GPU' if gpu_count() == 1 else f'{gpu_count()} GPUs'}."


def obstacle(device: str, index: Any, factory: str) -> str:
    """Say why an index cannot be searched on a GPU here, empty if it can; an error if the device is `cuda`."""
    reason = _obstacle(index, factory)
    if reason and device == "cuda":
        raise Misuse(f'`device="cuda"`: the index cannot be searched on a GPU. {reason}')
    return reason


def _obstacle(index: Any, factory: str) -> str:
    if not has_gpu_part():
        return (
            "faiss-cpu is installed, which has no GPU part; change it with: pip uninstall faiss-cpu, "
            "pip install 'flow-retriever[gpu]'."
        )
    if not gpu_count():
        return 'FAISS finds no GPU; look with nvidia-smi, or take `device="cpu"`.'
    if kind := refusal(index):
        return (
            f'FAISS has no {factory} ({kind}) for GPUs; take `device="cpu"`, or rebuild with an `index_type` of flat, '
            "ivf or a factory string such as IVF256,Flat."
        )
    return ""


def _copied(index: VectorIndex) -> Any:
    """Make a whole copy on each GPU or, if one has not the memory, a share on each."""
    faiss = import_faiss()
    gpus = range(gpu_count())
    resources = [faiss.StandardGpuResources() for _ in gpus]
    for one in resources:
        one.setTempMemory(WORKING_BYTES)
    if len(gpus) == 1:
        return faiss.index_cpu_to_gpu(resources[0], 0, index.index, _options(faiss.GpuClonerOptions(), index))
    options = _options(faiss.GpuMultipleClonerOptions(), index)
    try:
        return faiss.index_cpu_to_gpu_multiple_py(resources, index.index, options, list(gpus))
    except RuntimeError:
        options.shard = True
        return faiss.index_cpu_to_gpu_multiple_py(resources, index.index, options, list(gpus))


def _options(options: Any, index: VectorIndex) -> Any:
    # Half precision is enough to find candidates, and long product codes need it; an exact index stays exact.
    options.useFloat16 = not index.exact
    return options
