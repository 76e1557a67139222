"""Copies a FAISS index to the GPU and searches it there, if there is a GPU and the index type allows it.

Indexes are built and saved on the CPU. If there are several GPUs, each one holds a whole copy. If a copy does not fit
into the memory of a GPU, each one holds a share of the vectors. The CPU package of FAISS has no GPU functions, so they
are looked up only when they are needed.
"""

from typing import Any

from indexes.errors import Misuse, RetrieverError, first_line
from indexes.faiss.vectors import VectorIndex, gpu_count, import_faiss

DEVICES = ("auto", "cpu", "cuda")
# FAISS's working memory on each GPU. Its default is a sixth of the GPU memory, which would leave less for the encoder.
WORKING_BYTES = 256 * 1024 * 1024


def has_gpu_part() -> bool:
    """Return whether the installed FAISS can use GPUs."""
    return hasattr(import_faiss(), "StandardGpuResources")


def refusal(index: Any) -> str:
    """Return the name of the index type if FAISS has no GPU version of it, else an empty string.

    On GPUs, FAISS has Flat, and IVF with Flat, SQ8, SQfp16 or PQ codes.
    """
    faiss = import_faiss()
    kind = faiss.downcast_index(index)  # a view: the caller must keep `index`
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
    """Copy the index to the GPU and search it there. Return a note for the user.

    The note says that the GPU is used, or why it is not used. It is empty if there is no GPU. `auto` uses a GPU if
    possible. `cuda` raises an error if a GPU cannot be used.
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
            raise RetrieverError(f'{message}. Use `device="cpu"`.') from error
        return f"{message}; it is searched on the CPU."
    return f"{factory} is searched on {'the GPU' if gpu_count() == 1 else f'{gpu_count()} GPUs'}."


def obstacle(device: str, index: Any, factory: str) -> str:
    """Return why an index cannot be searched on a GPU here, or an empty string if it can.

    If the device is `cuda`, raise the reason as an error.
    """
    reason = _obstacle(index, factory)
    if reason and device == "cuda":
        raise Misuse(f'`device="cuda"`: the index cannot be searched on a GPU. {reason}')
    return reason


def _obstacle(index: Any, factory: str) -> str:
    if not has_gpu_part():
        return (
            "faiss-cpu is installed, which cannot use a GPU; replace it with: pip uninstall faiss-cpu, "
            "pip install 'flow-retriever[gpu]'."
        )
    if not gpu_count():
        return 'FAISS finds no GPU; check with nvidia-smi, or use `device="cpu"`.'
    if kind := refusal(index):
        return (
            f'FAISS has no {factory} ({kind}) for GPUs; use `device="cpu"`, or rebuild with an `index_type` of flat, '
            "ivf or a factory string such as IVF256,Flat."
        )
    return ""


def _copied(index: VectorIndex) -> Any:
    """Copy the index to each GPU or, if a copy does not fit into the memory of a GPU, a share of it to each."""
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
    # Half precision is enough to find candidates, and long product codes need it. An exact index must stay exact.
    options.useFloat16 = not index.exact
    return options
