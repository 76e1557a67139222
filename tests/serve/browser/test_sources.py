"""From a hit to its source: the place in the document, its web page, and Markdown that is shown and never run."""

from collections.abc import Iterator

import pytest
from browsing import expect
from site_served import Server

from retriever import Corpus, Retriever
from retriever.corpus import Document

FILLER = "\n\n".join(f"Chapter {n} says that the lamp was lit at dusk and put out at dawn." for n in range(40))
NOTES = f"""# Notes of the lighthouse

{FILLER}

## Storms

The **storm** broke `lamp.glass` and the [log](https://example.org/log) was lost. A wave threw the boat over the wall.
Nobody *was* hurt.

- The anchor held, 5 * 3 * 2 metres of chain.
- A [bad link](javascript:alert(1)) and an ![image](https://evil.example/x.png).

<img src=x onerror="window.stolen = 1"><script>window.stolen = 2</script>

| who | what |
|---|---|
| keeper | <b>slept</b> |

```sh
rm -rf <lamp> && echo "**not bold**"
```
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("sources")
    (root / "in").mkdir()
    (root / "in" / "notes.md").write_text(NOTES, encoding="utf-8")
    Retriever.build(Corpus([root / "in"]), root / "notes", transform="none", precision="fp32").close()
    web = [
        Document("w1", "Foxes are clever and live in dens.", "Foxes", {"url": "https://example.org/foxes"}, ""),
        Document("w2", "Wolves run in packs.", "Wolves", {"url": "javascript:alert(1)"}, ""),
    ]
    Retriever.build(web, root / "web", transform="none", precision="fp32").close()
    server = Server([root / "notes", root / "web"])
    server.start()
    yield server
    server.stop()


def test_a_hit_leads_to_its_line(open_page, sources: Server) -> None:
    page = open_page("?q=a+wave+and+the+boat&k=5", at=sources.address)
    line = NOTES[: NOTES.index("## Storms")].count("\n") + 1
    place = page.locator(".hit .place").first
    expect(place).to_have_text(f"notes.md:{line}, Notes of the lighthouse › Storms")
    place.click()
    expect(page.locator("#document .place")).to_contain_text(f"notes.md:{line}")
    expect(page.locator("#document .text mark", has_text="A wave threw the boat")).to_be_in_viewport()
    page.reload()  # the address names the place
    expect(page.locator("#document .text mark", has_text="A wave threw the boat")).to_be_in_viewport()
    expect(page.locator("#document .place")).to_contain_text(f"notes.md:{line}")


def test_more_keeps_the_mark_and_shows_markdown(open_page, sources: Server) -> None:
    page = open_page("?q=a+wave+threw+the+boat+over+the+wall&k=5", at=sources.address)
    hit = page.locator(".hit", has_text="Storms").first
    expect(hit.locator("mark").first).to_be_visible()
    if hit.locator(".fold").is_visible():
        hit.locator(".fold").click()
    assert "A wave threw the boat over the wall." in " ".join(hit.locator("mark").all_inner_texts())
    expect(hit.locator(".passage strong")).to_have_text("storm")
    expect(hit.locator(".passage em")).to_have_text("was")
    expect(hit.locator(".passage li")).to_have_count(2)
    expect(hit.locator(".passage li").first).to_have_text("The anchor held, 5 * 3 * 2 metres of chain.")
    expect(hit.locator(".passage td").last).to_have_text("<b>slept</b>")
    expect(hit.locator(".passage pre")).to_contain_text('rm -rf <lamp> && echo "**not bold**"')
    links = hit.locator(".passage a")
    assert [link.get_attribute("href") for link in links.all()] == ["https://example.org/log"]
    assert links.first.get_attribute("rel") == "noopener noreferrer nofollow"
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("window.stolen") is None


def test_a_web_page_is_linked(open_page, sources: Server) -> None:
    page = open_page("?q=clever+foxes&collection=web", at=sources.address)
    fox = page.locator(".hit", has_text="Foxes are clever")
    expect(fox.locator("a:has(.source)")).to_have_attribute("href", "https://example.org/foxes")
    expect(page.locator(".hit", has_text="Wolves run").locator("a[target]")).to_have_count(0)
    fox.locator("a.open").click()
    expect(page.locator("#document .actions a", has_text="Open the source")).to_have_attribute(
        "href", "https://example.org/foxes"
    )


HARD = {
    "brackets": "[" * 60_000,
    "stars": "**a " * 30_000,
    "ticks": "`" + "`` " * 30_000,
    "pipes": "|" + "-|" * 40_000 + "x",
    "hashes": "# " * 50_000,
    "quotes": "> " * 40_000 + "end",
    "items": "- " * 40_000 + "end",
    "lines": "* a\n  * b\n" * 5_000,
}


@pytest.mark.parametrize("kind", HARD)
def test_markdown_takes_linear_time(open_page, sources: Server, kind: str) -> None:
    """A text that is hard to parse is shown before the test's patience ends, and none of it is lost."""
    page = open_page("", at=sources.address)
    told = page.evaluate(
        """async (text) => {
            const { rendered } = await import('./markdown.js');
            const box = document.createElement('div');
            box.append(...rendered(text, 3, 9));
            return [box.textContent.length, box.querySelectorAll('mark').length];
        }""",
        HARD[kind],
    )
    assert told[0] > 0
