"""Runs a StaticEmbedding model: the vector of a text is the mean of the rows of its tokens. This needs only numpy."""

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.vectors import unit_rows
from retriever.encoder.model_files import ModelFiles
from retriever.errors import EncoderUnavailable

TENSOR = "embedding.weight"


class StaticTable:
    """The rows of a table. Several threads can use it at once."""

    workers = 1  # looking up rows takes less time than handing them to another thread

    def __init__(self, files: ModelFiles) -> None:
        from safetensors.numpy import load_file

        (path,) = files.weight_files()
        try:
            self._rows = load_file(path)[TENSOR]
        except Exception as error:  # the library raises several classes of errors for a damaged file
            raise EncoderUnavailable(f"the word table {path} cannot be loaded: {error}") from error
        self._normalize = files.normalize

    def vectors(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        found = self._rows[ids].astype(np.float32, copy=False)
        vectors: NDArray[np.float32] = np.einsum("ijk,ij->ik", found, mask.astype(np.float32))
        vectors /= np.maximum(mask.sum(axis=1, keepdims=True), 1).astype(np.float32)
        return unit_rows(vectors) if self._normalize else vectors
