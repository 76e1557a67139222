"""Text to sentence vectors with a Hugging Face BERT.

Texts are tokenised in large windows and sorted by their number of tokens, and a batch has as many as fill a number of
tokens: all of nearly one length, so that padding costs nothing. On a processor ONNX Runtime runs the model, from a
graph exported once a machine; torch is imported for the export, for CUDA, and where there can be no export.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from retriever.encoder.batches import Encoding, TokenBatch
from retriever.encoder.model_files import DEFAULT_ENCODER, EncoderIdentity, ModelFiles
from retriever.encoder.model_loader import DEVICES, load_tokenizer, padded, resolve_device
from retriever.errors import EncoderUnavailable, Mismatch, Misuse, RetrieverError
from retriever.progress import Progress, silent

if TYPE_CHECKING:
    from retriever.encoder.runtimes.torch_model import TorchModel

# Padding included. More did not pay on a processor, where the activations of a batch should stay in its cache.
BATCH_TOKENS = {"cpu": 512, "cuda": 16_384}
# Queries differ much in length: 32 of them took a quarter longer in batches of 512 tokens, most of it for padding.
SHORT_BATCH_TOKENS = {"cpu": 128, "cuda": 16_384}


# So many texts are encoded in the caller's own thread: a query is sooner done than a thread begun.
FEW = 4
# Characters; a window of ordinary texts is not much longer.
TOKENISED_AT_ONCE = 2_000_000


class Backend(Protocol):
    """What runs the model; `workers` threads may ask it at once."""

    workers: int

    def vectors(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]: ...


class Encoder:
    """A BERT by name or folder. `identity` says who it is without loading it."""

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
        """`stored`: the identity in a collection, whose settings are taken where none are given."""
        if device not in DEVICES:
            raise Misuse(f"unknown device {device!r}; known: {', '.join(DEVICES)}.")
        if batch_tokens is not None and batch_tokens < 1:
            raise Misuse(f"`batch_tokens` must be at least 1, not {batch_tokens}.")
        self.files = ModelFiles(name)
        self.identity: EncoderIdentity = self.files.identity(pooling, max_length, precision, stored)
        self.note = ""
        """Why it runs otherwise than it would best, once it runs."""
        self._batch_tokens = batch_tokens
        self._device = device
        self._progress = progress
        if self.identity.precision == "int8" and device == "cuda":
            raise Misuse('int8 runs only on CPUs. Use `device="cpu"`, or index with `precision="fp32"`.')

    def refuse_too_long(self, where: object) -> None:
        """Refuse a length of inputs, taken from a collection, that the model cannot take."""
        if self.identity.max_length > self.files.longest:
            raise Mismatch(
                f"{where} was made with inputs of up to {self.identity.max_length:,} tokens, and the encoder "
                f"{self.identity.name} takes {self.files.longest:,}. Use the same encoder and settings, or index into "
                "another folder."
            )

    @cached_property
    def device(self) -> str:
        """Where it runs: "cuda" where asked for or found, else "cpu"."""
        return "cpu" if self.identity.precision == "int8" else resolve_device(self._device)

    @property
    def batch_tokens(self) -> int:
        return self._batch_tokens or BATCH_TOKENS[self.device]

    # ---- what runs it ------------------------------------------------------------------------------------

    @cached_property
    def _backend(self) -> Backend:
        if self.device == "cuda":
            return self._torch
        from retriever.encoder.runtimes.onnx_runtime import OnnxModel, export_folder, exported

        folder = export_folder(self.identity)
        if exported(folder):
            return OnnxModel(folder)
        from retriever.encoder.runtimes.onnx_export import NotExportable, export

        self._progress("preparing the encoder for this machine, once", 0, None)
        try:
            made = export(self.files, self.identity)
            if made != folder:
                self.note = (
                    f"the encoder was exported for this run alone, as {folder.parent} cannot be written; set "
                    "XDG_CACHE_HOME to a folder that can be, and it is done once"
                )
            return OnnxModel(made)
        except NotExportable as error:
            if self.identity.precision == "int8":
                raise EncoderUnavailable(
                    f"the precision int8 needs ONNX Runtime, and {self.identity.name} cannot be exported to it: {error}"
                ) from error
            self.note = f"the encoder runs on torch, which starts more slowly: it cannot be exported to ONNX ({error})"
            return self._torch

    @cached_property
    def _torch(self) -> "TorchModel":
        from retriever.encoder.runtimes.torch_model import TorchModel

        return TorchModel(self.files, self.identity, self.device)

    @property
    def blocks(self) -> int:
        """How many blocks the model has."""
        return int(self._torch.model.config.num_hidden_layers)

    def word_vectors(self) -> NDArray[np.float32]:
        """The input embedding of every token of the model's vocabulary, a row each."""
        import torch

        table = self._torch.model.get_input_embeddings()
        with torch.inference_mode():
            every: NDArray[np.float32] = table(torch.arange(table.num_embeddings, device=self.device)).cpu().numpy()
        return every

    # ---- vectors -----------------------------------------------------------------------------------------

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One float32 row a text, in the order given."""
        rows = np.empty((len(texts), self.identity.dimension), np.float32)
        for positions, vectors in self.encode_batches(texts):
            rows[positions] = vectors
        return rows

    def encode_here(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The same in the caller's own thread, for short texts of a caller that has other threads do the same."""
        rows = np.empty((len(texts), self.identity.dimension), np.float32)
        for positions, tokens in self._token_batches(texts, SHORT_BATCH_TOKENS[self.device]):
            rows[positions] = self._encode_tokens(tokens)
        return rows

    def encode_batches(self, texts: Sequence[str]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """The same batch by batch, in no order that matters: (positions in `texts`, their vectors)."""
        if len(texts) <= FEW:
            for positions, tokens in self._token_batches(texts):
                yield positions, self._encode_tokens(tokens)
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
        """To encode the texts in threads of their own once it is started; close it when it is no longer wanted."""
        return Encoding(self._token_batches(texts), self._encode_tokens, self._backend.workers)

    def batches(self, texts: Sequence[str], most_tokens: int | None = None) -> Iterator[TokenBatch]:
        """The batches that `encoding` would encode, for who encodes them elsewhere."""
        return self._token_batches(texts, most_tokens)

    def encode_batch(self, tokens: list[list[int]]) -> NDArray[np.float32]:
        """The vectors of one of those batches, in the caller's own thread."""
        return self._encode_tokens(tokens)

    def load(self) -> None:
        """Load the model now; else the first batch does."""
        _ = self._backend

    @property
    def asked_batch_tokens(self) -> int | None:
        """The tokens of a batch, where they were asked for and do not go by the device."""
        return self._batch_tokens

    @property
    def asked_device(self) -> str:
        return self._device

    def encode_poolings(
        self, texts: Sequence[str], poolings: Sequence[str], progress: Callable[[int, int], None] | None = None
    ) -> dict[str, NDArray[np.float32]]:
        """What `encode` would give with each of the poolings, from one pass of the texts through the model."""
        rows = np.empty((len(poolings), len(texts), self.identity.dimension), np.float32)
        done = 0
        for positions, tokens in self._token_batches(texts):
            found = self._torch.poolings(*self._padded(tokens), poolings)
            self._check_finite(found, tokens)
            rows[:, positions] = found
            done += len(positions)
            if progress:
                progress(done, len(texts))
        return dict(zip(poolings, rows, strict=True))

    def _encode_tokens(self, tokens: list[list[int]]) -> NDArray[np.float32]:
        vectors = self._backend.vectors(*self._padded(tokens))
        self._check_finite(vectors[None], tokens)
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

    def _check_finite(self, vectors: NDArray[np.float32], tokens: list[list[int]]) -> None:
        if not np.isfinite(vectors).all():
            row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=(0, 2)))[0])
            text = self._tokenizer.decode(tokens[row])
            raise RetrieverError(
                f"the encoder {self.identity.name} gave NaN or infinity for the text {text[:60]!r}: its weights are "
                "broken or overflow there. What was stored before stays; take another encoder, or leave that text out."
            )

    # ---- tokens ------------------------------------------------------------------------------------------

    def _load_tokenizer(self) -> Any:
        from retriever.encoder.runtimes.onnx_runtime import TOKENIZER, export_folder

        return load_tokenizer(self.files, export_folder(self.identity) / TOKENIZER)

    @cached_property
    def _tokenizer(self) -> Any:
        return self._load_tokenizer()

    @cached_property
    def _cutting_tokenizer(self) -> Any:
        """The same with texts cut at the longest input; one of its own, as another thread may be counting tokens."""
        tokenizer = self._load_tokenizer()
        tokenizer.enable_truncation(self.identity.max_length)
        return tokenizer

    @property
    def token_budget(self) -> int:
        """How many tokens of text fit into one input beside the special ones."""
        return self.identity.max_length - int(self._tokenizer.num_special_tokens_to_add(is_pair=False))

    def count_tokens(self, texts: list[str]) -> list[int]:
        """The number of tokens of each text, special ones not counted."""
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [len(encoding) for encoding in encodings]

    def tokenizer_json(self) -> str:
        """The tokenizer as `tokenizer.json` has it, without truncation or padding."""
        return str(self._tokenizer.to_str(pretty=True))

    def token(self, number: int) -> str | None:
        """What the tokenizer calls a token; None if it has no such."""
        found: str | None = self._tokenizer.id_to_token(number)
        return found

    def _tokens(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._cutting_tokenizer.encode_batch_fast(texts)]

    def _token_batches(self, texts: Sequence[str], most_tokens: int | None = None) -> Iterator[TokenBatch]:
        """Batches of texts of nearly one length, each of about `batch_tokens` or as many as are given."""
        tokens = [ids for some in _in_turn(texts) for ids in self._tokens(some)]
        lengths = np.array([len(ids) for ids in tokens])
        order = np.argsort(lengths, kind="stable")
        bounds = _bounds(lengths[order].tolist(), most_tokens or self.batch_tokens)
        # Long and short batches mixed, so that the rate seen so far foretells the time left.
        for number in np.random.default_rng(0).permutation(len(bounds) - 1):
            positions = order[bounds[number] : bounds[number + 1]]
            yield positions, [tokens[p] for p in positions]


def _in_turn(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts some at a time: while it works, the tokenizer takes up to a hundred times their memory."""
    some: list[str] = []
    characters = 0
    for text in texts:
        some.append(text)
        characters += len(text)
        if characters >= TOKENISED_AT_ONCE:
            yield some
            some, characters = [], 0
    if some:
        yield some


def _bounds(lengths: Sequence[int], budget: int) -> list[int]:
    """Where batches of texts of these rising lengths begin and end, each with at most `budget` tokens or one text."""
    bounds = [len(lengths)]
    while bounds[-1]:
        last = bounds[-1]
        bounds.append(max(0, last - max(1, budget // lengths[last - 1])))
    return bounds[::-1]


def require_same_encoder(stored: EncoderIdentity, given: EncoderIdentity, where: object) -> None:
    """Refuse an encoder that is not the one a collection was made with."""
    if difference := stored.difference(given):
        raise Mismatch(
            f"{where} was made with the encoder {stored.name}, this one is {given.name} "
            f"({difference}). Use the same encoder and settings, or index into another folder."
        )
