"""The card over HTTP: as JSON, as a page, and as a part of one."""

import base64
import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from markup import Parsed
from serving import DOCUMENTS, Running, running

from retriever import Retriever


def test_the_card_as_json(server: Running, made_collection: Path) -> None:
    answer = server.get("/v1/card")
    assert answer.status_code == 200
    with Retriever.open(made_collection) as retriever:
        expected = retriever.card().to_json()
    found = answer.json()
    for one in (found, expected):
        one.pop("made"), one["info"].pop("bytes")
    assert found == expected
    assert server.get("/v1/card", params={"collection": "others"}).json()["name"] == "others"
    assert server.get("/v1/card", params={"collection": "nowhere"}).status_code == 404


def test_the_card_as_a_part_of_the_page(server: Running) -> None:
    answer = server.get("/v1/card.html", params={"part": "true"})
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.text.startswith('<article class="card"') and answer.text.endswith("</article>")
    parsed = Parsed(answer.text)
    parsed.refuse_what_acts()
    assert "<img src=x onerror=alert(1)>" in parsed.text
    assert "style-src 'self'" in answer.headers["content-security-policy"]
    css = server.get("/card.css").text
    for name in set(re.findall(r"card-[a-z]+", " ".join(a.get("class") or "" for _, a in parsed.elements))):
        assert f".{name}" in css or name in ("card-name", "card-plot"), name


def test_the_card_as_a_page_of_its_own(server: Running) -> None:
    answer = server.get("/v1/card.html")
    Parsed(answer.text).refuse_what_acts()
    style = answer.text.partition("<style>")[2].partition("</style>")[0]
    allowed = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = answer.headers["content-security-policy"]
    assert f"style-src 'sha256-{allowed}'" in policy and "default-src 'none'" in policy and "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert server.get("/v1/card.html", params={"part": "perhaps"}).status_code == 422


def test_it_changes_with_the_collection(fresh: Callable[[str], Path]) -> None:
    with running([fresh("pets")], writable=True) as server:
        before = server.get("/v1/card").json()
        assert server.get("/v1/card").json() == before
        server.post("/v1/documents", {"documents": [{"id": "hamster", "text": "Hamsters run in wheels."}]})
        assert server.get("/v1/card").json()["info"]["documents"] == len(DOCUMENTS) + 1
