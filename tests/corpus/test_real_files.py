"""A folder of real files of all formats: every file is read or named, and what each says is found."""

from pathlib import Path

import pytest
import real_files

from retriever import Corpus, Retriever
from retriever.corpus.formats import ENDINGS


@pytest.mark.slow
def test_every_file_is_read_or_named_and_ten_facts_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    answers = real_files.make(folder)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) >= 200 and {path.suffix[1:] for path in files} >= set(ENDINGS)
    corpus = Corpus([folder])
    with Retriever.build(corpus, tmp_path / "c", transform="none") as retriever:
        account = retriever.report.files
        assert account is not None
        named = sum(entry.count for entry in account.unread.values())
        assert sum(account.read.values()) + named == len(files)
        found = {question: retriever.search(question, 1)[0].id for question in answers}
    assert found == answers
