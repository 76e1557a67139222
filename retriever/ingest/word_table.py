"""Learn the word table of a new collection from its first documents, before anything is embedded.

A rebuild learns it again if the documents have changed since. If the BERT is no longer there, the rows of the old table
take the place of its input embeddings. All vectors are made again from the stored texts.
"""

import hashlib
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from indexes.folder.collection import Collection
from indexes.sqlite.documents import DocumentStore
from retriever.corpus.passages import encoded_text, fit_title
from retriever.corpus.source import CHARACTERS_AHEAD, DOCUMENTS_AHEAD, Source
from retriever.encoder.base import AnyEncoder
from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import LEARNED, EncoderIdentity, ModelFiles
from retriever.encoder.static.folder import cached_folder, learn_folder, next_folder, replace_table
from retriever.errors import EncoderUnavailable, Misuse
from retriever.ingest.pipeline import hash_of_text
from retriever.progress import Progress
from retriever.settings import CollectionSettings, EncoderOptions

# The words and their weights are learned from this many times as many documents as other settings are chosen from.
MORE = 5
EMBEDDED_TOGETHER = 4096


def with_word_table(
    settings: CollectionSettings, source: Source, options: EncoderOptions, place: Path | None, progress: Progress
) -> CollectionSettings:
    """Learn a word table and return the settings of a collection that uses it as its encoder.

    `place` is the folder of the table inside the collection. If it is None, the table is kept in the cache folder.
    """
    base = options.model(progress=progress)
    if base.files.static:
        raise Misuse(f"{base.identity.name} is a word table already; leave `pooling` out.")
    texts = [encoded_text(document.title, document.text) for document in source.peek(MORE)]
    with TemporaryDirectory() as temporary:
        folder = place or Path(temporary) / "encoder"
        facts = learn_folder(texts, base, folder, progress=progress)
        made = Encoder(str(folder), max_length=options.max_length).identity
        if place is None:
            shutil.copytree(folder, cached_folder(made), dirs_exist_ok=True)
    return replace(
        settings,
        encoder=replace(made, name=base.identity.name, pooling=LEARNED),
        learning={**facts, "digest": _digest(texts)},
    )


def _digest(texts: Iterable[str]) -> str:
    """Return a hash of the different texts in any order."""
    return hashlib.sha256(b"".join(sorted(set(map(hash_of_text, texts))))).hexdigest()


def learned_again(collection: Collection, old: Encoder, progress: Progress) -> dict[str, Any]:
    """Learn the table of a collection again from its documents, and write it beside the old one.

    Return the settings that change with it. They are empty if the documents have not changed since the table was
    learned.
    """
    store, stored = collection.store, EncoderIdentity.from_json(collection.encoder)
    place = collection.encoder_place(collection.folder)
    replace_table(stored, place)
    texts = list(_first_texts(store))
    digest = _digest(texts)
    if (store.setting("learning") or {}).get("digest") == digest:
        return {}
    base = _base(stored, old, place)
    facts = learn_folder(texts, base, next_folder(place), progress=progress)
    made = Encoder(str(next_folder(place)), max_length=stored.max_length).identity
    encoder = asdict(replace(made, name=stored.name, pooling=LEARNED))
    return {"encoder": encoder, "learning": {**facts, "digest": digest}}


def _base(stored: EncoderIdentity, old: Encoder, place: Path) -> Encoder:
    """Return the BERT that a table was learned from if its folder is still there, else the table."""
    with suppress(EncoderUnavailable):
        wanted = ModelFiles(str(place)).config.get("learned_from", {}).get("weights")
        if Path(stored.name).is_dir() and ModelFiles(stored.name).weights_sha256 == wanted:
            return Encoder(stored.name)
    return old


def embed_again(collection: Collection, old: AnyEncoder, new: AnyEncoder, progress: Progress) -> None:
    """Encode all texts of a collection again, and replace their vectors. Call this in a transaction."""
    store = collection.store
    numbers = store.used_vectors().tolist()
    for start in range(0, len(numbers), EMBEDDED_TOGETHER):
        progress("embedding", start, len(numbers))
        block = numbers[start : start + EMBEDDED_TOGETHER]
        passages = [own[0] for own in map(store.passages_of_vectors(block).__getitem__, block)]
        rows: dict[int, list[int]] = {}
        for row, passage in enumerate(passages):
            rows.setdefault(passage.document, []).append(row)
        texts = [""] * len(passages)
        for number, fields in store.documents_in_turn(list(rows)):
            title = fit_title(fields["title"], old.token_budget, old.count_tokens)
            for row in rows[number]:
                texts[row] = encoded_text(title, fields["text"][passages[row].start : passages[row].end])
        store.replace_vectors(block, new.encode(texts))
    progress("embedding", len(numbers), len(numbers))


def _first_texts(store: DocumentStore) -> Iterator[str]:
    """Yield the texts of the first documents, as many as a table is learned from."""
    characters = 0
    for number, row in enumerate(store.each_document(), 1):
        text = encoded_text(row["title"], row["text"])
        yield text
        characters += len(text)
        if number >= MORE * DOCUMENTS_AHEAD or characters >= MORE * CHARACTERS_AHEAD:
            return
