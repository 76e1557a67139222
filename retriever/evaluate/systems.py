"""What a retrieval benchmark compares: encoders in their poolings, and the ways to answer queries with each.

A system is a transform, as `--transform` names it, or one of two that are none: `bm25`, the words alone, which needs no
encoder and is asked once a corpus, and `hybrid`, the words together with the vectors through `auto`.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import indexes
import retriever
from retriever.encoder.model_files import DEFAULT_ENCODER, EncoderIdentity, ModelFiles
from retriever.evaluate.fitting import canonical, files_digest
from retriever.evaluate.models.encoders import labels_of
from retriever.evaluate.results import RAW, Configuration
from retriever.hits import Mode
from retriever.transforms.spec import AUTO

FIT = "documents"
BM25, HYBRID = "bm25", "hybrid"
DEFAULT_SYSTEMS = (RAW, "center", "whiten", "bert-flow", "flow", AUTO, HYBRID, BM25)
# What shows results or keeps house decides no ranking; all other code of the two packages does.
NO_MATTER = (
    *("demo.py", "display.py", "drift.py", "export.py", "progress.py", "prompt.py", "repair.py", "repairing.py"),
    "terminal.py",
)
OWN = (
    "retrieval.py",
    "report/trec.py",
    "measures/effectiveness.py",
    "measures/intervals.py",
    "data/beir.py",
    "rankings.py",
    "systems.py",
)
EMBEDDING = ("encoder/encoder.py", "encoder/model_loader.py", "ingest/pipeline.py", "corpus/passages.py")
CHOOSING_POOLING = ("transforms/choice.py", "transforms/bm25.py", "ingest/pooling_choice.py", "corpus/short_texts.py")


@dataclass(frozen=True)
class Model:
    """An encoder in one pooling, or in that which the text of each corpus chooses (`auto`)."""

    name: str
    label: str
    pooling: str
    identity: EncoderIdentity

    @cached_property
    def key(self) -> str:
        """Changes whenever the vectors of a collection would."""
        parts = {name: value for name, value in self.identity.to_json().items() if name != "name"}
        parts["pooling"] = self.pooling
        files = (*EMBEDDING, *(CHOOSING_POOLING if self.pooling == AUTO else ()))
        folder = Path(retriever.__file__).parent
        parts["code"] = files_digest(folder / name for name in files)
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class System:
    """A way to answer queries: what its rows are called, the transform it needs and the mode of search."""

    configuration: Configuration
    transform: str | None
    mode: Mode


def systems_of(specs: Sequence[str]) -> list[str]:
    """What is asked for as rows name it, each once; raw always, because all others are compared with it."""
    named = [spec if spec in (BM25, HYBRID) else canonical(spec) for spec in specs or DEFAULT_SYSTEMS]
    return list(dict.fromkeys([RAW, *named]))


def open_models(names: Sequence[str], poolings: Sequence[str], max_length: int | None = None) -> list[Model]:
    """Every encoder in every pooling; without poolings, each in its own. Nothing is loaded yet."""
    names = list(dict.fromkeys(names or (DEFAULT_ENCODER,)))
    labels = labels_of(names)
    models = []
    for name in names:
        files = ModelFiles(name)
        for pooling in dict.fromkeys(poolings) or (None,):
            identity = files.identity(None if pooling == AUTO else pooling, max_length)
            models.append(Model(name, labels[name], pooling or identity.pooling, identity))
    return models


def systems_for(model: Model, specs: Sequence[str], *, with_bm25: bool) -> list[System]:
    """The systems that one model's collection answers."""
    systems = []
    for spec in specs:
        line = Configuration(model.label, model.pooling, spec, FIT)
        if spec == HYBRID:
            systems.append(System(line, AUTO, "hybrid"))
        elif spec != BM25:
            systems.append(System(line, spec, "dense"))
        elif with_bm25:
            systems.append(System(Configuration(BM25, "", "", FIT), None, "lexical"))
    return systems


@cache
def code_digest() -> str:
    """SHA-256 of the code that decides what is found."""
    folders = [Path(package.__file__ or "").parent for package in (retriever, indexes)]
    files = [path for folder in folders for path in sorted(folder.rglob("*.py")) if path.name not in NO_MATTER]
    return files_digest([*files, *(Path(__file__).parent / name for name in OWN)])
