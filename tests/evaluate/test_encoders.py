"""The labels of encoders in benchmarks."""

import shutil
from pathlib import Path

from retriever.evaluate.models.encoders import open_encoders


def test_a_folder_goes_by_its_last_part_unless_two_would_clash(tiny_bert: str, tmp_path: Path) -> None:
    assert [encoder.label for encoder in open_encoders([tiny_bert])] == [Path(tiny_bert).name]
    copy = str(shutil.copytree(tiny_bert, tmp_path / Path(tiny_bert).name))
    assert [encoder.label for encoder in open_encoders([tiny_bert, copy])] == [tiny_bert, copy]
