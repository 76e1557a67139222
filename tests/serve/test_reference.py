"""The reference of the API at /docs: complete, without a script, and within the content security policy."""

import re
import shlex
import subprocess
from html.parser import HTMLParser
from pathlib import Path

from serving import Running, running


class Page(HTMLParser):
    """What a page links to, loads and runs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.tags: set[str] = set()
        self.styled = False
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.add(tag)
        self.styled |= "style" in given
        self.ids += [given["id"] or ""] if "id" in given else []
        if href := given.get("href"):
            (self.loaded if tag == "link" else self.links).append(href)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_every_route_and_schema_is_there(server: Running) -> None:
    assert server.client.head("/docs").status_code == 200
    response = server.get("/docs")
    assert response.headers["content-type"].startswith("text/html")
    page, document = Page(response.text), server.get("/openapi.json").json()
    routes = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    listed = {" ".join(found) for found in re.findall(r"(GET|POST|DELETE)\s+(/\S*)", page.text)}
    assert routes <= listed
    assert set(document["components"]["schemas"]) <= set(page.ids)
    inside = [link[1:] for link in page.links if link.startswith("#")]
    assert len(page.ids) == len(set(page.ids)) and set(inside) <= set(page.ids)
    for link in (*page.loaded, *(link for link in page.links if not link.startswith("#"))):
        assert server.get(f"/{link.removeprefix('./')}").status_code == 200, link


def test_it_runs_no_script_and_loads_only_from_the_server(server: Running) -> None:
    response = server.get("/docs")
    page = Page(response.text)
    assert "script" not in page.tags and "style" not in page.tags and not page.styled
    assert page.loaded == ["reference.css"]
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert not re.search(r"url\(|@import", server.get("/reference.css").text)


def test_its_examples_run(server: Running) -> None:
    """The examples are real commands: curl gets an answer from each."""
    found = re.findall(r"curl -s .*", Page(server.get("/docs").text).text)
    assert len(found) > 10
    for command in found:
        command = (
            command.replace('"ID"', '"cat"')
            .replace("/ID", "/cat")
            .replace("COLLECTION", "pets")
            .replace("=FIELD", "=lang")
        )
        if "/map" in command or "DELETE" in command or "TEXT" in command:
            continue
        done = subprocess.run(
            [*shlex.split(command), "-w", "%{http_code}", "-o", "/dev/null"], capture_output=True, text=True
        )
        assert done.stdout in ("200", "202"), (command, done.stdout, done.stderr)


def test_the_examples_send_a_token_where_one_is_needed(made_collection: Path) -> None:
    with running([made_collection], token="secret") as server:
        text = Page(server.get("/docs").text).text
        assert "Authorization: Bearer TOKEN" in text and "secret" not in text
