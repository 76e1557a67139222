"""Text to sentence vectors with a Hugging Face BERT.

Texts are tokenised and sorted by length. A batch holds texts of nearly one length, up to a number of tokens, so that
there is hardly any padding. On a CPU, ONNX Runtime runs the model, from a graph that is exported once per machine.
torch is imported for the export, for CUDA, and for models that cannot be exported.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from retriever.encoder.batches import Encoding, TokenBatch, batches_by_length
from retriever.encoder.model_files import DEFAULT_ENCODER, EncoderIdentity, ModelFiles
from retriever.encoder.model_loader import check_device, load_tokenizer, padded, resolve_device
from retriever.errors import EncoderUnavailable, Mismatch, Misuse, RetrieverError
from retriever.progress import Progress, silent

if TYPE_CHECKING:
    from retriever.encoder.runtimes.torch_model import TorchModel

# With padding. Larger batches are no faster on a CPU, whose cache should hold the activations of a batch.
BATCH_TOKENS = {"cpu": 512, "cuda": 16_384}
# The lengths of queries differ a lot: in batches of 512 tokens, 32 of them took a quarter longer, mostly for padding.
SHORT_BATCH_TOKENS = {"cpu": 128, "cuda": 16_384}
# Up to this number, texts are encoded in the caller's thread: starting a thread takes longer than encoding a query.
FEW_TEXTS = 4
# The tokenizer takes up to a hundred times the memory of the texts it works on.
CHARACTERS_TOKENISED_AT_ONCE = 2_000_000

VectorBatches = Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]


class Runtime(Protocol):
    """Runs the model. `workers` threads can call it at once."""

    workers: int

    def vectors(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]: ...


class Encoder:
    """A BERT by name or folder. Its `identity` is known before the model is loaded."""

    def __init__(
        self,
        name: str = DEFAULT_ENCODER,
        *,
        pooling: str | None = None,
        max_length: int | None = None,
        precision: str | None = None,
        batch_tokens: int | None = None,
        device: str = "auto",
        stored: EncoderIdentity | None = None,
        progress: Progress = silent,
    ) -> None:
        """`stored`: the identity in a collection, whose settings are the defaults."""
        check_device(device)
        if batch_tokens is not None and batch_tokens < 1:
            raise Misuse(f"`batch_tokens` must be at least 1, not {batch_tokens}.")
        self.files = ModelFiles(name)
        self.identity: EncoderIdentity = self.files.identity(pooling, max_length, precision, stored)
        self.note = ""
        """A warning about degraded operation, e.g. torch is used because the ONNX export failed; set on loading."""
        self.requested_batch_tokens = batch_tokens
        self.requested_device = device
        self._progress = progress
        if self.identity.precision == "int8" and device == "cuda":
            raise Misuse('int8 runs only on CPUs. Use `device="cpu"`, or index with `precision="fp32"`.')

    def refuse_too_long(self, where: object) -> None:
        """Refuse a collection whose maximum input length is above that of the model."""
        if self.identity.max_length > self.files.longest:
            raise Mismatch(
                f"{where} was made with inputs of up to {self.identity.max_length:,} tokens, and the encoder "
                f"{self.identity.name} takes {self.files.longest:,}. Use the same encoder and settings, or index into "
                "another folder."
            )

    @cached_property
    def device(self) -> str:
        return "cpu" if self.identity.precision == "int8" else resolve_device(self.requested_device)

    @property
    def batch_tokens(self) -> int:
        return self.requested_batch_tokens or BATCH_TOKENS[self.device]

    # ---- the runtime -------------------------------------------------------------------------------------

    def load(self) -> None:
        """Load the model now instead of with the first batch."""
        _ = self._runtime

    @cached_property
    def _runtime(self) -> Runtime:
        if self.device == "cuda":
            return self.torch_model
        from retriever.encoder.runtimes.onnx_runtime import OnnxModel, export_folder, is_exported

        folder = export_folder(self.identity)
        if is_exported(folder):
            return OnnxModel(folder)
        from retriever.encoder.runtimes.onnx_export import NotExportable, export

        self._progress("preparing the encoder for this machine, once", 0, None)
        try:
            exported = export(self.files, self.identity)
        except NotExportable as error:
            if self.identity.precision == "int8":
                raise EncoderUnavailable(
                    f"the precision int8 needs ONNX Runtime, and {self.identity.name} cannot be exported to it: {error}"
                ) from error
            self.note = f"the encoder runs on torch, which starts more slowly: it cannot be exported to ONNX ({error})"
            return self.torch_model
        if exported != folder:
            self.note = (
                f"the encoder was exported for this run alone, because {folder.parent} cannot be written; set "
                "XDG_CACHE_HOME to a writable folder to keep the export"
            )
        return OnnxModel(exported)

    @cached_property
    def torch_model(self) -> "TorchModel":
        from retriever.encoder.runtimes.torch_model import TorchModel

        return TorchModel(self.files, self.identity, self.device)

    # ---- vectors -----------------------------------------------------------------------------------------

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of the texts, one row each."""
        return self._matrix(len(texts), self.encode_batches(texts))

    def encode_here(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode short texts in the caller's thread, for a caller with several threads that do the same."""
        batches = self.token_batches(texts, SHORT_BATCH_TOKENS[self.device])
        return self._matrix(len(texts), ((positions, self.encode_tokens(tokens)) for positions, tokens in batches))

    def _matrix(self, count: int, batches: VectorBatches) -> NDArray[np.float32]:
        rows = np.empty((count, self.identity.dimension), np.float32)
        for positions, vectors in batches:
            rows[positions] = vectors
        return rows

    def encode_batches(self, texts: Sequence[str]) -> VectorBatches:
        """Yield batches of vectors in any order: (positions in `texts`, their vectors)."""
        if len(texts) <= FEW_TEXTS:
            for positions, tokens in self.token_batches(texts):
                yield positions, self.encode_tokens(tokens)
            return
        encoding = self.encoding(texts)
        try:
            encoding.start()
            while done := encoding.finished():
                for batch in done:
                    yield batch.positions, batch.vectors
        finally:
            encoding.close()

    def encoding(self, texts: Sequence[str]) -> Encoding:
        """Encode texts in threads: call `start`, then `finished` until it returns nothing, and `close` in any case."""
        return Encoding(self.token_batches(texts), self.encode_tokens, self._runtime.workers)

    def encode_poolings(
        self, texts: Sequence[str], poolings: Sequence[str], progress: Callable[[int, int], None] | None = None
    ) -> dict[str, NDArray[np.float32]]:
        """The vectors by each pooling, from one pass of the texts through the model."""
        rows = np.empty((len(poolings), len(texts), self.identity.dimension), np.float32)
        done = 0
        for positions, tokens in self.token_batches(texts):
            vectors = self.torch_model.poolings(*self._padded(tokens), poolings)
            self._refuse_infinite(vectors, tokens)
            rows[:, positions] = vectors
            done += len(positions)
            if progress:
                progress(done, len(texts))
        return dict(zip(poolings, rows, strict=True))

    def encode_tokens(self, tokens: list[list[int]]) -> NDArray[np.float32]:
        """The vectors of one batch of `token_batches`."""
        vectors = self._runtime.vectors(*self._padded(tokens))
        self._refuse_infinite(vectors[None], tokens)
        return vectors

    def _padded(self, tokens: list[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        ids, mask = padded(tokens, self.files.pad_id)
        known = self.files.config.get("vocab_size")
        if isinstance(known, int) and ids.max() >= known:
            raise EncoderUnavailable(
                f"{self.files.folder}: its tokenizer gives the token {ids.max():,}, and the model knows {known:,} "
                "from 0 on: they do not belong together. Get the model again."
            )
        return ids, mask

    def _refuse_infinite(self, vectors: NDArray[np.float32], tokens: list[list[int]]) -> None:
        if not np.isfinite(vectors).all():
            row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=(0, 2)))[0])
            text = self.tokenizer.decode(tokens[row])
            raise RetrieverError(
                f"the encoder {self.identity.name} gave NaN or infinity for the text {text[:60]!r}: its weights are "
                "broken or overflow there. What was stored before stays; take another encoder, or leave that text out."
            )

    # ---- tokens ------------------------------------------------------------------------------------------

    def _load_tokenizer(self) -> Any:
        from retriever.encoder.runtimes.onnx_runtime import TOKENIZER, export_folder

        return load_tokenizer(self.files, export_folder(self.identity) / TOKENIZER)

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer, without truncation and padding."""
        return self._load_tokenizer()

    @cached_property
    def _truncating_tokenizer(self) -> Any:
        """A second tokenizer, because other threads may count tokens without truncation at the same time."""
        tokenizer = self._load_tokenizer()
        tokenizer.enable_truncation(self.identity.max_length)
        return tokenizer

    @property
    def token_budget(self) -> int:
        """The number of tokens of text that fit into one input beside the special tokens."""
        return self.identity.max_length - int(self.tokenizer.num_special_tokens_to_add(is_pair=False))

    def count_tokens(self, texts: list[str]) -> list[int]:
        """The number of tokens of each text, without special tokens."""
        return [len(encoding) for encoding in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def token_batches(self, texts: Sequence[str], most_tokens: int | None = None) -> Iterator[TokenBatch]:
        """Tokenise the texts into batches of nearly one length, each of at most `most_tokens` (or `batch_tokens`)."""
        tokens: list[list[int]] = []
        for some in _chunks(texts):
            tokens += [encoding.ids for encoding in self._truncating_tokenizer.encode_batch_fast(some)]
        yield from batches_by_length(tokens, most_tokens or self.batch_tokens)


def _chunks(texts: Sequence[str]) -> Iterator[list[str]]:
    some: list[str] = []
    characters = 0
    for text in texts:
        some.append(text)
        characters += len(text)
        if characters >= CHARACTERS_TOKENISED_AT_ONCE:
            yield some
            some, characters = [], 0
    if some:
        yield some


def require_same_encoder(stored: EncoderIdentity, given: EncoderIdentity, where: object) -> None:
    """Refuse an encoder that is not the one a collection was made with."""
    if difference := stored.difference(given):
        raise Mismatch(
            f"{where} was made with the encoder {stored.name}, this one is {given.name} "
            f"({difference}). Use the same encoder and settings, or index into another folder."
        )
