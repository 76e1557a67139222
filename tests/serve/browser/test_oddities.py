"""Collections that few have: an empty one, numbers that JavaScript cannot hold, ids of dots, titles without end."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import Browser, expect
from site_served import Server

from retriever import Retriever

GREAT = 2**53 + 1
TITLE = "The history of everything, chapter by chapter. " * 64
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
NUMBERS = {"serial": GREAT, "near": -(2**53) + 1, "part": 0.5}
ODD = [
    {"id": ".", "text": "Dust lies on the shelves of the archive."},
    {"id": "..", "text": "Rain falls on the roof of the station."},
    {"id": "great", "text": "A number of sixteen digits.", "metadata": NUMBERS},
    {"id": "long", "title": TITLE, "text": "Everything happened once."},
]


@pytest.fixture(scope="module")
def odd(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The collections odd, which is the default, and empty."""
    root: Path = tmp_path_factory.mktemp("oddities")
    Retriever.build(ODD, root / "odd", transform="none", precision="fp32").close()
    empty = Retriever.build(ODD[:1], root / "empty", transform="none", precision="fp32")
    empty.delete(["."])
    empty.close()
    server = Server([root / "odd", root / "empty"])
    server.start()
    yield server
    server.stop()


def test_numbers_that_lose_digits_are_no_filters(open_page, odd: Server):
    page = open_page("?q=number+of+sixteen+digits&k=5", at=odd.address)
    foot = page.locator(".hit", has_text="sixteen digits").locator(".foot")
    expect(foot).to_contain_text("serial")
    expect(foot).to_contain_text("≈")
    expect(foot.get_by_role("button", name="serial")).to_have_count(0)
    expect(foot.get_by_role("button", name="part")).to_have_count(1)
    page.locator("#filter-button").click()
    expect(page.locator("#filter-panel legend", has_text="near")).to_be_visible()
    expect(page.locator("#filter-panel").get_by_role("button", name="serial")).to_have_count(0)
    foot.get_by_role("button", name="near").click()
    expect(page.locator("#active")).to_contain_text(f"near = {-(2**53) + 1}")
    expect(page.locator(".hit")).to_have_count(1)
    page.get_by_label("Remove the filter").click()
    page.locator("#filter-text").fill(f"serial = {GREAT}")  # by hand it works
    page.keyboard.press("Enter")
    expect(page.locator(".hit")).to_have_count(1)


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_search_in_an_empty_collection(open_page, odd: Server, mode: str):
    page = open_page(f"?q=rain&collection=empty&mode={mode}", at=odd.address)
    expect(page.locator("#view-search")).to_contain_text("This collection is empty. Add documents with retriever add")
    expect(page.locator("#view-search")).not_to_contain_text("filters")
    page.locator("#query").fill("")
    expect(page.locator("#view-search")).to_contain_text("Search in your own words")
    expect(page.locator("#view-search")).to_contain_text("This collection is empty.")


@pytest.mark.parametrize("view", ["compare", "space"])
def test_other_views_of_an_empty_collection(open_page, odd: Server, view: str):
    page = open_page(f"?q=rain&collection=empty&view={view}", at=odd.address)
    shown = page.locator(f"#view-{view}")
    expect(shown).to_contain_text("This collection is empty. Add documents with retriever add", timeout=120_000)
    expect(shown).not_to_contain_text("Both rankings are the same")
    page.locator("#collection").select_option("odd")
    expect(shown.locator("a.open", has_text="great")).not_to_have_count(0, timeout=120_000)
    expect(shown).not_to_contain_text("This collection is empty")


def test_compare_where_nothing_fits(open_page, odd: Server):
    page = open_page("?q=rain&view=compare&where=part+%3E+1", at=odd.address)
    expect(page.locator("#view-compare")).to_contain_text("No document matches the filters.")
    expect(page.locator("#view-compare .board")).to_be_hidden()


@pytest.mark.parametrize("name", [".", ".."])
def test_a_document_whose_id_is_dots(open_page, odd: Server, name: str):
    page = open_page("?q=dust+and+rain", at=odd.address)
    page.get_by_role("link", name=name, exact=True).click()
    expect(page.locator("#document .text")).to_contain_text(f"cannot request the document with the id {name},")
    page.get_by_role("dialog").get_by_role("link", name="Documents similar to").click()
    expect(page.locator("#view-similar .summary")).to_contain_text(f"3 documents most similar to {name}")
    expect(page.locator("#problem")).to_be_empty()


def test_a_title_without_end(open_page, odd: Server):
    page = open_page("?q=everything+happened&doc=long", at=odd.address, **PHONE)
    title = page.locator("#document-title")
    expect(title).to_have_text(TITLE.strip())
    text = page.locator("#document .text")
    expect(text).to_contain_text("Everything happened once.")
    assert text.evaluate("text => text.getBoundingClientRect().bottom") < 844
    page.get_by_role("button", name="Full title").click()
    assert title.evaluate("title => title.scrollHeight <= title.clientHeight + 1")
    page.get_by_label("Close the document").click()
    assert page.locator(".hit", has_text="Everything happened once.").evaluate("hit => hit.offsetHeight") < 844
    page.goto(f"{odd.address}/?doc=great")
    expect(page.locator("#document .text")).to_contain_text("sixteen")
    expect(page.get_by_role("button", name="Full title")).to_be_hidden()
