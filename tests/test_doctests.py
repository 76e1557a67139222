"""The examples in the docstrings of all public names run as they stand, each on a collection of its own."""

import asyncio
import doctest
import inspect
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import retriever
from retriever import AsyncRetriever, Retriever

PETS = [
    {"id": "cat", "text": "Cats purr and hunt mice.", "legs": 4},
    {"id": "dog", "text": "Dogs bark at strangers.", "legs": 4},
    {"id": "bird", "text": "Parrots learn to speak.", "legs": 2},
]


def public_methods() -> list[str]:
    return [name for name in vars(Retriever) if not name.startswith("_")]


def examples(name: str) -> list[doctest.DocTest]:
    owner: Any = Retriever if name in vars(Retriever) else retriever
    finder = doctest.DocTestFinder(recurse=False)
    found = getattr(owner, name)
    return [test for test in finder.find(getattr(found, "fget", found), name, module=False) if test.examples]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doctests") / "pets"
    Retriever.build(PETS, folder).close()
    return folder


@pytest.fixture
def pets(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Retriever]:
    shutil.copytree(built, tmp_path / "collections" / "pets")
    monkeypatch.chdir(tmp_path)
    with Retriever.open("collections/pets") as opened:
        yield opened


@pytest.mark.heavy
@pytest.mark.parametrize("name", [*retriever.__all__, *public_methods()])
def test_the_example_of_a_public_name_runs(name: str, pets: Retriever) -> None:
    found = examples(name)
    assert found, f"{name} has no example"
    known = {name: getattr(retriever, name) for name in retriever.__all__} | {"asyncio": asyncio, "pets": pets}
    for test in found:
        test.globs = dict(known)
        told: list[str] = []
        result = doctest.DocTestRunner(verbose=False).run(test, out=told.append)
        assert not result.failed, "".join(told)


def test_every_public_method_says_what_it_is_for() -> None:
    for owner in (Retriever, AsyncRetriever):
        for name, member in inspect.getmembers(owner):
            if not name.startswith("_"):
                assert inspect.getdoc(member), f"{owner.__name__}.{name}"


def test_the_methods_of_both_retrievers_are_the_same() -> None:
    own = {name for name in vars(Retriever) if not name.startswith("_")} - {"local", "report"}
    assert own <= {*vars(AsyncRetriever)}
    for name in own - {"notes"}:
        given = inspect.signature(inspect.unwrap(getattr(Retriever, name)))
        wrapped = inspect.signature(inspect.unwrap(getattr(AsyncRetriever, name)))
        assert list(wrapped.parameters)[-1:] == list(given.parameters)[-1:], name
