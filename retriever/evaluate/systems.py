"""The systems of a retrieval benchmark: encoders with their poolings, and the ways to answer queries.

A system is a transform, `bm25` or `hybrid`. `bm25` needs no encoder and is measured once for each corpus. `hybrid`
combines BM25 with the vectors transformed by `auto`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from retriever.encoder.model_files import DEFAULT_ENCODER, LEARNED, EncoderIdentity, ModelFiles
from retriever.encoder.prompts import Prompts
from retriever.evaluate.fitting import canonical, code_digest
from retriever.evaluate.models.encoders import identity_digest, labels_of
from retriever.evaluate.results import RAW, Configuration
from retriever.hits import Mode
from retriever.transforms.spec import AUTO

FIT = "documents"
BM25, HYBRID = "bm25", "hybrid"
DEFAULT_SYSTEMS = (RAW, "center", "whiten", "bert-flow", "flow", AUTO, HYBRID, BM25)
EMBEDDING_CODE = ("retriever.corpus", "retriever.encoder", "retriever.ingest")
POOLING_CHOICE_CODE = ("retriever.transforms",)


@dataclass(frozen=True)
class Model:
    """An encoder with a pooling, which may be `auto`."""

    name: str
    label: str
    pooling: str
    identity: EncoderIdentity

    @property
    def dimension(self) -> int:
        return self.identity.dimension

    @property
    def prompts(self) -> Prompts:
        """The prompts that a collection is indexed with. A learned table has none."""
        return (
            Prompts() if self.pooling == LEARNED else Prompts(self.identity.query_prompt, self.identity.document_prompt)
        )

    @cached_property
    def key(self) -> str:
        """Return a digest that changes whenever the vectors of a collection would change."""
        code = (*EMBEDDING_CODE, *(POOLING_CHOICE_CODE if self.pooling == AUTO else ()))
        return identity_digest(self.identity, {"pooling": self.pooling, "code": code_digest(*code)})


@dataclass(frozen=True)
class System:
    """A way to answer queries: the configuration of its rows, the transform it needs and the search mode."""

    configuration: Configuration
    transform: str | None
    mode: Mode


def systems_of(specs: Sequence[str]) -> list[str]:
    """Return the specs as result rows store them, without duplicates.

    Raw vectors are always included as the baseline.
    """
    named = [spec if spec in (BM25, HYBRID) else canonical(spec) for spec in specs or DEFAULT_SYSTEMS]
    return list(dict.fromkeys([RAW, *named]))


def open_models(
    names: Sequence[str],
    poolings: Sequence[str],
    max_length: int | None = None,
    *,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
) -> list[Model]:
    """Return every encoder with every pooling, or with its own pooling if none is given. Weights are loaded later."""
    models = []
    for name, label in labels_of(names or (DEFAULT_ENCODER,)).items():
        files = ModelFiles(name)
        for pooling in dict.fromkeys(poolings) or (None,):
            fixed = None if pooling in (AUTO, LEARNED) else pooling
            identity = files.identity(fixed, max_length, query_prompt=query_prompt, document_prompt=document_prompt)
            models.append(Model(name, label, pooling or identity.pooling, identity))
    return models


def systems_for(model: Model, specs: Sequence[str], *, with_bm25: bool) -> list[System]:
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
