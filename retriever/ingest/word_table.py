"""Learn the word table of a new collection from its first documents, before anything is embedded."""

import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from retriever.corpus.passages import encoded_text
from retriever.corpus.source import Source
from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import LEARNED
from retriever.encoder.static.folder import cached_folder, learn_folder
from retriever.errors import Misuse
from retriever.progress import Progress
from retriever.settings import CollectionSettings, EncoderOptions

# The words and their weights are learned from this many times as many documents as other settings are chosen from.
MORE = 5


def with_word_table(
    settings: CollectionSettings, source: Source, options: EncoderOptions, place: Path | None, progress: Progress
) -> CollectionSettings:
    """Learn a word table and return the settings of a collection that uses it as its encoder.

    `place` is the folder of the table inside the collection. If it is None, the table is kept in the cache folder.
    """
    base = options.encoder(progress=progress)
    if base.files.static:
        raise Misuse(f"{base.identity.name} is a word table already; leave `pooling` out.")
    texts = [encoded_text(document.title, document.text) for document in source.peek(MORE)]
    with TemporaryDirectory() as temporary:
        folder = place or Path(temporary) / "encoder"
        facts = learn_folder(texts, base, folder, progress=progress)
        made = Encoder(str(folder), max_length=options.max_length).identity
        if place is None:
            shutil.copytree(folder, cached_folder(made), dirs_exist_ok=True)
    return replace(settings, encoder=replace(made, name=base.identity.name, pooling=LEARNED), learning=facts)
