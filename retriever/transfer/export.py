"""Export a collection: its passages and vectors as Parquet or NumPy files, or its encoder and transform as a model."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from indexes.folder.collection import Collection
from retriever.encoder.base import AnyEncoder
from retriever.encoder.encoder import Encoder
from retriever.errors import Misuse, requires_extra, shown
from retriever.files import atomic_write
from retriever.progress import Progress, silent
from retriever.transforms import Transform

RowFormat = Literal["parquet", "npy"]
Format = RowFormat | Literal["sentence-transformers"]
MODEL = "sentence-transformers"
ROWS = 4096
OTHER_FORMATS = {".csv", ".json", ".jsonl", ".npy", ".npz", ".tsv", ".txt", ".xlsx"}
"""Endings of files that a user would not expect to be Parquet."""


def export(
    collection: Collection,
    target: Path,
    format: RowFormat,
    transform: Transform,
    progress: Progress = silent,
) -> list[Path]:
    """Write one row per passage, with its document, raw vector and transformed vector. Return the files.

    With "parquet", `target` is the file. With "npy", `target` is a folder with the files passages.jsonl, raw.npy and
    vectors.npy; row i of each file belongs to passage i.
    """
    if format == "parquet" and target.suffix.lower() in OTHER_FORMATS:
        raise Misuse(f"{target} would be a Parquet file; give it a name that ends in .parquet.")
    _refuse_existing(target, folder=format == "npy")
    # Everything is read in one snapshot, so documents that are added or deleted meanwhile have no effect.
    with atomic_write(target.resolve()) as temporary, collection.store.db.atomic():
        total = collection.store.count("passages")
        rows = _blocks(collection, transform, total, progress)
        if format == "parquet":
            _write_parquet(temporary, rows, collection.dimension, transform.dimension_out)
            return [target]
        temporary.mkdir()
        names = _write_npy(temporary, rows, total, collection.dimension, transform.dimension_out)
    return [target / name for name in names]


def check_format(format: object) -> None:
    known = [*get_args(RowFormat), MODEL]
    if format not in known:
        raise Misuse(f"unknown `format` {shown(format)}; known: {', '.join(known)}.")


def export_model(target: Path, encoder: AnyEncoder, transform: Transform) -> list[Path]:
    """Write the encoder and the transform as a folder that sentence-transformers loads. Return the files."""
    from retriever.transfer.sentence_transformers import write_sentence_folder

    if not isinstance(encoder, Encoder):
        raise Misuse(
            f"the encoder {encoder.identity.name} has no files, so it cannot be written as a folder for "
            "sentence-transformers; export the vectors instead, as parquet or npy."
        )
    _refuse_existing(target, folder=True)
    with atomic_write(target.resolve()) as temporary:
        temporary.mkdir()
        names = write_sentence_folder(temporary, encoder, transform)
    return [target / name for name in names]


def _refuse_existing(target: Path, *, folder: bool) -> None:
    """Raise `Misuse` if the target exists. An empty folder is allowed if the target is to be a folder."""
    if target.exists() and not (folder and target.is_dir() and not any(target.iterdir())):
        raise Misuse(f"{target} already exists; name a new {'folder' if folder else 'file'}.")


Block = tuple[list[dict[str, Any]], NDArray[np.float32], NDArray[np.float32]]


def _blocks(collection: Collection, transform: Transform, total: int, progress: Progress) -> Iterator[Block]:
    """Yield blocks of rows. A block has the fields of the passages, their raw vectors and their transformed vectors."""
    store = collection.store
    after, done = (0, -1), 0
    while True:
        keys = store.db.conn.execute(
            'SELECT document, position, start, "end", vector FROM passages JOIN documents ON number = document'
            " WHERE (document, position) > (?, ?) ORDER BY document, position LIMIT ?",
            [*after, ROWS],
        ).fetchall()
        if not keys:
            return
        after = keys[-1][:2]
        documents = store.documents(list({key[0] for key in keys}))
        facts = []
        for document, position, start, end, _ in keys:
            own = documents[document]
            place = {"passage": position, "start": start, "end": end, "text": own["text"][start:end]}
            facts.append({"id": own["id"], "title": own["title"], **place, "metadata": own["metadata"]})
        numbers = sorted({key[4] for key in keys})
        raw = store.vectors(numbers, collection.dimension)[np.searchsorted(numbers, [key[4] for key in keys])]
        yield facts, raw, transform.apply(raw)
        done += len(facts)
        progress("exporting", done, total)


def _write_parquet(target: Path, blocks: Iterator[Block], raw_width: int, width: int) -> None:
    with requires_extra("parquet", "exporting Parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    schema = pa.schema(
        [
            ("id", pa.string()),
            ("title", pa.string()),
            ("passage", pa.int32()),
            ("start", pa.int64()),
            ("end", pa.int64()),
            ("text", pa.string()),
            ("metadata", pa.string()),
            ("raw", pa.list_(pa.float32(), raw_width)),
            ("vector", pa.list_(pa.float32(), width)),
        ]
    )
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for facts, raw, vectors in blocks:
            rows = [fact | {"metadata": json.dumps(fact["metadata"], ensure_ascii=False)} for fact in facts]
            columns = [*pa.Table.from_pylist(rows, schema=pa.schema(list(schema)[:-2])).columns]
            columns.append(pa.FixedSizeListArray.from_arrays(raw.ravel(), raw_width))
            columns.append(pa.FixedSizeListArray.from_arrays(vectors.ravel(), width))
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _write_npy(target: Path, blocks: Iterator[Block], total: int, raw_width: int, width: int) -> list[str]:
    paths = [target / "passages.jsonl", target / "raw.npy", target / "vectors.npy"]
    # The arrays are not mapped into memory: if the disk were full, a signal would end the process.
    with paths[0].open("w", encoding="utf-8") as lines, paths[1].open("wb") as raw_file, paths[2].open("wb") as file:
        for array, columns in ((raw_file, raw_width), (file, width)):
            header = {"descr": "<f4", "fortran_order": False, "shape": (total, columns)}
            np.lib.format.write_array_header_1_0(array, header)
        for facts, raw, vectors in blocks:
            lines.writelines(json.dumps(fact, ensure_ascii=False) + "\n" for fact in facts)
            raw_file.write(raw.astype("<f4").tobytes())
            file.write(vectors.astype("<f4").tobytes())
    return [path.name for path in paths]
