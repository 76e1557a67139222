"""An encoder run by torch: for training, for CUDA, for choosing a pooling, and for models that cannot be exported."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.encoder.model_files import ENCODER, EncoderIdentity, ModelFiles
from retriever.encoder.model_loader import load_model, refuse_missing
from retriever.errors import RetrieverError

# Which hidden states a pooling averages: [0] is the embedding layer, so [1] is the first block. The other poolings read
# the last block's output, or no block at all.
LAYERS = {"first": (1,), "first-last": (1, -1), "last2": (-2, -1)}


class TorchModel:
    """The model in single precision on one device."""

    workers = 1  # torch spreads one batch over all cores by itself

    def __init__(self, files: ModelFiles, identity: EncoderIdentity, device: str) -> None:
        self.files = files
        self.identity = identity
        self.device = device

    @cached_property
    def model(self) -> Any:
        model, missing = load_model(self.files, ENCODER)
        # Of what a checkpoint may lack, only the pooler goes unused.
        refuse_missing(self.files, ENCODER, (name for name in missing if "pooler" not in name.split(".")))
        return model.to(self.device).eval()

    def vectors(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """One row a text."""
        vectors: NDArray[np.float32] = self.poolings(ids, mask, [self.identity.pooling])[0]
        return vectors

    def poolings(self, ids: NDArray[np.int64], mask: NDArray[np.int64], poolings: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of a batch by each pooling: (poolings, texts, dimensions)."""
        import torch

        try:
            with torch.inference_mode():
                tokens, attended = (torch.from_numpy(array).to(self.device) for array in (ids, mask))
                hidden = _token_vectors(self.model, tokens, attended, poolings)
                pooled = torch.stack([pool(own, attended, pooling) for pooling, own in hidden])
                if self.identity.normalize:
                    pooled = torch.nn.functional.normalize(pooled, dim=2)
                vectors: NDArray[np.float32] = pooled.float().cpu().numpy()
        except torch.OutOfMemoryError as error:
            raise RetrieverError(
                f"the GPU has too little memory for batches of {ids.size:,} tokens. Use a smaller `batch_tokens`."
            ) from error
        return vectors


def _token_vectors(model: Any, ids: Any, mask: Any, poolings: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The token vectors to pool for each pooling, from the layers that it reads."""
    output = None
    if any(pooling != "word" for pooling in poolings):
        # The hidden states of every layer are only worth their memory to the poolings that read them.
        every = any(pooling in LAYERS for pooling in poolings)
        output = model(input_ids=ids, attention_mask=mask, output_hidden_states=every)
    for pooling in poolings:
        words = pooling == "word"
        yield pooling, model.get_input_embeddings()(ids) if words else _layers(output, pooling)


def _layers(output: Any, pooling: str) -> Any:
    if pooling not in LAYERS:
        return output.last_hidden_state
    read = [output.hidden_states[number] for number in LAYERS[pooling]]
    return sum(read) / len(read)


def pool(hidden: Any, mask: Any, pooling: str) -> Any:
    """One vector a text from its token vectors; padding never counts."""
    if pooling == "cls":
        return hidden[:, 0]
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    if pooling == "max":
        return hidden.masked_fill(weights == 0, float("-inf")).amax(dim=1)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)


def exportable(model: TorchModel) -> Any:
    """The whole way from tokens to sentence vectors as one torch module."""
    import torch

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model.model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            pooling = model.identity.pooling
            ((_, hidden),) = _token_vectors(self.model, input_ids, attention_mask, [pooling])
            vectors = pool(hidden, attention_mask, pooling)
            return torch.nn.functional.normalize(vectors, dim=1) if model.identity.normalize else vectors

    return Pooled().eval()
