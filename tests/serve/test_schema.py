"""The OpenAPI document, held against the server by schemathesis: no server error, and nothing that it does not say."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Running, running

# Whether a filter can be understood, or a text is more than space, no schema can say: 422 may also follow what the
# schema allows. Too many queries may be refused for their bytes before they are counted, and a long address by 431.
CONFIG = """
[checks]
positive_data_acceptance.expected-statuses = ["2xx", "404", "422"]
negative_data_rejection.expected-statuses = ["400", "404", "405", "413", "415", "422", "431"]
"""


@pytest.fixture(scope="module")
def writable(made_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = Path(shutil.copytree(made_collection, tmp_path_factory.mktemp("schema") / "pets"))
    with running([folder], writable=True) as found:
        yield found


def hold_against(server: Running, examples: int, folder: Path) -> None:
    config = folder / "schemathesis.toml"
    config.write_text(CONFIG)
    tool = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config)]
    options = ["--max-examples", str(examples), "--seed", "1", "--no-color"]
    command = [*tool, "run", f"{server.url}openapi.json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, "\n".join(line[:300] for line in done.stdout.splitlines()) + done.stderr
    assert server.search("still there")["hits"] is not None


def test_a_few_of_each(writable: Running, tmp_path: Path) -> None:
    hold_against(writable, 5, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("examples", [60, pytest.param(200, marks=pytest.mark.torture)])
def test_many_of_each(writable: Running, tmp_path: Path, examples: int) -> None:
    hold_against(writable, examples, tmp_path)


def test_every_status_is_described(server: Running) -> None:
    document = server.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert "200" in operation["responses"], (method, path)
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    assert list(response["content"]) == ["application/problem+json"], (method, path, status)
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_scores_are_described(server: Running) -> None:
    schemas = server.get("/openapi.json").json()["components"]["schemas"]
    asked = schemas["SearchRequest"]["properties"]
    assert asked["mode"]["default"] == "hybrid"
    assert {(one.get("minimum"), one.get("maximum")) for one in asked["min_score"]["anyOf"]} == {(0, 100), (None, None)}
    assert "0 to 100" in schemas["Hit"]["properties"]["relevance"]["description"]
    assert "weight of meaning" in schemas["Explanation"]["properties"]["weight"]["description"]
