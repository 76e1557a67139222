"""Anything a user can do, in any order, beside a model that is a Python dict and a matrix product.

After every step the two agree on contents, counts, filters and the exact ranking with its scores. The same machine
drives a folder, Milvus Lite and a server over HTTP. In a folder, other processes are killed meanwhile.
"""

import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from crashes import Zygote
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from machine_places import InFolder, InMilvus, OverHttp

from indexes.rows import VECTOR_TYPE
from retriever.corpus.passages import encoded_text

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")

IDS = st.sampled_from([f"d{number}" for number in range(12)])
WORDS = st.sampled_from("river mountain child plays eats paints red old young song book garden house road".split())
DOCUMENTS = st.fixed_dictionaries(
    {
        "id": IDS,
        "title": st.sampled_from(["", "Hills", "Water"]),
        "text": st.lists(WORDS, min_size=1, max_size=6).map(" ".join),
        "n": st.integers(0, 3),
    }
)
TRANSFORMS = st.sampled_from(["none", "center", "whiten", "standardize"])
TYPES = st.sampled_from(["flat", "sq8"])


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Iterator[Zygote]:
    made = Zygote(tmp_path_factory.mktemp("machine"), tiny_bert)
    yield made
    made.close()


class Machine(RuleBasedStateMachine):
    """A collection in a place, and what it should hold."""

    encoder: str
    kind: type[InFolder]

    def __init__(self) -> None:
        super().__init__()
        self.place = self.kind()
        self.model: dict[str, tuple[str, str, dict[str, Any]]] = {}

    @initialize(documents=st.lists(DOCUMENTS, min_size=3, max_size=8), transform=TRANSFORMS, index_type=TYPES)
    def build(self, documents: list[dict[str, Any]], transform: str, index_type: str) -> None:
        self.place.build(documents, transform=transform, index_type=index_type, encoder=self.encoder)
        self._note(documents)

    def _note(self, documents: list[dict[str, Any]]) -> None:
        self.model |= {one["id"]: (one["title"], one["text"], {"n": one["n"]}) for one in documents}

    @rule(documents=st.lists(DOCUMENTS, min_size=1, max_size=4))
    def add(self, documents: list[dict[str, Any]]) -> None:
        self.place.add(documents)
        self._note(documents)

    @rule(ids=st.lists(IDS, min_size=1, max_size=3))
    def delete(self, ids: list[str]) -> None:
        assert sorted(self.place.delete(ids)) == sorted(set(ids) & set(self.model))
        for id_ in ids:
            self.model.pop(id_, None)

    @precondition(lambda self: self.model)
    @rule(transform=TRANSFORMS, index_type=TYPES)
    def rebuild(self, transform: str, index_type: str) -> None:
        self.place.rebuild(transform, index_type)

    @rule()
    def reopen(self) -> None:
        self.place.reopen()

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self.place, "retriever"):
            return
        assert self.place.contents() == self.model
        assert self.place.counts() == {len(self.model)}
        assert self.place.problems() == []
        if self.model:
            self._same_ranking()

    def _same_ranking(self) -> None:
        rng = random.Random(len(self.model))
        title, text, _ = self.model[rng.choice(sorted(self.model))]
        least = rng.randrange(3)
        for query, where in ((encoded_text(title, text), []), (text, [f"n >= {least}"])):
            chosen = {i: d for i, d in self.model.items() if not where or d[2]["n"] >= least}
            expected = self._scores(query, chosen)
            if not expected and where and not any("n" in d[2] for d in self.model.values()):
                continue
            for k in (3, 50):
                hits = self.place.search(query, k, where)
                assert len(hits) == min(k, len(expected))
                best = sorted(expected.values(), reverse=True)[: len(hits)]
                assert np.allclose([score for _, score in hits], best, atol=2e-5)
                assert all(abs(expected[id_] - score) < 2e-5 for id_, score in hits)

    def _scores(self, query: str, documents: dict[str, tuple[str, str, dict[str, Any]]]) -> dict[str, float]:
        """The cosine of the query with every document, as the definition has it."""
        if not documents:
            return {}
        encode, apply = self.place.retriever.encoder().encode, self.place.retriever._searcher.transform().apply
        stored = encode([encoded_text(title, text) for title, text, _ in documents.values()])
        rows = apply(np.concatenate([encode([query]), stored.astype(VECTOR_TYPE).astype(np.float32)]))
        rows = rows.astype(np.float64)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        rows /= np.where(norms > 0, norms, 1)
        return dict(zip(documents, (rows[1:] @ rows[0]).tolist(), strict=True))

    def teardown(self) -> None:
        self.place.close()


class MachineWithKills(Machine):
    """The machine of a folder, in which other processes work too."""

    zygote: Zygote

    @rule(
        documents=st.lists(DOCUMENTS, max_size=4, unique_by=lambda one: one["id"]),
        ids=st.lists(IDS, max_size=3),
        again=st.booleans(),
        moment=st.integers(0, 60),
    )
    def kill(self, documents: list[dict[str, Any]], ids: list[str], again: bool, moment: int) -> None:
        """Another process adds, deletes and rebuilds, and is killed; this one has the collection open all the while."""
        deleted = [id_ for id_ in ids if id_ not in {one["id"] for one in documents}]
        work = {"folder": self.place.address, "documents": documents, "deleted": deleted, "rebuild": again}
        pid = self.zygote.begin("change", **work)
        self.zygote.let_go()
        time.sleep(moment / 1000)
        with contextlib.suppress(ProcessLookupError):  # it has come to its end
            os.kill(pid, signal.SIGKILL)
        answer = self.zygote.ended()
        assert answer["status"] in (0, -signal.SIGKILL) and "raised" not in (answer["result"] or {}), answer
        before = dict(self.model)
        self._note(documents)
        for id_ in deleted:
            self.model.pop(id_, None)
        found = self.place.contents()
        for id_ in {*before, *self.model, *found}:
            assert found.get(id_) in (before.get(id_), self.model.get(id_)), f"{id_} is {found.get(id_)}"
        self.model = found


def _run(machine: type[Machine], runs: int) -> None:
    runs *= int(os.environ.get("RETRIEVER_TORTURE", "1"))
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=runs, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


RUNS = [pytest.param(6, id="quick"), pytest.param(12, id="long", marks=pytest.mark.slow)]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("runs", RUNS)
def test_anything_in_any_order(zygote: Zygote, runs: int) -> None:
    MachineWithKills.zygote, MachineWithKills.encoder, MachineWithKills.kind = zygote, zygote.encoder, InFolder
    _run(MachineWithKills, runs)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("runs", [pytest.param(1, id="quick"), pytest.param(12, id="long", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [InMilvus, OverHttp])
def test_the_same_in_another_place(tiny_bert: str, kind: type[InFolder], runs: int) -> None:
    if kind is InMilvus:
        pytest.importorskip("milvus_lite", reason="needs the extra milvus")
    Machine.encoder, Machine.kind = tiny_bert, kind
    _run(Machine, runs)
