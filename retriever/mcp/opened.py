"""The collections a language model may ask: open, by the names of their folders."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from retriever.files import folders_by_name
from retriever.progress import Progress
from retriever.retriever import Retriever


class Opened(Mapping[str, Retriever]):
    """Open collections; one that was made anew in its folder is opened anew when it is next asked for."""

    def __init__(self, folders: Sequence[Path], encoder: str | None, device: str, progress: Progress) -> None:
        self._folders = folders_by_name(folders)
        self._opener = partial(Retriever.open, encoder=encoder, device=device, progress=progress)
        self._opening = threading.Lock()
        self._now: dict[str, Retriever] = {}
        self._before: list[Retriever] = []
        """Those that were replaced: somebody may still be reading them."""
        try:
            for name, folder in self._folders.items():
                self._now[name] = self._opener(folder)
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name: str) -> Retriever:
        with self._opening:
            if self._now[name].local.store.replaced:
                fresh = self._opener(self._folders[name])
                self._before.append(self._now[name])
                self._now[name] = fresh
            return self._now[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._folders)

    def __len__(self) -> int:
        return len(self._folders)

    def close(self) -> None:
        for retriever in (*self._now.values(), *self._before):
            retriever.close()
