"""Text to sentence vectors with a Hugging Face BERT.

Texts are tokenised in large windows and sorted by their number of tokens, so that a batch is all of nearly one
length and padding costs nothing. torch is imported when the first text is encoded, not before.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.errors import Mismatch, Misuse, RetrieverError
from retriever.loading import DEVICES, found_device, load_model, load_tokenizer, refuse_missing
from retriever.models import EMBEDDED, ENCODER, EncoderIdentity, ModelFiles

BATCH_SIZE = 32
# Which hidden states a pooling averages: [0] is the embedding layer, so [1] is the first block. The other poolings read
# the last block's output, or no block at all.
LAYERS = {"first": (1,), "first-last": (1, -1), "last2": (-2, -1)}


class Encoder:
    """A BERT by name or folder. `identity` says who it is without loading it."""

    def __init__(
        self,
        name: str = EMBEDDED,
        *,
        pooling: str | None = None,
        max_length: int | None = None,
        batch_size: int = BATCH_SIZE,
        device: str = "auto",
        stored: EncoderIdentity | None = None,
    ) -> None:
        """`stored`: the identity in a collection, whose settings are taken where none are given."""
        if device not in DEVICES:
            raise Misuse(f"unknown device {device!r}; known: {', '.join(DEVICES)}.")
        if batch_size < 1:
            raise Misuse(f"--batch-size must be at least 1, not {batch_size}.")
        self.files = ModelFiles(name)
        self.identity: EncoderIdentity = self.files.identity(pooling, max_length, stored)
        self.batch_size = batch_size
        self._device = device

    @cached_property
    def device(self) -> str:
        """Where it runs: "cuda" where asked for or found, else "cpu"."""
        return found_device(self._device)

    @cached_property
    def _model(self) -> Any:
        model, missing = load_model(self.files, ENCODER)
        # Of what a checkpoint may lack, only the pooler goes unused.
        refuse_missing(self.files, ENCODER, (name for name in missing if "pooler" not in name.split(".")))
        return model.to(self.device).eval()

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self.files)

    @property
    def token_budget(self) -> int:
        """How many tokens of text fit into one input beside the special ones."""
        return self.identity.max_length - int(self._tokenizer.num_special_tokens_to_add(is_pair=False))

    def count_tokens(self, texts: list[str]) -> list[int]:
        """The number of tokens of each text, special ones not counted."""
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [len(encoding) for encoding in encodings]

    @property
    def blocks(self) -> int:
        """How many blocks the model has."""
        return int(self._model.config.num_hidden_layers)

    def tokenizer_json(self) -> str:
        """The tokenizer as `tokenizer.json` has it, without truncation or padding."""
        return str(self._tokenizer.to_str(pretty=True))

    def token(self, number: int) -> str | None:
        """What the tokenizer calls a token; None if it has no such."""
        found: str | None = self._tokenizer.id_to_token(number)
        return found

    def word_vectors(self) -> NDArray[np.float32]:
        """The input embedding of every token of the model's vocabulary, a row each."""
        import torch

        table = self._model.get_input_embeddings()
        with torch.inference_mode():
            every: NDArray[np.float32] = table(torch.arange(table.num_embeddings, device=self.device)).cpu().numpy()
        return every

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One float32 row a text, in the order given."""
        rows = np.empty((len(texts), self.identity.dimension), np.float32)
        for positions, vectors in self.encode_batches(texts):
            rows[positions] = vectors
        return rows

    def encode_batches(self, texts: Sequence[str]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """The same batch by batch, in no order that matters: (positions in `texts`, their vectors)."""
        for positions, tokens in self._token_batches(texts):
            yield positions, self._encode_tokens(tokens, [self.identity.pooling])[0]

    def encode_poolings(
        self, texts: Sequence[str], poolings: Sequence[str], progress: Callable[[int, int], None] | None = None
    ) -> dict[str, NDArray[np.float32]]:
        """What `encode` would give with each of the poolings, from one pass of the texts through the model."""
        rows = np.empty((len(poolings), len(texts), self.identity.dimension), np.float32)
        done = 0
        for positions, tokens in self._token_batches(texts):
            rows[:, positions] = self._encode_tokens(tokens, poolings)
            done += len(positions)
            if progress:
                progress(done, len(texts))
        return dict(zip(poolings, rows, strict=True))

    def _token_batches(self, texts: Sequence[str]) -> Iterator[tuple[NDArray[np.int64], list[list[int]]]]:
        """Batches of texts of nearly one length: (positions in `texts`, their tokens)."""
        tokenizer = self._tokenizer
        tokenizer.enable_truncation(self.identity.max_length)
        encodings = tokenizer.encode_batch_fast(list(texts))
        tokenizer.no_truncation()
        tokens = [encoding.ids for encoding in encodings]
        del encodings
        order = np.argsort([len(ids) for ids in tokens], kind="stable")
        starts = np.arange(0, len(order), self.batch_size)
        # Long and short batches mixed, so that the rate seen so far foretells the time left.
        for start in np.random.default_rng(0).permutation(starts):
            positions = order[start : start + self.batch_size]
            yield positions, [tokens[p] for p in positions]

    def _encode_tokens(self, tokens: list[list[int]], poolings: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of a batch: (poolings, texts, dimensions)."""
        import torch

        longest = max(len(ids) for ids in tokens)
        ids = np.full((len(tokens), longest), self.files.pad_id, np.int64)
        mask = np.zeros((len(tokens), longest), np.int64)
        for row, own in enumerate(tokens):
            ids[row, : len(own)] = own
            mask[row, : len(own)] = 1
        try:
            with torch.inference_mode():
                input_ids, attention_mask = (torch.from_numpy(array).to(self.device) for array in (ids, mask))
                hidden = self._token_vectors(input_ids, attention_mask, poolings)
                pooled = torch.stack([_pool(own, attention_mask, pooling) for pooling, own in hidden])
                if self.identity.normalize:
                    pooled = torch.nn.functional.normalize(pooled, dim=2)
                vectors: NDArray[np.float32] = pooled.float().cpu().numpy()
        except torch.OutOfMemoryError as error:
            raise RetrieverError(
                f"the GPU has too little memory for batches of {self.batch_size}; take a smaller batch size."
            ) from error
        if not np.isfinite(vectors).all():
            row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=(0, 2)))[0])
            text = self._tokenizer.decode(tokens[row])
            raise RetrieverError(
                f"the encoder {self.identity.name} gave NaN or infinity for the text {text[:60]!r}: its weights are "
                "broken or overflow there. What was stored before stays; take another encoder, or leave that text out."
            )
        return vectors

    def _token_vectors(self, ids: Any, mask: Any, poolings: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """The token vectors to pool for each pooling, from the layers that it reads."""
        output = None
        if any(pooling != "word" for pooling in poolings):
            # The hidden states of every layer are only worth their memory to the poolings that read them.
            every = any(pooling in LAYERS for pooling in poolings)
            output = self._model(input_ids=ids, attention_mask=mask, output_hidden_states=every)
        for pooling in poolings:
            words = pooling == "word"
            yield pooling, self._model.get_input_embeddings()(ids) if words else _layers(output, pooling)


def _layers(output: Any, pooling: str) -> Any:
    if pooling not in LAYERS:
        return output.last_hidden_state
    read = [output.hidden_states[number] for number in LAYERS[pooling]]
    return sum(read) / len(read)


def _pool(hidden: Any, mask: Any, pooling: str) -> Any:
    """One vector a text from its token vectors; padding never counts."""
    if pooling == "cls":
        return hidden[:, 0]
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    if pooling == "max":
        return hidden.masked_fill(weights == 0, float("-inf")).amax(dim=1)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)


def check_same(stored: EncoderIdentity, given: EncoderIdentity, where: object) -> None:
    """Refuse an encoder that is not the one a collection was made with."""
    if difference := stored.difference(given):
        raise Mismatch(
            f"{where} was made with the encoder {stored.name}, this one is {given.name} "
            f"({difference}). Use the same encoder and settings, or index into another folder."
        )
