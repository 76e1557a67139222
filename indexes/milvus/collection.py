"""One collection in Milvus: opening and making it, its published index, and the lock of who writes."""

import base64
import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from types import TracebackType
from typing import Any, Self, TypeVar

from indexes.errors import Damaged, Locked, NotACollection, RetrieverError
from indexes.faiss.building import Stage, silent
from indexes.faiss.types import IndexRequest
from indexes.folder.generation import MANIFEST, Generation, difference, is_encoder, plain_name
from indexes.folder.space import unchanged
from indexes.milvus import schema
from indexes.milvus.address import Address
from indexes.milvus.client import Changed, Client, TableGone
from indexes.milvus.publishing import MilvusPublisher
from indexes.milvus.space import MilvusSpace
from indexes.milvus.state import STATE, State
from indexes.milvus.store import MilvusStore
from indexes.milvus.transfer import MilvusTransfer
from indexes.milvus.words import MilvusWords
from indexes.publication import Publication
from indexes.rows import Apply

# How often a search begins again because what it has found was changed before it could be read.
TRIES = 20

Result = TypeVar("Result")


class MilvusCollection:
    """A collection opened for reading, or for reading and writing; threads may share it."""

    def __init__(self, client: Client, device: str = "cpu") -> None:
        self.client = client
        self.device = device
        self.device_note = ""
        self.apply_of: Callable[[Generation], Apply] | None = None
        self.state = State(client)
        self.store = MilvusStore(client, self.state)
        self.words = MilvusWords(self.store)
        self._files = TemporaryDirectory(prefix="retriever-")
        self._read: Generation | None = None

    # ---- opening -------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, place: str | Path, /, *, device: str = "cpu") -> Self:
        """Open the collection that lies there."""
        client = Client(Address.parse(place))
        try:
            opened = cls(client, device)
            if not client.has(opened.state.records.table):
                raise NotACollection(
                    f"{client.address} holds no collection; make one with: retriever index SOURCE --store "
                    f"{client.address}"
                )
            opened._check_tables()
            opened.state.read()
        except BaseException:
            client.close()
            raise
        return opened

    @classmethod
    def create(cls, place: str | Path, /, settings: dict[str, Any]) -> Self:
        """Make a new collection."""
        address = Address.parse(place)
        if address.is_file:
            Path(address.uri).parent.mkdir(parents=True, exist_ok=True)
        client = Client(address, create=True)
        try:
            made = cls(client)
            store, maker = made.store, client.maker
            tables = {
                made.state.records.table: schema.settings_table(maker),
                store.documents_table: schema.documents_table(maker),
                store.vectors_table: schema.vectors_table(maker, settings["encoder"]["dimension"]),
            }
            made._check_tables(whole=False)
            for table, fields in tables.items():
                client.create(table, *fields)
                client.load(table)
            made._check_tables()
            if made.state.records.read(STATE) is None or made.is_empty():  # else another process made it meanwhile
                made._refuse_other_vectors(settings["encoder"]["dimension"])
                made.state.change(settings=settings)
        except BaseException:
            client.close()
            raise
        return made

    @staticmethod
    def refuse_if_taken(place: str | Path, /) -> None:
        """What is there under other names is none of ours."""

    @classmethod
    def is_begun(cls, place: str | Path, /) -> bool:
        """Whether a collection with anything in it lies there; one without may still be made anew."""
        address = Address.parse(place)
        if address.is_file and not Path(address.uri).exists():
            return False
        client = Client(address)
        try:
            found = cls(client)
            if not client.has(found.state.records.table) or found.state.records.read(STATE) is None:
                return False
            found._check_tables()
            return not found.is_empty()
        finally:
            client.close()

    def _check_tables(self, *, whole: bool = True) -> None:
        """Refuse tables of the same names that somebody else has made; `whole`: and where one is missing."""
        maker = self.client.maker
        expected = {
            self.state.records.table: schema.settings_table(maker)[0],
            self.store.documents_table: schema.documents_table(maker)[0],
            self.store.vectors_table: schema.vectors_table(maker, 1)[0],
        }
        for table, wanted in expected.items():
            try:
                there = set(self.client.fields(table))
            except TableGone as error:
                if not whole:
                    continue
                raise NotACollection(
                    f"{self.client.address} is not whole: it has no table {table}. If it was being made, run the same "
                    "command again; else copy or index into another name (#NAME)."
                ) from error
            if missing := {field.name for field in wanted.fields} ^ there:
                raise NotACollection(
                    f"{self.client.address}: the table {table} is another program's or version's (its fields differ in "
                    f"{', '.join(sorted(missing))}); take another name: {self.client.address}#NAME"
                )

    def _refuse_other_vectors(self, dimension: int) -> None:
        """Refuse a table for vectors of another length; one that a first run left empty is made anew."""
        table = self.store.vectors_table
        there = int(self.client.fields(table)["raw"]["params"]["dim"])
        if there == dimension:
            return
        if self.store.count("vectors"):
            raise NotACollection(
                f"{self.client.address}: the table {table} holds vectors of {there} dimensions, and the encoder gives "
                f"{dimension}; take another name: {self.client.address}#NAME"
            )
        self.client.drop(table)
        self.client.create(table, *schema.vectors_table(self.client.maker, dimension))
        self.client.load(table)

    @staticmethod
    def check_index(asked: IndexRequest, dimension: int, device: str) -> None:
        schema.check_index(asked)

    @property
    def name(self) -> str:
        return str(self.client.address)

    def is_empty(self) -> bool:
        """Whether nothing was ever stored here."""
        return not (self.published() or self.store.last_vector() or self.store.count("documents"))

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Be the one who writes; what is written goes to the published index at once. May be nested."""
        with self.state.locked() as left:
            if left:
                self.store.settle()
            before = self.store.apply
            generation = self.generation()
            if generation and self.apply_of:
                self.store.apply = self.apply_of(generation)
            try:
                yield
            except BaseException:
                with contextlib.suppress(RetrieverError):  # else by the next one who writes
                    self.store.settle()
                raise
            finally:
                self.store.apply = before

    def close(self) -> None:
        self.store.close()
        self.client.close()
        self._files.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def encoder(self) -> dict[str, Any]:
        """The identity of the encoder that made the vectors."""
        encoder = self.store.setting("encoder")
        if not is_encoder(encoder):
            raise Damaged(f"{self.name}: the setting 'encoder' is damaged; copy or index the collection again.")
        return dict(encoder)

    @property
    def dimension(self) -> int:
        return int(self.encoder["dimension"])

    def refuse_another_encoder(self) -> None:
        """Refuse to write where the settings name another encoder than the one the index was built for."""
        read = self.state.read()
        if read.generation and read.generation["manifest"]["encoder"] != read.settings.get("encoder"):
            built = read.generation["manifest"]["encoder"]
            raise Damaged(
                f"{self.name}: its index was built for another encoder than the one in its settings "
                f"({difference(built, read.settings.get('encoder'))}); copy or index the collection again."
            )

    def sizes(self) -> dict[str, int]:
        """The bytes of every file, where Milvus Lite holds them; a server does not tell."""
        if not self.client.address.is_file:
            return {}
        root = Path(self.client.address.uri)
        return {path.relative_to(root).as_posix(): path.stat().st_size for path in root.rglob("*") if path.is_file()}

    @property
    def transfer(self) -> MilvusTransfer:
        """Its rows with their numbers."""
        return MilvusTransfer(self.store)

    # ---- the published index -------------------------------------------------------------------------------

    def published(self) -> tuple[int, str, str] | None:
        return self.state.read().published

    def generation(self) -> Generation | None:
        return self.with_generation(lambda generation: generation)

    def with_generation(self, use: Callable[[Generation | None], Result], *, fresh: bool = False) -> Result:
        """What `use` makes of the published generation; called again with the newer one where that goes meanwhile."""
        while True:
            row = self.published()
            try:
                return use(self._fetched(row, fresh) if row else None)
            except (TableGone, Damaged):
                if self.published() == row:
                    raise

    def _fetched(self, row: tuple[int, str, str], fresh: bool) -> Generation:
        """The generation of this row with the transform's files, which are fetched once."""
        if not fresh and self._read is not None and self._read.row == row:
            return self._read
        read = self.state.read()
        if read.generation is None or read.published != row:
            raise Damaged(f"{self.name}: its index was published anew while it was read; try again.")
        manifest = read.generation["manifest"]
        if _sha256(manifest) != row[2]:
            raise Damaged(f"{self.name}: its manifest is not what was written; copy or index the collection again.")
        # Its own, for other threads may be reading theirs; and the folder of all, where a cleaner has removed it.
        Path(self._files.name).mkdir(exist_ok=True)
        folder = Path(mkdtemp(dir=self._files.name)) / row[1]
        folder.mkdir()
        for name, expected in manifest["files"].items():
            data = self._file(row[0], plain_name(name, folder))
            if hashlib.sha256(data).hexdigest() != expected["sha256"]:
                raise Damaged(f"{self.name}: the transform's file {name} is damaged; copy or index it again.")
            (folder / name).write_bytes(data)
        (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
        self._read = Generation(row[0], folder, manifest, row[2])
        return self._read

    def _file(self, number: int, name: str) -> bytes:
        text = self.state.records.read(file_record(number, name))
        if text is None:
            raise Damaged(f"{self.name}: the transform's file {name} is gone; copy or index the collection again.")
        return base64.b64decode(text)

    def transform_files(self) -> dict[str, bytes]:
        """The transform's files as they were published."""
        read = self.state.read()
        if read.generation is None:
            return {}
        number, names = int(read.generation["number"]), read.generation["manifest"]["files"]
        return {name: self._file(number, plain_name(name, Path(self.name))) for name in names}

    def publish(self, publication: Publication, progress: Stage = silent) -> Generation:
        """Build an index beside the published one and switch to it; readers see the old or the new one."""
        state, asked = self.state, publication.request
        before = state.read()
        number = before.last_generation + 1
        name = f"{number:06d}"
        publisher = MilvusPublisher(self.store, self.store.table_of(name), publication)
        measured = publisher.build(progress)
        with TemporaryDirectory() as folder:
            names = publication.write_transform(Path(folder))
            files = {file: (Path(folder) / file).read_bytes() for file in names}
        for file, data in files.items():
            state.records.write(file_record(number, file), base64.b64encode(data).decode())
        manifest = {
            "format": 1,
            "factory": schema.INDEXES[asked.type][0],
            "index_type": asked.type,
            "asked_recall": asked.recall,
            "asked_memory": asked.memory,
            "index_note": "",
            "measured": measured,
            "search_settings": schema.SEARCH_SETTINGS.get(schema.INDEXES[asked.type][0], {}),
            "last_sequence": self.store.last_vector(),
            "count": publisher.count,
            "files": {
                file: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for file, data in files.items()
            },
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            **publication.facts,
        }
        state.renew()
        generation = {
            "number": number,
            "name": name,
            "sha256": _sha256(manifest),
            "manifest": manifest,
            "replaces": _remains(before.generation),
        }
        state.change(settings=publication.settings, generation=generation, last_generation=number)
        self.store.apply = publication.apply
        publisher.done()
        if publication.compact:
            publisher.drop_unused()
        for old in _remains(before.generation):
            self.client.drop(self.store.table_of(old["name"]))
            state.records.delete(file_record(old["number"], file) for file in old["files"])
        found = self.generation()
        assert found is not None
        return found

    def backlog(self) -> tuple[int, int]:
        """How many vectors the index does not have yet: none, once there is one; and none in it is unused."""
        return (0, 0) if self.published() else (self.store.count_used_after(0), 0)

    # ---- searching -----------------------------------------------------------------------------------------

    def refuse_unfinished(self) -> None:
        """Refuse a collection whose first run has not come to its end."""
        if self.published() is None:
            raise self._unfinished()

    def _unfinished(self) -> NotACollection:
        return NotACollection(
            f"{self.name} has {self.store.count('documents'):,} documents but no index yet: its first run was "
            "interrupted. Run the same command again to finish it."
        )

    def load(self, prepare: Callable[[Generation], Result]) -> tuple[Generation, Result]:
        """The published generation, and what `prepare` makes of its files."""

        def prepared(generation: Generation | None) -> tuple[Generation, Result]:
            if generation is None:
                raise self._unfinished()
            return generation, prepare(generation)

        return self.with_generation(prepared)

    def in_space(self, transform_of: Callable[[Generation], Apply], look: Callable[[Any], Result]) -> Result:
        """What `look` finds in the published index."""
        return self._in(transform_of, look, raw=False)

    def in_raw_space(self, look: Callable[[Any], Result]) -> Result:
        """The same in the encoder's own space."""
        return self._in(lambda generation: unchanged, look, raw=True)

    def _in(self, transform_of: Callable[[Generation], Apply], look: Callable[[Any], Result], *, raw: bool) -> Result:
        def looked(generation: Generation | None) -> Result:
            if generation is None:
                raise self._unfinished()
            return look(
                MilvusSpace(
                    self.store,
                    int(generation.manifest["encoder"]["dimension"]),
                    self.store.table_of(generation.folder.name),
                    transform_of(generation),
                    raw,
                    generation.manifest["search_settings"],
                    generation.manifest["factory"] == schema.EXACT,
                )
            )

        for _ in range(TRIES):
            with contextlib.suppress(Changed):
                return self.with_generation(looked)
        raise Locked(f"{self.name} is being written to all the time; try again when that is done.")


def _remains(generation: dict[str, Any] | None) -> list[dict[str, Any]]:
    """What is to be removed once a generation is replaced: its own, and what it replaced, should that still be there
    because a writer died before it was removed."""
    if generation is None:
        return []
    own = {"number": int(generation["number"]), "name": generation["name"], "files": [*generation["manifest"]["files"]]}
    return [own, *generation.get("replaces", [])[:1]]


def file_record(number: int, name: str) -> str:
    """The record of a transform's file."""
    return f"file/{number}/{name}"


def _sha256(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
