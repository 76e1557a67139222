"""One collection in Milvus: how it is opened, created, locked, published and searched."""

import base64
import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, Self, TypeVar

from indexes.errors import Damaged, RetrieverError
from indexes.faiss.building import Stage, silent
from indexes.faiss.types import IndexRequest
from indexes.generation import MANIFEST, Generation, Publication, plain_name
from indexes.milvus import publishing, schema
from indexes.milvus.address import Address
from indexes.milvus.client import Client
from indexes.milvus.space import MilvusSpace, MilvusWords
from indexes.milvus.state import STATE, State, no_collection
from indexes.milvus.store import MilvusStore, MilvusTransfer
from indexes.protocol import AnyCollection, unchanged
from indexes.rows import Apply

Result = TypeVar("Result")


class MilvusCollection(AnyCollection):
    """A collection in Milvus."""

    store: MilvusStore
    advice = "copy or index the collection again"

    def __init__(self, client: Client, device: str = "cpu") -> None:
        super().__init__(device)
        self.client = client
        self.name = str(client.address)
        self.state = State(client)
        self.store = MilvusStore(client, self.state)
        self._files = TemporaryDirectory(prefix="retriever-")
        self._generation: Generation | None = None

    @cached_property
    def words(self) -> MilvusWords:
        return MilvusWords(self.store)

    # ---- opening and creating ------------------------------------------------------------------------------

    @classmethod
    def open(cls, place: str | Path, /, *, device: str = "cpu") -> Self:
        client = Client(Address.parse(place))
        try:
            opened = cls(client, device)
            if not client.has(opened.state.records.table):
                raise no_collection(client)
            schema.check_tables(client, opened._tables(1))
            opened.state.read()
        except BaseException:
            client.close()
            raise
        return opened

    @classmethod
    def create(cls, place: str | Path, /, settings: dict[str, Any]) -> Self:
        address = Address.parse(place)
        if address.is_file:
            Path(address.uri).parent.mkdir(parents=True, exist_ok=True)
        client = Client(address, create=True)
        dimension = settings["encoder"]["dimension"]
        try:
            created = cls(client)
            tables = created._tables(dimension)
            schema.check_tables(client, tables, complete=False)
            for table, parts in tables.items():
                client.create(table, *parts)
            schema.check_tables(client, tables)
            if created.state.records.read(STATE) is None or created.is_empty():  # else another process created it
                schema.check_dimension(client, created.store.vectors_table, dimension)
                created.state.change(settings=settings)
        except BaseException:
            client.close()
            raise
        return created

    @staticmethod
    def refuse_if_taken(place: str | Path, /) -> None:
        """Do nothing: tables with other names do not matter, and `create` checks its own tables."""

    @classmethod
    def is_begun(cls, place: str | Path, /) -> bool:
        address = Address.parse(place)
        if address.is_file and not Path(address.uri).exists():
            return False
        client = Client(address)
        try:
            found = cls(client)
            if not client.has(found.state.records.table) or found.state.records.read(STATE) is None:
                return False
            schema.check_tables(client, found._tables(1))
            return not found.is_empty()
        finally:
            client.close()

    def _tables(self, dimension: int) -> dict[str, schema.Table]:
        client = self.client.pymilvus
        return {
            self.state.records.table: schema.settings_table(client),
            self.store.documents_table: schema.documents_table(client),
            self.store.vectors_table: schema.vectors_table(client, dimension),
        }

    @staticmethod
    def check_index(asked: IndexRequest, dimension: int, device: str) -> None:
        schema.check_index(asked)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the write lock. May be nested.

        Documents that are written meanwhile are added to the published index at once.
        """
        with self.state.locked() as holder_died:
            if holder_died:
                self.store.remove_leftovers()
            before = self.store.apply
            generation = self.generation()
            if generation and self.apply_of:
                self.store.apply = self.apply_of(generation)
            try:
                yield
            except BaseException:
                with contextlib.suppress(RetrieverError):  # the next writer tries again
                    self.store.remove_leftovers()
                raise
            finally:
                self.store.apply = before

    def close(self) -> None:
        self.store.close()
        self.client.close()
        self._files.cleanup()

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of every file of Milvus Lite. Empty for a server, which does not report sizes."""
        if not self.client.address.is_file:
            return {}
        root = Path(self.client.address.uri)
        return {path.relative_to(root).as_posix(): path.stat().st_size for path in root.rglob("*") if path.is_file()}

    @property
    def transfer(self) -> MilvusTransfer:
        return MilvusTransfer(self.store)

    # ---- the published index -------------------------------------------------------------------------------

    def published(self) -> tuple[int, str, str] | None:
        return self.state.read().published

    def _read(self, row: tuple[int, str, str], fresh: bool) -> Generation:
        """Return the generation with the files of its transform. The files are downloaded only once."""
        known = self._generation
        if not fresh and known is not None and known.row == row:
            return known
        state = self.state.read()
        if state.generation is None or state.published != row:
            raise Damaged(f"{self.name}: another index was published while this one was read; try again.")
        manifest = state.generation["manifest"]
        if publishing.manifest_sha256(manifest) != row[2]:
            raise Damaged(f"{self.name}: its manifest does not match its checksum; {self.advice}.")
        # Every download has a new folder, because other threads may still read an older one. A cleaner of /tmp may
        # have removed the parent.
        Path(self._files.name).mkdir(exist_ok=True)
        folder = Path(mkdtemp(dir=self._files.name)) / row[1]
        folder.mkdir()
        for name, expected in manifest["files"].items():
            data = self._file(row[0], plain_name(name, folder))
            if hashlib.sha256(data).hexdigest() != expected["sha256"]:
                raise Damaged(f"{self.name}: the transform's file {name} is damaged; {self.advice}.")
            (folder / name).write_bytes(data)
        (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
        self._generation = Generation(row[0], folder, manifest, row[2])
        return self._generation

    def _file(self, number: int, name: str) -> bytes:
        text = self.state.records.read(publishing.file_record(number, name))
        if text is None:
            raise Damaged(f"{self.name}: the transform's file {name} is missing; {self.advice}.")
        return base64.b64decode(text)

    def transform_files(self) -> dict[str, bytes]:
        generation = self.state.read().generation
        if generation is None:
            return {}
        names = (plain_name(name, Path(self.name)) for name in generation["manifest"]["files"])
        return {name: self._file(int(generation["number"]), name) for name in names}

    def publish(self, publication: Publication, progress: Stage = silent) -> Generation:
        publishing.publish(self.store, publication, progress)
        found = self.generation()
        assert found is not None
        return found

    def backlog(self) -> tuple[int, int]:
        """Return how many vectors the index lacks, and how many unused ones it holds.

        Once an index is published, both are 0, because every write also changes the index.
        """
        return (0, 0) if self.published() else (self.store.count_used_after(0), 0)

    # ---- searching -----------------------------------------------------------------------------------------

    def _load_index(self, generation: Generation) -> None:
        """Do nothing, because Milvus itself holds the index in memory."""

    def in_space(self, transform_of: Callable[[Generation], Apply], look: Callable[[Any], Result]) -> Result:
        return self._search(transform_of, look, raw=False)

    def in_raw_space(self, look: Callable[[Any], Result]) -> Result:
        return self._search(lambda generation: unchanged, look, raw=True)

    def _search(
        self, transform_of: Callable[[Generation], Apply], look: Callable[[Any], Result], *, raw: bool
    ) -> Result:
        def search(generation: Generation) -> Result:
            dimension = int(generation.manifest["encoder"]["dimension"])
            table = self.store.table_of(generation.folder.name)
            apply = transform_of(generation)
            return look(MilvusSpace(self.store, dimension, apply, generation.manifest, table, raw))

        return self.store.retry_if_changed(lambda: self.load(search)[1])
