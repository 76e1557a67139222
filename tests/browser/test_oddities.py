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
ODD = [
    {"id": ".", "text": "Dust lies on the shelves of the archive."},
    {"id": "..", "text": "Rain falls on the roof of the station."},
    {
        "id": "great",
        "text": "A number of sixteen digits.",
        "metadata": {"serial": GREAT, "near": -(2**53) + 1, "part": 0.5},
    },
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
    expect(foot.get_by_role("button", name="serial")).to_have_count(0)
    expect(foot.get_by_role("button", name="part")).to_have_count(1)
    page.locator("#filter-button").click()
    serials = page.locator("#filter-panel fieldset", has=page.locator("legend", has_text="serial"))
    expect(serials).to_contain_text("≈")
    expect(serials.get_by_role("button")).to_have_count(0)
    foot.get_by_role("button", name="near").click()
    expect(page.locator("#active")).to_contain_text(f"near = {-(2**53) + 1}")
    expect(page.locator(".hit")).to_have_count(1)
    page.get_by_label("Remove the filter").click()
    page.locator("#filter-text").fill(f"serial = {GREAT}")  # by hand it works
    page.keyboard.press("Enter")
    expect(page.locator(".hit")).to_have_count(1)
