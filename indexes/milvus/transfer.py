"""The rows of a collection in Milvus with their numbers, for `retriever copy`."""

from collections.abc import Iterator, Sequence

from indexes.milvus.rows import sound_half
from indexes.milvus.store import MilvusStore
from indexes.rows import NumberedDocument, NumberedVector


class MilvusTransfer:
    """The rows of a collection in Milvus; how far a copy has come is what its counters say."""

    def __init__(self, store: MilvusStore) -> None:
        self.store = store

    def last(self) -> tuple[int, int]:
        counters = self.store.state.counters()
        return counters["vector"], counters["document"]

    def vectors(self, after: int) -> Iterator[list[NumberedVector]]:
        store = self.store
        fields = ["text_hash", "raw", "checksum"]
        for block in store.client.each(store.vectors_table, "number", fields, f"number > {after}"):
            found: list[NumberedVector] = []
            for row in block:
                half = sound_half(row)
                if half is None:
                    raise store.not_as_stored(f"vector {row['number']}")
                found.append((int(row["number"]), bytes.fromhex(row["text_hash"]), half))
            yield found

    def documents(self, after: int) -> Iterator[list[NumberedDocument]]:
        for block in self.store.each_row(after):
            yield [(number, row) for number, row, _ in block]

    def put_vectors(self, rows: Sequence[NumberedVector]) -> None:
        self.store.put_vectors(rows)
        self._come_to("vector", rows[-1][0])

    def put_documents(self, rows: Sequence[NumberedDocument]) -> None:
        self.store.put_numbered(rows)
        self._come_to("document", rows[-1][0])

    def _come_to(self, kind: str, number: int) -> None:
        state = self.store.state
        state.renew()
        counters = state.counters()
        state.set_counters({**counters, kind: max(number, counters[kind])})

    def seals(self) -> Iterator[tuple[int, str]]:
        for block in self.store.client.each(self.store.documents_table, "number", ["seal"]):
            for row in block:
                yield int(row["number"]), str(row["seal"])
