"""A corpus of more than 200 real files of all formats: what installed packages ship, and files made with the libraries.

`python tests/support/real_files.py FOLDER` writes it. Ten files hold a fact that is in no other.
"""

import itertools
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import files_made_up as made

FROM_PACKAGES = ("md", "rst", "txt", "html", "htm", "json", "ipynb", "csv", "tsv", "pdf", "docx", "pptx", "epub", "eml")
EACH = 40
LARGEST = 4_000

FACTS = {
    "html": ("Which animal guards the lighthouse of Skagen?", "The lighthouse of Skagen is guarded by a grey heron."),
    "pdf": ("How much does the bell of Voloda weigh?", "The bell of Voloda weighs eleven tonnes."),
    "docx": ("When does the ferry to Ustrand leave?", "The ferry to Ustrand leaves at a quarter past six."),
    "pptx": ("What did the turbine at Querfeld cost?", "The turbine at Querfeld cost four million crowns."),
    "epub": ("Who repaired the clock of Melnar?", "The clock of Melnar was repaired by a blind watchmaker."),
    "rst": ("What is the widget of Zorblax made of?", "The widget of Zorblax is made of hardened amber."),
    "ipynb": ("Which colour is the moss of Karelin?", "The moss of Karelin is a deep violet."),
    "eml": ("Where is the key of the Harwick archive?", "The key of the Harwick archive lies under the third stair."),
    "csv": ("How old is the oak of Brennholt?", "The oak of Brennholt is nine hundred years old."),
    "md": ("What does the inspector of Tavira drink?", "The inspector of Tavira drinks only cold rooibos."),
}
"""For each format a question and its answer."""


def make(folder: Path) -> dict[str, str]:
    """Write the corpus. Return the id of the document that answers each question."""
    packages = folder / "packages"
    packages.mkdir(parents=True)
    for ending in FROM_PACKAGES:
        for number, path in enumerate(itertools.islice(_shipped(ending), EACH)):
            (packages / f"{number:02}-{path.name}").write_bytes(path.read_bytes())
    answers = {}
    for ending, (question, answer) in FACTS.items():
        content = made.every_format(answer)[ending]
        (folder / f"fact.{ending}").write_bytes(content)
        answers[question] = "1" if ending == "csv" else f"fact.{ending}"
    for ending, content in made.every_format("This is an ordinary sentence about nothing in particular.").items():
        (folder / f"other.{ending}").write_bytes(content.replace(b'"id": "1"', b'"id": "2"').replace(b"\n1", b"\n2"))
    return answers


def _shipped(ending: str) -> Iterator[Path]:
    """The smaller files with this ending in the installed packages, in a fixed order."""
    site = Path(sysconfig.get_paths()["purelib"])
    roots = sorted({Path(entry) for entry in sys.path if Path(entry).name == "site-packages"} | {site})
    for root in roots:
        for path in sorted(root.rglob(f"*.{ending}")):
            if path.is_file() and 0 < path.stat().st_size <= LARGEST:
                yield path


if __name__ == "__main__":
    for question, id_ in make(Path(sys.argv[1])).items():
        print(f"{id_}\t{question}")
