"""Turns text into sentence vectors with a Hugging Face BERT.

Texts are tokenised and sorted by length. A batch holds texts of similar length, so that there is little padding. On a
CPU, ONNX Runtime runs the model from a graph, which is exported once per machine. torch is imported only for the
export, for CUDA, and for models that cannot be exported.
"""

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from indexes.mapped import MappedFile, changed
from retriever.encoder.base import AnyEncoder, VectorBatches
from retriever.encoder.batches import Encoding, TokenBatch, batches_by_length, load_tokenizer, padded, tokenise
from retriever.encoder.model_files import DEFAULT_ENCODER, EncoderIdentity, ModelFiles
from retriever.encoder.writing import plain
from retriever.errors import EncoderUnavailable, Mismatch, Misuse, RetrieverError, TextTooLong
from retriever.progress import Progress, silent

if TYPE_CHECKING:
    from retriever.encoder.runtimes.torch_model import TorchModel

# Tokens in a batch, including padding. On a CPU, larger batches are not faster, because their activations do not fit
# into its cache.
BATCH_TOKENS = {"cpu": 512, "cuda": 16_384}
# A word table computes almost nothing, so a batch is as large as a transaction should be.
STATIC_BATCH_TOKENS = 131_072
# The lengths of queries differ a lot. In batches of 512 tokens, 32 queries took 25 % longer than in batches of 128,
# mostly because of padding.
SHORT_BATCH_TOKENS = {"cpu": 128, "cuda": 16_384}
# Up to this number of texts are encoded in the caller's thread, because starting a thread takes longer than encoding
# them.
FEW_TEXTS = 4
DEVICES = ("auto", "cpu", "cuda")
# Fewer tokens than this are no passage.
SHORTEST_PASSAGE = 4


class Runtime(Protocol):
    """Runs the model. Up to `workers` threads can call it at the same time."""

    workers: int

    @property
    def mapped(self) -> Sequence[MappedFile]: ...

    def vectors(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]: ...


class Encoder(AnyEncoder):
    """A BERT, which is given by its name or folder. Its `identity` is known before the model is loaded."""

    def __init__(
        self,
        name: str = DEFAULT_ENCODER,
        *,
        pooling: str | None = None,
        max_length: int | None = None,
        precision: str | None = None,
        batch_tokens: int | None = None,
        device: str = "auto",
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        stored: EncoderIdentity | None = None,
        progress: Progress = silent,
    ) -> None:
        """Check the settings. Settings that are None are copied from `stored`, the identity in a collection."""
        check_device(device)
        if batch_tokens is not None and batch_tokens < 1:
            raise Misuse(f"`batch_tokens` must be at least 1, not {batch_tokens}.")
        self.files = ModelFiles(name)
        self.identity: EncoderIdentity = self.files.identity(
            pooling, max_length, precision, stored, query_prompt=query_prompt, document_prompt=document_prompt
        )
        self.requested_batch_tokens = batch_tokens
        self.requested_device = device
        self._progress = progress
        if self.identity.precision == "int8" and device == "cuda":
            raise Misuse('int8 runs only on CPUs. Use `device="cpu"`, or index with `precision="fp32"`.')

    def refuse_too_long(self, where: object) -> None:
        if self.identity.max_length > self.files.longest:
            raise Mismatch(
                f"{where} was made with inputs of up to {self.identity.max_length:,} tokens, but the encoder "
                f"{self.identity.name} accepts at most {self.files.longest:,}. Use the same encoder and settings, or "
                "index into another folder."
            )

    @cached_property
    def device(self) -> str:
        on_cpu = self.identity.precision == "int8" or self.files.static
        return "cpu" if on_cpu else resolve_device(self.requested_device)

    @property
    def batch_tokens(self) -> int:
        return self.requested_batch_tokens or (STATIC_BATCH_TOKENS if self.files.static else BATCH_TOKENS[self.device])

    # ---- the runtime -------------------------------------------------------------------------------------

    def load(self) -> None:
        _ = self._runtime

    @cached_property
    def _runtime(self) -> Runtime:
        if self.files.static:
            from retriever.encoder.runtimes.static_table import StaticTable

            return StaticTable(self.files)
        if self.device == "cuda":
            return self.torch_model
        from retriever.encoder.runtimes.onnx_runtime import OnnxModel, export_folder, open_exported

        folder = export_folder(self.identity)
        found, fault = open_exported(folder)
        if found:
            return found
        from retriever.encoder.runtimes.onnx_export import NotExportable, export

        self._progress("preparing the encoder for this machine, once", 0, None)
        try:
            exported = export(self.files, self.identity)
        except NotExportable as error:
            if self.identity.precision == "int8":
                raise EncoderUnavailable(
                    f"the precision int8 needs ONNX Runtime, but {self.identity.name} cannot be exported to it: {error}"
                ) from error
            self.note = f"the encoder runs on torch, which starts more slowly: it cannot be exported to ONNX ({error})"
            return self.torch_model
        if exported != folder:
            self.note = (
                f"the encoder was exported for this run alone, because {folder.parent} cannot be written; set "
                "XDG_CACHE_HOME to a writable folder to keep the export"
            )
        elif fault:
            self.note = f"the exported encoder {folder} {fault}, so it was exported again"
        return OnnxModel(exported)

    @cached_property
    def torch_model(self) -> "TorchModel":
        from retriever.encoder.runtimes.torch_model import TorchModel

        return TorchModel(self.files, self.identity, self.device)

    def input_embeddings(self) -> NDArray[np.float32]:
        """Return the vectors of all tokens before the first block. For a word table, these are its rows."""
        if self.files.static:
            from retriever.encoder.runtimes.static_table import StaticTable

            return StaticTable(self.files).rows.astype(np.float32, copy=False)
        return self.torch_model.input_embeddings()

    # ---- vectors -----------------------------------------------------------------------------------------

    def encode_queries(self, queries: Sequence[str], *, here: bool = False) -> NDArray[np.float32]:
        if not here:
            return self._matrix(len(queries), self.encode_batches(queries, queries=True))
        batches = self.token_batches(queries, SHORT_BATCH_TOKENS[self.device], queries=True)
        return self._matrix(len(queries), ((positions, self.encode_tokens(tokens)) for positions, tokens in batches))

    def encode_whole(
        self, texts: Sequence[str], *, queries: bool = False
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return one vector per text, and the number of its tokens. A text is never cut: `TextTooLong` is raised.

        The caller's thread encodes.
        """
        tokens = self._token_ids(self.tokenizer, texts, queries=queries)
        lengths = np.array([len(own) for own in tokens], np.int64)
        for place in np.flatnonzero(lengths > self.identity.max_length).tolist():
            raise TextTooLong(place, int(lengths[place]), self.identity.max_length)
        batches = batches_by_length(tokens, self.batch_tokens)
        return self._matrix(len(texts), ((positions, self.encode_tokens(own)) for positions, own in batches)), lengths

    def encode_batches(self, texts: Sequence[str], *, queries: bool = False) -> VectorBatches:
        if len(texts) <= FEW_TEXTS:
            for positions, tokens in self.token_batches(texts, queries=queries):
                yield positions, self.encode_tokens(tokens)
            return
        yield from super().encode_batches(texts, queries=queries)

    def encoding(self, texts: Sequence[str], *, queries: bool = False) -> Encoding[Any]:
        return Encoding(self.token_batches(texts, queries=queries), self.encode_tokens, self._runtime.workers)

    def encode_poolings(
        self,
        texts: Sequence[str],
        poolings: Sequence[str],
        progress: Callable[[int, int], None] | None = None,
        *,
        queries: bool = False,
    ) -> dict[str, NDArray[np.float32]]:
        """Return the vectors of the texts for each pooling. The model runs once per text."""
        rows = np.empty((len(poolings), len(texts), self.identity.dimension), np.float32)
        done = 0
        for positions, tokens in self.token_batches(texts, queries=queries):
            vectors = self.torch_model.poolings(*self._padded(tokens), poolings)
            self._refuse_changed(self.torch_model)
            self._refuse_infinite(vectors, tokens)
            rows[:, positions] = vectors
            done += len(positions)
            if progress:
                progress(done, len(texts))
        return dict(zip(poolings, rows, strict=True))

    def encode_tokens(self, tokens: list[list[int]]) -> NDArray[np.float32]:
        """Return the vectors of one batch of `token_batches`."""
        runtime = self._runtime
        vectors = runtime.vectors(*self._padded(tokens))
        self._refuse_changed(runtime)
        self._refuse_infinite(vectors[None], tokens)
        return vectors

    def _refuse_changed(self, runtime: Runtime) -> None:
        """Raise `EncoderUnavailable` if a file with weights was changed, because the vectors may be wrong."""
        if path := changed(runtime.mapped):
            if runtime is not self.__dict__.get("torch_model"):
                self.__dict__.pop("_runtime", None)  # the next batch checks the export, and makes it again
            raise EncoderUnavailable(
                f"{path} was changed by another program while the encoder {self.identity.name} was in use. What was "
                "stored is kept. Run the same command again; if it fails again, download the model again."
            )

    def _padded(self, tokens: list[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        ids, mask = padded(tokens, self.files.pad_id)
        known = self.files.config.get("vocab_size")
        if isinstance(known, int):
            self.refuse_unknown_id(int(ids.max()), known)
        return ids, mask

    def refuse_unknown_id(self, highest: int, known: int) -> None:
        """Raise `EncoderUnavailable` if the tokenizer produced a token id that the model does not have."""
        if highest >= known:
            raise EncoderUnavailable(
                f"{self.files.folder}: the tokenizer produced the token id {highest:,}, but the model has only "
                f"{known:,} token ids. The tokenizer and the model do not belong together. Download the model again."
            )

    def _refuse_infinite(self, vectors: NDArray[np.float32], tokens: list[list[int]]) -> None:
        if not np.isfinite(vectors).all():
            row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=(0, 2)))[0])
            text = self.tokenizer.decode(tokens[row])
            raise RetrieverError(
                f"the encoder {self.identity.name} returned NaN or infinity for the text {text[:60]!r}. Its weights "
                "are broken, or they overflow on this text. Documents stored so far are kept. Use another encoder, or "
                "remove this text."
            )

    # ---- tokens ------------------------------------------------------------------------------------------

    def _load_tokenizer(self) -> Any:
        from retriever.encoder.runtimes.onnx_runtime import TOKENIZER, export_folder

        return load_tokenizer(self.files, export_folder(self.identity) / TOKENIZER)

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer, without truncation and padding."""
        return self._load_tokenizer()

    @property
    def is_in_place(self) -> bool:
        return self.files.folder.is_dir()

    @cached_property
    def distinguishes_case(self) -> bool:
        return self._differ("ONE WORD", "one word")

    @cached_property
    def distinguishes_marks(self) -> bool:
        return self._differ("élève à", "eleve a")

    def _differ(self, *texts: str) -> bool:
        # A query needs this tokenizer anyway, and loading the other one would make a first search slower.
        one, other = self._truncating_tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return bool(one.ids != other.ids)

    @cached_property
    def _truncating_tokenizer(self) -> Any:
        """A second tokenizer with truncation, because other threads may use the first one at the same time."""
        tokenizer = self._load_tokenizer()
        tokenizer.enable_truncation(self.identity.max_length)
        return tokenizer

    @property
    def token_budget(self) -> int:
        return self._token_budget

    @cached_property
    def _token_budget(self) -> int:
        special = 0 if self.files.static else int(self.tokenizer.num_special_tokens_to_add(is_pair=False))
        prompt = self.count_tokens([self.identity.document_prompt])[0] if self.identity.document_prompt else 0
        left = self.identity.max_length - special - prompt
        if prompt and left < SHORTEST_PASSAGE:
            raise Misuse(
                f"`document_prompt` has {prompt:,} tokens, which leave no room for a passage in an input of "
                f"{self.identity.max_length:,} tokens. Give a shorter prompt or a larger `max_length`."
            )
        return left

    def unknown_share(self, texts: Sequence[str]) -> float:
        """Return the share of unknown tokens in the texts. All unknown tokens have the same vector."""
        unknown = self.tokenizer.token_to_id(getattr(self.tokenizer.model, "unk_token", None) or "<unk>")
        found = [own.ids for own in self.tokenizer.encode_batch_fast(list(map(plain, texts)), add_special_tokens=False)]
        return float(sum(ids.count(unknown) for ids in found) / max(sum(map(len, found)), 1))

    def count_tokens(self, texts: list[str]) -> list[int]:
        read = [plain(text) for text in texts]
        return [len(encoding) for encoding in self.tokenizer.encode_batch_fast(read, add_special_tokens=False)]

    def token_batches(
        self, texts: Sequence[str], most_tokens: int | None = None, *, queries: bool = False
    ) -> Iterator[TokenBatch]:
        """Tokenise the texts with their prompt and yield batches of texts of similar length.

        A batch has at most `most_tokens` tokens (default: `batch_tokens`), or a single text. `queries` says that the
        texts are queries, otherwise they are passages.
        """
        tokens = self._token_ids(self._truncating_tokenizer, texts, queries=queries)
        yield from batches_by_length(tokens, most_tokens or self.batch_tokens)

    def _token_ids(self, tokenizer: Any, texts: Sequence[str], *, queries: bool) -> list[list[int]]:
        prompt = self.identity.query_prompt if queries else self.identity.document_prompt
        tokens = tokenise(tokenizer, [prompt + plain(text) for text in texts], special=not self.files.static)
        if self.files.static:
            return [own or [self.files.pad_id] for own in tokens]  # a text without words
        return tokens


def check_device(device: str) -> None:
    if device not in DEVICES:
        raise Misuse(f"unknown device {device!r}; known: {', '.join(DEVICES)}.")


def resolve_device(requested: str) -> str:
    """Return "cuda" or "cpu". "auto" becomes "cuda" if a CUDA GPU is available. "cuda" without a GPU is an error."""
    if requested == "cpu" or (requested == "auto" and not _cuda_driver()):
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if requested == "cuda":
        raise Misuse('`device="cuda"`: torch finds no CUDA GPU on this machine. Use `device="cpu"` or `device="auto"`.')
    return "cpu"


def _cuda_driver() -> bool:
    """Return whether NVIDIA's driver finds a GPU. This does not import torch, whose import takes seconds."""
    count = ctypes.c_int(0)
    with contextlib.suppress(OSError, AttributeError):
        driver = ctypes.CDLL("libcuda.so.1" if os.name != "nt" else "nvcuda.dll")
        return bool(driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0)
    return False


def require_same_encoder(stored: EncoderIdentity, given: EncoderIdentity, where: object) -> None:
    """Refuse an encoder that differs from the encoder that a collection was made with."""
    if difference := stored.difference(given):
        raise Mismatch(
            f"{where} was made with the encoder {stored.name}, but the given encoder is {given.name} "
            f"({difference}). Use the same encoder and settings, or index into another folder."
        )
