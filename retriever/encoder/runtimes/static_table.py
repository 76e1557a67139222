"""Runs a StaticEmbedding model: the vector of a text is the mean of the rows of its tokens. This needs only numpy."""

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.vectors import unit_rows
from retriever.encoder.model_files import ModelFiles
from retriever.errors import EncoderUnavailable

TENSOR = "embedding.weight"
# Their rows fit into the cache of a CPU.
TOKENS_AT_ONCE = 1024


class StaticTable:
    """The rows of a table. Several threads can use it at once."""

    mapped = ()  # the file is read as a whole
    workers = 1  # looking up rows takes less time than handing them to another thread

    def __init__(self, files: ModelFiles) -> None:
        from safetensors.numpy import load_file

        (path,) = files.weight_files()
        try:
            self.rows = load_file(path)[TENSOR]
        except Exception as error:  # the library raises several classes of errors for a damaged file
            raise EncoderUnavailable(f"the word table {path} cannot be loaded: {error}") from error
        self._normalize = files.normalize

    def vectors(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        vectors = np.empty((len(ids), self.rows.shape[1]), np.float32)
        texts = max(1, TOKENS_AT_ONCE // ids.shape[1])
        for first in range(0, len(ids), texts):
            some = slice(first, first + texts)
            found = self.rows[ids[some]].astype(np.float32, copy=False)
            np.einsum("ijk,ij->ik", found, mask[some].astype(np.float32), out=vectors[some])
        vectors /= np.maximum(mask.sum(axis=1, keepdims=True), 1).astype(np.float32)
        return unit_rows(vectors) if self._normalize else vectors
