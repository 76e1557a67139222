"""Who may ask, and what browsers may do: token, names, other sites' pages, headers, CORS."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Running, running

from retriever.serve.middleware import HEADERS
from retriever.serve.settings import is_loopback

TOKEN = "a secret, ünguessable"
SITE = "https://search.example"


@pytest.fixture(scope="module")
def guarded(made_collection: Path) -> Iterator[Running]:
    with running([made_collection], token=TOKEN, origins=(SITE,)) as found:
        yield found


def bearer(token: str) -> dict[str, bytes]:
    return {"Authorization": f"Bearer {token}".encode()}


@pytest.mark.parametrize("path", ["/v1/collections", "/v1/fields", "/v1/documents/cat", "/metrics", "/v1/none"])
def test_token_is_needed(guarded: Running, path: str) -> None:
    assert guarded.get(path).status_code == 401
    assert guarded.get(path).headers["www-authenticate"] == "Bearer"
    for wrong in ("x", TOKEN[:-1], TOKEN + "x"):
        assert guarded.get(path, headers=bearer(wrong)).status_code == 401
    assert guarded.get(path, headers={"Authorization": f"Basic {TOKEN}".encode()}).status_code == 401
    assert guarded.get(path, headers=bearer(TOKEN)).status_code == (404 if path == "/v1/none" else 200)


def test_search_needs_the_token_before_the_body_is_looked_at(guarded: Running) -> None:
    assert guarded.post("/v1/search", {}).status_code == 401
    assert guarded.post("/v1/search", {"query": "cats"}, headers=bearer(TOKEN)).status_code == 200


def test_health_ready_and_openapi_are_open(guarded: Running) -> None:
    assert {guarded.get(path).status_code for path in ("/health", "/ready", "/openapi.json")} == {200}


@pytest.mark.parametrize("path", ["/v1/collections", "/health", "/v1/documents/none", "/nowhere", "/v1/search"])
def test_headers_are_on_every_answer(server: Running, path: str) -> None:
    response = server.get(path)
    for name, value in HEADERS.items():
        assert response.headers[name] == value
    assert "server" not in response.headers


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:99", "127.0.0.1:8080", "[::1]:1", "127.8.8.8"])
def test_names_of_this_machine(server: Running, host: str) -> None:
    assert server.get("/v1/collections", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "", "[", "10.0.0.1", "@localhost@x"]
)
def test_other_names_are_refused(server: Running, host: str) -> None:
    for path in ("/v1/collections", "/health", "/"):
        assert server.get(path, headers={"Host": host}).status_code == 400


def test_pages_of_other_sites_cannot_ask(server: Running) -> None:
    body = {"query": "cats"}
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        assert server.post("/v1/search", body, headers=headers).status_code == 403, headers
        for path in ("/v1/collections", "/v1/documents/cat"):
            assert server.get(path, headers=headers).status_code == 403, headers
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert server.get("/v1/documents/cat", headers=link).status_code == 200
    own = {"Origin": server.url.rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    assert server.post("/v1/search", body, headers=own).status_code == 200


def test_no_cors_unless_asked(server: Running) -> None:
    response = server.get("/v1/collections", headers={"Origin": SITE})
    assert "access-control-allow-origin" not in response.headers
    preflight = {"Origin": SITE, "Access-Control-Request-Method": "POST"}
    assert server.client.options("/v1/search", headers=preflight).status_code == 405


def test_cors_for_the_site_that_was_named(guarded: Running) -> None:
    preflight = {
        "Origin": SITE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type",
    }
    allowed = guarded.client.options("/v1/search", headers=preflight)
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, SITE)
    refused = guarded.client.options("/v1/search", headers={**preflight, "Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in refused.headers
    asked = guarded.post("/v1/search", {"query": "cats"}, headers={**bearer(TOKEN), "Origin": SITE})
    assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (200, SITE)
    told_why = guarded.post("/v1/search", {"query": "cats"}, headers={"Origin": SITE})
    assert (told_why.status_code, told_why.headers["access-control-allow-origin"]) == (401, SITE)


def test_loopback() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "[::1]"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "192.168.1.1", "example.org", "127.0.0.1.nip.io"))
