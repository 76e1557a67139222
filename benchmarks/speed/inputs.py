"""The inputs of every system as files in one folder: sentences, their vectors, queries and their vectors."""

import json
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.sentence_vectors import Halves
from retriever.corpus.short_texts import short_texts
from retriever.errors import Misuse
from retriever.evaluate.runs import Plan

SEED = 0
WRITTEN_TOGETHER = 65_536


class Inputs:
    """Files that are written when they are first needed.

    Queries are phrases cut from the first `cut_from` sentences, so they are the same at every size.
    """

    def __init__(
        self, folder: Path, texts: Sequence[str], vectors: Halves, plan: Plan, queries: int, cut_from: int
    ) -> None:
        self.folder, self.texts, self.vectors = folder, texts, vectors
        self._plan, self._count, self._cut_from = plan, queries, cut_from

    @property
    def dimension(self) -> int:
        return int(self.vectors.shape[1])

    @cached_property
    def sentences_file(self) -> Path:
        path = self.folder / "sentences.txt"
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{text}\n" for text in self.texts)
        return path

    @cached_property
    def vectors_file(self) -> Path:
        """Rows of float16 without a header."""
        path = self.folder / "vectors.f16"
        with path.open("wb") as file:
            for start in range(0, len(self.vectors), WRITTEN_TOGETHER):
                file.write(np.ascontiguousarray(self.vectors[start : start + WRITTEN_TOGETHER]).tobytes())
        return path

    @cached_property
    def queries(self) -> list[str]:
        found = short_texts(self.texts[: self._cut_from], self._count, SEED)
        if not found:
            raise Misuse("no query could be cut from the sentences: they have too few words.")
        return found

    @cached_property
    def query_vectors(self) -> NDArray[np.float32]:
        return self._plan.cache.vectors(self._plan.encoders[0], self.queries, progress=self._plan.progress)

    @cached_property
    def query_vectors_file(self) -> Path:
        path = self.folder / "queries.npy"
        np.save(path, self.query_vectors)
        return path

    def source_file(self, count: int) -> Path:
        """The first documents as a file for `retriever index`."""
        path = self.folder / f"{count}.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for number, text in enumerate(self.texts[:count]):
                file.write(json.dumps({"id": str(number), "text": text}, ensure_ascii=False) + "\n")
        return path


def installed_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
