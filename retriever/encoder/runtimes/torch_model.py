"""Runs an encoder with torch: on CUDA, to choose a pooling, for the ONNX export, and if the export fails."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from indexes.mapped import MappedFile
from retriever.encoder.model_files import ENCODER, EncoderIdentity, ModelFiles
from retriever.encoder.model_loader import load_model, refuse_missing
from retriever.errors import RetrieverError

# The numbers of the hidden states that a pooling averages. Number 0 is the embedding layer, so 1 is the first block.
# The pooling `word` reads the input embeddings. The other poolings read the output of the last block.
LAYERS = {"first": (1,), "first-last": (1, -1), "last2": (-2, -1)}


class TorchModel:
    """The model in single precision on one device."""

    workers = 1  # torch spreads one batch over all cores by itself

    def __init__(self, files: ModelFiles, identity: EncoderIdentity, device: str) -> None:
        self.files = files
        self.identity = identity
        self.device = device
        self.mapped = [MappedFile(path) for path in files.weight_files()]

    @cached_property
    def model(self) -> Any:
        model, missing = load_model(self.files, ENCODER)
        # The pooler is the only part that is not used, so its weights may be missing.
        refuse_missing(self.files, ENCODER, (name for name in missing if "pooler" not in name.split(".")))
        return model.to(self.device).eval()

    @property
    def input_dimension(self) -> int:
        return int(self.model.get_input_embeddings().embedding_dim)

    def input_embeddings(self) -> NDArray[np.float32]:
        """Return the vectors of all tokens before the first block."""
        table = self.model.get_input_embeddings()
        with torch.inference_mode():
            every = table(torch.arange(table.num_embeddings, device=self.device))
            vectors: NDArray[np.float32] = every.float().cpu().numpy()
        return vectors

    def vectors(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = self.poolings(ids, mask, [self.identity.pooling])[0]
        return vectors

    def poolings(self, ids: NDArray[np.int64], mask: NDArray[np.int64], poolings: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of a batch for each pooling, with the shape (poolings, texts, dimensions)."""
        try:
            with torch.inference_mode():
                tokens, attended = (torch.from_numpy(array).to(self.device) for array in (ids, mask))
                pooled = torch.stack(sentence_vectors(self, tokens, attended, poolings))
                vectors: NDArray[np.float32] = pooled.float().cpu().numpy()
        except torch.OutOfMemoryError as error:
            raise RetrieverError(
                f"the GPU has too little memory for batches of {ids.size:,} tokens. Use a smaller `batch_tokens`."
            ) from error
        return vectors


class ExportModule(torch.nn.Module):
    """One torch module for the whole computation from tokens to sentence vectors."""

    def __init__(self, encoder: TorchModel) -> None:
        super().__init__()
        self.encoder = encoder
        self.model = encoder.model

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        return sentence_vectors(self.encoder, input_ids, attention_mask, [self.encoder.identity.pooling])[0]


def sentence_vectors(encoder: TorchModel, ids: Any, mask: Any, poolings: Sequence[str]) -> list[Any]:
    """Return the vectors of a batch for each pooling. The model runs only once."""
    output: Any = None
    if any(pooling != "word" for pooling in poolings):
        # Keeping the hidden states of all layers takes memory, so it is done only if a pooling reads them.
        every = any(pooling in LAYERS for pooling in poolings)
        output = encoder.model(input_ids=ids, attention_mask=mask, output_hidden_states=every)
    vectors = []
    for pooling in poolings:
        if pooling == "word":
            hidden = encoder.model.get_input_embeddings()(ids)
        elif pooling in LAYERS:
            layers = [output.hidden_states[number] for number in LAYERS[pooling]]
            hidden = sum(layers) / len(layers)
        else:
            hidden = output.last_hidden_state
        pooled = pool(hidden, mask, pooling)
        vectors.append(torch.nn.functional.normalize(pooled, dim=1) if encoder.identity.normalize else pooled)
    return vectors


def pool(hidden: Any, mask: Any, pooling: str) -> Any:
    """Pool the token vectors of each text, without the padding."""
    if pooling == "cls":
        return hidden[:, 0]
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    if pooling == "max":
        return hidden.masked_fill(weights == 0, float("-inf")).amax(dim=1)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)
