"""The open collections of the server, by the names of their folders."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from retriever.files import folders_by_name
from retriever.progress import Progress
from retriever.retriever import Retriever


class OpenCollections(Mapping[str, Retriever]):
    """Open collections. If another collection has replaced one in its folder, the next access opens that one."""

    def __init__(self, folders: Sequence[Path], encoder: str | None, device: str, progress: Progress) -> None:
        self._folders = folders_by_name(folders)
        self._open = partial(Retriever.open, encoder=encoder, device=device, progress=progress)
        self._lock = threading.Lock()
        self._current: dict[str, Retriever] = {}
        self._replaced: list[Retriever] = []
        """Kept open, because another thread may still be reading them."""
        try:
            for name, folder in self._folders.items():
                self._current[name] = self._open(folder)
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name: str) -> Retriever:
        with self._lock:
            if self._current[name].local.store.replaced:
                opened = self._open(self._folders[name])
                self._replaced.append(self._current[name])
                self._current[name] = opened
            return self._current[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._folders)

    def __len__(self) -> int:
        return len(self._folders)

    def close(self) -> None:
        for retriever in (*self._current.values(), *self._replaced):
            retriever.close()
